"""The target's windows that a reference does not make to the reason of each: one cause, the first that holds.

`overlap_alignment` says which of a tokenizer's bytes are copied from the source, and whence; in a document that it keeps
all are. Each window stands at a place [A, B) of the source: A is the place of its first byte or, if that is not copied,
where the last copied byte before it ends; B the end of its last byte or, if that is not copied, where the first copied
byte after it begins. (The document's ends where there is none.) A space that the prefix rule took from the front of a
token of the reference is the source's byte before the next copied byte, if that is a space that no byte is copied from.
An id without bytes stands for the bytes of the source between the copied bytes round about it, a taken space at their
end left out.

- `special`: an id without bytes of the reference stands for a byte of [A, B), or for none at a place inside it.
- `normalisation`: the window's bytes are not all copied from one run of the source, or the reference's bytes over
  [A, B) are not, the taken space counted as copied.
- `prefix`: the window would be found if both sides kept the spaces that their prefix rules take: the window, with its
  space if it begins with such a token, is among the reference's windows of orders 1..N in this document, with theirs.
- `more_tokens`: the reference's tokens have borders at A and at B; so more than N of them lie between.
- `cut_points`: they do not.

Of windows with equal bytes and order in one document, the first speaks for all in unique counts.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tokagnostic.evaluation.overlap.counts import MATRIX, UNIQUE, WEIGHTED
from tokagnostic.evaluation.overlap.prefix import EQUAL, KEY, find_kept, index_of, kept_windows, mark_made
from tokagnostic.evaluation.overlap.shares import CAUSES
from tokagnostic.evaluation.overlap.sides import BARE, TAKEN, SideBatch
from tokagnostic.evaluation.overlap.table import MISSED_FIRST

_SPECIAL, _NORMALISATION, _PREFIX, _MORE_TOKENS, _CUT_POINTS = range(len(CAUSES))


def add_causes(
    counts: np.ndarray,
    missed: np.ndarray,
    target: SideBatch,
    reference: SideBatch,
    source: np.ndarray,
    source_bounds: np.ndarray,
) -> None:
    """Enter the cause of every miss into the counts.

    Args:
        counts: as `count_windows` gave them, int64 [D, 2, N, 2 + N + causes]; changed.
        missed: likewise, uint8 [T, N].
        target: the target's side of the documents.
        reference: the reference's side.
        source: the documents' bytes one after another, uint8 [S].
        source_bounds: document d has the bytes source[source_bounds[d] : source_bounds[d + 1]], int64 [D + 1].
    """
    _add_causes(counts, missed, _arrays(target), _arrays(reference), source, source_bounds)


def _arrays(side: SideBatch) -> tuple[np.ndarray, ...]:
    return side.keys, side.bounds, side.text, side.ends, side.marks, side.exact, side.places


@njit(cache=True, nogil=True)
def _add_causes(counts, missed, target, reference, source, source_bounds):
    _, bounds, text, ends, marks, exact, places = target
    _, reference_bounds, reference_text, reference_ends, reference_marks, reference_exact, _ = reference
    max_order = missed.shape[1]
    for d in range(len(bounds) - 1):
        first, last = bounds[d], bounds[d + 1]
        if not missed[first:last].any():
            continue
        reference_first, reference_last = reference_bounds[d], reference_bounds[d + 1]
        begin, reference_begin = ends[first], reference_ends[reference_first]
        cuts = np.zeros(reference_ends[reference_last] - reference_begin + 1, dtype=np.bool_)
        for t in range(reference_first, reference_last + 1):
            cuts[reference_ends[t] - reference_begin] = True

        extra = kept_windows(
            reference_text, reference_ends, reference_marks, reference_first, reference_last, max_order
        )
        extra_slots = index_of(extra, reference_text)
        taken = kept_windows(text, ends, marks, first, last, max_order)
        made = _made_with_space(taken, missed, target, reference, d)

        plain = exact[d] and reference_exact[d] and not _any_bare(reference_marks, reference_first, reference_last)
        document = source[source_bounds[d] : source_bounds[d + 1]]
        own = places[begin : ends[last]] if not exact[d] else np.arange(0 if plain else len(document))
        ways = _ways(own, len(document) if not plain else 0)
        maps = _reference_maps(reference, d, document, plain)
        kept = (extra, extra_slots, reference_text, taken, made)
        _enter_causes(counts[d], missed, target, first, last, own, ways, maps, cuts, kept, plain)


@njit(cache=True, nogil=True)
def _enter_causes(counts, missed, target, first, last, places, ways, maps, cuts, kept, plain):
    """Enter the causes of one document into its counts, int64 [2, N, 2 + N + causes]."""
    keys, _, text, ends, marks, _, _ = target
    extra, extra_slots, reference_text, taken, made = kept
    max_order = keys.shape[1]
    begin = ends[first]
    num_taken = 0
    for t in range(first, last):
        num_taken += marks[t] == TAKEN
        # The place among the taken positions of the first token of each window, counted back from this one.
        nth = num_taken
        for n in range(max_order):
            starts_taken = t - n >= first and marks[t - n] == TAKEN
            nth -= starts_taken
            if not missed[t, n]:
                continue
            a, b = ends[t - n], ends[t + 1]
            cause = -1
            low, high = a - begin, b - begin
            if not plain:
                cause, low, high = _rewritten_or_special(low, high, places, ways, maps)
            if cause < 0:
                if starts_taken:
                    with_space = made[taken[nth * max_order + n, EQUAL]]
                else:
                    with_space = len(extra) > 0 and (
                        find_kept(extra_slots, extra, reference_text, keys[t, n], text, a, b - a) >= 0
                    )
                cause = _PREFIX if with_space else _by_borders(low, high, cuts, maps, plain)
            counts[WEIGHTED, n, MATRIX + max_order + cause] += 1
            counts[UNIQUE, n, MATRIX + max_order + cause] += missed[t, n] == MISSED_FIRST


@njit(cache=True, nogil=True)
def _made_with_space(taken, missed, target, reference, d):
    """For each window of the target from whose front a space was taken, if it is missed: whether the reference makes it
    with that space.
    """
    _, bounds, text, _, marks, _, _ = target
    keys, reference_bounds, reference_text, ends, reference_marks, _, _ = reference
    made = np.zeros(len(taken), dtype=np.bool_)
    if _keep_missed(taken, missed, marks, bounds[d], bounds[d + 1]):
        slots = index_of(taken, text)
        first, last = reference_bounds[d], reference_bounds[d + 1]
        mark_made(made, slots, taken, text, keys, reference_text, ends, reference_marks, first, last)
    return made


@njit(cache=True, nogil=True)
def _any_bare(marks, first, last):
    t = first
    while t < last and marks[t] != BARE:
        t += 1
    return t < last


@njit(cache=True, nogil=True)
def _keep_missed(taken, missed, marks, first, last):
    """Leave only those of the entries that are missed; returns whether there are any."""
    max_order = missed.shape[1]
    i = 0
    left = False
    for t in range(first, last if len(taken) else first):
        if marks[t] == TAKEN:
            for n in range(max_order):
                if t + n < last and missed[t + n, n]:
                    left = True
                else:
                    taken[i + n, KEY] = -1
            i += max_order
    return left


@njit(cache=True, nogil=True)
def _ways(places, size):
    """For each border between bytes the end of the last copied byte before it, int64 [L + 1], and the place of the first
    after it, int64 [L + 1]; for each byte how many bytes up to it do not follow the one before in the source.
    """
    length = len(places)
    before = np.zeros(length + 1, dtype=np.int64)
    after = np.full(length + 1, size, dtype=np.int64)
    breaks = np.zeros(length, dtype=np.int64)
    for i in range(length):
        before[i + 1] = places[i] + 1 if places[i] >= 0 else before[i]
        if i > 0:
            breaks[i] = breaks[i - 1] + (places[i] < 0 or places[i] != places[i - 1] + 1)
    for i in range(length - 1, -1, -1):
        after[i] = places[i] if places[i] >= 0 else after[i + 1]
    return before, after, breaks


@njit(cache=True, nogil=True)
def _reference_maps(reference, d, source, plain):
    """What the reference makes of each byte of the source.

    Returns:
        copies: the offset in its bytes of the copy, int64 [S], or -1.
        taken: whether the prefix rule took it, bool [S].
        breaks: how many bytes up to it are not copied right behind the one before, int64 [S].
        bare: bytes before each border that an id without bytes stands for, int64 [S + 1].
        gaps: ids without bytes that stand for nothing, up to each border, int64 [S + 1].
    """
    _, bounds, _, ends, marks, exact, places = reference
    size = 0 if plain else len(source)
    first, last = bounds[d], bounds[d + 1]
    begin = ends[first]
    own = places[begin : ends[last]] if not exact[d] else np.arange(size)
    copies = np.full(size, -1, dtype=np.int64)
    taken = np.zeros(size, dtype=np.bool_)
    breaks = np.zeros(size, dtype=np.int64)
    bare = np.zeros(size + 1, dtype=np.int64)
    gaps = np.zeros(size + 1, dtype=np.int64)
    if plain:
        return copies, taken, breaks, bare, gaps
    before, after, _ = _ways(own, size)
    for i in range(len(own)):
        if own[i] >= 0:
            copies[own[i]] = i
    for t in range(first, last):
        place = after[ends[t] - begin]
        if marks[t] == TAKEN and place > 0 and source[place - 1] == 0x20 and copies[place - 1] < 0:
            taken[place - 1] = True
    _mark_bare(bare, gaps, taken, before, after, ends[first : last + 1] - begin, marks[first:last])
    for s in range(size):
        bare[s + 1] += bare[s]
        gaps[s + 1] += gaps[s]
        if s > 0:
            breaks[s] = breaks[s - 1] + (copies[s] < 0 or copies[s] != copies[s - 1] + 1)
    return copies, taken, breaks, bare, gaps


@njit(cache=True, nogil=True)
def _mark_bare(bare, gaps, taken, before, after, ends, marks):
    """Mark what the ids without bytes stand for: bytes of the source, each once, or a place between two."""
    filled = 0
    for t in range(len(marks)):
        if marks[t] == BARE:
            low, high = before[ends[t]], after[ends[t]]
            high -= high > low and taken[high - 1]
            gaps[low] += low == high
            for s in range(max(low, filled), high):
                bare[s + 1] = 1
            filled = max(filled, high)


@njit(cache=True, nogil=True)
def _rewritten_or_special(a, b, places, ways, maps):
    """Cause and place of the window of bytes [a, b); -1 for another cause than these two."""
    before, after, own_breaks = ways
    copies, taken, breaks, bare, gaps = maps
    low = places[a] if places[a] >= 0 else before[a]
    high = places[b - 1] + 1 if places[b - 1] >= 0 else after[b]
    if bare[high] > bare[low] or (high - low > 1 and gaps[high - 1] > gaps[low]):
        return _SPECIAL, low, high
    if places[a] < 0 or own_breaks[b - 1] != own_breaks[a]:
        return _NORMALISATION, low, high
    copied = low + taken[low]
    if copied < high and (copies[copied] < 0 or breaks[high - 1] != breaks[copied]):
        return _NORMALISATION, low, high
    return -1, low, high


@njit(cache=True, nogil=True)
def _by_borders(low, high, cuts, maps, plain):
    """The cause where the reference copies the whole place, but for a taken space, and its tokens do not fit."""
    copies, taken, _, _, _ = maps
    if plain:
        both = cuts[low] and cuts[high]
    elif taken[low]:
        both = high - low > 1 and cuts[copies[high - 1] + 1]
    else:
        both = cuts[copies[low]] and cuts[copies[high - 1] + 1]
    return _MORE_TOKENS if both else _CUT_POINTS
