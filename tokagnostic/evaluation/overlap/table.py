"""The windows of two tokenizers in the same documents to counts: how many of one's the other makes, as byte strings.

Counting goes by keys and is exact by bytes: one hash table per document holds the distinct windows of both sides, and an
entry is only taken for another's when their bytes are equal. Two byte strings that share a key stay two entries, and are
reported as a key collision. Windows that are alone in their document, see `overlap_alone`, are counted by their place and
never meet another's key.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tokagnostic.evaluation.overlap.alone import NEVER, mark_alone, twin_orders
from tokagnostic.evaluation.overlap.counts import ANY_ORDER, MATRIX, UNIQUE, WEIGHTED, WINDOWS, num_columns
from tokagnostic.evaluation.overlap.sides import SideBatch

TABLE_WINDOWS = 1 << 22
"""A document with more windows than this is counted in several passes, each over a share of the keys."""
HISTOGRAM_ORDER = 8
"""Up to this N, windows of longer documents are counted by the set of orders that the reference makes them in, and the
sets are taken apart at the document's end."""

MISSED, MISSED_FIRST = 1, 2
"""A target window that the reference does not make; and the first of its bytes and order in the document."""


def count_windows(target: SideBatch, reference: SideBatch) -> tuple[np.ndarray, np.ndarray, int]:
    """Count which of the target's windows the reference makes too, document by document.

    Returns:
        counts: per document, int64 [D, 2, N, 2 + N + causes]; the causes are left at zero.
        missed: for each window of the target, `MISSED`, `MISSED_FIRST` or 0, uint8 [T, N].
        key_collisions: distinct windows in the table whose key an earlier one of the same document had.
    """
    counts = np.zeros((len(target.exact), 2, *target.keys.shape[1:], num_columns(target.keys.shape[1])), dtype=np.int64)
    missed = np.zeros(target.keys.shape, dtype=np.uint8)
    collisions = np.zeros(1, dtype=np.int64)
    _count_windows(
        target.keys,
        target.ends,
        target.bounds,
        reference.keys,
        reference.ends + len(target.text),
        reference.bounds,
        target.exact & reference.exact,
        np.concatenate((target.text, reference.text)),
        TABLE_WINDOWS,
        counts,
        missed,
        collisions,
    )
    return counts, missed, int(collisions[0])


@njit(cache=True, nogil=True)
def _count_windows(
    keys,
    ends,
    bounds,
    reference_keys,
    reference_ends,
    reference_bounds,
    same,
    text,
    table_windows,
    counts,
    missed,
    collisions,
):
    """Fill counts, missed and key collisions, int64 [1].

    A table entry is (key, first byte, number of bytes, orders): bit m of the orders says that the reference makes this
    window with m + 1 tokens, bit N + n that the target makes it with n + 1. Where both sides stand for the same bytes,
    the reference's are looked at in the target's copy, so that most equal windows are equal by their place.
    """
    num_documents, max_order = len(bounds) - 1, keys.shape[1]
    table = np.empty((0, 4), dtype=np.int64)
    sets = np.zeros((2, max_order, 1 << max_order if max_order <= HISTOGRAM_ORDER else 0), dtype=np.int64)
    alone = np.full(len(keys), NEVER, dtype=np.int64)
    reference_alone = np.full(len(reference_keys), NEVER, dtype=np.int64)
    twins = np.empty((len(keys), 2), dtype=np.int64)
    for d in range(num_documents):
        first, last = bounds[d], bounds[d + 1]
        reference_first, reference_last = reference_bounds[d], reference_bounds[d + 1]
        shift = ends[first] - reference_ends[reference_first] if same[d] else 0
        if same[d]:
            span, reference_span = (ends, first, last), (reference_ends, reference_first, reference_last)
            mark_alone(text, *span, *reference_span, shift, alone, reference_alone, twins)
        num_windows = (last - first + reference_last - reference_first) * max_order
        num_passes = 1
        while num_passes * table_windows < num_windows:
            num_passes *= 2
        by_sets = last - first >= sets.shape[2] > 0
        if same[d]:
            _count_alone(ends, first, last, alone, twins, keys, reference_keys, counts[d], missed, sets, by_sets)
        sizes = np.zeros(num_passes, dtype=np.int64)
        _add_sizes(sizes, keys, ends, first, last, alone)
        _add_sizes(sizes, reference_keys, reference_ends, reference_first, reference_last, reference_alone)
        for turn in range(num_passes):
            capacity = 16
            while 4 * capacity < 5 * sizes[turn]:
                capacity *= 2
            if capacity > len(table):
                table = np.empty((capacity, 4), dtype=np.int64)
            table[:capacity, 0] = -1
            share = (turn, num_passes)
            store = (table, capacity, text, collisions)
            _enter_reference(
                store, reference_keys, reference_ends, shift, reference_first, reference_last, reference_alone, share
            )
            _look_up_target(store, keys, ends, first, last, alone, share, counts[d], missed, sets, by_sets)
        if by_sets:
            _take_apart(sets, counts[d])


@njit(cache=True, nogil=True)
def _enter_reference(store, keys, ends, shift, first, last, alone, share):
    """Mark the entries of the windows at positions first .. last - 1."""
    table, capacity, text, collisions = store
    turn, num_passes = share
    for t in range(first, last):
        end = ends[t + 1] + shift
        for n in range(keys.shape[1]):
            key = keys[t, n]
            if key >= 0 and key & (num_passes - 1) == turn and ends[t + 1] - ends[t - n] < alone[t - n]:
                begin = ends[t - n] + shift
                slot = _slot_of(table, capacity, text, collisions, key, begin, end - begin)
                table[slot, 3] |= 1 << n


@njit(cache=True, nogil=True)
def _look_up_target(store, keys, ends, first, last, alone, share, counts, missed, sets, by_sets):
    """Enter the windows at positions first .. last - 1 into counts, int64 [2, N, C], or into sets."""
    table, capacity, text, collisions = store
    turn, num_passes = share
    max_order = keys.shape[1]
    by_reference = (1 << max_order) - 1
    for t in range(first, last):
        end = ends[t + 1]
        for n in range(max_order):
            key = keys[t, n]
            if key >= 0 and key & (num_passes - 1) == turn and end - ends[t - n] < alone[t - n]:
                slot = _slot_of(table, capacity, text, collisions, key, ends[t - n], end - ends[t - n])
                orders = table[slot, 3]
                found = orders & by_reference
                is_first = 1 - (orders >> (max_order + n) & 1)
                table[slot, 3] = orders | 1 << (max_order + n)
                if by_sets:
                    sets[WEIGHTED, n, found] += 1
                    sets[UNIQUE, n, found] += is_first
                else:
                    _tally(counts[WEIGHTED, n], found, 1)
                    _tally(counts[UNIQUE, n], found, is_first)
                if not found:
                    missed[t, n] = MISSED + is_first


@njit(cache=True, nogil=True)
def _take_apart(sets, counts):
    """Enter how often each set of orders was met, int64 [2, N, 2 ** N], into counts, and leave it at zero."""
    for counting in range(sets.shape[0]):
        for n in range(sets.shape[1]):
            for found in range(sets.shape[2]):
                if sets[counting, n, found]:
                    _tally(counts[counting, n], found, sets[counting, n, found])
                    sets[counting, n, found] = 0


@njit(cache=True, nogil=True)
def _count_alone(ends, first, last, alone, twins, keys, reference_keys, counts, missed, sets, by_sets):
    """Enter the windows that are alone in their document into counts, int64 [2, N, C], or into sets."""
    for t in range(first, last):
        end = ends[t + 1]
        for n in range(keys.shape[1]):
            if keys[t, n] < 0:
                break
            if end - ends[t - n] >= alone[t - n]:
                found = twin_orders(twins[t - n, 0], twins[t, 1], reference_keys)
                if by_sets:
                    sets[WEIGHTED, n, found] += 1
                    sets[UNIQUE, n, found] += 1
                else:
                    _tally(counts[WEIGHTED, n], found, 1)
                    _tally(counts[UNIQUE, n], found, 1)
                if not found:
                    missed[t, n] = MISSED_FIRST


@njit(cache=True, nogil=True)
def _add_sizes(sizes, keys, ends, first, last, alone):
    """Add up how many windows each pass enters into its table, int64 [passes]; none is in two of them."""
    for t in range(first, last):
        for n in range(keys.shape[1]):
            if keys[t, n] < 0:
                break
            sizes[keys[t, n] & (len(sizes) - 1)] += ends[t + 1] - ends[t - n] < alone[t - n]


@njit(cache=True, nogil=True)
def _slot_of(table, capacity, text, collisions, key, begin, length):
    """The entry of a window, made if there is none; counted if it is made though other bytes have its key."""
    slot = (key ^ key >> 31) & (capacity - 1)
    collided = 0
    while True:
        its_key = table[slot, 0]
        if its_key == key:
            if table[slot, 2] == length:
                other = table[slot, 1]
                if other == begin:
                    return slot
                i = 0
                while i < length and text[other + i] == text[begin + i]:
                    i += 1
                if i == length:
                    return slot
            collided = 1
        elif its_key < 0:
            table[slot, 0] = key
            table[slot, 1] = begin
            table[slot, 2] = length
            table[slot, 3] = 0
            collisions[0] += collided
            return slot
        slot = (slot + 1) & (capacity - 1)


@njit(cache=True, nogil=True)
def _tally(count, found, number):
    """Enter equal target windows into their counts, int64 [C], by the orders in which the reference makes them."""
    count[WINDOWS] += number
    if found:
        count[ANY_ORDER] += number
    m = MATRIX
    while found:
        if found & 1:
            count[m] += number
        found >>= 1
        m += 1
