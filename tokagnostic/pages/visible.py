"""Bytes and strings to what a reader can tell apart: plain text, and marks for blanks, controls and broken characters."""

from __future__ import annotations

import unicodedata

_MARKS = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"}


def visible_pieces(data: bytes | str) -> list[str]:
    """Plain texts and marks in turn, beginning with a plain text, which may be empty.

    A mark is `·`, `⏎`, `⇥` or `␍` for a blank, `U+200B` for a character that does not print, and `E2` for a byte that is
    no whole character. A combining character without one to combine with stands on a dotted circle.
    """
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    pieces = [""]
    while data:
        try:
            text, broken, rest = data.decode(), b"", b""
        except UnicodeDecodeError as error:
            text, broken, rest = data[: error.start].decode(), data[error.start : error.end], data[error.end :]
        for c in text:
            mark = _MARKS.get(c) or ("" if c.isprintable() else f"U+{ord(c):04X}")
            if mark:
                pieces += [mark, ""]
            else:
                alone = not pieces[-1] and unicodedata.category(c)[0] == "M"
                pieces[-1] += f"◌{c}" if alone else c
        for byte in broken:
            pieces += [f"{byte:02X}", ""]
        data = rest
    return pieces


def visible(data: bytes | str) -> str:
    """The same as one text, marks that are words in brackets."""
    return _joined(visible_pieces(data))


def visible_name(name: str) -> str:
    """A name as such a text, its spaces left as they are."""
    return " ".join(_joined(visible_pieces(word)) for word in name.split(" "))


def _joined(pieces: list[str]) -> str:
    return "".join(f"⟨{piece}⟩" if i % 2 and len(piece) > 1 else piece for i, piece in enumerate(pieces))
