"""A long text cut into parts that are encoded one by one, so that time grows with length and not faster."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

MAX_PART = 1 << 18
"""Characters of a text that are encoded in one call. Longer texts are cut."""
_CUT_SEARCH = 1 << 14
_WORD_GAP = re.compile(r"\w(?=[ \n]\w)")
_ANY_GAP = re.compile(r"\S(?=\s)")


def split_text(text: str) -> Iterator[str]:
    """Cut a text into parts of at most `MAX_PART` characters; joined they are the text.

    It is cut between two words at a single space or line end where there is one near the limit, else before any
    whitespace, else before a character that does not combine with the one before it.
    """
    start = 0
    while len(text) - start > MAX_PART:
        cut = _find_cut(text, start + MAX_PART)
        yield text[start:cut]
        start = cut
    yield text[start:]


def _find_cut(text: str, limit: int) -> int:
    near = limit - _CUT_SEARCH
    for gap in (_WORD_GAP, _ANY_GAP):
        cuts = [match.end() for match in gap.finditer(text, near, limit)]
        if cuts:
            return cuts[-1]
    return next((cut for cut in range(limit, near, -1) if not _combines(text[cut])), limit)


def _combines(character: str) -> bool:
    """Whether normalization could merge a character into the one before it."""
    return unicodedata.category(character)[0] == "M" or "\u1160" <= character <= "\u11ff"
