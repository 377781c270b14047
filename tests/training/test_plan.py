"""What a run will take, before it takes it."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tokagnostic.errors import TrainingError
from tokagnostic.memory import JointConfig
from tokagnostic.training.allocations import Allocations
from tokagnostic.training.config import FitConfig, PretrainConfig
from tokagnostic.training.plan import MemoryPlan, choices_that_fit, refuse_beyond, table_parts
from tokagnostic.training.table_optimizers import make_table_optimizer

CONFIG = PretrainConfig(
    "bpe:300", "unused", memory=JointConfig(num_rows=101, num_heads=2, dim=4), fit=FitConfig(batch_size=8)
)


def test_allocations_are_counted_while_they_are_there() -> None:
    with Allocations() as allocations:
        numbers = torch.zeros(100)
        assert allocations.alive == 400
        view = numbers.view(10, 10)
        numbers += 1
        assert allocations.alive == 400
        other = view * 2
        assert allocations.alive == allocations.peak == 800
        del numbers, other
        assert (allocations.alive, allocations.peak) == (400, 800)
        del view
    assert (allocations.alive, allocations.peak) == (0, 800)


@pytest.mark.parametrize("rule", ["rowwise_rmsprop", "rowwise_adam", "lazy_adam"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_tables_take_what_they_take(rule: str, dtype: str) -> None:
    config = dataclasses.replace(CONFIG, fit=FitConfig(table_optimizer=rule, table_dtype=dtype))
    num_rows = sum(config.memory.addresser().num_rows)
    table = torch.nn.Parameter(torch.zeros(num_rows, 4, dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]))
    optimizer = make_table_optimizer(rule, [table], 1.0, seed=0)
    state = sum(tensor.nbytes for tensor in optimizer.state[table].values())
    assert list(table_parts(config).values()) == [table.nbytes, state, 8 * num_rows]


def test_a_plan_that_cannot_fit_names_what_would() -> None:
    parts = {**table_parts(CONFIG), "activations and what an update makes in passing": 8_000}
    plan = MemoryPlan("cpu", parts, 13_000)
    assert plan.total > 13_000
    with pytest.raises(TrainingError, match=r"num_rows of at most \d+; or table_dtype bf16; or batch_size"):
        refuse_beyond(plan, CONFIG)
    refuse_beyond(dataclasses.replace(plan, available=plan.total), CONFIG)


def test_fewer_rows_that_are_named_do_fit() -> None:
    for available in range(3_000, 8_000, 500):
        plan = MemoryPlan("cpu", {**table_parts(CONFIG), "else": 2_000}, available)
        choice = next((c for c in choices_that_fit(plan, CONFIG) if c.startswith("num_rows")), None)
        if plan.total > available and choice is not None:
            rows = int(choice.split()[-1].replace(",", ""))
            smaller = dataclasses.replace(CONFIG, memory=dataclasses.replace(CONFIG.memory, num_rows=max(2, rows - 20)))
            assert sum(table_parts(smaller).values()) + 2_000 <= available


# VmHWM, for what getrusage tells of a process begins with what its parent held when it was born
MEASURED = """
import sys
from pathlib import Path
from tokagnostic.cli import main
sys.argv = ["tokagnostic", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code
status = Path("/proc/self/status").read_text().splitlines()
print(1024 * int(next(line for line in status if line.startswith("VmHWM")).split()[1]), file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process holds at most")
@pytest.mark.parametrize(
    ("rows", "rule"), [("65536", "rowwise_rmsprop"), ("524288", "rowwise_rmsprop"), ("262144", "lazy_adam")]
)
def test_a_plan_is_within_a_tenth_of_what_is_measured(tmp_path: Path, rows: str, rule: str) -> None:
    """M-01, M-07: also where states are larger than the table."""
    settings = f"--tokenizer bpe:2048 --host.width 192 --memory.num-rows {rows} --fit.batch-size 8 --fit.num-steps 4"
    settings += f" --fit.table-optimizer {rule}"
    arguments = [sys.executable, "-c", MEASURED, "pretrain", *settings.split(), "--output", str(tmp_path / "run")]
    planned = subprocess.run([*arguments, "--plan", "--json"], capture_output=True, text=True, check=True)
    assert not (tmp_path / "run").exists()
    measured = subprocess.run(arguments, capture_output=True, text=True, check=True)
    found = int(measured.stderr.splitlines()[-1])
    assert abs(json.loads(planned.stdout)["total"] / found - 1) < 0.1
