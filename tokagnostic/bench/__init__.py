"""Speeds, each as a ratio against a named rival that is measured in the same run.

A measurement is a function without required arguments that returns rows; one line in `MEASUREMENTS` makes it known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokagnostic.bench.cache import measure_cache
from tokagnostic.bench.hashing import measure_hashing
from tokagnostic.bench.host import measure_host
from tokagnostic.bench.measuring import Row, bench_table
from tokagnostic.bench.overlap import measure_overlap
from tokagnostic.bench.placement import measure_placement
from tokagnostic.bench.pretraining import measure_pretraining
from tokagnostic.bench.table_optimizer import measure_table_optimizer
from tokagnostic.bench.tokens import measure_tokens
from tokagnostic.bench.training_step import measure_step
from tokagnostic.errors import InvalidValueError

__all__ = ["MEASUREMENTS", "Row", "bench_table", "run_bench"]

MEASUREMENTS: dict[str, Callable[[], list[Row]]] = {
    "hashing": measure_hashing,
    "tokens": measure_tokens,
    "cache": measure_cache,
    "overlap": measure_overlap,
    "step": measure_step,
    "table": measure_table_optimizer,
    "pretraining": measure_pretraining,
    "placement": measure_placement,
    "host": measure_host,
}
"""All measurements, in the order in which they are made."""


def run_bench(names: Sequence[str] = ()) -> list[Row]:
    """Make measurements.

    Args:
        names: which; none means all.

    Returns:
        For each: name, value, unit, rival, rival_value and ratio, above 1 where we are better.

    Raises:
        InvalidValueError: for an unknown name.
    """
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        raise InvalidValueError(
            f"measurement {unknown[0]!r}", expected=f"one of {', '.join(MEASUREMENTS)}", remedy="Name one of these"
        )
    return [row for name in names or MEASUREMENTS for row in MEASUREMENTS[name]()]
