"""A reading of a tokenizer put to the proof: the ids of probe texts must join back to the bytes that were promised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from tokenizers import Tokenizer

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.alphabet import bytes_of_symbols
from tokagnostic.tokens.expectation import Expectation
from tokagnostic.tokens.pipeline import Pipeline, Step, library_errors
from tokagnostic.tokens.token_bytes import TokenBytes, TokenKind

_ASCII = "".join(map(chr, range(0x80)))
_NUM_PIECES = 8_192
"""Pieces of the vocabulary that are strung together as probe texts."""
_PIECES_PER_TEXT = 256

FIXED_TEXTS = (
    "Hello, world! The quick brown fox jumps over 1234567890 lazy dogs.",
    "".join(chr(c) for c in range(0x80, 0x800, 5)),
    "".join(chr(c) for c in range(0x800, 0x10000, 1021) if not 0xD800 <= c < 0xE000),
    "".join(chr(c) for c in range(0x10000, 0x110000, 21_001)),
    *(" " * n for n in (1, 2, 3, 17)),
    " a",
    "  a",
    "a ",
    "a  b   c    d\t\te\n\nf\r\ng\x0bh\x0ci",
    "\ta",
    "\n",
    "\n a",
    "def f(x):\n    return x  # two\n\n\tif x != 0.5e-3: {'k': [1, 2]}\n",
    "\U0001f600\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1ee \u2764\ufe0f ok",
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3002 \ud55c\uad6d\uc5b4 \u4e2d\u6587, abc \u65e5",
    "cafe\u0301 caf\u00e9 A\u030a \u1112\u1161\u11ab e\u0323\u0302 \u212b \ufb01n \u00bd",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a",
    "It's we've I'M can't -- \u201cquoted\u201d \u2026 \u2013 x!=y , ok . \u00a0nbsp\u3000wide",
    "\ufeffbom \u2028 line \u2029 par \x85 nel \x00 nul \x7f del",
    "1 22 333 4444 55555 3.14159 1,000,000 0x1F",
    "^" * 300,
    "a" * 300,
)
"""Every byte that valid UTF-8 holds, blanks of every kind in every place, and the scripts that tokenizers differ on."""


def probe(tokenizer: Tokenizer, description: Step, token_bytes: TokenBytes, spellings: Sequence[str]) -> None:
    """Encode probe texts and hold the joined bytes against the declared fidelity.

    Args:
        tokenizer: the private copy.
        description: what the private copy was built from.
        token_bytes: the table to prove, with its fidelity.
        spellings: what special and added tokens look like; text that spells them must stay text.

    Raises:
        TokenizerError: at the first difference; it names the id.
    """
    if token_bytes.fidelity is None:
        raise TypeError("a table without a declared fidelity cannot be probed")
    expectation = Expectation(tokenizer, description, token_bytes.fidelity.level)
    pipeline = expectation.pipeline
    may_refuse = pipeline.unknown_id is None and pipeline.model["type"] != "BPE"
    num_known = 0
    for text in _texts(pipeline, token_bytes, spellings):
        try:
            with library_errors(f"encoding the probe text {_excerpt(text)}"):
                ids = np.array(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)
        except TokenizerError:
            if may_refuse:
                continue
            raise
        if expectation.misplaces_unknown:
            expected, ids = expectation.bytes_of(text), ids[token_bytes.kinds[ids] != TokenKind.UNKNOWN]
            num_known += _check(token_bytes, text, ids, expected, strip=False)
        else:
            num_known += _check(token_bytes, text, ids, expectation.bytes_of(text))
    if num_known == 0 and token_bytes.lengths.any():
        raise TokenizerError(
            f"the pipeline {pipeline} turns every probe text into ids without bytes",
            expected="a vocabulary that spells its own pieces",
            remedy="Load the tokenizer from its own tokenizer.json",
        )


def _texts(pipeline: Pipeline, token_bytes: TokenBytes, spellings: Sequence[str]) -> Iterator[str]:
    yield _ASCII
    yield from FIXED_TEXTS
    for spelling in spellings:
        yield f"x{spelling}y {spelling} z"
        if pipeline.is_byte_level and spelling in pipeline.vocab:
            # The model's own piece may be reached by other text than the added token's content.
            yield _text_of_symbols(spelling)
    yield from _vocabulary_texts(token_bytes)


def _text_of_symbols(symbols: str) -> str:
    try:
        return bytes_of_symbols(symbols).decode(errors="ignore")
    except KeyError:
        return symbols


def _vocabulary_texts(token_bytes: TokenBytes) -> Iterator[str]:
    """Pieces from all over the vocabulary, in an order that is mixed and always the same: alone, glued, and apart."""
    with_bytes = np.flatnonzero(token_bytes.lengths)
    chosen = np.random.default_rng(0).permutation(with_bytes)[:_NUM_PIECES].tolist()
    pieces = [piece.decode(errors="ignore") for v in chosen if (piece := token_bytes[v])]
    yield from pieces[:_PIECES_PER_TEXT]
    for start in range(0, len(pieces), _PIECES_PER_TEXT):
        for glue in ("", " ", "\n"):
            yield glue.join(pieces[start : start + _PIECES_PER_TEXT])


def _check(token_bytes: TokenBytes, text: str, ids: np.ndarray, expected: bytes, *, strip: bool = True) -> int:
    """Compare the joined bytes, unknown ids standing for any run; return how many ids have bytes."""
    kinds = token_bytes.kinds[ids]
    unreachable = np.isin(kinds, (TokenKind.HOLE, TokenKind.SPECIAL, TokenKind.UNREACHABLE))
    if unreachable.any():
        v = int(ids[unreachable.argmax()])
        raise _difference(text, v, f"a {TokenKind(int(token_bytes.kinds[v])).name.lower()} id", "an id with bytes")
    starts, stops = token_bytes.spans(ids, strip=strip)
    bounds = [-1, *np.flatnonzero(kinds == TokenKind.UNKNOWN).tolist(), len(ids)]
    position = 0
    for left, right in pairwise(bounds):
        run = slice(left + 1, right)
        joined = _gather(token_bytes, starts[run], stops[run])
        found = _place(joined, expected, position, at_start=left < 0, at_end=right == len(ids))
        if found is None:
            raise _first_difference(text, ids[run], stops[run] - starts[run], joined, expected[position:])
        position = found + len(joined)
    return int(np.count_nonzero(stops > starts))


def _gather(token_bytes: TokenBytes, starts: np.ndarray, stops: np.ndarray) -> bytes:
    return b"".join(token_bytes.data[a:b].tobytes() for a, b in zip(starts.tolist(), stops.tolist(), strict=True))


def _place(joined: bytes, expected: bytes, position: int, *, at_start: bool, at_end: bool) -> int | None:
    """Where the bytes between two unknown ids lie in the expected ones, not before `position`; the leftmost will do."""
    if at_start and at_end:
        return 0 if joined == expected else None
    if at_start:
        return 0 if expected.startswith(joined) else None
    if at_end:
        found = len(expected) - len(joined)
        return found if found >= position and expected.endswith(joined) else None
    found = expected.find(joined, position)
    return found if found >= 0 else None


def _first_difference(
    text: str, ids: np.ndarray, lengths: np.ndarray, joined: bytes, expected: bytes
) -> TokenizerError:
    """Find the id at which the joined bytes leave the expected ones."""
    same = next(
        (i for i, (a, b) in enumerate(zip(joined, expected, strict=False)) if a != b), min(len(joined), len(expected))
    )
    ends = np.cumsum(lengths)
    at = min(int(np.searchsorted(ends, same, side="right")), len(ids) - 1)
    if at < 0:
        return _difference(text, None, repr(joined[:24]), repr(expected[:24]))
    start = int(ends[at] - lengths[at])
    got = f"{joined[start : start + 24]!r} from id {int(ids[at])} on"
    return _difference(text, int(ids[at]), got, repr(expected[start : start + 24]))


def _difference(text: str, v: int | None, got: str, wanted: str) -> TokenizerError:
    where = "without ids" if v is None else f"at id {v}"
    return TokenizerError(
        f"the ids of the probe text {_excerpt(text)} do not join back to it {where}: got {got}",
        expected=f"{wanted}, as the tokenizer's pipeline declares",
        remedy="Load the tokenizer from its own tokenizer.json; the class named in its config may override it",
    )


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 48 else text[:45] + "...")
