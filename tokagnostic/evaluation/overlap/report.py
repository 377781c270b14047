"""What was counted about two tokenizers, as shares in percent: to JSON values and to a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokagnostic.evaluation.overlap.shares import (
    CAUSES,
    COUNTINGS,
    LEVEL,
    MIN_DOCUMENTS,
    Intervals,
    Shares,
    SideReport,
    json_number,
)


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
    empty_documents: int
    """Documents of no bytes, which are counted as documents."""
    unique: Shares
    weighted: Shares
    mean_unique: Shares
    """The mean over documents of each document's own share; those without a window of an order are left out of it."""
    mean_weighted: Shares
    causes_unique: np.ndarray
    """Percent of all windows that are missed for each of `CAUSES`, float64 [causes, N]; NaN where there is no window.
    With `any_order` they make 100."""
    causes_weighted: np.ndarray
    intervals: Intervals | None
    """None where there are too few documents to speak of a spread, or none were asked for."""
    key_collisions: int
    """Distinct windows whose key an earlier one of the same document had; they are told apart by their bytes."""
    corpus: tuple[Shares, Shares] | None = None
    """Unique and weighted shares with the whole corpus as one document, where they were asked for."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, shares in percent."""
        return {
            "target": self.target.name,
            "reference": self.reference.name,
            "orders": list(range(1, self.max_order + 1)),
            "num_documents": self.num_documents,
            "num_bytes": self.num_bytes,
            "empty_documents": self.empty_documents,
            "prefix": "strip",
            "unique": self.unique.to_dict(),
            "weighted": self.weighted.to_dict(),
            "mean_over_documents": {"unique": self.mean_unique.to_dict(), "weighted": self.mean_weighted.to_dict()},
            "causes": {
                counting: {
                    cause: [json_number(share) for share in row]
                    for cause, row in zip(CAUSES, shares.tolist(), strict=True)
                }
                for counting, shares in zip(COUNTINGS, (self.causes_unique, self.causes_weighted), strict=True)
            },
            "intervals": None if self.intervals is None else self.intervals.to_dict(),
            **({"no_intervals": self._why_no_intervals} if self.intervals is None else {}),
            "key_collisions": self.key_collisions,
            **({} if self.corpus is None else {"corpus": self._corpus_dict(*self.corpus)}),
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
            cells = " ".join(f"{share_cell(share):>13}" for share in shares)
            lines.append(f"{n + 1:>5} {self.unique.num_windows[n]:>12,} {cells}")
        lines.append("windows and unique: distinct n-grams of each document; weighted: every occurrence.")
        lines.append("any: found among the reference's n-grams of any order; same: among those of the same order.")
        lines += [*self._corpus_lines(), *self._interval_lines(), *self._cause_lines()]
        for side in (self.target, self.reference):
            if side.lossy_documents:
                lines.append(
                    f"{side.name}: the tokens of {side.lossy_documents:,} documents do not join back to their source, "
                    f"first {side.lossy_sources[0]}"
                )
        if self.empty_documents:
            lines.append(f"{self.empty_documents:,} of the documents are empty")
        if self.key_collisions:
            lines.append(f"{self.key_collisions} windows share a key with other bytes; they were told apart")
        return "\n".join(lines)

    def _interval_lines(self) -> Iterator[str]:
        if self.intervals is None:
            yield f"no intervals: {self._why_no_intervals}"
            return
        pairs = self.intervals.unique[0]
        bounds = ", ".join(f"{share_cell(low)} to {share_cell(high)}" for low, high in pairs.tolist())
        yield f"unique any, {LEVEL} % interval by {self.intervals.resamples:,} resamples of the documents: {bounds}"

    def _corpus_lines(self) -> Iterator[str]:
        if self.corpus is None:
            return
        for counting, shares in zip(COUNTINGS, self.corpus, strict=True):
            found = ", ".join(share_cell(share) for share in shares.any_order.tolist())
            yield f"the whole corpus as one document, {counting} any: {found}"

    def _cause_lines(self) -> Iterator[str]:
        if not np.nansum(self.causes_unique):
            return
        yield ""
        yield "why the others are missed, percent of unique windows (" + ", ".join(CAUSES) + "):"
        yield f"{'order':>5} " + " ".join(f"{cause:>13}" for cause in CAUSES)
        for n in range(self.max_order):
            yield f"{n + 1:>5} " + " ".join(f"{share_cell(share):>13}" for share in self.causes_unique[:, n].tolist())
        for cause, shares in zip(CAUSES, self.causes_unique, strict=True):
            if np.nansum(shares):
                yield f"{cause}: {_CAUSE_TEXTS[cause].format(self.max_order)}"

    @property
    def _why_no_intervals(self) -> str:
        number = self.num_documents - self.empty_documents
        if number >= MIN_DOCUMENTS:
            return "no resamples were asked for"
        return f"{number} documents that are not empty say nothing of how documents differ"

    def _corpus_dict(self, unique: Shares, weighted: Shares) -> dict[str, Any]:
        return {"unique": unique.to_dict(), "weighted": weighted.to_dict()}


_CAUSE_TEXTS = {
    "special": "the reference has an id without bytes there",
    "normalisation": "one side rewrote the text there",
    "prefix": "it would be found if invented leading spaces were kept",
    "more_tokens": "the reference cuts at both its ends, but more than {} tokens apart",
    "cut_points": "the reference does not cut at one of its ends",
}


def share_cell(share: float) -> str:
    """A share for people, a dash for none."""
    return "-" if math.isnan(share) else f"{share:.1f}"
