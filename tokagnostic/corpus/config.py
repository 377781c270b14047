"""What a corpus consists of, checked when stated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from tokagnostic.corpus.intake import BadDocumentPolicy
from tokagnostic.corpus.splitting import DocumentUnit
from tokagnostic.errors import InvalidValueError


@dataclass(frozen=True)
class CorpusConfig:
    """Where documents come from and what counts as one.

    Sources are read in the order given, and a file named twice is read once. Names that end in .jsonl, .ndjson or .json
    hold one JSON object per line, .parquet a table, all else is text. The parts of a text, such as its paragraphs with the
    blank lines after them, join to the text again; blank documents are left out.

    Raises:
        InvalidValueError: if a setting cannot be used.
    """

    data: tuple[str, ...] = ("embedded",)
    """Files (text and .jsonl, both also .gz, .bz2, .xz or .zst, and .parquet), globs in quotes, hf:name[:config[:split]],
    or `embedded`."""
    documents: DocumentUnit = "whole"
    """A document is a whole text file or row, or each of its lines, paragraphs, or articles (` = Title = `)."""
    text_field: str = "text"
    """The field or column that holds the text."""
    on_bad_document: BadDocumentPolicy = "error"
    """For broken UTF-8 or a row without text: stop, skip it, or put U+FFFD (a row without text is then skipped)."""
    part: tuple[float, float] = (0.0, 1.0)
    """From where to where to take documents: each has a place between 0 and 1, drawn by its bytes alone; 0 1 is all."""
    limit: int | None = None
    """Stop after this many documents."""

    def __post_init__(self) -> None:
        if not isinstance(self.data, tuple) or not self.data or not all(self.data):
            raise InvalidValueError(
                f"data {self.data!r}",
                expected="one or more files, globs, hub datasets, or `embedded`",
                remedy="Name the sources as a tuple of strings",
            )
        for field, value, choices in (
            ("documents", self.documents, get_args(DocumentUnit)),
            ("on_bad_document", self.on_bad_document, get_args(BadDocumentPolicy)),
        ):
            if value not in choices:
                raise InvalidValueError(
                    f"{field} {value!r}", expected=f"one of {', '.join(choices)}", remedy="Choose one of these"
                )
        if not self.text_field:
            raise InvalidValueError(
                "an empty text_field",
                expected="the name of a field or column",
                remedy="Name the one that holds the text",
            )
        if len(self.part) != 2 or not 0 <= self.part[0] < self.part[1] <= 1:
            raise InvalidValueError(
                f"part {self.part!r}",
                expected="two rising numbers from 0 to 1, such as 0 0.06 to hold out and 0.06 1 to train on",
                remedy="Name the part's begin and its end",
            )
        if self.limit is not None and self.limit < 1:
            raise InvalidValueError(
                f"limit {self.limit}", expected="1 or more documents", remedy="Leave it out to read all documents"
            )
