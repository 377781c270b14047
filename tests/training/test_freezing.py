"""What was trained in one sitting and is frozen in the next, or the other way round, keeps the value that it had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from setups import FIT, TABLE, Setup, assert_equal, change, lines_of

from tokagnostic.errors import TrainingError
from tokagnostic.hashing import HashCache
from tokagnostic.host import attach
from tokagnostic.memory.file import load_memory, save_memory
from tokagnostic.training.checkpoint import load_newest
from tokagnostic.training.fit import fit
from tokagnostic.training.hosts import seeded

SETTINGS = change(FIT, num_steps=9, save_every=3, evaluate_every=3)


class Stop(Exception):
    """Raised from an evaluation in place of a kill."""


def sit(setup: Setup, folder: Path, until: int, **changes: Any) -> None:
    """Go on with a run up to a step, whose checkpoint is the last there is."""

    def stop() -> float:
        if lines_of(folder)[-1]["step"] > until:
            raise Stop
        return 1.0

    with pytest.raises(Stop):
        setup.fit(folder, change(SETTINGS, **changes), evaluate=stop, resume=True)


def freeze_host(setup: Setup) -> Setup:
    reader = {id(p) for _, p in setup.attachment.named_parameters()}
    for parameter in setup.model.parameters():
        parameter.requires_grad_(id(parameter) in reader)
    return setup


def freeze_table(setup: Setup) -> Setup:
    setup.memory.freeze()
    return setup


def host_of(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name.startswith(("model.", "lm_head."))}


def table_of(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name in (TABLE, "visits.0")}


def saved(folder: Path) -> dict[str, torch.Tensor]:
    """The newest checkpoint, parameters under their names in the host."""
    checkpoint = load_newest(folder / "checkpoints")
    assert checkpoint is not None
    return {name.removeprefix("model."): tensor for name, tensor in checkpoint.tensors.items()}


@pytest.mark.parametrize(
    ("freeze", "part", "state"),
    [(freeze_host, host_of, "optimizer.model."), (freeze_table, table_of, f"optimizer.{TABLE}.")],
    ids=["host", "table"],
)
class TestFrozenInTheMiddle:
    def test_a_part_keeps_what_it_was_worth_when_it_was_frozen(
        self, make_setup: Callable[..., Setup], tmp_path: Path, freeze: Any, part: Any, state: str
    ) -> None:
        first, second = make_setup(), freeze(make_setup())
        sit(first, tmp_path, until=3)
        at_stop = saved(tmp_path)
        assert part(first.tensors()).keys() == part(at_stop).keys() and len(part(at_stop)) >= 2
        sit(second, tmp_path, until=6)
        assert_equal(part(second.tensors()), part(at_stop))
        assert_equal(part(saved(tmp_path)), part(at_stop))
        frozen = {name for name in at_stop if name.startswith(state)}
        assert frozen and all(torch.equal(saved(tmp_path)[name], at_stop[name]) for name in frozen)
        assert not torch.equal(
            saved(tmp_path)["tokagnostic.reader.1.value.weight"], at_stop["tokagnostic.reader.1.value.weight"]
        )

    def test_and_goes_on_from_there_when_it_is_trained_again(
        self, make_setup: Callable[..., Setup], tmp_path: Path, freeze: Any, part: Any, state: str
    ) -> None:
        sit(make_setup(), tmp_path, until=3)
        at_stop = saved(tmp_path)
        sit(freeze(make_setup()), tmp_path, until=6)
        last, begun = make_setup(), {}
        last.fit(tmp_path, SETTINGS, evaluate=lambda: 1.0, resume=True, on_start=lambda: begun.update(last.tensors()))
        assert_equal(part(begun), part(at_stop))
        assert any(not torch.equal(part(last.tensors())[name], tensor) for name, tensor in part(at_stop).items())

    def test_one_that_was_frozen_first_is_trained_from_the_value_it_had(
        self, make_setup: Callable[..., Setup], tmp_path: Path, freeze: Any, part: Any, state: str
    ) -> None:
        first = freeze(make_setup())
        sit(first, tmp_path, until=3)
        assert not any(name.startswith(state) for name in saved(tmp_path))
        assert_equal(part(first.tensors()), part(make_setup().tensors()))
        last, begun = make_setup(), {}
        last.fit(tmp_path, SETTINGS, evaluate=lambda: 1.0, resume=True, on_start=lambda: begun.update(last.tensors()))
        assert_equal(part(begun), part(first.tensors()))
        assert any(not torch.equal(part(last.tensors())[name], tensor) for name, tensor in part(begun).items())

    @pytest.mark.parametrize("trained_later", [False, True], ids=["still frozen", "trained later"])
    def test_another_value_than_the_frozen_one_is_refused(
        self, make_setup: Callable[..., Setup], tmp_path: Path, freeze: Any, part: Any, state: str, trained_later: bool
    ) -> None:
        sit(freeze(make_setup()), tmp_path, until=3)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        other = make_setup() if trained_later else freeze(make_setup())
        name = next(name for name in part(other.tensors()) if not name.startswith("visits"))
        with torch.no_grad():
            dict(other.model.named_parameters())[name].mul_(1.5)
        with pytest.raises(TrainingError, match=f"{name} was frozen and has other values") as caught:
            other.fit(tmp_path, SETTINGS, resume=True)
        assert "\n" not in str(caught.value)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_table_trained_from_a_file_and_frozen_later_is_the_trained_one(
    make_setup: Callable[..., Setup], tmp_path: Path
) -> None:
    """Also where the later sitting maps the file: it is not what was trained, and the file is not written to."""
    file = tmp_path / "memory.safetensors"
    save_memory(make_setup().memory, file)
    before = file.read_bytes()

    def read(trainable: bool) -> Setup:
        setup = make_setup()
        setup.attachment.remove()
        cache = HashCache.build(setup.encoder.token_bytes)
        setup.memory = load_memory(file, cache, trainable=trainable, mapped=not trainable)
        with seeded(0):
            setup.attachment = attach(setup.model, cache, setup.memory)
        return setup

    sit(read(trainable=True), tmp_path / "run", until=3)
    at_stop = saved(tmp_path / "run")
    later = read(trainable=False)
    assert later.memory.is_as_in_file
    sit(later, tmp_path / "run", until=6)
    assert_equal(table_of(later.tensors()), table_of(at_stop))
    assert not later.memory.is_as_in_file
    assert file.read_bytes() == before


def test_parts_that_a_run_lacks_are_refused(make_setup: Callable[..., Setup], tmp_path: Path) -> None:
    sit(make_setup(), tmp_path, until=3)
    bare = make_setup()
    bare.attachment.remove()
    with pytest.raises(
        TrainingError, match=r"the checkpoint has model\.tokagnostic\..*, which the run lacks"
    ) as caught:
        fit(bare.model, bare.stream, SETTINGS, tmp_path, resume=True)
    assert "\n" not in str(caught.value)


def test_a_value_that_would_be_rounded_is_refused(make_setup: Callable[..., Setup], tmp_path: Path) -> None:
    sit(make_setup(), tmp_path, until=3)
    rounded = make_setup()
    for table in rounded.memory.parameters():
        table.data = table.data.bfloat16()
    with pytest.raises(TrainingError, match=r"in torch.float32; expected .* in torch.bfloat16"):
        rounded.fit(tmp_path, SETTINGS, resume=True)
