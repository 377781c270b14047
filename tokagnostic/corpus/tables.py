"""Rows of Parquet files, of hub datasets and of the embedded text to documents; pyarrow and datasets load on use."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any

from tokagnostic.corpus.document import Document
from tokagnostic.corpus.embedded import embedded_documents
from tokagnostic.corpus.intake import Intake, Origin
from tokagnostic.corpus.readers import Place, deliver_row
from tokagnostic.corpus.splitting import DocumentUnit, split_bytes
from tokagnostic.errors import CorpusError, SourceError

_ROWS_AT_ONCE = 256
_HTTP_ERRORS = {
    "httpx": "HTTPError",
    "httpx2": "HTTPError",
    "aiohttp": "ClientError",
    "urllib3.exceptions": "HTTPError",
}
"""Root of the errors of each library by which datasets and the hub's client fetch, where it is no error of Python's own."""


class ParquetReader:
    """A Parquet file, read a few hundred rows at a time; resuming skips whole row groups."""

    def __init__(self, path: str, unit: DocumentUnit, text_field: str) -> None:
        self.name = path
        self._unit: DocumentUnit = unit
        self._text_field = text_field

    def read(self, start: Place, intake: Intake) -> Iterator[tuple[Document, Place]]:
        """The documents from `start` on, each with the place after it; see `Reader.read`."""
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(self.name)
        except (OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
            raise SourceError(
                f"{self.name} cannot be read ({_first_line(error)})",
                expected="a Parquet file",
                remedy="Check the file, or give it the ending of its format",
            ) from error
        with file:
            _check_column(file.schema_arrow.names, self._text_field, self.name)
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            group = first = 0
            while group < len(sizes) and first + sizes[group] <= start.position:
                first += sizes[group]
                group += 1
            groups = list(range(group, len(sizes)))
            batches = file.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=[self._text_field])
            columns = (batch.column(0) for batch in batches)
            yield from _deliver_columns(columns, first, start, self.name, self._unit, intake)


class HubReader:
    """A split of a dataset on the hub, streamed: `hf:name`, `hf:name:config` or `hf:name:config:split`."""

    def __init__(self, spec: str, unit: DocumentUnit, text_field: str) -> None:
        self.name = spec
        self._unit: DocumentUnit = unit
        self._text_field = text_field
        dataset, *rest = spec.removeprefix("hf:").split(":")
        if not dataset or len(rest) > 2:
            raise SourceError(
                f"dataset {spec!r}",
                expected="hf:name, hf:name:config or hf:name:config:split",
                remedy="Leave the config empty to name only the split, as in hf:name::validation",
            )
        config, split = (*rest, "", "")[:2]
        self._dataset, self._config, self._split = dataset, config or None, split or "train"

    def read(self, start: Place, intake: Intake) -> Iterator[tuple[Document, Place]]:
        """The documents from `start` on, each with the place after it; see `Reader.read`."""
        rows = self._open()
        if start.position:
            rows = rows.skip(start.position)
        yield from _deliver_columns(self._columns(rows), start.position, start, self.name, self._unit, intake)

    def _open(self) -> Any:
        from datasets import load_dataset

        try:
            return load_dataset(self._dataset, self._config, split=self._split, streaming=True)
        except _transfer_errors() as error:
            raise SourceError(
                f"dataset {self.name!r} cannot be opened ({_first_line(error)})",
                expected=f"a dataset with the split {self._split!r}, on the hub or in a folder",
                remedy="Check name, config and split, and the connection to the hub",
            ) from error

    def _columns(self, rows: Any) -> Iterator[Any]:
        for table in rows.with_format("arrow").iter(batch_size=_ROWS_AT_ONCE):
            _check_column(table.column_names, self._text_field, self.name)
            yield table.column(self._text_field)


class EmbeddedReader:
    """The text that every Python carries."""

    name = "embedded"

    def __init__(self, unit: DocumentUnit) -> None:
        self._unit: DocumentUnit = unit

    def read(self, start: Place, intake: Intake) -> Iterator[tuple[Document, Place]]:
        """The documents from `start` on, each with the place after it; see `Reader.read`."""
        seen_parts = start.part
        for row, document in enumerate(embedded_documents()[start.position :], start=start.position):
            for index, part in enumerate(split_bytes(document.data, self._unit)):
                if index < seen_parts:
                    continue
                data = intake.admit(part, Origin(document.source, index + 1))
                if data is not None:
                    source = document.source if self._unit == "whole" else f"{document.source}#{index + 1}"
                    yield Document(data, source), Place(row, row, index + 1)
            seen_parts = 0


def _deliver_columns(
    columns: Iterator[Any], first: int, start: Place, name: str, unit: DocumentUnit, intake: Intake
) -> Iterator[tuple[Document, Place]]:
    """The documents of arrow columns whose first value is row `first`, those before `start` left out."""
    row = first
    for column in _guarded(columns, name):
        for value in _bytes_of(column, name).to_pylist():
            here, after = Place(row, row, start.part if row == start.position else 0), Place(row + 1, row + 1)
            row += 1
            if here.position < start.position:
                continue
            origin = Origin(name, row)
            if value is None:
                intake.reject(f"null at {origin}", "a text")
                continue
            text = intake.for_row(here.part).mend(value, origin)
            if text is not None:
                yield from deliver_row(text, unit, origin, intake, here, after)


def _guarded(columns: Iterator[Any], name: str) -> Iterator[Any]:
    """The columns, an error in the middle of them worded as one of the source."""
    try:
        yield from columns
    except _transfer_errors() as error:
        raise SourceError(
            f"{name} cannot be read further ({_first_line(error)})",
            expected="a whole file or a steady connection",
            remedy="Check the source and the connection",
        ) from error


def _transfer_errors() -> tuple[type[Exception], ...]:
    """What pyarrow, datasets, unpackers and connections raise when a source fails.

    A library that speaks HTTP and was never loaded has raised nothing.
    """
    import pyarrow as pa

    loaded = [getattr(sys.modules[module], name) for module, name in _HTTP_ERRORS.items() if module in sys.modules]
    return (OSError, ValueError, RuntimeError, EOFError, HTTPException, zlib.error, pa.ArrowException, *loaded)


def _bytes_of(column: Any, name: str) -> Any:
    """A column of strings or bytes as a column of bytes, so that no decoder judges the text before the intake does.

    Raises:
        CorpusError: if it holds something else.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    raise CorpusError(
        f"a text column of type {kind} in {name}",
        expected="a column of strings or bytes",
        remedy="Set text_field to the column that holds the text",
    )


def _check_column(names: list[str], text_field: str, name: str) -> None:
    if text_field not in names:
        raise CorpusError(
            f"no column {text_field!r} in {name} (its columns: {', '.join(map(repr, names))})",
            expected="the column that holds the text",
            remedy="Set text_field to its name",
        )


def _first_line(error: Exception) -> str:
    """The first line of a library's message, without its full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
