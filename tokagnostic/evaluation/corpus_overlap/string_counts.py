"""Sorted runs of a corpus to its counts, for all keys or for a part of them; parts add up to the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokagnostic.errors import InvalidValueError
from tokagnostic.evaluation.corpus_overlap.sorted_runs import SortedRun, max_runs, merge_runs
from tokagnostic.evaluation.corpus_overlap.window_records import tally
from tokagnostic.evaluation.corpus_overlap.work_folder import WorkFolder
from tokagnostic.evaluation.overlap.counts import ANY_ORDER, MATRIX, UNIQUE, WEIGHTED, WINDOWS
from tokagnostic.evaluation.overlap.shares import Shares


@dataclass(eq=False)
class StringCounts:
    """What was counted over the distinct byte strings of a corpus, or over those of a part of the key space."""

    totals: np.ndarray
    """int64 [2, N, 2 + N]: unique and weighted, target order; windows, found in any order, found in order 1..N."""
    num_strings: int = 0
    key_collisions: int = 0

    @classmethod
    def none(cls, max_order: int) -> StringCounts:
        """The counts of no string."""
        return cls(np.zeros((2, max_order, MATRIX + max_order), dtype=np.int64))

    def merge(self, other: StringCounts) -> StringCounts:
        """The counts of two parts that share no key."""
        return StringCounts(
            self.totals + other.totals,
            self.num_strings + other.num_strings,
            self.key_collisions + other.key_collisions,
        )

    def shares(self) -> tuple[Shares, Shares]:
        """Unique and weighted shares in percent."""
        return _shares(self.totals[UNIQUE]), _shares(self.totals[WEIGHTED])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, from which `from_dict` makes equal counts."""
        return {
            "totals": self.totals.tolist(),
            "num_strings": self.num_strings,
            "key_collisions": self.key_collisions,
        }

    @classmethod
    def from_dict(cls, values: Any, max_order: int) -> StringCounts:
        """Counts from what `to_dict` gave.

        Raises:
            InvalidValueError: if the values are not those of counts of orders 1..N.
        """
        try:
            totals = np.array(values["totals"], dtype=np.int64).reshape(2, max_order, MATRIX + max_order)
            return cls(totals, int(values["num_strings"]), int(values["key_collisions"]))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidValueError(
                f"values that are no counts of a corpus ({error!r})",
                expected="what StringCounts.to_dict gave",
                remedy="Merge these runs again",
            ) from error


def count_runs(
    work: WorkFolder, max_order: int, capacity: int, *, progress: Callable[[int], object] | None = None
) -> StringCounts:
    """Merge the runs of a work folder and count. Where they are too many to merge at once, they become fewer first.

    Args:
        work: a folder; its runs may be replaced by merged ones.
        max_order: N.
        capacity: records that may be held.
        progress: told the records that were merged since it was last told.
    """
    while len(work.runs) > max_runs(capacity):
        shortest = sorted(work.runs, key=len)[: max_runs(capacity)]
        merged = work.write_run(merge_runs(shortest, capacity))
        work.runs = [*(run for run in work.runs if run not in shortest), merged]
        work.save()
    return count_stretches(work.runs, max_order, capacity, progress=progress)


def count_stretches(
    runs: Sequence[SortedRun], max_order: int, capacity: int, *, progress: Callable[[int], object] | None = None
) -> StringCounts:
    """Count the records of at most `max_runs(capacity)` runs, or of one stretch of the key space in each."""
    counts = StringCounts.none(max_order)
    for records in merge_runs(runs, capacity, progress=progress):
        num_strings, key_collisions = tally(records, counts.totals)
        counts.num_strings += num_strings
        counts.key_collisions += key_collisions
    return counts


def _shares(totals: np.ndarray) -> Shares:
    """Shares of int64 [N, 2 + N], and of all orders together."""
    windows = totals[:, WINDOWS]
    shares = np.full((len(totals), totals.shape[1] - 1), np.nan)
    np.divide(100.0 * totals[:, ANY_ORDER:], windows[:, None], out=shares, where=windows[:, None] > 0)
    found = int(totals[:, ANY_ORDER].sum())
    all_orders = 100.0 * found / int(windows.sum()) if windows.any() else float("nan")
    return Shares(windows, shares[:, 0], shares[:, 1:], all_orders)
