"""A reading of a tokenizer put to the proof: the ids of probe texts must join back to the bytes that were promised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.token_bytes import TokenBytes, TokenKind

_NUM_PIECES = 8_192
"""Pieces of the vocabulary that are strung together as probe texts."""
_PIECES_PER_TEXT = 256

FIXED_TEXTS = (
    "".join(map(chr, range(0x80))),
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


def prove(
    token_bytes: TokenBytes,
    encode: Callable[[str], np.ndarray | None],
    expected_bytes: Callable[[str], bytes],
    texts: Iterable[str],
    *,
    name: str,
    strip: bool = True,
) -> None:
    """Encode probe texts and hold the joined bytes against what was promised.

    Args:
        token_bytes: the table to prove.
        encode: a text to ids, int64 [T]; None where the tokenizer refuses the text, as it is known to.
        expected_bytes: a text to the bytes that its ids must join to; unknown ids stand for any run of them.
        texts: the probe texts, such as those of `probe_texts`.
        name: what the tokenizer is called in an error.
        strip: take the invented leading space out before comparing.

    Raises:
        TokenizerError: at the first difference, it names the id; or if no text has an id with bytes.
    """
    num_known = 0
    for text in texts:
        ids = encode(text)
        if ids is not None:
            num_known += _check(token_bytes, text, ids, expected_bytes(text), strip=strip)
    if num_known == 0:
        raise TokenizerError(
            f"{name} turns every probe text into ids without bytes",
            expected="a vocabulary that spells its own pieces",
            remedy="Load the tokenizer from its own file",
        )


def probe_texts(token_bytes: TokenBytes, spellings: Sequence[str]) -> Iterator[str]:
    """The texts that every family is proven on: fixed ones, spelled specials, and pieces from all over the vocabulary.

    Args:
        token_bytes: the vocabulary.
        spellings: what special and added tokens look like; text that spells them must stay text.
    """
    yield from FIXED_TEXTS
    for spelling in spellings:
        yield f"x{spelling}y {spelling} z"
    yield from _vocabulary_texts(token_bytes)


def _vocabulary_texts(token_bytes: TokenBytes) -> Iterator[str]:
    """Pieces from all over the vocabulary, in an order that is mixed and always the same: alone, glued, and apart."""
    with_bytes = np.flatnonzero(token_bytes.lengths)
    chosen = np.random.default_rng(0).permutation(with_bytes)[:_NUM_PIECES].tolist()
    pieces = [piece.decode(errors="ignore") for v in chosen if (piece := token_bytes[v])]
    yield from pieces[:_PIECES_PER_TEXT]
    for start in range(0, len(pieces), _PIECES_PER_TEXT):
        for glue in ("", " ", "\n"):
            yield glue.join(pieces[start : start + _PIECES_PER_TEXT])


def _check(token_bytes: TokenBytes, text: str, ids: np.ndarray, expected: bytes, *, strip: bool) -> int:
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
    lengths = stops - starts
    skipped = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return token_bytes.data[skipped + np.arange(len(skipped))].tobytes()


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
        f"the ids of the probe text {excerpt(text)} do not join back to it {where}: got {got}",
        expected=f"{wanted}, as the tokenizer declares",
        remedy="Load the tokenizer from its own file; the class named in its config may override it",
    )


def excerpt(text: str) -> str:
    """The beginning of a text, quoted."""
    return repr(text if len(text) <= 48 else text[:45] + "...")
