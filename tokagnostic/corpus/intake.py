"""What to do with a text that is empty or broken, and how often it was done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokagnostic.corpus.splitting import is_blank
from tokagnostic.errors import CorpusError

BadDocumentPolicy = Literal["error", "skip", "replace"]


@dataclass
class CorpusCounts:
    """What one pass over a corpus met."""

    documents: int = 0
    """Documents delivered."""
    bytes: int = 0
    """Bytes of the documents delivered."""
    empty: int = 0
    """Documents left out for holding nothing but ASCII white space or a byte order mark."""
    empty_bytes: int = 0
    """Bytes of the documents left out as empty."""
    skipped: int = 0
    """Documents left out as broken."""
    replaced: int = 0
    """Documents whose broken UTF-8 was replaced by U+FFFD."""


@dataclass(frozen=True)
class Origin:
    """Where some bytes stand, for an error to name the place."""

    name: str
    """The file or dataset."""
    row: int
    """The line of the first byte, or the row; the first is 1."""
    offset: int | None = None
    """Byte offset of the first byte in the file; None in a table, where a row has no such place."""

    def at(self, data: bytes, position: int) -> str:
        """Name the place of one byte of `data`, which begins at this origin."""
        if self.offset is None:
            return f"{self.name}, row {self.row}, byte {position} of its text"
        line = self.row + data.count(b"\n", 0, position)
        return f"{self.name}, line {line}, byte offset {self.offset + position}"

    def __str__(self) -> str:
        return f"{self.name}, {'row' if self.offset is None else 'line'} {self.row}"


class Intake:
    """One pass's judge of texts: it lets through, mends, leaves out or raises, and counts.

    Args:
        policy: `error` raises at the first broken text; `skip` leaves it out; `replace` puts U+FFFD in place of bytes
            that are not UTF-8, and leaves out what holds no text that could be mended.
        counts: what the pass met before, to be added to.
    """

    def __init__(self, policy: BadDocumentPolicy, counts: CorpusCounts) -> None:
        self.policy = policy
        self.counts = counts

    def for_row(self, seen_parts: int) -> Intake:
        """The judge of a whole row: one that counts for nothing where a pass goes on within the row, judged before."""
        return Intake(self.policy, CorpusCounts()) if seen_parts else self

    def admit(self, data: bytes, origin: Origin) -> bytes | None:
        """The bytes to deliver, or None where the text is left out.

        Raises:
            CorpusError: if the text is not UTF-8 and the policy is `error`.
        """
        if is_blank(data):
            self.counts.empty += 1
            self.counts.empty_bytes += len(data)
            return None
        return self.mend(data, origin)

    def mend(self, data: bytes, origin: Origin) -> bytes | None:
        """The bytes as UTF-8, or None where they are left out.

        Raises:
            CorpusError: if they are not UTF-8 and the policy is `error`.
        """
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            if self.policy == "replace":
                self.counts.replaced += 1
                return data.decode("utf-8", "replace").encode()
            self.reject(
                f"broken UTF-8 (byte 0x{data[error.start]:02X}) at {origin.at(data, error.start)}", "UTF-8 text"
            )
            return None
        return data

    def mend_text(self, text: str, origin: Origin) -> bytes | None:
        """The UTF-8 bytes of a text that may hold half a surrogate pair, or None where it is left out.

        Raises:
            CorpusError: if it does and the policy is `error`.
        """
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError as error:
            if self.policy == "replace":
                self.counts.replaced += 1
                return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
            self.reject(f"half a surrogate pair (\\u{ord(text[error.start]):04x}) at {origin}", "whole characters")
            return None

    def reject(self, given: str, expected: str) -> None:
        """Leave a text out, or raise.

        Raises:
            CorpusError: if the policy is `error`.
        """
        if self.policy == "error":
            raise CorpusError(
                given,
                expected=expected,
                remedy="Mend the source, or set on_bad_document to skip or replace",
            )
        self.counts.skipped += 1
