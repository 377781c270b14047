"""The overlaps of several targets with several references: to JSON values and to a table of pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokagnostic.evaluation.overlap.report import Overlap, share_cell
from tokagnostic.evaluation.overlap.shares import COUNTINGS, json_number


@dataclass(frozen=True, eq=False)
class OverlapSquare:
    """Every target with every reference, on the same documents."""

    pairs: tuple[tuple[Overlap, ...], ...]
    """By target, then by reference."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values.

        `square` holds for both ways of counting a row per target and a column per reference: percent of the target's
        windows of all orders 1..N together that the reference makes in any order.
        """
        return {
            "targets": self.targets,
            "references": self.references,
            "orders": list(range(1, self.pairs[0][0].max_order + 1)),
            "square": {
                counting: [[json_number(getattr(pair, counting).all_orders) for pair in row] for row in self.pairs]
                for counting in COUNTINGS
            },
            "pairs": [pair.to_dict() for row in self.pairs for pair in row],
        }

    @property
    def targets(self) -> list[str]:
        """Names, in order."""
        return [row[0].target.name for row in self.pairs]

    @property
    def references(self) -> list[str]:
        """Names, in order."""
        return [pair.reference.name for pair in self.pairs[0]]

    def to_text(self) -> str:
        """The square as a table, and a table per pair."""
        first = self.pairs[0][0]
        width = max(len(name) for name in (*self.targets, "target"))
        columns = [max(len(name), 6) for name in self.references]
        lines = [
            f"percent of the target's distinct n-grams of orders 1..{first.max_order} together that the reference makes "
            f"too in the same document, in any order ({first.num_documents:,} documents, {first.num_bytes:,} bytes)",
            f"{'target':<{width}} "
            + " ".join(f"{name:>{column}}" for name, column in zip(self.references, columns, strict=True)),
        ]
        for name, row in zip(self.targets, self.pairs, strict=True):
            cells = [share_cell(pair.unique.all_orders) for pair in row]
            padded = " ".join(f"{cell:>{column}}" for cell, column in zip(cells, columns, strict=True))
            lines.append(f"{name:<{width}} {padded}")
        return "\n\n".join(["\n".join(lines), *(pair.to_text() for row in self.pairs for pair in row)])
