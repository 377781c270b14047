"""The law of cost in docs/scaling.md: seconds of a lookup, its gradient and the table's step, against rows, lookups and width.

Run with the environment of the project: .venv/bin/python scripts/06_cost_of_a_table.py. Each line is the least of some
rounds taken in turn, on two threads; what counts are ratios within a group.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from tokagnostic.bench.measuring import best_seconds
from tokagnostic.memory.stores import lookup
from tokagnostic.training.table_optimizers import make_table_optimizer

GROUPS = {
    "rows": [(num_rows, 32, 65_536) for num_rows in (2**16, 2**18, 2**20, 2**22, 2**24)],
    "lookups": [(2**20, 32, num_lookups) for num_lookups in (16_384, 65_536, 262_144)],
    "width": [(2**20, dim, 65_536) for dim in (8, 32, 128)],
}
REPEATS = 40


def update(num_rows: int, dim: int, num_lookups: int) -> Callable[[], object]:
    """A function that looks rows up, sends a gradient back and makes the step: what a table adds to a training step."""
    table = torch.nn.Parameter(torch.zeros(num_rows, dim))
    optimizer = make_table_optimizer("rowwise_rmsprop", [table], lr=1e-3)
    random = np.random.default_rng(0)

    def run() -> None:
        rows = torch.from_numpy(random.integers(0, num_rows, num_lookups))
        lookup(table, rows).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def bytes_moved(dim: int, num_lookups: int) -> int:
    """What has to move if every lookup is of another row: see docs/scaling.md."""
    return num_lookups * (8 + 24 * dim + 2 * 8)


def main() -> None:
    """Print the tables of the page."""
    torch.set_num_threads(2)
    for group, cases in GROUPS.items():
        seconds = best_seconds(*(update(*case) for case in cases), repeats=REPEATS)
        print(f"\n| {group}: rows x dim, lookups | ms | of the first | MB | of the first |\n|---|---|---|---|---|")
        moved = [bytes_moved(dim, num_lookups) for _, dim, num_lookups in cases]
        for (num_rows, dim, num_lookups), taken, size in zip(cases, seconds, moved, strict=True):
            ratios = f"{taken / seconds[0]:.2f} | {size / 1e6:.1f} | {size / moved[0]:.2f}"
            print(f"| {num_rows:,} x {dim}, {num_lookups:,} | {1e3 * taken:.2f} | {ratios} |")


if __name__ == "__main__":
    main()
