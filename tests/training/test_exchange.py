"""Several processes with a copy of the table each, against one process with the batches of all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args

import pytest
import ranks
import scenarios
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import call_together, run_together
from setups import FIT, MEMORY, TABLE
from torch import Tensor, nn

from tokagnostic.memory.stores import lookup
from tokagnostic.memory.visits import Visits
from tokagnostic.training.config import TablePlacement
from tokagnostic.training.exchange import exchange_gradients

SETTINGS = {
    "plain": {},
    "accumulated": {"accumulation": 3},
    "clipped with the table": {"clip_norm": 1e-3, "clip_table": True},
    "lazy Adam": {"table_optimizer": "lazy_adam"},
    "a rank without a window": {"silent": (2, 3)},
    "no window anywhere": {"silent": (0, 1, 2, 3)},
}


@settings(deadline=None, max_examples=50)
@given(reads=st.lists(st.lists(st.integers(0, 6), max_size=9), min_size=1, max_size=3), seed=st.integers(0, 2**31 - 1))
def test_alone_a_process_keeps_its_gradient_and_its_visits(reads: list[list[int]], seed: int) -> None:
    """Whatever was looked up, by however many passes: packed, sent and unpacked it is what it was."""
    with one_process():
        table, visits = nn.Parameter(torch.zeros(7, 3)), Visits(7)
        visits.take_recent()
        random = torch.Generator().manual_seed(seed)
        for rows in map(torch.tensor, reads):
            visits.count(rows.long())
            lookup(table, rows.long()).backward(torch.randn(len(rows), 3, generator=random))
        dense, counts = table.grad.to_dense(), visits.counts.clone()
        exchange_gradients([(table, visits)])
    torch.testing.assert_close(table.grad.to_dense(), dense)
    assert set(table.grad._indices()[0].tolist()) == {row for rows in reads for row in rows}
    assert torch.equal(visits.counts, counts)
    assert visits.take_recent().tolist() == []


@contextmanager
def one_process() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("placement", get_args(TablePlacement))
@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS)
def test_two_processes_equal_one_with_the_batches_of_both(
    tokenizer_file: Path, tmp_path: Path, changes: dict[str, Any], placement: str
) -> None:
    """Keys and visits to the last bit; the losses within 1e-6; what was not looked up does not move."""
    both = call_together("updates", 2, tmp_path, tokenizer=str(tokenizer_file), table_placement=placement, **changes)
    one = scenarios.updates(str(tokenizer_file), **changes)
    first, second = both
    if placement == "sharded":
        for name in ("after." + TABLE, "after.visits.0"):
            assert torch.equal(second.pop(name), first[name][1::2])
    assert all(torch.equal(second[name], first[name]) for name in second if name != "keys")
    assert torch.equal(torch.cat([first["keys"], second["keys"]]), one["keys"])
    assert torch.equal(first["after.visits.0"], one["after.visits.0"])
    torch.testing.assert_close(first["losses"], one["losses"], rtol=0, atol=1e-6)
    before, after = first["before." + TABLE], first["after." + TABLE]
    torch.testing.assert_close(after, one["after." + TABLE], rtol=0, atol=1e-4)
    untouched = one["after.visits.0"] == 0
    assert untouched.any() and torch.equal(after[untouched], before[untouched])
    assert torch.equal(after, before) == (len(changes.get("silent", ())) == 4)


def assert_same_everywhere(found: list[dict[str, Tensor]]) -> None:
    """All processes have the same parameters and visits, bit for bit."""
    for name in found[0]:
        if name.startswith("after."):
            assert all(torch.equal(one[name], found[0][name]) for one in found), name


@pytest.mark.slow
def test_a_step_without_the_memory_stops_no_process(tokenizer_file: Path, tmp_path: Path) -> None:
    """M-06: on, off, on, where all positions of the second process are masked; nothing is visited in between."""
    shared = {"tokenizer": str(tokenizer_file), "silent": (2, 3)}
    with_a_gap = call_together("updates", 2, tmp_path / "gap", off=(1,), num_steps=3, **shared)
    assert_same_everywhere(with_a_gap)
    first = scenarios.updates(num_steps=1, **shared)["after.visits.0"]
    last = scenarios.updates(num_steps=3, off=(1,), **shared)["after.visits.0"]
    assert torch.equal(with_a_gap[0]["after.visits.0"], last) and bool((last > first).any())


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [True, False])
def test_a_host_in_shards_equals_a_whole_one_with_the_table_left_out(
    tokenizer_file: Path, tmp_path: Path, frozen: bool
) -> None:
    """M-05: in each process the table is whole, and a frozen one has no gradient."""
    both = call_together("shards", 2, tmp_path, tokenizer=str(tokenizer_file), frozen=frozen)
    one = scenarios.shards(str(tokenizer_file), frozen)
    assert_same_everywhere(both)
    torch.testing.assert_close(both[0]["losses"], one["losses"], rtol=0, atol=1e-6)
    torch.testing.assert_close(both[0]["after." + TABLE], one["after." + TABLE], rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("placement", get_args(TablePlacement))
def test_what_crosses_the_network_is_what_the_formula_says(
    tokenizer_file: Path, tmp_path: Path, placement: str
) -> None:
    """To the byte, with 8 more per other process for the numbers of rows; U as distinct rows of a step."""
    both = call_together("traffic", 2, tmp_path, tokenizer=str(tokenizer_file), table_placement=placement)
    heads, width = MEMORY.addresser(), 4 * MEMORY.dim
    steps = [[heads(keys).unique() for keys in found["keys"].split(FIT.block_length, dim=1)] for found in both]
    expected = [0, 0]
    for wanted in zip(*steps, strict=True):
        wanted = [rows[rows >= 0] for rows in wanted]
        for rank in range(2):
            expected[rank] += 8
            if placement == "replicated":
                expected[rank] += max(map(len, wanted)) * (12 + width)
            else:
                asked = int((wanted[1 - rank] % 2 == rank).sum())
                answered = int((wanted[rank] % 2 != rank).sum())
                expected[rank] += asked * (16 + width) + answered * width
    assert [int(found["received"]) for found in both] == expected


@pytest.mark.slow
def test_processes_that_wait_for_ever_end_in_a_failure_and_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "LIMIT", 2)
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(4000)  # orphan'])"
    codes, errors = run_together([sys.executable, "-c", child], 2)
    assert codes == [-9, -9] and errors.count("killed after 2 s") == 2
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # ended in between
            assert b"time.sleep(4000)" not in path.read_bytes()


def test_the_table_of_the_documentation_is_what_its_formulas_give() -> None:
    text = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(encoding="utf-8")
    dim, num_processes, looked_up = 64, 64, 8_192 * 3 * 8
    num_rows = 10**11 // dim
    parts = {"rows": 4 * dim * num_rows, "state": 8 * num_rows, "visits": 8 * num_rows}
    for name, size in [*parts.items(), ("together", sum(parts.values()))]:
        assert f"| {name} | {size / 1e9:.3g} GB | {size / num_processes / 1e9:.3g} GB |" in text
    replicated = (num_processes - 1) * looked_up * (12 + 4 * dim)
    sharded = looked_up * (num_processes - 1) / num_processes * (16 + 8 * dim)
    for words in (f"U = {looked_up:,}", f"{replicated / 1e9:.2f} GB per update", f"{sharded / 1e6:.0f} MB per batch"):
        assert words in text
