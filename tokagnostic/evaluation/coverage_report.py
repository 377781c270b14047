"""What a memory has seen of a text, as shares in percent: to JSON values and to a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

NUM_RANDOM_KEYS = 10_000
NOISE_SHARE = 0.01
"""Share of windows never seen that may read more visits than the noise floor."""
SATURATED_SHARE = 0.5
"""From this share of windows never seen that read as visited on, a table is called saturated."""
BAND_EDGES = (1, 2, 4, 16)
BANDS = ("0", "1", "2-3", "4-15", "16+")
"""Bands of visits, which begin at 0 and at the edges."""


@dataclass(frozen=True)
class Noise:
    """What windows that were never written read from a table of counts.

    The keys of such windows are uniform, so the answers of random keys are a fair sample of theirs, whatever the heavy
    rows of the table are; the mean count of a row, by contrast, is ruled by a few frequent windows and says little
    about the least of K counts.
    """

    num_rows: int
    rows_visited: int
    visits: int
    floor: int
    """The least count c that at most 1 % of random keys exceed. A window stands out of the noise above it."""
    visited: float
    """Percent of random keys that read as visited at all."""

    @property
    def saturated(self) -> bool:
        """Whether most windows that were never written read as visited, so that a low count says nothing."""
        return self.visited > 100 * SATURATED_SHARE

    @classmethod
    def measure(cls, counts: Sequence[Tensor], answers: np.ndarray) -> Noise:
        """Sum tables up.

        Args:
            counts: visits per row of each table, integer [R].
            answers: visits that random keys read, int64 [S].
        """
        return cls(
            num_rows=sum(len(table) for table in counts),
            rows_visited=sum(int((table > 0).sum()) for table in counts),
            visits=sum(int(table.sum()) for table in counts),
            floor=int(np.quantile(answers, 1 - NOISE_SHARE, method="inverted_cdf")),
            visited=100 * float(np.mean(answers > 0)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**vars(self), "saturated": self.saturated, "random_keys": NUM_RANDOM_KEYS}


@dataclass(frozen=True, eq=False)
class Covered:
    """Percent of a text's windows, per order; NaN where there is no window."""

    num_windows: np.ndarray
    """int64 [N]."""
    covered: np.ndarray
    """Windows whose visits exceed the noise floor, float64 [N]."""
    bands: dict[str, np.ndarray]
    """Windows by their visits, band name to float64 [N]; the bands sum to 100. Bands up to the floor are noise."""
    seen: np.ndarray | None
    """Windows that are in the exact key set, float64 [N]; None without a key set."""
    seen_not_covered: np.ndarray | None
    """Windows of the key set that the sketch does not call covered, percent of all windows, float64 [N]."""
    covered_not_seen: np.ndarray | None
    """Windows called covered that are not in the key set, percent of all windows, float64 [N]."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; null where there is no window."""
        values: dict[str, Any] = {
            "num_windows": self.num_windows.tolist(),
            "covered": _json_numbers(self.covered),
            "bands": {name: _json_numbers(shares) for name, shares in self.bands.items()},
        }
        if self.seen is not None and self.seen_not_covered is not None and self.covered_not_seen is not None:
            values["exact"] = {
                "seen": _json_numbers(self.seen),
                "seen_not_covered": _json_numbers(self.seen_not_covered),
                "covered_not_seen": _json_numbers(self.covered_not_seen),
            }
        return values


@dataclass(frozen=True, eq=False)
class Coverage:
    """How much of a text, as one tokenizer cuts it, a memory has been trained on.

    A window's visits are the least count over its rows in all tables: every training window wrote a row of each head
    of each table, so the least count is a count-min sketch that never says less than the truth.
    """

    tokenizer: str
    max_order: int
    trained_order: int
    """N of the memory."""
    num_documents: int
    noise: Noise
    """Of the sketch over all tables, by which windows are judged."""
    tables: tuple[Noise, ...]
    """Of each table alone, which is what one layer sees where layers have tables of their own."""
    unique: Covered
    """Each distinct window of the text once."""
    weighted: Covered
    """Each occurrence."""

    @property
    def saturated(self) -> bool:
        """Whether most windows that were never written read as visited."""
        return self.noise.saturated

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, shares in percent."""
        return {
            "tokenizer": self.tokenizer,
            "orders": list(range(1, self.max_order + 1)),
            "trained_order": self.trained_order,
            "num_documents": self.num_documents,
            "noise_floor": self.noise.floor,
            "saturated": self.saturated,
            "noise": self.noise.to_dict(),
            "tables": [table.to_dict() for table in self.tables],
            "unique": self.unique.to_dict(),
            "weighted": self.weighted.to_dict(),
        }

    def to_text(self) -> str:
        """The noise floor in words, then a table of the shares per order."""
        noise = self.noise
        lines = [
            f"Windows of {self.tokenizer} that the memory was trained on, percent ({self.num_documents:,} documents)",
            f"{noise.rows_visited:,} of {noise.num_rows:,} rows were written, {noise.visits:,} times in all. Of windows that "
            f"were never seen, {noise.visited:.1f} % read as visited; noise floor: {noise.floor:,} visits.",
        ]
        if self.saturated:
            lines.append(
                "SATURATED: the table is too small for what it was trained on. Most windows that it never saw read as "
                f"visited, and only those above {noise.floor:,} visits can be told from them."
            )
        exact = self.weighted.seen is not None
        heads = [
            "windows",
            "covered",
            "weighted",
            *(f"{name} visits" for name in BANDS),
            *(["truly seen"] if exact else []),
        ]
        lines.append(f"{'order':>5} " + " ".join(f"{head:>12}" for head in heads))
        for n in range(self.max_order):
            shares = [
                self.unique.covered[n],
                self.weighted.covered[n],
                *(band[n] for band in self.weighted.bands.values()),
            ]
            if self.weighted.seen is not None:
                shares.append(self.weighted.seen[n])
            cells = " ".join(f"{'-' if math.isnan(share) else f'{share:.1f}':>12}" for share in shares)
            lines.append(f"{n + 1:>5} {self.unique.num_windows[n]:>12,} {cells}")
        lines.append("`covered` is of distinct windows, the columns after it are weighted by occurrence.")
        return "\n".join(lines)


def _json_numbers(shares: np.ndarray) -> list[float | None]:
    return [None if math.isnan(share) else share for share in shares.tolist()]
