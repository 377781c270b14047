"""Text files and JSON Lines to documents, each with the place where the next one begins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any, NamedTuple, Protocol

from tokagnostic.corpus.document import Document
from tokagnostic.corpus.intake import Intake, Origin
from tokagnostic.corpus.splitting import DocumentUnit, split_bytes, split_lines
from tokagnostic.corpus.unpacking import open_bytes

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Place(NamedTuple):
    """Where reading goes on within one source."""

    position: int = 0
    """Byte offset in the unpacked file, or the number of rows before."""
    line: int = 0
    """Lines before `position`; in a table, `position` again."""
    part: int = 0
    """Parts of the row at `position` that were already seen."""


class Reader(Protocol):
    """One source of documents."""

    @property
    def name(self) -> str:
        """The source as errors and cursors name it."""

    def read(self, start: Place, intake: Intake) -> Iterator[tuple[Document, Place]]:
        """The documents from `start` on, each with the place after it.

        Raises:
            SourceError: if the source cannot be opened or unpacked.
            CorpusError: if it holds a broken text and the intake's policy is `error`.
        """


class TextReader:
    """A plain text file, packed or not; the unit `whole` holds the file in memory."""

    def __init__(self, path: str, unit: DocumentUnit) -> None:
        self.name = path
        self._unit = unit

    def read(self, start: Place, intake: Intake) -> Iterator[tuple[Document, Place]]:
        """The documents from `start` on, each with the place after it; see `Reader.read`."""
        position, line = start.position, start.line
        with open_bytes(self.name, position) as file:
            for part in self._parts(file, position):
                origin = Origin(self.name, line + 1, position)
                position, line = position + len(part), line + part.count(b"\n")
                data = intake.admit(part, origin)
                if data is not None:
                    source = self.name if self._unit == "whole" else f"{self.name}:{origin.row}"
                    yield Document(data, source), Place(position, line)

    def _parts(self, file: IO[bytes], position: int) -> Iterator[bytes]:
        if self._unit != "whole":
            yield from split_lines(file, self._unit)
            return
        data = file.read()
        if data or position == 0:  # at the end of a file that was read, no empty document follows
            yield data


class JsonLinesReader:
    """A file of one JSON object per line, packed or not.

    A byte order mark before the first line belongs to the file and not to a text.
    """

    def __init__(self, path: str, unit: DocumentUnit, text_field: str) -> None:
        self.name = path
        self._unit: DocumentUnit = unit
        self._text_field = text_field

    def read(self, start: Place, intake: Intake) -> Iterator[tuple[Document, Place]]:
        """The documents from `start` on, each with the place after it; see `Reader.read`."""
        position, line, seen_parts = start
        with open_bytes(self.name, position) as file:
            for raw in file:
                here, after = Place(position, line), Place(position + len(raw), line + 1)
                origin = Origin(self.name, line + 1, position)
                text = self._text_of(raw, origin, intake.for_row(seen_parts))
                if text is not None:
                    yield from deliver_row(text, self._unit, origin, intake, here._replace(part=seen_parts), after)
                position, line, seen_parts = after

    def _text_of(self, raw: bytes, origin: Origin, intake: Intake) -> bytes | None:
        """The text of one line, or None where the line is left out."""
        mended = intake.mend(raw, origin)
        if mended is None:
            return None
        if origin.offset == 0:
            mended = mended.removeprefix(_BYTE_ORDER_MARK)
        expected = f"an object with text under {self._text_field!r}"
        if not mended.strip():
            intake.reject(f"an empty line at {origin}", expected)
            return None
        try:
            row = json.loads(mended.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            intake.reject(f"no JSON value at {origin} ({error})", expected)
            return None
        if not isinstance(row, dict):
            intake.reject(f"{_kind_of(row)} at {origin}", expected)
            return None
        if self._text_field not in row:
            found = ", ".join(map(repr, row)) or "none"
            intake.reject(f"no field {self._text_field!r} at {origin} (its fields: {found})", expected)
            return None
        text = row[self._text_field]
        if not isinstance(text, str):
            intake.reject(f"{_kind_of(text)} under {self._text_field!r} at {origin}", expected)
            return None
        return intake.mend_text(text, origin)


def deliver_row(
    data: bytes, unit: DocumentUnit, origin: Origin, intake: Intake, here: Place, after: Place
) -> Iterator[tuple[Document, Place]]:
    """The documents of one row's text.

    Args:
        data: the text.
        unit: what part of it is a document.
        origin: where the row stands.
        intake: judges each part.
        here: the row's place, with the number of parts to leave out because they were seen.
        after: the place of the next row.
    """
    parts = list(split_bytes(data, unit))
    for index, part in enumerate(parts):
        if index < here.part:
            continue
        admitted = intake.admit(part, origin)
        if admitted is not None:
            source = f"{origin.name}:{origin.row}" + ("" if unit == "whole" else f"#{index + 1}")
            yield Document(admitted, source), after if index + 1 == len(parts) else here._replace(part=index + 1)


def _kind_of(value: Any) -> str:
    """A JSON value's kind, in JSON's words."""
    kinds: dict[type, str] = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")
