"""Overlaps to a CSV file: one share per line, of one pair, way of counting, target order and reference order."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tokagnostic.evaluation.overlap.report import Overlap
from tokagnostic.evaluation.overlap.shares import CAUSES, COUNTINGS
from tokagnostic.evaluation.overlap.square import OverlapSquare

COLUMNS = (
    "target",
    "reference",
    "counting",
    "target_order",
    "reference_order",
    "percent",
    "windows",
    "low",
    "high",
)


def write_csv(square: OverlapSquare, path: str | Path) -> None:
    """Write all shares of all pairs.

    `reference_order` is a number, or `any`, or `same`, or `missed:` and the cause. `percent`, `low` and `high` are empty
    where there is no window or no interval. Lines end in LF; the text is UTF-8.

    Args:
        square: the overlaps.
        path: the file; nothing half-written is left under its name.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for row in square.pairs:
                for pair in row:
                    writer.writerows(_lines(pair))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _lines(pair: Overlap) -> Iterator[tuple[str | int | float, ...]]:
    countings = zip(COUNTINGS, (pair.unique, pair.weighted), (pair.causes_unique, pair.causes_weighted), strict=True)
    for counting, shares, causes in countings:
        bounds = np.full((2, pair.max_order, 2), np.nan)
        if pair.intervals is not None:
            bounds = pair.intervals.unique if counting == "unique" else pair.intervals.weighted
        for n in range(pair.max_order):
            start = (pair.target.name, pair.reference.name, counting, n + 1)
            windows = int(shares.num_windows[n])
            yield (*start, "any", _cell(shares.any_order[n]), windows, *map(_cell, bounds[0, n]))
            yield (*start, "same", _cell(shares.same_order[n]), windows, *map(_cell, bounds[1, n]))
            for m in range(pair.max_order):
                yield (*start, m + 1, _cell(shares.matrix[n, m]), windows, "", "")
            for cause, share in zip(CAUSES, causes[:, n], strict=True):
                yield (*start, f"missed:{cause}", _cell(share), windows, "", "")


def _cell(number: float) -> str | float:
    return "" if np.isnan(number) else float(number)
