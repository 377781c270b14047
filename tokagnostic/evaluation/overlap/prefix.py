"""Windows that begin with a token from which a space was taken, as they would be with that space, and who makes them too.

There are N of them per segment of the text at most, so they are hashed from their bytes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tokagnostic.evaluation.overlap.sides import BARE, TAKEN
from tokagnostic.hashing.polynomial import BASES, mod_prime

KEY, BEGIN, LENGTH, EQUAL = 0, 1, 2, 3
"""Columns of an entry: the key with the space; the bytes without it; the first entry with the same bytes."""
_SPACE = 0x20
_BASE_0, _BASE_1 = BASES


@njit(cache=True, nogil=True)
def kept_windows(text, ends, marks, first, last, max_order):
    """The windows of a document's positions first .. last - 1 that begin where a space was taken.

    Returns:
        Entries, int64 [S * N, 4], N after one another for each such position; key -1 where there is no window.
    """
    num_taken = 0
    for t in range(first, last):
        num_taken += marks[t] == TAKEN
    entries = np.full((num_taken * max_order, 4), -1, dtype=np.int64)
    i = 0
    for t in range(first, last if num_taken else first):
        if marks[t] == TAKEN:
            lane_0 = mod_prime((_SPACE + 1) * _BASE_0)
            lane_1 = mod_prime((_SPACE + 1) * _BASE_1)
            for n in range(max_order):
                end = t + n
                if end == last or marks[end] == BARE:
                    break
                for k in range(ends[end], ends[end + 1]):
                    lane_0 = mod_prime((lane_0 + np.int64(text[k]) + 1) * _BASE_0)
                    lane_1 = mod_prime((lane_1 + np.int64(text[k]) + 1) * _BASE_1)
                entries[i + n, KEY] = lane_0 << 31 | lane_1
                entries[i + n, BEGIN] = ends[t]
                entries[i + n, LENGTH] = ends[end + 1] - ends[t]
            i += max_order
    return entries


@njit(cache=True, nogil=True)
def index_of(entries, text):
    """A hash table of entries, int64 [power of two]; equal ones share the place of the first, which `EQUAL` names."""
    capacity = 2
    while capacity < 2 * len(entries):
        capacity *= 2
    slots = np.full(capacity, -1, dtype=np.int64)
    for i in range(len(entries)):
        key, begin, length = entries[i, KEY], entries[i, BEGIN], entries[i, LENGTH]
        if key >= 0:
            slot = _slot(key, capacity)
            while slots[slot] >= 0 and not _equal(entries, slots[slot], key, text, text, begin, length):
                slot = (slot + 1) & (capacity - 1)
            if slots[slot] < 0:
                slots[slot] = i
            entries[i, EQUAL] = slots[slot]
    return slots


@njit(cache=True, nogil=True)
def find_kept(slots, entries, text, key, other_text, begin, length):
    """The entry that with its space is the window other_text[begin : begin + length], or -1."""
    if other_text[begin] != _SPACE:
        return -1
    slot = _slot(key, len(slots))
    while slots[slot] >= 0:
        if _equal(entries, slots[slot], key, text, other_text, begin + 1, length - 1):
            return slots[slot]
        slot = (slot + 1) & (len(slots) - 1)
    return -1


@njit(cache=True, nogil=True)
def mark_made(made, slots, entries, text, keys, other_text, ends, marks, first, last):
    """Mark the entries that the other side makes, with their space, at positions first .. last - 1."""
    for t in range(first, last):
        for n in range(keys.shape[1]):
            if keys[t, n] >= 0 and marks[t - n] != TAKEN:
                begin = ends[t - n]
                i = find_kept(slots, entries, text, keys[t, n], other_text, begin, ends[t + 1] - begin)
                if i >= 0:
                    made[i] = True


@njit(cache=True, inline="always")
def _slot(key, capacity):
    return (key ^ key >> 31) & (capacity - 1)


@njit(cache=True, inline="always")
def _equal(entries, i, key, text, other_text, begin, length):
    if entries[i, KEY] != key or entries[i, LENGTH] != length:
        return False
    own = entries[i, BEGIN]
    k = 0
    while k < length and text[own + k] == other_text[begin + k]:
        k += 1
    return k == length
