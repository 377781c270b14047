"""Rows that were read in training to a count per row: what a memory has seen, without the corpus."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from tokagnostic.errors import InvalidValueError

SATURATED = 2**32 - 1
"""Largest count that a memory file holds."""


class Visits:
    """How often each row of one table was written, counted per occurrence and once per forward pass.

    The least count over a window's K rows is a count-min sketch of how often the memory saw that window: it never says
    less than the truth (Cormode and Muthukrishnan 2005).

    Args:
        num_rows: R.
        saved: the counts of a memory file, uint32 [R]; read on first use, so that opening a file does not read them.
    """

    def __init__(self, num_rows: int, saved: Tensor | None = None) -> None:
        self._num_rows = num_rows
        self._saved = saved
        self._recent: list[Tensor] | None = None

    @cached_property
    def counts(self) -> Tensor:
        """Visits per row, int64 [R]."""
        if self._saved is None:
            return torch.zeros(self._num_rows, dtype=torch.int64)
        return self._saved.to(torch.int64)

    def __getstate__(self) -> dict[str, object]:
        # Not as they are in a file: torch does not read uint32 back from every kind of pickle.
        return {"_num_rows": self._num_rows, "_saved": None, "counts": self.counts, "_recent": None}

    def count(self, rows: Tensor) -> None:
        """Add one for every occurrence of a row; -1 counts for nothing.

        Args:
            rows: int64, any shape.
        """
        real = rows[rows >= 0]
        self.add(real, torch.ones_like(real))
        if self._recent is not None:
            self._recent.append(real)

    def add(self, rows: Tensor, times: Tensor) -> None:
        """Add to the counts of rows; a row may occur several times.

        Args:
            rows: int64 [L], none below 0.
            times: how often each was written, int64 [L].
        """
        if self.counts.device != rows.device:
            self.counts = self.counts.to(rows.device)
        self.counts.index_add_(0, rows, times)

    def take_recent(self, keep: bool = True) -> Tensor:
        """The occurrences counted since this was last called, int64 [L]; from the first call on they are kept.

        Args:
            keep: whether later ones are kept for another call.
        """
        recent, self._recent = self._recent, [] if keep else None
        return torch.cat(recent) if recent else torch.empty(0, dtype=torch.int64, device=self.counts.device)

    def saturated(self) -> Tensor:
        """The counts as a file holds them, uint32 [R]."""
        return self.counts.cpu().clamp(max=SATURATED).to(torch.uint32)

    def noise_floor(self) -> float:
        """What a window that was never seen is expected to read from one of its rows: the mean count of a row."""
        return float(self.counts.sum()) / len(self.counts)


def merged_visits(counts: Sequence[Tensor], base: Tensor | None = None) -> Tensor:
    """The visits of several trainings that started from one table: those of the start once, and what each has added.

    merged = base + sum of (counts - base) = sum of counts - (n - 1) * base, at most what a file holds.

    Args:
        counts: those of each training with those that it started from, int64 [R] each.
        base: those that all started from, int64 [R]; by default none.

    Raises:
        InvalidValueError: if a count is below that of the start.
    """
    total = sum(counts[1:], start=counts[0].clone())
    if base is not None:
        if any(bool((own < base).any()) for own in counts):
            raise InvalidValueError(
                "visits fewer than those of the base in some rows",
                expected="runs that started from the base, where each row has its visits or more",
                remedy="Name the memory that all runs started from as the base",
            )
        total -= (len(counts) - 1) * base
    return total.clamp_(max=SATURATED)


def window_visits(counts: Tensor, rows: Tensor) -> Tensor:
    """The sketch's answer for each window: its least count over the heads.

    Args:
        counts: visits per row, integer [R].
        rows: int64 [..., K]; -1 for no window.

    Returns:
        Visits, int64 [...]; 0 for no window.
    """
    answers = counts.to(torch.int64)[rows.clamp(min=0)].amin(dim=-1)
    return torch.where(rows[..., 0] >= 0, answers, 0)
