"""The parts of an overlap's result, shares in percent and the account of one tokenizer: to JSON values and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from tokagnostic.errors import InvalidValueError

NUM_NAMED_SOURCES = 5
LEVEL = 95
"""Of the intervals, in percent."""
MIN_DOCUMENTS = 2
"""With fewer documents that are not empty there is no spread to speak of, and so no interval."""

CAUSES = ("special", "normalisation", "prefix", "more_tokens", "cut_points")
"""Why the reference does not make a window, in the order in which they are tried; `overlap_causes` defines them."""
COUNTINGS = ("unique", "weighted")


@dataclass(frozen=True, eq=False)
class Shares:
    """Percent of the target's windows, per order, that are among the reference's; NaN where there is no window."""

    num_windows: np.ndarray
    """The target's windows, int64 [N]."""
    any_order: np.ndarray
    """Found among the reference's windows of any order 1..N, float64 [N]."""
    matrix: np.ndarray
    """Found among those of each order, float64 [N, N]: row = target order, column = reference order."""
    all_orders: float
    """Found in any order, of the target's windows of all orders together; NaN in a mean over documents."""

    @property
    def same_order(self) -> np.ndarray:
        """Found among those of the same order, float64 [N]."""
        return self.matrix.diagonal()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; null where there is no window."""
        return {
            "num_windows": self.num_windows.tolist(),
            "any_order": [json_number(share) for share in self.any_order.tolist()],
            "same_order": [json_number(share) for share in self.same_order.tolist()],
            "matrix": [[json_number(share) for share in row] for row in self.matrix.tolist()],
        }


@dataclass(frozen=True, eq=False)
class Intervals:
    """Percentile intervals of pooled shares by a bootstrap over documents."""

    resamples: int
    seed: int
    unique: np.ndarray
    """Lower and upper bound in percent of found in any order and in the same order, float64 [2, N, 2]; NaN for none."""
    weighted: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; null where there is no window."""
        bounds = {
            counting: {
                name: [[json_number(bound) for bound in pair] for pair in pairs]
                for name, pairs in zip(("any_order", "same_order"), getattr(self, counting).tolist(), strict=True)
            }
            for counting in COUNTINGS
        }
        return {"level": LEVEL, "resamples": self.resamples, "seed": self.seed, **bounds}


@dataclass
class SideReport:
    """What one tokenizer made of the text."""

    name: str
    fingerprint: str
    """Of its byte table."""
    num_tokens: int = 0
    num_bytes: int = 0
    """Bytes that its tokens stand for; other than the text's where the tokenizer invents or destroys."""
    lossy_documents: int = 0
    """Documents whose tokens do not join back to the source: its windows there are windows of another text."""
    lossy_sources: list[str] = field(default_factory=list)
    """The first few of these documents."""

    def fresh(self) -> SideReport:
        """The same tokenizer with nothing counted yet."""
        return SideReport(self.name, self.fingerprint)

    def add(self, num_tokens: int, num_bytes: int, lossy_sources: Sequence[str]) -> None:
        """Account for further documents.

        Args:
            num_tokens: ids they were encoded to.
            num_bytes: bytes that these ids stand for.
            lossy_sources: those of them whose ids do not join back.
        """
        self.num_tokens += num_tokens
        self.num_bytes += num_bytes
        self.lossy_documents += len(lossy_sources)
        self.lossy_sources = [*self.lossy_sources, *lossy_sources][:NUM_NAMED_SOURCES]

    def merge(self, other: SideReport) -> SideReport:
        """The same tokenizer's account of both parts of a text, `other` being the later one."""
        return SideReport(
            self.name,
            self.fingerprint,
            self.num_tokens + other.num_tokens,
            self.num_bytes + other.num_bytes,
            self.lossy_documents + other.lossy_documents,
            [*self.lossy_sources, *other.lossy_sources][:NUM_NAMED_SOURCES],
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**vars(self), "lossy_sources": list(self.lossy_sources)}

    @classmethod
    def from_dict(cls, values: Any) -> SideReport:
        """The account that `to_dict` gave.

        Raises:
            InvalidValueError: if it is none.
        """
        kinds = {entry.name: type(entry.default) for entry in fields(cls)[2:-1]}
        kinds |= {"name": str, "fingerprint": str, "lossy_sources": list}
        if (
            not isinstance(values, dict)
            or values.keys() != kinds.keys()
            or any(type(values[name]) is not kind for name, kind in kinds.items())
            or any(type(source) is not str for source in values["lossy_sources"])
        ):
            raise InvalidValueError(
                "values that are no account of a tokenizer",
                expected="what SideReport.to_dict gave",
                remedy="Count these documents again",
            )
        return cls(**values)


def json_number(share: float) -> float | None:
    """A share as JSON has it: null for NaN."""
    return None if math.isnan(share) else share
