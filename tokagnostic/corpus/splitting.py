"""A text cut into lines, paragraphs or articles, so that the parts joined are the text again, byte for byte.

A line ends at LF and nowhere else: CR, form feed, NEL and U+2028 are ordinary bytes of it, and the LF belongs to the
line that it ends. A blank line holds nothing but ASCII white space.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import Literal

DocumentUnit = Literal["whole", "line", "paragraph", "article"]

_TITLE = re.compile(rb" = [^=\r\n]+ = ?\r?\n?")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def is_blank(data: bytes) -> bool:
    """Whether a text holds nothing but ASCII white space, after a byte order mark if it has one."""
    return not data.removeprefix(_BYTE_ORDER_MARK).strip()


def split_bytes(data: bytes, unit: DocumentUnit) -> Iterator[bytes]:
    """Cut one text into its parts; `whole` is the text itself, even an empty one."""
    if unit == "whole":
        yield data
    else:
        yield from split_lines(io.BytesIO(data), unit)


def split_lines(lines: Iterable[bytes], unit: DocumentUnit) -> Iterator[bytes]:
    """Gather lines into parts, holding no more than one part at a time.

    Args:
        lines: lines with their LF, as a file opened in binary mode gives them.
        unit: `paragraph` ends after the blank lines that follow it; `article` starts at a title, a line ` = Title = `
            whose title holds no `=`. Blank lines before the first of either belong to it; other lines before the
            first title are an article without one.
    """
    if unit == "line":
        yield from lines
        return
    part: list[bytes] = []
    has_text = after_blank = False
    for line in lines:
        blank = is_blank(line)
        begins = _TITLE.fullmatch(line) if unit == "article" else after_blank and not blank
        if has_text and begins:
            yield b"".join(part)
            part, has_text = [], False
        part.append(line)
        has_text = has_text or not blank
        after_blank = blank
    if part:
        yield b"".join(part)
