"""Windows to records of 16 bytes, and records, sorted and combined in place, to counts of a whole corpus.

A record is two signed 64-bit numbers: the window's key of 62 bits, and one word that holds, from the high end, a check
of 41 bits, a target order, a reference order (5 bits each, 0 for none) and how often the target makes these bytes with
that many tokens (12 bits). The check is the upper part of the key under other bases, so that byte strings which share a
key are still told apart. Most byte strings of a text are made with one number of tokens by each side, and then one
record holds all that is known of them.

Two records belong to the same byte string if key and check are equal. For byte strings chosen without regard to the
four bases, the chance that two different ones of at most L bytes share both is at most (L / P) ** 2 * L ** 2 / 2 ** 41,
P = 2 ** 31 - 1; for n distinct strings whose hashes behave like random numbers it is about n ** 2 / 2 ** 104 for any
such pair at all, 5e-8 for a million million strings.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tokagnostic.evaluation.overlap.counts import ANY_ORDER, LARGEST_ORDER, MATRIX, UNIQUE, WEIGHTED, WINDOWS

RECORD_BYTES = 16
KEY_LIMIT = 1 << 62
"""Keys are below this number."""

COUNT_BITS = 12
ORDER_BITS = 5
REFERENCE_SHIFT = COUNT_BITS
TARGET_SHIFT = COUNT_BITS + ORDER_BITS
CHECK_SHIFT = COUNT_BITS + 2 * ORDER_BITS
CHECK_SURPLUS = 21
"""Low bits of the 62-bit check that a record has no room for."""
MAX_COUNT = (1 << COUNT_BITS) - 1
"""A string that occurs more often has several records."""
ORDER_MASK = (1 << ORDER_BITS) - 1

TARGET, REFERENCE = 0, 1
"""Which side made a window."""


def enter_windows(records: np.ndarray, size: int, keys: np.ndarray, checks: np.ndarray, side: int) -> int:
    """Append a record per window.

    Args:
        records: int64 [R, 2], with room for every window.
        size: records in use.
        keys: int64 [T, N]; -1 where there is no window.
        checks: keys of the same windows under the other bases, int64 [T, N].
        side: TARGET or REFERENCE.

    Returns:
        Records in use afterwards.
    """
    return int(_enter_windows(records, size, keys, checks, side == TARGET))


def sort_and_combine(records: np.ndarray, scratch: np.ndarray) -> int:
    """Sort records by key and leave one group of as few records as can be per byte string, in place.

    Args:
        records: int64 [R, 2].
        scratch: int64, at least as large; its contents are lost.

    Returns:
        Records left, which stand first; those of one byte string follow one another.
    """
    _sort(records, scratch)
    return int(_combine(records))


def tally(records: np.ndarray, counts: np.ndarray) -> tuple[int, int]:
    """Add up combined records.

    Args:
        records: int64 [R, 2], sorted and combined, with all records of the keys that occur in it.
        counts: int64 [2, N, 2 + N], unique and weighted: the target's windows of each order, those the reference makes
            with any number of tokens, and with 1, 2, ... N; added to.

    Returns:
        Distinct byte strings, and how many of them have a key that another one before them had.
    """
    num_strings, key_collisions = _tally(records, counts)
    return int(num_strings), int(key_collisions)


@njit(cache=True, nogil=True)
def _enter_windows(records, size, keys, checks, of_target):
    for t in range(keys.shape[0]):
        for n in range(keys.shape[1]):
            if keys[t, n] >= 0:
                tag = (n + 1) << TARGET_SHIFT | 1 if of_target else (n + 1) << REFERENCE_SHIFT
                records[size, 0] = keys[t, n]
                records[size, 1] = checks[t, n] >> CHECK_SURPLUS << CHECK_SHIFT | tag
                size += 1
    return size


@njit(cache=True, nogil=True)
def _sort(records, scratch):
    """Radix sort by key, eight bits at a time from the low end: the same cost whatever the text repeats."""
    size = len(records)
    num_digits = np.zeros((8, 256), dtype=np.int64)
    for i in range(size):
        key = records[i, 0]
        for p in range(8):
            num_digits[p, key >> 8 * p & 255] += 1
    source, target = records, scratch
    num_moves = 0
    for p in range(8):
        if num_digits[p].max() == size:
            continue
        places = np.cumsum(num_digits[p]) - num_digits[p]
        for i in range(size):
            digit = source[i, 0] >> 8 * p & 255
            place = places[digit]
            places[digit] = place + 1
            target[place, 0] = source[i, 0]
            target[place, 1] = source[i, 1]
        source, target = target, source
        num_moves += 1
    if num_moves % 2:
        records[:] = scratch[:size]


@njit(cache=True, nogil=True)
def _combine(records):
    """Records left. A string's records are read before fewer or as many are written in their place."""
    size = len(records)
    counts = np.zeros(LARGEST_ORDER + 1, dtype=np.int64)
    begin = 0
    left = 0
    while begin < size:
        key = records[begin, 0]
        end = begin + 1
        while end < size and records[end, 0] == key:
            end += 1
        if end == begin + 1:
            records[left, 0] = key
            records[left, 1] = records[begin, 1]
            left += 1
            begin = end
        while begin < end:
            check = records[begin, 1] >> CHECK_SHIFT
            orders = 0
            rest = end
            for i in range(end - 1, begin - 1, -1):
                word = records[i, 1]
                if word >> CHECK_SHIFT == check:
                    counts[word >> TARGET_SHIFT & ORDER_MASK] += word & MAX_COUNT
                    orders |= 1 << (word >> REFERENCE_SHIFT & ORDER_MASK)
                else:  # another string of the same key waits at the end of the group
                    rest -= 1
                    records[rest, 1] = word
            begin = rest
            left = _write_string(records, left, key, check, counts, orders)
    return left


@njit(cache=True, nogil=True)
def _write_string(records, left, key, check, counts, orders):
    """Write the records of one string from `left` on, and empty its counts; returns the place after them."""
    n = m = 1
    while True:
        while n <= LARGEST_ORDER and counts[n] == 0:
            n += 1
        while m <= LARGEST_ORDER and not orders >> m & 1:
            m += 1
        if n > LARGEST_ORDER and m > LARGEST_ORDER:
            return left
        word = check << CHECK_SHIFT
        if n <= LARGEST_ORDER:
            count = min(counts[n], MAX_COUNT)
            counts[n] -= count
            word |= n << TARGET_SHIFT | count
        if m <= LARGEST_ORDER:
            word |= m << REFERENCE_SHIFT
            m += 1
        records[left, 0] = key
        records[left, 1] = word
        left += 1


@njit(cache=True, nogil=True)
def _tally(records, totals):
    max_order = totals.shape[1]
    counts = np.zeros(LARGEST_ORDER + 1, dtype=np.int64)
    num_strings = key_collisions = 0
    i = 0
    while i < len(records):
        key, check = records[i, 0], records[i, 1] >> CHECK_SHIFT
        key_collisions += i > 0 and records[i - 1, 0] == key
        num_strings += 1
        orders = 0
        while i < len(records) and records[i, 0] == key and records[i, 1] >> CHECK_SHIFT == check:
            word = records[i, 1]
            counts[word >> TARGET_SHIFT & ORDER_MASK] += word & MAX_COUNT
            orders |= 1 << (word >> REFERENCE_SHIFT & ORDER_MASK)
            i += 1
        orders = orders >> 1 & (1 << max_order) - 1
        for n in range(max_order):
            count = counts[n + 1]
            if count:
                _add(totals[UNIQUE, n], orders, 1)
                _add(totals[WEIGHTED, n], orders, count)
                counts[n + 1] = 0
    return num_strings, key_collisions


@njit(cache=True, nogil=True)
def _add(total, orders, count):
    total[WINDOWS] += count
    if orders:
        total[ANY_ORDER] += count
    m = MATRIX
    while orders:
        if orders & 1:
            total[m] += count
        orders >>= 1
        m += 1
