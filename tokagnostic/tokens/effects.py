"""A text and the bytes that its ids join to, named by what happened between the two."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tokagnostic.tokens.token_bytes import TokenKind


class Effect(StrEnum):
    """What a tokenizer invents or destroys, in the words that a report uses."""

    INVENTS_LEADING_SPACE = "invents a leading space"
    SWALLOWS_LEADING_SPACE = "takes the text's own leading space for the invented one"
    READS_MARK = "the mark for a space becomes a space"
    READS_BYTE_PIECE = "a spelled byte piece becomes its byte"
    COMPOSES = "composes accents (NFC)"
    REPLACES_TWINS = "replaces characters by their canonical twins (NFC)"
    REPLACES_COMPATIBILITY = "replaces compatibility characters (NFKC)"
    DECOMPOSES = "decomposes accents (NFD)"
    REMOVES_ACCENTS = "removes accents"
    LOWERS = "makes letters lower case"
    PLAIN_SPACES = "unusual whitespace becomes a plain space"
    DROPS_BETWEEN = "drops whitespace between words"
    DROPS_AT_START = "drops whitespace at the start"
    DROPS_AT_END = "drops whitespace at the end"
    SQUEEZES = "squeezes runs of whitespace"
    DROPS_BLANK = "drops a text of only whitespace"
    ADDED_TOKEN_SWALLOWS = "an added token swallows the whitespace beside it"
    INVENTS_AFTER_ADDED_TOKEN = "invents a space after an added token"
    INVENTS_SPACE = "puts spaces round characters"
    INVENTS = "invents characters"
    UNKNOWN = "a character becomes the unknown id"
    UNKNOWN_WORD = "a word of known characters becomes the unknown id"
    INVISIBLE_VANISH = "invisible characters vanish"
    VANISHES = "a character vanishes"
    BYTES_VANISH = "bytes of a character vanish"
    REFUSES = "refuses a text with an error"
    REWRITES = "rewrites characters otherwise"


IMPLIED_BY: dict[Effect, frozenset[Effect]] = {
    Effect.REPLACES_TWINS: frozenset({Effect.REPLACES_COMPATIBILITY, Effect.DECOMPOSES, Effect.REMOVES_ACCENTS}),
    Effect.DROPS_BLANK: frozenset(
        {Effect.SWALLOWS_LEADING_SPACE, Effect.DROPS_AT_START, Effect.DROPS_AT_END, Effect.DROPS_BETWEEN}
    ),
    Effect.SWALLOWS_LEADING_SPACE: frozenset({Effect.DROPS_BETWEEN}),
    Effect.DROPS_AT_START: frozenset({Effect.DROPS_BETWEEN}),
    Effect.DROPS_AT_END: frozenset({Effect.DROPS_BETWEEN}),
    Effect.SQUEEZES: frozenset({Effect.DROPS_BETWEEN}),
    Effect.ADDED_TOKEN_SWALLOWS: frozenset({Effect.DROPS_BETWEEN}),
}
"""Effects that need no witness of their own beside one of others."""


@dataclass(frozen=True)
class Observation:
    """What one text became."""

    text: str
    ids: tuple[int, ...] = ()
    joined: bytes = b""
    """The bytes of the ids, the invented leading space taken out."""
    kept: bytes = b""
    """The same with that space left in."""
    kinds: frozenset[int] = frozenset()
    """The kinds of the ids."""
    is_refused: bool = False


Observe = Callable[[str], Observation]

_WHITESPACE = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {
    chr(c) for c in range(0x2000, 0x200B)
}
"""Unicode's white space; `str.isspace` adds four control characters to it."""
_CONTROL_BLANKS = frozenset("\v\f\x85")
_BYTE_PIECE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
_ACCENT = "Mn"


def name_effect(seen: Observation, observe: Observe) -> Effect | None:
    """Name what happened to a text, None for nothing; a text to which several things happened is `REWRITES`.

    Args:
        seen: what the text became.
        observe: the way to what other texts become.
    """
    source = seen.text.encode()
    if seen.is_refused:
        return Effect.REFUSES
    if TokenKind.UNKNOWN in seen.kinds:
        is_spelled = all(observe(c).joined == c.encode() for c in set(seen.text))
        return Effect.UNKNOWN_WORD if is_spelled else Effect.UNKNOWN
    if seen.joined == source:
        return Effect.INVENTS_LEADING_SPACE if seen.kept == b" " + source else None
    if seen.kept == source and seen.text.strip():
        return Effect.SWALLOWS_LEADING_SPACE
    if seen.kept != seen.joined and _replaced_by_space(seen.text, seen.kept.decode(errors="replace")):
        # What became a space was then taken for the invented one: two effects.
        return Effect.REWRITES
    if _BYTE_PIECE.sub(lambda match: bytes((int(match[1], 16),)), source) == seen.joined:
        return Effect.READS_BYTE_PIECE
    try:
        joined = seen.joined.decode()
    except UnicodeDecodeError:
        return Effect.BYTES_VANISH if _is_within(seen.joined, source) else Effect.REWRITES
    has_added = TokenKind.ADDED in seen.kinds
    return next(filter(None, _laws(seen.text, joined, has_added, observe)), Effect.REWRITES)


def explains(effects: frozenset[Effect], seen: Observation, observe: Observe) -> bool:
    """Whether effects that are known already, taken together, account for what became of a text.

    Both sides are stripped of all that these effects touch, and then compared.
    """
    joined = _BYTE_PIECE.sub(lambda match: bytes((int(match[1], 16),)), seen.joined).decode(errors="ignore")
    text = _BYTE_PIECE.sub(lambda match: bytes((int(match[1], 16),)), seen.text.encode()).decode(errors="ignore")
    return _fold(effects, text, observe) == _fold(effects, joined, observe)


def _fold(effects: frozenset[Effect], text: str, observe: Observe) -> str:
    if effects & {Effect.COMPOSES, Effect.REPLACES_TWINS, Effect.DECOMPOSES}:
        text = unicodedata.normalize("NFD", text)
    if effects & {Effect.REPLACES_COMPATIBILITY, Effect.REMOVES_ACCENTS}:
        text = unicodedata.normalize("NFKD" if Effect.REPLACES_COMPATIBILITY in effects else "NFD", text)
    if Effect.REMOVES_ACCENTS in effects:
        text = "".join(c for c in text if unicodedata.category(c) != _ACCENT)
    if Effect.LOWERS in effects:
        text = text.lower()
    # A character that leaves nothing but blanks behind when it stands alone says nothing in company either.
    return "".join(c for c in text if c not in _WHITESPACE and observe(c).joined.strip())


def _laws(text: str, joined: str, has_added: bool, observe: Observe) -> Iterator[Effect | None]:
    yield _replaced_by_space(text, joined)
    yield _dropped_whitespace(text, joined, has_added, observe)
    yield Effect.LOWERS if joined == text.lower() else None
    yield _normalized(text, joined, observe)
    yield _vanished(text, joined, observe)
    yield _invented(text, joined, has_added)


def _replaced_by_space(text: str, joined: str) -> Effect | None:
    """Nothing but single characters that became spaces."""
    if len(text) != len(joined):
        return None
    changed = [(a, b) for a, b in zip(text, joined, strict=True) if a != b]
    if any(b != " " for _, b in changed):
        return None
    blank = all(a in _WHITESPACE or _is_invisible(a) for a, _ in changed)
    return Effect.PLAIN_SPACES if blank else Effect.READS_MARK


def _dropped_whitespace(text: str, joined: str, has_added: bool, observe: Observe) -> Effect | None:
    """Nothing but white space that is gone."""
    gone = _missing(text, joined)
    if gone is None or not _WHITESPACE.issuperset(gone):
        return None
    if _CONTROL_BLANKS.issuperset(gone) and all(_goes_as_control(c, observe) for c in gone):
        return None
    if _WHITESPACE.issuperset(text):
        return Effect.DROPS_BLANK
    if has_added:
        return Effect.ADDED_TOKEN_SWALLOWS
    if joined.split() != text.split():
        return Effect.DROPS_BETWEEN
    blanks = "".join(_WHITESPACE)
    if joined == text.rstrip(blanks):
        return Effect.DROPS_AT_END
    return Effect.DROPS_AT_START if joined in (text.lstrip(blanks), text.strip(blanks)) else Effect.SQUEEZES


def _goes_as_control(c: str, observe: Observe) -> bool:
    """Whether a character that is both blank and control goes where other blanks stay: between letters."""
    seen = observe(f"a{c}a")
    return seen.joined == b"aa" and TokenKind.UNKNOWN not in seen.kinds and observe("a a").joined == b"a a"


def _normalized(text: str, joined: str, observe: Observe) -> Effect | None:
    forms = {form: unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")}
    if joined == forms["NFC"]:
        return Effect.COMPOSES if len(joined) < len(text) else Effect.REPLACES_TWINS
    if joined == forms["NFD"]:
        return Effect.DECOMPOSES
    if joined in (forms["NFKC"], forms["NFKD"]):
        return Effect.REPLACES_COMPATIBILITY
    bare = "".join(c for c in forms["NFD"] if unicodedata.category(c) != _ACCENT)
    return Effect.REMOVES_ACCENTS if joined == bare and _removes_accents(observe) else None


def _vanished(text: str, joined: str, observe: Observe) -> Effect | None:
    """Nothing but characters of one class that are gone, or bytes of them."""
    gone = _missing(text, joined)
    if gone is None:
        return Effect.BYTES_VANISH if _is_within(joined.encode(), text.encode()) else None
    if len(classes := {_class_when_gone(c, observe) for c in gone}) > 1:
        return None
    if any(b" " in observe(f"a{c}a").joined for c in gone):
        # It became a space, and spaces are dropped at the end of a text.
        return None
    return classes.pop()


def _class_when_gone(c: str, observe: Observe) -> Effect | None:
    if c in _WHITESPACE - _CONTROL_BLANKS:
        return None
    if _is_invisible(c):
        return Effect.INVISIBLE_VANISH
    return (
        Effect.REMOVES_ACCENTS if unicodedata.category(c) == _ACCENT and _removes_accents(observe) else Effect.VANISHES
    )


def _removes_accents(observe: Observe) -> bool:
    """Whether accents go by rule, letters staying; a vocabulary without some bytes loses what they spell alone."""
    return bool(observe("\xe9").joined) and observe("a\u20d7").joined == b"a"


def _invented(text: str, joined: str, has_added: bool) -> Effect | None:
    """Nothing but characters that came in."""
    added = _missing(joined, text)
    if added is None:
        return None
    if set(added) != {" "}:
        return Effect.INVENTS
    return Effect.INVENTS_AFTER_ADDED_TOKEN if has_added else Effect.INVENTS_SPACE


def _missing(whole: str, part: str) -> str | None:
    """What has to be taken out of a text to leave another, as the first match leaves it; None if it cannot be done."""
    gone, place = [], 0
    for c in whole:
        if place < len(part) and c == part[place]:
            place += 1
        else:
            gone.append(c)
    return "".join(gone) if place == len(part) else None


def _is_invisible(c: str) -> bool:
    """Control, format, private and unassigned characters, and the sign for a broken one."""
    return unicodedata.category(c)[0] == "C" or c == "\ufffd"


def _is_within(part: bytes, whole: bytes) -> bool:
    remaining = iter(whole)
    return all(byte in remaining for byte in part)
