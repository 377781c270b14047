"""A run that is stopped and resumed leaves no trace of it: not in a parameter, not in a line of its metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from setups import FIT, TABLE, Setup, assert_equal, change, lines_of, set_dropout

from tokagnostic.errors import TrainingError
from tokagnostic.training import checkpoint as checkpoint_module
from tokagnostic.training.packing import TokenStream


def without_speed(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    timed = ("tokens_per_second", "bytes_per_second", "seconds_left")
    return [{name: value for name, value in line.items() if name not in timed} for line in lines]


class Stop(Exception):
    """Raised from an evaluation in place of a kill."""


def stop_at(folder: Path, step: int, error: type[BaseException]) -> Callable[[], float]:
    def evaluate() -> float:
        if lines_of(folder)[-1]["step"] == step:
            raise error
        return 1.0

    return evaluate


class TestResume:
    SETTINGS = change(FIT, num_steps=12, evaluate_every=1, save_every=2, log_every=1)

    @pytest.mark.parametrize("dropout", [0.0, 0.3], ids=["without dropout", "with dropout"])
    def test_a_run_stopped_twice_is_bit_equal_to_one_that_was_not(
        self, make_setup: Callable[..., Setup], tmp_path: Path, dropout: float
    ) -> None:
        """M-22, D-09: parameters, table, optimizer states, visits, generator and losses; a second resume too."""

        def make() -> Setup:
            setup = make_setup()
            set_dropout(setup, dropout)
            return setup

        steady = make()
        steady.fit(tmp_path / "steady", self.SETTINGS, evaluate=lambda: 1.0)
        folder = tmp_path / "stopped"
        with pytest.raises(Stop):
            make().fit(folder, self.SETTINGS, evaluate=stop_at(folder, 5, Stop))
        with pytest.raises(KeyboardInterrupt):
            make().fit(folder, self.SETTINGS, evaluate=stop_at(folder, 9, KeyboardInterrupt), resume=True)
        last = make()
        result = last.fit(folder, self.SETTINGS, evaluate=lambda: 1.0, resume=True)
        assert_equal(steady.tensors(), last.tensors())
        states = [checkpoint_module.load_newest(tmp_path / name / "checkpoints") for name in ("steady", "stopped")]
        assert [state.step for state in states if state] == [12, 12]
        assert_equal(states[0].tensors, states[1].tensors)
        assert {name.rpartition(".")[2] for name in states[0].tensors} >= {"exp_avg", "moment", "count"}
        assert without_speed(lines_of(folder)) == without_speed(lines_of(tmp_path / "steady"))
        assert result.metrics == lines_of(folder) and result.num_tokens == 12 * 32

    def test_a_line_that_a_kill_has_torn_and_lines_after_the_checkpoint_are_written_anew(
        self, make_setup: Callable[..., Setup], tmp_path: Path
    ) -> None:
        with pytest.raises(Stop):
            make_setup().fit(tmp_path, self.SETTINGS, evaluate=stop_at(tmp_path, 5, Stop))
        with open(tmp_path / "metrics.jsonl", "a") as file:
            file.write('{"step": 5, "tok')
        make_setup().fit(tmp_path, self.SETTINGS, evaluate=lambda: 1.0, resume=True)
        assert [line["step"] for line in lines_of(tmp_path)] == [step for step in range(1, 13) for _ in range(2)]

    @pytest.mark.parametrize("frozen", [False, True], ids=["trained memory", "frozen memory"])
    def test_a_finished_run_is_not_trained_on(
        self, make_setup: Callable[..., Setup], tmp_path: Path, frozen: bool
    ) -> None:
        first = make_setup(frozen=frozen)
        metrics = first.fit(tmp_path, self.SETTINGS).metrics
        again = make_setup(frozen=frozen)
        result = again.fit(tmp_path, self.SETTINGS, resume=True)
        assert_equal(first.tensors(), again.tensors())
        assert result.metrics == metrics and (result.num_steps, result.tokens_per_second) == (12, 0)

    def test_a_frozen_table_is_not_copied_into_checkpoints(
        self, make_setup: Callable[..., Setup], tmp_path: Path
    ) -> None:
        make_setup(frozen=True, train_host=False).fit(tmp_path, self.SETTINGS)
        state = checkpoint_module.load_newest(tmp_path / "checkpoints")
        assert state is not None
        assert {name for name in state.tensors if name.startswith(("model.", "visits"))} == {
            f"model.tokagnostic.reader.1.{name}.weight" for name in ("key", "value", "key_norm", "query_norm")
        }

    def test_without_a_checkpoint_the_run_starts_from_the_beginning(
        self, make_setup: Callable[..., Setup], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        fresh, resumed = make_setup(), make_setup()
        fresh.fit(tmp_path / "fresh")
        with caplog.at_level(logging.WARNING):
            resumed.fit(tmp_path / "resumed", resume=True)
        assert_equal(fresh.tensors(), resumed.tensors())
        assert any("starting from the beginning" in record.getMessage() for record in caplog.records)

    def test_a_damaged_newest_checkpoint_costs_its_updates_and_nothing_else(
        self, make_setup: Callable[..., Setup], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        steady, resumed = make_setup(), make_setup()
        steady.fit(tmp_path, self.SETTINGS)
        path = tmp_path / "checkpoints" / "step-00000012"
        (path / "state.safetensors").write_bytes(b"damaged")
        with caplog.at_level(logging.INFO):
            resumed.fit(tmp_path, self.SETTINGS, resume=True)
        messages = [record.getMessage() for record in caplog.records]
        assert any(str(path) in message for message in messages) and "resuming after step 10" in messages
        assert_equal(steady.tensors(), resumed.tensors())

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"learning_rate": 0.5}, "fit.learning_rate"),
            ({"num_steps": 13}, "fit.num_steps"),
            ({"seed": 1}, "fit.seed"),
        ],
        ids=str,
    )
    def test_other_settings_are_refused_in_one_line(
        self, make_setup: Callable[..., Setup], tmp_path: Path, changes: dict[str, Any], named: str
    ) -> None:
        make_setup().fit(tmp_path, self.SETTINGS)
        with pytest.raises(TrainingError, match=rf"a checkpoint in .* has {named} = ") as caught:
            make_setup().fit(tmp_path, change(self.SETTINGS, **changes), resume=True)
        assert "\n" not in str(caught.value)

    def test_reporting_may_be_changed(self, make_setup: Callable[..., Setup], tmp_path: Path) -> None:
        make_setup().fit(tmp_path, self.SETTINGS)
        settings = change(self.SETTINGS, log_every=5, evaluate_every=0, save_every=1)
        assert make_setup().fit(tmp_path, settings, resume=True).num_steps == 12

    def test_another_text_is_refused(self, make_setup: Callable[..., Setup], tmp_path: Path) -> None:
        make_setup().fit(tmp_path, self.SETTINGS)
        other = make_setup()
        other.stream = TokenStream.from_ids([torch.arange(200).numpy()])
        with pytest.raises(TrainingError, match="has text = "):
            other.fit(tmp_path, self.SETTINGS, resume=True)

    def test_other_facts_are_refused(self, make_setup: Callable[..., Setup], tmp_path: Path) -> None:
        make_setup().fit(tmp_path, self.SETTINGS, facts={"memory": {"identity": "a"}})
        with pytest.raises(TrainingError, match=r'memory.identity = "a", but the run is resumed with "b"'):
            make_setup().fit(tmp_path, self.SETTINGS, facts={"memory": {"identity": "b"}}, resume=True)

    def test_a_memory_of_another_size_is_refused(self, make_setup: Callable[..., Setup], tmp_path: Path) -> None:
        make_setup().fit(tmp_path, self.SETTINGS)
        with pytest.raises(TrainingError, match=rf"the checkpoint has model.{TABLE} of shape"):
            make_setup(num_rows=101).fit(tmp_path, self.SETTINGS, resume=True)

    def test_checkpoints_of_another_run_are_never_overwritten(
        self, make_setup: Callable[..., Setup], tmp_path: Path
    ) -> None:
        make_setup().fit(tmp_path, self.SETTINGS)
        before = lines_of(tmp_path)
        with pytest.raises(TrainingError, match=r"holds the checkpoints of another run; .*--resume"):
            make_setup().fit(tmp_path, self.SETTINGS)
        assert lines_of(tmp_path) == before
