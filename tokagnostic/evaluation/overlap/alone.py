"""A document's cut points to the places from which on windows need no table, because their first bytes stand nowhere else.

Both tokenizers of a document stand for the same bytes. A window is then a span of them, and it equals another window
only where that one begins with the same bytes. If the first 4, 6, 8, ... bytes behind a cut point stand behind no other
cut point, every window from there on that is at least as long occurs once, and the other side makes it if and only if
that one cuts at both its ends.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LADDER = (4, 6, 8, 12, 16, 24)
"""Numbers of first bytes that are tried, rising."""
NEVER = 1 << 62
"""More bytes than any window has."""
_MULTIPLIER = 0x5851F42D4C957F2D


@njit(cache=True, nogil=True)
def mark_alone(text, ends, first, last, other_ends, other_first, other_last, shift, alone, other_alone, twins):
    """Look at one document.

    Args:
        text: uint8 [L].
        ends: token t of one side has the bytes text[ends[t] : ends[t + 1]], int64 [T + 1].
        first: its first token in the document.
        last: the one behind its last.
        other_ends: token r of the other side has the bytes from other_ends[r] + shift on, int64 [R + 1].
        other_first: its first token in the document.
        other_last: the one behind its last.
        shift: from where the other side's bytes lie to where the same bytes of this side lie.
        alone: filled with the number of bytes from which on windows that begin with token t are alone, int64 [T].
        other_alone: the same for the other side, int64 [R].
        twins: filled with the token of the other side that begins where token t does, and with the one that ends
            where it does, or -1, int64 [T, 2].
    """
    alone[first:last] = NEVER
    other_alone[other_first:other_last] = NEVER
    twins[first:last] = -1
    places = np.empty(last - first + other_last - other_first, dtype=np.int64)
    token = np.empty(len(places), dtype=np.int64)
    other_token = np.empty(len(places), dtype=np.int64)
    num_places = 0
    t, r = first, other_first
    while t < last or r < other_last:
        if t < last and ends[t] == ends[t + 1]:
            t += 1
            continue
        if r < other_last and other_ends[r] == other_ends[r + 1]:
            r += 1
            continue
        place = ends[t] if t < last else NEVER
        other_place = other_ends[r] + shift if r < other_last else NEVER
        token[num_places] = other_token[num_places] = -1
        places[num_places] = min(place, other_place)
        if place <= other_place:
            token[num_places] = t
        if other_place <= place:
            other_token[num_places] = r
        if place == other_place:
            twins[t, 0] = r
        t += place <= other_place
        r += other_place <= place
        num_places += 1
    _mark_ends(ends, first, last, other_ends, other_first, other_last, shift, twins)
    lengths = _alone_from(text, places[:num_places], ends[last])
    for i in range(num_places):
        if token[i] >= 0:
            alone[token[i]] = lengths[i]
        if other_token[i] >= 0:
            other_alone[other_token[i]] = lengths[i]


@njit(cache=True, nogil=True)
def twin_orders(begin_twin, end_twin, other_keys):
    """The orders, as a set of bits, in which the other side makes the window between two cut points that it shares."""
    length = end_twin - begin_twin + 1
    if begin_twin < 0 or end_twin < 0 or not 1 <= length <= other_keys.shape[1] or other_keys[end_twin, length - 1] < 0:
        return 0
    return 1 << (length - 1)


@njit(cache=True, nogil=True)
def _mark_ends(ends, first, last, other_ends, other_first, other_last, shift, twins):
    r = other_first
    for t in range(first, last):
        if ends[t] == ends[t + 1]:
            continue
        while r < other_last and (other_ends[r + 1] + shift < ends[t + 1] or other_ends[r] == other_ends[r + 1]):
            r += 1
        if r < other_last and other_ends[r + 1] + shift == ends[t + 1]:
            twins[t, 1] = r


@njit(cache=True, nogil=True)
def _alone_from(text, places, stop):
    """For each place the least number of first bytes in the ladder that no other place has, or `NEVER`, int64 [P]."""
    lengths = np.full(len(places), NEVER, dtype=np.int64)
    hashes = np.zeros(len(places), dtype=np.int64)
    shared = np.zeros(len(places), dtype=np.bool_)
    rivals = np.arange(len(places))
    capacity = 16
    while capacity < 2 * len(places):
        capacity *= 2
    table = np.empty(capacity, dtype=np.int64)
    hashed = 0
    for length in LADDER:
        rivals = _hash_on(text, places, stop, rivals, hashes, hashed, length)
        hashed = length
        _mark_shared(table, rivals, hashes, shared)
        num_rivals = 0
        for i in rivals:
            if shared[i]:
                rivals[num_rivals] = i
                num_rivals += 1
            else:
                lengths[i] = length
        rivals = rivals[:num_rivals]
    return lengths


@njit(cache=True, nogil=True)
def _hash_on(text, places, stop, rivals, hashes, hashed, length):
    """Hash the bytes `hashed` to `length` of each rival; those that have so many, int64 [up to P].

    A place too near the end begins no window of that length, and none that is as long can equal one from there.
    """
    num_rivals = 0
    for i in rivals:
        if places[i] + length <= stop:
            for byte in text[places[i] + hashed : places[i] + length]:
                hashes[i] = (hashes[i] ^ np.int64(byte)) * _MULTIPLIER
            rivals[num_rivals] = i
            num_rivals += 1
    return rivals[:num_rivals]


@njit(cache=True, nogil=True)
def _mark_shared(table, rivals, hashes, shared):
    """Say of each rival whether another one has its hash.

    Other bytes with that hash are taken for the same: their windows are looked up, where bytes are compared.
    """
    capacity = len(table)
    while capacity > 16 and capacity >= 4 * len(rivals):
        capacity //= 2
    table[:capacity] = -1
    for i in rivals:
        shared[i] = False
    for i in rivals:
        slot = (hashes[i] ^ hashes[i] >> 32) & (capacity - 1)
        while table[slot] >= 0 and hashes[table[slot]] != hashes[i]:
            slot = (slot + 1) & (capacity - 1)
        if table[slot] < 0:
            table[slot] = i
        else:
            shared[i] = shared[table[slot]] = True
