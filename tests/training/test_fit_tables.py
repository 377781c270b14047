"""The training loop with every rule and precision of a table, and with a norm that counts it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from setups import FIT, TABLE, Setup, assert_equal, change

from tokagnostic.training.config import PretrainConfig
from tokagnostic.training.pretrain import pretrain
from tokagnostic.training.table_optimizers import RowwiseRMSProp

every_rule = pytest.mark.parametrize("rule", ["rowwise_rmsprop", "rowwise_adam", "lazy_adam"])
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


class Stop(Exception):
    """Raised from an evaluation in place of a kill."""


@every_rule
@every_dtype
def test_a_resumed_run_is_bit_equal(make_setup: Callable[..., Setup], tmp_path: Path, rule: Any, dtype: Any) -> None:
    """M-22: also where updates are rounded by chance."""

    def make() -> Setup:
        setup = make_setup()
        (table,) = setup.memory.store.tables
        table.data = table.data.to(dtype)
        return setup

    def stop() -> float:
        raise Stop

    settings = change(FIT, num_steps=6, save_every=2, evaluate_every=3, table_optimizer=rule)
    steady, parted, last = make(), make(), make()
    steady.fit(tmp_path / "steady", settings, evaluate=lambda: 1.0)
    with pytest.raises(Stop):
        parted.fit(tmp_path / "parted", settings, evaluate=stop)
    last.fit(tmp_path / "parted", settings, evaluate=lambda: 1.0, resume=True)
    assert_equal(steady.tensors(), last.tensors())
    assert last.tensors()[TABLE].dtype == dtype
    assert not torch.equal(last.tensors()[TABLE], make().tensors()[TABLE])


@pytest.mark.parametrize("clip_table", [True, False])
def test_the_norm_counts_the_table_where_it_is_asked_to(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clip_table: bool
) -> None:
    """What the optimizers are given is together as long as asked; without the table, the host and reader are."""
    squares: dict[str, list[float]] = {"dense": [], "table": []}

    def spy(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def count(optimizer: torch.optim.Optimizer, *arguments: Any) -> Any:
            found = [
                p.grad.to_dense() for group in optimizer.param_groups for p in group["params"] if p.grad is not None
            ]
            squares[name].append(sum(float((gradient**2).sum()) for gradient in found))
            return step(optimizer, *arguments)

        return count

    torch.nn.init.ones_(setup.attachment.reader["1"].value.weight)
    monkeypatch.setattr(torch.optim.AdamW, "step", spy("dense", torch.optim.AdamW.step))
    monkeypatch.setattr(RowwiseRMSProp, "step", spy("table", RowwiseRMSProp.step))
    setup.fit(tmp_path, change(FIT, num_steps=3, accumulation=2, clip_norm=1e-3, clip_table=clip_table))
    for dense, table in zip(squares["dense"], squares["table"], strict=True):
        assert table > 0
        assert math.sqrt(dense + clip_table * table) == pytest.approx(1e-3, rel=2e-3)


def test_a_table_is_trained_and_saved_in_numbers_that_bf16_holds(config: PretrainConfig) -> None:
    tables = []
    for dtype in ("bf16", "fp32"):
        folder = Path(config.output) / dtype
        pretrain(change(config, output=str(folder), fit=change(config.fit, table_dtype=dtype)))
        saved = load_file(folder / "attachment" / "memory.safetensors").values()
        tables += [tensor for tensor in saved if tensor.is_floating_point()]
    half, whole = tables
    assert torch.equal(half, half.bfloat16().to(half.dtype))
    assert not torch.equal(whole, whole.bfloat16().to(whole.dtype))
    # A number of this table is a few hundredths, and moves by up to the rate in each of a few steps.
    torch.testing.assert_close(half, whole, rtol=0, atol=0.1)
