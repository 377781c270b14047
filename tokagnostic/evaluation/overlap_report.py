"""What was counted about two tokenizers, as shares in percent: to JSON values and to a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tokagnostic.corpus import Document
from tokagnostic.evaluation.windows import WindowBatch

NUM_NAMED_SOURCES = 5


@dataclass(frozen=True, eq=False)
class Shares:
    """Percent of the target's windows, per order, that are among the reference's; NaN where there is no window."""

    num_windows: np.ndarray
    """The target's windows, int64 [N]."""
    any_order: np.ndarray
    """Found among the reference's windows of any order 1..N, float64 [N]."""
    matrix: np.ndarray
    """Found among those of each order, float64 [N, N]: row = target order, column = reference order."""

    @property
    def same_order(self) -> np.ndarray:
        """Found among those of the same order, float64 [N]."""
        return self.matrix.diagonal()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; null where there is no window."""
        return {
            "num_windows": self.num_windows.tolist(),
            "any_order": [_json_number(share) for share in self.any_order.tolist()],
            "same_order": [_json_number(share) for share in self.same_order.tolist()],
            "matrix": [[_json_number(share) for share in row] for row in self.matrix.tolist()],
        }


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

    def add(self, documents: Sequence[Document], batch: WindowBatch, text: bytes, ends: np.ndarray) -> None:
        """Account for a batch: its documents, and the bytes that their tokens stand for."""
        self.num_tokens += len(batch.input_ids)
        self.num_bytes += len(text)
        borders = ends[batch.bounds].tolist()
        for document, begin, end in zip(documents, borders[:-1], borders[1:], strict=True):
            if text[begin:end] != document.data:
                self.lossy_documents += 1
                if len(self.lossy_sources) < NUM_NAMED_SOURCES:
                    self.lossy_sources.append(document.source)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class Overlap:
    """Byte-equivalent n-gram overlap of a target tokenizer with a reference, which is not symmetric.

    `unique` counts each byte string once per document and target order, `weighted` every occurrence. Both are pooled:
    hits summed over documents, divided by windows summed over documents.
    """

    target: SideReport
    reference: SideReport
    max_order: int
    num_documents: int
    num_bytes: int
    """Of the source text."""
    unique: Shares
    weighted: Shares
    mean_unique: Shares
    """The mean over documents of each document's own share; those without a window of an order are left out of it."""
    mean_weighted: Shares
    key_collisions: int
    """Distinct windows whose key an earlier one of the same document had; they are told apart by their bytes."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, shares in percent."""
        return {
            "target": self.target.name,
            "reference": self.reference.name,
            "orders": list(range(1, self.max_order + 1)),
            "num_documents": self.num_documents,
            "num_bytes": self.num_bytes,
            "prefix": "strip",
            "unique": self.unique.to_dict(),
            "weighted": self.weighted.to_dict(),
            "mean_over_documents": {"unique": self.mean_unique.to_dict(), "weighted": self.mean_weighted.to_dict()},
            "key_collisions": self.key_collisions,
            "tokenizers": {"target": self.target.to_dict(), "reference": self.reference.to_dict()},
        }

    def to_text(self) -> str:
        """A table of the shares per target order, and a line for whatever makes them doubtful."""
        heads = ("unique any", "unique same", "weighted any", "weighted same")
        lines = [
            f"n-grams of {self.target.name} that {self.reference.name} makes too in the same document, percent "
            f"({self.num_documents:,} documents, {self.num_bytes:,} bytes)",
            f"{'order':>5} {'windows':>12} " + " ".join(f"{head:>13}" for head in heads),
        ]
        for n in range(self.max_order):
            shares = [
                share[n]
                for counted in (self.unique, self.weighted)
                for share in (counted.any_order, counted.same_order)
            ]
            cells = " ".join(f"{_cell(share):>13}" for share in shares)
            lines.append(f"{n + 1:>5} {self.unique.num_windows[n]:>12,} {cells}")
        lines.append("windows and unique: distinct n-grams of each document; weighted: every occurrence.")
        lines.append("any: found among the reference's n-grams of any order; same: among those of the same order.")
        for side in (self.target, self.reference):
            if side.lossy_documents:
                lines.append(
                    f"{side.name}: the tokens of {side.lossy_documents:,} documents do not join back to their source, "
                    f"first {side.lossy_sources[0]}"
                )
        if self.key_collisions:
            lines.append(f"{self.key_collisions} windows share a key with other bytes; they were told apart")
        return "\n".join(lines)


def _json_number(share: float) -> float | None:
    return None if math.isnan(share) else share


def _cell(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.1f}"
