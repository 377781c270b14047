"""A tokenizer to the texts on which it is tried out: characters of every class, alone and in company, and spellings."""

from __future__ import annotations

import string
from collections.abc import Iterator

import numpy as np

from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.proof import FIXED_TEXTS
from tokagnostic.tokens.token_bytes import TokenKind

_MAX_SPELLINGS = 256
"""Spelled tokens of each kind."""
_ASCII = tuple(map(chr, range(0x80)))
_BLANKS = (*"\t\n\v\f\r \x85\xa0\u1680\u2003\u2009\u2028\u2029\u202f\u3000", "\r\n")
_SIGNS = string.punctuation + " "
_EVERY_BYTE = (
    *map(chr, range(0x80, 0x100)),
    *map(chr, range(0x100, 0x800, 0x40)),
    *(chr(c) for c in range(0x800, 0x10000, 0x1000) if c != 0xD800),
    *map(chr, (0x1F600, 0x20000, 0x40000, 0x80000, 0xC0000, 0x100000, 0x10FFFF)),
)
"""Characters that hold every byte of valid UTF-8 between them."""
_SCRIPTS = "Ωжאبकก한字あ\u1e9e\u0130ŒǅЩ\u10a0\u2c60\uff21"
_COMPATIBILITY = "ﬁ½²™Ⅳ…ｱ㌔①\ufdfa\U0001d400\u1e9b"
_TWINS = "\u212b\u2126\u212a\u0340\u037e\u2000\uf900\U0002f800"
_INVISIBLE = "\xad\u034f\u200b\u200c\u200d\u200e\u2060\ufe0f\ufeff\ufff9\ufffc\ufffd\uffff\ue000"
_SEQUENCES = (
    *("e\u0301", "A\u030a", "q\u0301", "a\u0302\u0323", "\u1112\u1161\u11ab", "は\u3099", "\u0915\u093c"),
    *("\U0001f1eb\U0001f1ee", "\u2764\ufe0f", "\U0001f469\u200d\U0001f467", "日a", "a日", "日本"),
    *("\ufeffa", "a\x00b", "don't", "a.", "(a)", "3.14", "1,000", "``", "''", "a\u2581b", "\u2581\u2581", "\u2581"),
)
_BYTE_PIECES = ("<0x41>", "<0x0A>", "<0x20>", "<0x0a>", "<0xE2>", "<0xFF>", "a<0x41>", "<0xC3><0xA9>")


def candidate_texts(encoder: TextEncoder) -> set[str]:
    """Some thousand texts, mostly short; the same ones for the same tokenizer."""
    return {*_of_every_class(), *_with_blanks(), *_spelled(encoder), *_BYTE_PIECES, *FIXED_TEXTS}


def _of_every_class() -> Iterator[str]:
    yield ""
    yield from _SEQUENCES
    for c in (*_ASCII, *_EVERY_BYTE, *_SCRIPTS, *_COMPATIBILITY, *_TWINS, *_INVISIBLE):
        yield c
        yield f"a{c}a"
    for c in _ASCII:
        yield from (c * 2, c * 3)
    for letters in (_SIGNS, string.ascii_lowercase):
        yield from (a + b for a in letters for b in letters)


def _with_blanks() -> Iterator[str]:
    for blank in _BLANKS:
        for run in (blank, blank * 2, blank * 3):
            yield from (run, f"{run}a", f"a{run}", f"a{run}b", f"{run}.", f".{run}a")
    yield from (" " * n for n in range(2, 41))


def _spelled(encoder: TextEncoder) -> Iterator[str]:
    """Texts that spell the tokenizer's own special and added tokens."""
    spellings = encoder.spellings()
    for kind in (TokenKind.SPECIAL, TokenKind.UNKNOWN, TokenKind.ADDED):
        for v in np.flatnonzero(encoder.token_bytes.kinds == kind)[:_MAX_SPELLINGS].tolist():
            spelling = spellings[v] if v < len(spellings) else None
            if spelling:
                yield from (spelling, f"a{spelling}a", f"a {spelling} a", f" {spelling}", f"{spelling} ")
