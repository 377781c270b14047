"""The oracle: hash law, windows and addresses in plain Python, written from their definition and not from the product.

Slow, and too simple to be wrong: bytes are joined and hashed as one string, powers are taken by `pow`, primes are found by
trial division.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

P = 2**31 - 1
LANE_BASES = (314159268, 271828187)


def key_of(data: bytes) -> int:
    """Eq. 3 as it stands, both lanes: the sum of (byte + 1) * base ** (length - position) modulo P."""
    lane_0, lane_1 = (
        sum((byte + 1) * pow(base, len(data) - i, P) for i, byte in enumerate(data)) % P for base in LANE_BASES
    )
    return lane_0 * 2**31 + lane_1


def window_keys(
    tokens: Sequence[bytes | None],
    ids: Sequence[int],
    starts: Sequence[bool] | None,
    max_order: int,
    prefix: str = "none",
) -> list[list[int]]:
    """Keys per position and order of one sequence; -1 for no window."""
    if starts is None:
        starts = [position == 0 for position in range(len(ids))]
    pieces = _pieces(tokens, ids, starts, prefix)
    return [
        [_window_key(pieces, starts, position, order) for order in range(1, max_order + 1)]
        for position in range(len(ids))
    ]


def _window_key(pieces: list[bytes], starts: Sequence[bool], last: int, order: int) -> int:
    first = last - order + 1
    if first < 0 or any(starts[first + 1 : last + 1]) or not all(pieces[first : last + 1]):
        return -1
    return key_of(b"".join(pieces[first : last + 1]))


def _pieces(tokens: Sequence[bytes | None], ids: Sequence[int], starts: Sequence[bool], prefix: str) -> list[bytes]:
    """What each position contributes, empty for an id without bytes; invented spaces are taken out."""
    pieces = []
    segment_begins = False
    for token_id, start in zip(ids, starts, strict=True):
        if start:
            segment_begins = True
        piece = (tokens[token_id] or b"") if 0 <= token_id < len(tokens) else b""
        if not piece:
            if prefix == "always":
                segment_begins = True
        elif segment_begins:
            segment_begins = False
            if prefix != "none" and piece[:1] == b" ":
                piece = piece[1:]
        pieces.append(piece)
    return pieces


def primes_from(number: int, count: int, taken: Collection[int] = ()) -> list[int]:
    """The first primes from a number on that nobody took."""
    found: list[int] = []
    while len(found) < count:
        if number not in taken and number >= 2 and all(number % d for d in range(2, int(number**0.5) + 1)):
            found.append(number)
        number += 1
    return found


def rows_of(key: int, moduli: Sequence[int]) -> list[int]:
    """The key's row in each head's part of the joint table; -1 for no key."""
    if key < 0:
        return [-1] * len(moduli)
    return [sum(moduli[:k]) + key % modulus for k, modulus in enumerate(moduli)]
