"""A text as a memory's own tokenizer cuts it to the load that it puts on the memory's tables, as values and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from tokagnostic.evaluation.key_set import SortedRuns
from tokagnostic.evaluation.windows import AnyDocument, WindowReader, document_batches
from tokagnostic.memory.base import Addresser
from tokagnostic.memory.load import Load, OrderLoad, measure_load


@dataclass(frozen=True)
class LoadReport:
    """Rows hit and rows shared by the different n-grams of a text, see `OrderLoad`."""

    num_documents: int
    tables: tuple[Load, ...]
    """Of each table alone."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, shares from 0 to 1."""
        return asdict(self)

    def to_text(self) -> str:
        """A table for people, heads averaged, each value with the expected one behind it."""
        lines = [
            f"load of {self.num_documents:,} documents: different n-grams by their bytes, measured (expected of rows drawn by lot)",
        ]
        for i, load in enumerate(self.tables):
            named = f"table {i + 1}: " if len(self.tables) > 1 else ""
            lines.append(
                f"{named}{len(load.num_rows)} heads of {_mean(load.num_rows):,.0f} rows; an n-gram shares a row with another of any order"
            )
            heads = (
                "order",
                "n-grams",
                "rows hit in a head",
                "share in a head",
                "share in all heads",
                "with the same one",
            )
            lines.append(_row(heads))
            names = [*(str(n + 1) for n in range(len(load.orders))), "all"]
            lines += [_row((name, *_cells(o))) for name, o in zip(names, (*load.orders, load.all_orders), strict=True)]
        return "\n".join(lines)


def measure_loads(
    documents: Iterable[AnyDocument], reader: WindowReader, addresser: Addresser, num_tables: int = 1
) -> LoadReport:
    """Say how a text fills a memory's tables and how many of its n-grams have rows to themselves.

    Args:
        documents: the text, in one pass.
        reader: the tokenizer, with the memory's largest order and prefix policy.
        addresser: the memory's.
        num_tables: the memory's tables.

    Raises:
        CorpusError: if there is no document, or one is not UTF-8.
    """
    runs = [SortedRuns() for _ in range(reader.max_order)]
    num_documents = 0
    for batch in document_batches(documents):
        num_documents += len(batch)
        keys = reader.read(batch).keys
        for n, run in enumerate(runs):
            run.add(keys[:, n])
    every = SortedRuns()
    orders = [run.merged() for run in runs]
    for keys in orders:
        every.add(keys)
    tensors, all_keys = [torch.from_numpy(keys) for keys in orders], torch.from_numpy(every.merged())
    loads = [measure_load(tensors, all_keys, addresser, table) for table in range(num_tables)]
    return LoadReport(num_documents, tuple(loads))


def _cells(load: OrderLoad) -> list[str]:
    return [
        f"{load.num_ngrams:,}",
        f"{_mean(load.rows_hit):,.0f} ({_mean(load.expected_rows_hit):,.0f})",
        _percent(_mean(load.sharing), _mean(load.expected_sharing)),
        _percent(load.in_all_heads, load.expected_in_all_heads),
        _percent(load.with_the_same, load.expected_with_the_same),
    ]


def _row(cells: Sequence[str]) -> str:
    widths = (5, 11, 24, 20, 22, 22)
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _percent(measured: float, expected: float) -> str:
    return f"{_number(100 * measured)} % ({_number(100 * expected)} %)"


def _number(value: float) -> str:
    """With a place after the point, or where that would show nothing, two digits."""
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
