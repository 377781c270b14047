"""The oracle for the XOR memory: the published law of Engram in plain Python, written from its definition.

Ids are canonical ones; None is what breaks a window: an id without bytes, or a masked one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np

from tests import naive

WHITE_SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""Unicode's property of this name."""

_HIDDEN = [*range(0x21), *range(0x7F, 0xA1), 0xAD]
SYMBOLS = {byte: chr(0x100 + place) for place, byte in enumerate(_HIDDEN)}
"""How byte-level tokenizers write the bytes that have no visible character of Latin-1; all others are that character."""


def multipliers_of(layer: int, count: int, num_ids: int, seed: int = 0) -> list[int]:
    """Odd numbers, one per position of a window, so small that no id times one of them reaches 2 ** 63."""
    random = np.random.default_rng(seed + 10007 * layer)
    half = max(1, (2**63 - 1) // num_ids // 2)
    return [2 * int(random.integers(0, half)) + 1 for _ in range(count)]


def moduli_of(num_rows: int, num_tables: int, num_orders: int, num_heads: int) -> list[list[list[int]]]:
    """Per table, order and head the next prime that nothing has used yet."""
    primes = naive.primes_from(num_rows, num_tables * num_orders * num_heads)
    return [
        [
            [primes[(table * num_orders + order) * num_heads + head] for head in range(num_heads)]
            for order in range(num_orders)
        ]
        for table in range(num_tables)
    ]


def window(ids: Sequence[int | None], starts: Sequence[bool], last: int, order: int, pad: int) -> list[int] | None:
    """The last ids, the newest first; the pad id stands for all before a document's first, or before a break."""
    if ids[last] is None:
        return None
    found: list[int] = []
    for position in range(last, last - order, -1):
        if position < 0 or ids[position] is None:
            break
        found.append(ids[position])
        if starts[position]:
            break
    return found + [pad] * (order - len(found))


def mix(ids: Sequence[int], multipliers: Sequence[int]) -> int:
    """The exclusive or of each id times its multiplier."""
    mixed = 0
    for token_id, multiplier in zip(ids, multipliers, strict=False):
        mixed ^= token_id * multiplier
    return mixed


def rows(
    ids: Sequence[int | None],
    starts: Sequence[bool],
    orders: Sequence[int],
    multipliers: Sequence[int],
    moduli: Sequence[Sequence[int]],
    pad: int,
) -> list[list[list[int]]]:
    """Per position, order and head the row within the head's own part; -1 where no window exists."""
    result = []
    for position in range(len(ids)):
        windows = [window(ids, starts, position, order, pad) for order in orders]
        result.append(
            [
                [-1] * len(heads) if ids_of is None else [mix(ids_of, multipliers) % modulus for modulus in heads]
                for ids_of, heads in zip(windows, moduli, strict=True)
            ]
        )
    return result


def canonical_text(text: str) -> str:
    """NFKC, NFD, no accents, lower case, runs of blanks to one, and none at the ends, unless nothing else is there."""
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    text = "".join(character for character in text if not unicodedata.category(character).startswith("M"))
    text = "".join(character.lower() for character in text)
    pieces: list[str] = []
    for character in text:
        blank = character in " \t\r\n"
        if not (blank and pieces and pieces[-1] == " "):
            pieces.append(" " if blank else character)
    text = "".join(pieces)
    return text if text == " " else text.strip(WHITE_SPACE)


def canonical_ids(tokens: Sequence[bytes | None]) -> list[int]:
    """A number for each text that tokens have in common, in the order of their first; one of its own for other ids."""
    numbers: dict[object, int] = {}
    found = []
    for place, token in enumerate(tokens):
        text = None if not token else token.decode("utf-8", errors="replace")
        if text is None:
            key: object = ("id", place)
        elif "\ufffd" in text:
            key = token.decode("latin-1").translate(SYMBOLS)
        else:
            key = canonical_text(text) or text
        found.append(numbers.setdefault(key, len(numbers)))
    return found
