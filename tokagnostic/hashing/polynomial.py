"""The hash law: bytes to a number that does not depend on where a tokenizer cut them.

A byte string S hashes, in each of two lanes, to `sum_i (s_i + 1) * base ** (|S| - i) mod P` (Eq. 3 of
arXiv 2607.29065; the last byte carries base ** 1). Hence the law of concatenation, on which everything rests:
`hash(u + v) = hash(u) * base ** |v| + hash(v)`. The two lanes, 31 bits each, make one key of 62 bits, which is the
identity of the bytes.

P = 2 ** 31 - 1 keeps every product below 2 ** 62, so that plain signed 64-bit arithmetic is exact in NumPy, numba,
torch and Triton alike.
"""

from __future__ import annotations

import numpy as np
from numba import njit

PRIME = 2**31 - 1
"""P: the field."""
BASES = (314159268, 271828187)
"""One primitive root modulo P per lane."""
CHECK_BASES = (1414213564, 1618033989)
"""Two other primitive roots: keys under them tell apart, but for a stated chance, what shares a key under `BASES`."""
LANE_BITS = 31
"""A key is `lane_0 << LANE_BITS | lane_1`."""
NO_WINDOW = -1
"""The key of a window that does not exist."""

LAW = {
    "law": "poly31x2",
    "prime": PRIME,
    "bases": list(BASES),
    "byte_value": "x + 1",
    "key": "lane_0 * 2**31 + lane_1",
}
"""The law as a memory file states it."""


def hash_lane(data: bytes, base: int) -> int:
    """One lane of a byte string by Horner's rule in unbounded integers: the definition that every backend equals."""
    value = 0
    for byte in data:
        value = (value + byte + 1) * base % PRIME
    return value


def hash_bytes(data: bytes) -> int:
    """The key of a byte string, in [0, 2 ** 62), in unbounded integers."""
    lane_0, lane_1 = (hash_lane(data, base) for base in BASES)
    return lane_0 << LANE_BITS | lane_1


def hash_tokens(data: np.ndarray, begins: np.ndarray, ends: np.ndarray, bases: tuple[int, int] = BASES) -> np.ndarray:
    """The key of every token of a vocabulary: C(t) of Eq. 5, both lanes in one number.

    Args:
        data: token bytes, uint8 [L].
        begins: first byte of each token, int64 [V].
        ends: one past its last byte, int64 [V].
        bases: one per lane.

    Returns:
        Keys, int64 [V]; 0 for an empty token.
    """
    keys: np.ndarray = _hash_tokens(np.ascontiguousarray(data), begins, ends, *bases)
    return keys


def power_table(max_length: int, bases: tuple[int, int] = BASES) -> np.ndarray:
    """B(p) = base ** p mod P of Eq. 6, for p = 0 .. max_length.

    Returns:
        Powers, int64 [max_length + 1, 2].
    """
    powers = np.empty((max_length + 1, len(bases)), dtype=np.int64)
    row = [1] * len(bases)
    for length in range(max_length + 1):
        powers[length] = row
        row = [power * base % PRIME for power, base in zip(row, bases, strict=True)]
    return powers


@njit(cache=True, inline="always")
def mod_prime(x):
    """`x mod P` for 0 <= x < 2 ** 62: P is a Mersenne number, so its multiples fold onto the low bits."""
    folded = (x & PRIME) + (x >> 31)
    return folded - PRIME if folded >= PRIME else folded


@njit(cache=True, nogil=True)
def _hash_tokens(data, begins, ends, base_0, base_1):
    keys = np.empty(len(begins), dtype=np.int64)
    for v in range(len(begins)):
        lane_0 = np.int64(0)
        lane_1 = np.int64(0)
        for i in range(begins[v], ends[v]):
            byte_value = np.int64(data[i]) + 1
            lane_0 = mod_prime((lane_0 + byte_value) * base_0)
            lane_1 = mod_prime((lane_1 + byte_value) * base_1)
        keys[v] = lane_0 << 31 | lane_1
    return keys
