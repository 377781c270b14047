"""The bytes that a document's tokens stand for, against the bytes of its source: which of them stand where in it.

Where a tokenizer keeps the text, byte i stands at place i. Where it rewrote the text, one walk over both goes on by the
first of these rules that holds, and is linear in time:

1. Equal bytes: they are one byte, copied.
2. The source has ASCII white space where the tokens have none: that byte of the source was dropped.
3. One ASCII letter, in upper case on one side and in lower case on the other: rewritten.
4. Skip d bytes, some on either side, least d first up to `NEAR` and fewest of the tokens' first, so that from there on
   rules 1 to 3 copy `NEAR_RUN` bytes or reach both ends.
5. Skip to a common run of `FAR_RUN` bytes that begins on both sides within the next w bytes, w = 32, 64, 128, ...;
   under the least such w the first run on the tokens' side, and its first match in the source.
6. Nothing further is aligned.

What was skipped or rewritten stands nowhere.
"""

from __future__ import annotations

import numpy as np
from numba import njit

NEAR = 16
NEAR_RUN = 4
FAR_RUN = 8
FIRST_WINDOW = 32
REWRITTEN = -1
_WHITE = (0x20, 0x09, 0x0A, 0x0B, 0x0C, 0x0D)


def align(text: np.ndarray, source: np.ndarray) -> np.ndarray:
    """Find where in the source each byte stands that tokens stand for.

    Args:
        text: the tokens' bytes, uint8 [L].
        source: the document's, uint8 [S].

    Returns:
        Offsets in the source, rising, int64 [L]; -1 for a byte that is not one of the source's.
    """
    places: np.ndarray = _align(text, source)
    return places


@njit(cache=True, nogil=True)
def _align(text, source):
    places = np.full(len(text), REWRITTEN, dtype=np.int64)
    i = j = 0
    while i < len(text) and j < len(source):
        if text[i] == source[j]:
            places[i] = j
            i += 1
            j += 1
        elif _dropped(text[i], source[j]):
            j += 1
        elif _other_case(text[i], source[j]):
            i += 1
            j += 1
        else:
            skip_i, skip_j = _near(text, source, i, j)
            if skip_i < 0:
                skip_i, skip_j = _far(text, source, i, j)
            if skip_i < 0:
                break
            i += skip_i
            j += skip_j
    return places


@njit(cache=True, inline="always")
def _dropped(byte, source_byte):
    return source_byte in _WHITE and byte not in _WHITE


@njit(cache=True, inline="always")
def _other_case(byte, source_byte):
    lower = byte | 0x20
    return byte ^ source_byte == 0x20 and 0x61 <= lower <= 0x7A


@njit(cache=True, nogil=True)
def _near(text, source, i, j):
    """Rule 4: bytes to skip on both sides, or -1."""
    for distance in range(1, NEAR + 1):
        for skip in range(distance + 1):
            if _follows(text, source, i + skip, j + distance - skip):
                return skip, distance - skip
    return -1, -1


@njit(cache=True, nogil=True)
def _follows(text, source, i, j):
    """Whether rules 1 to 3 lead on from a place."""
    if i > len(text) or j > len(source):
        return False
    copied = dropped = 0
    while i < len(text) and j < len(source):
        if text[i] == source[j]:
            copied += 1
            if copied == NEAR_RUN:
                return True
            i += 1
            j += 1
        elif dropped < NEAR and _dropped(text[i], source[j]):
            dropped += 1
            j += 1
        elif _other_case(text[i], source[j]):
            i += 1
            j += 1
        else:
            return False
    return i == len(text) and j == len(source)


@njit(cache=True, nogil=True)
def _far(text, source, i, j):
    """Rule 5: bytes to skip on both sides, or -1."""
    window = FIRST_WINDOW
    while True:
        last_i = min(window, len(text) - FAR_RUN - i + 1)
        last_j = min(window, len(source) - FAR_RUN - j + 1)
        capacity = 2 * window
        slots = np.full(capacity, -1, dtype=np.int64)
        for skip in range(last_j):
            slot = _run_slot(source, j + skip, capacity)
            while slots[slot] >= 0 and not _same_run(source, j + slots[slot], source, j + skip):
                slot = (slot + 1) % capacity
            if slots[slot] < 0:
                slots[slot] = skip
        for skip in range(last_i):
            slot = _run_slot(text, i + skip, capacity)
            while slots[slot] >= 0:
                if _same_run(source, j + slots[slot], text, i + skip):
                    return skip, slots[slot]
                slot = (slot + 1) % capacity
        if window >= len(text) - i and window >= len(source) - j:
            return -1, -1
        window *= 2


@njit(cache=True, nogil=True)
def _run_slot(data, begin, capacity):
    value = np.int64(0)
    for k in range(FAR_RUN):
        value = (value * 257 + data[begin + k] + 1) & 0xFFFFFFFFFFFF
    return (value ^ value >> 17) % capacity


@njit(cache=True, nogil=True)
def _same_run(data, begin, other, other_begin):
    k = 0
    while k < FAR_RUN and data[begin + k] == other[other_begin + k]:
        k += 1
    return k == FAR_RUN
