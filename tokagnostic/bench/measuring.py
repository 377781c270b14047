"""Functions to their least seconds, and seconds to rows of a table.

Every number is the best of several repetitions, taken in turn with the rival's, so that a machine whose speed wanders
treats both alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tokagnostic.tokens import TokenBytes

Row = dict[str, Any]
"""One measurement: name, value, unit, rival, rival_value, ratio."""


def best_seconds(*functions: Callable[[], object], repeats: int = 7) -> list[float]:
    """The least time of each function over several rounds, after one that compiles and warms up."""
    best = [float("inf")] * len(functions)
    for repeat in range(repeats + 1):
        for i, function in enumerate(functions):
            begin = time.perf_counter()
            function()
            if repeat:
                best[i] = min(best[i], time.perf_counter() - begin)
    return best


def bench_row(
    name: str, value: float, unit: str, rival: str, rival_value: float, *, less_is_better: bool = False
) -> Row:
    """A measurement beside its rival's, with their ratio: above 1 where ours is better."""
    ratio = rival_value / value if less_is_better else value / rival_value
    return {"name": name, "value": value, "unit": unit, "rival": rival, "rival_value": rival_value, "ratio": ratio}


def bench_table(rows: Sequence[Row]) -> str:
    """Measurements as aligned lines."""
    width = max(len(row["name"]) for row in rows)
    lines = [f"{'measurement':<{width}}  {'ours':>10}  {'rival':>10}  {'unit':<7}  {'ratio':>7}  rival"]
    for row in rows:
        numbers = f"{row['value']:>10.4g}  {row['rival_value']:>10.4g}  {row['unit']:<7}  {row['ratio']:>7.2f}"
        lines.append(f"{row['name']:<{width}}  {numbers}  {row['rival']}")
    return "\n".join([*lines, "A ratio above 1 means that ours is better."])


def random_vocabulary(random: np.random.Generator, num_ids: int) -> TokenBytes:
    """Tokens of 1 to 12 random bytes."""
    lengths = random.integers(1, 13, num_ids)
    data = random.integers(0, 256, int(lengths.sum()), dtype=np.uint8)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    return TokenBytes(data, offsets, np.ones(num_ids, dtype=np.uint8))
