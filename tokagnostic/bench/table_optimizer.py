"""A table optimizer's step to its seconds, against the steps of torch and against moving the bytes that it must move."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from tokagnostic.bench.measuring import Row, bench_row, best_seconds

NUM_THREADS = 2


def measure_table_optimizer(
    num_rows: int = 2_260_000, dim: int = 80, num_lookups: int = 65_536, repeats: int = 15, dense_repeats: int = 4
) -> list[Row]:
    """Steps for lookups that are spread evenly over a table in fp32, so that hardly any row is met twice.

    The limit is memory: the gradient of each lookup is read, its row is read and written, so are the 8 bytes of its
    state. It is measured as the copy of half as many bytes, which are read and written again, in one piece.

    Args:
        num_rows: R. Table, dense gradient and a rival's state with intermediates take 24 bytes per number, 4.3 GB.
        dim: numbers per row.
        num_lookups: L.
        repeats: of our steps, of SparseAdam's, and of the copy.
        dense_repeats: of the steps over the whole table.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(NUM_THREADS)
    try:
        return _measure(num_rows, dim, num_lookups, repeats, dense_repeats)
    finally:
        torch.set_num_threads(before)


def _measure(num_rows: int, dim: int, num_lookups: int, repeats: int, dense_repeats: int) -> list[Row]:
    import torch

    from tokagnostic.training.table_optimizers import LazyAdam, RowwiseRMSProp

    random = np.random.default_rng(0)
    table = torch.nn.Parameter(torch.zeros(num_rows, dim))
    rows = torch.from_numpy(random.integers(0, num_rows, (1, num_lookups)))
    values = torch.from_numpy(random.standard_normal((num_lookups, dim), dtype=np.float32))
    sparse = torch.sparse_coo_tensor(rows, values, table.shape, check_invariants=False)
    dense = torch.zeros_like(table)
    num_bytes = num_lookups * (3 * values.element_size() * dim + 2 * 8 + rows.element_size())
    copied = num_bytes // 2 // values.element_size()
    places = itertools.cycle(range(0, max(1, table.numel() - copied), copied))

    def copy() -> None:
        # At another place each time: what was copied before may still lie in a cache.
        place = next(places)
        table.detach().view(-1)[place : place + copied].copy_(dense.view(-1)[place : place + copied])

    def stepper(optimizer: torch.optim.Optimizer, gradient: torch.Tensor) -> Callable[[], object]:
        def step() -> None:
            table.grad = gradient
            optimizer.step()

        return step

    adam: torch.optim.Optimizer
    # One rival at a time: each has a state as large as two tables.
    rowwise = RowwiseRMSProp([table], lr=1e-3)
    ours = stepper(rowwise, sparse)
    row, full = LazyAdam([table], lr=1e-3, moment="row"), LazyAdam([table], lr=1e-3)
    lazy_seconds = best_seconds(stepper(row, sparse), stepper(full, sparse), repeats=repeats)
    del row, full
    adam = torch.optim.SparseAdam([table], lr=1e-3)
    seconds, limit, sparse_seconds = best_seconds(ours, copy, stepper(adam, sparse), repeats=repeats)
    moving = f"the limit: moving {num_bytes / 1e6:.1f} MB, by a copy of half as much"
    name = f"row-wise step, {num_lookups:,} lookups in {num_rows:,} x {dim}"
    result = [_row(name, seconds, moving, limit), _row("the same", seconds, "SparseAdam of torch", sparse_seconds)]
    for fused, rival in ((False, "Adam of torch, dense"), (True, "the same, fused")):
        adam = torch.optim.Adam([table], lr=1e-3, fused=fused)
        seconds, dense_seconds = best_seconds(ours, stepper(adam, dense), repeats=dense_repeats)
        result.append(_row("the same", seconds, rival, dense_seconds))
    for kind, seconds in zip(("one moment per row", "all moments"), lazy_seconds, strict=True):
        result.append(_row(f"lazy Adam, {kind}", seconds, "SparseAdam of torch", sparse_seconds))
    state, adams = (sum(t.nbytes for t in rule.state[table].values()) / num_rows for rule in (rowwise, adam))
    return [*result, bench_row("state of a row", state, "B", "Adam of torch", adams, less_is_better=True)]


def _row(name: str, seconds: float, rival: str, rival_seconds: float) -> Row:
    return bench_row(name, seconds * 1e3, "ms", rival, rival_seconds * 1e3, less_is_better=True)
