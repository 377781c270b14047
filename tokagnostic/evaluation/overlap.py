"""A text and two tokenizers to the share of one's n-grams that the other also makes, as byte strings.

Table 2 and Figure 2 of arXiv 2607.29065. Each document is compared with itself: a target window counts as found if the
reference makes a window of the same bytes anywhere in the same document.

Counting goes by keys and is exact by bytes: one hash table per document holds every distinct window of both sides, and
an entry is only taken for another's when their bytes are equal. Two byte strings that share a key stay two entries,
and are reported as a key collision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numba import njit

from tokagnostic.corpus import Document
from tokagnostic.errors import CorpusError, InvalidValueError
from tokagnostic.evaluation.overlap_report import Overlap, Shares, SideReport
from tokagnostic.evaluation.windows import AnyDocument, WindowBatch, WindowReader, document_batches
from tokagnostic.tokens import TokenBytes
from tokagnostic.tokens.encoder import TextEncoder

LARGEST_ORDER = 31
"""An entry of the table keeps one bit per order and side in one signed 64-bit number."""
TABLE_WINDOWS = 1 << 22
"""A document with more windows than this is counted in several passes, each over a share of the keys."""

UNIQUE, WEIGHTED = 0, 1
WINDOWS, ANY_ORDER, MATRIX = 0, 1, 2  # columns of a count: windows, found in any order, found in order 1, 2, ...


def ngram_overlap(documents: Iterable[AnyDocument], target: Any, reference: Any, max_order: int = 7) -> Overlap:
    """Count which of a target tokenizer's n-grams a reference tokenizer also makes of the same documents.

    Args:
        documents: the text, in one pass; documents of a corpus, or plain texts.
        target: the tokenizer whose n-grams are looked for, as `TextEncoder.of` takes it.
        reference: the tokenizer among whose n-grams they are looked for.
        max_order: N; orders 1..N of both sides.

    Raises:
        CorpusError: if there is no document, if none of them has a window, or if one is not UTF-8.
        InvalidValueError: if N is not a whole number from 1 to 31.
    """
    if type(max_order) is not int or not 1 <= max_order <= LARGEST_ORDER:
        raise InvalidValueError(
            f"max_order = {max_order!r}",
            expected=f"a whole number from 1 to {LARGEST_ORDER}",
            remedy="Set max_order to such a number",
        )
    encoders = TextEncoder.of(target), TextEncoder.of(reference)
    readers = [WindowReader(encoder, max_order) for encoder in encoders]
    names = encoders[0].name or "target", encoders[1].name or "reference"
    sides = [SideReport(name, encoder.token_bytes.fingerprint) for name, encoder in zip(names, encoders, strict=True)]
    tally = _Tally(max_order)
    for batch in document_batches(documents):
        counts, collisions = _count_batch(batch, readers, sides)
        tally.add(counts, collisions, sum(len(document.data) for document in batch))
    if tally.total[:, :, WINDOWS].sum() == 0:
        raise CorpusError(
            f"{tally.num_documents} documents of which {names[0]} makes no window",
            expected="a text that is not empty",
            remedy="Name a source with text in it",
        )
    return Overlap(
        target=sides[0],
        reference=sides[1],
        max_order=max_order,
        num_documents=tally.num_documents,
        num_bytes=tally.num_bytes,
        unique=tally.pooled(UNIQUE),
        weighted=tally.pooled(WEIGHTED),
        mean_unique=tally.mean(UNIQUE),
        mean_weighted=tally.mean(WEIGHTED),
        key_collisions=tally.key_collisions,
    )


class _Tally:
    """Counts of documents, summed; two tallies of different documents would add up field by field."""

    def __init__(self, max_order: int) -> None:
        self.total = np.zeros((2, max_order, MATRIX + max_order), dtype=np.int64)
        self.share_sums = np.zeros((2, max_order, MATRIX + max_order))
        self.num_counted = np.zeros((2, max_order), dtype=np.int64)
        self.num_documents = 0
        self.num_bytes = 0
        self.key_collisions = 0

    def add(self, counts: np.ndarray, key_collisions: int, num_bytes: int) -> None:
        """Take in the counts of a batch, int64 [D, 2, N, 2 + N]."""
        self.total += counts.sum(axis=0)
        windows = counts[..., WINDOWS]
        # One document after another, so that rounding does not depend on where batches end.
        for shares in 100.0 * counts / np.maximum(windows, 1)[..., None]:
            self.share_sums += shares
        self.num_counted += (windows > 0).sum(axis=0)
        self.num_documents += len(counts)
        self.num_bytes += num_bytes
        self.key_collisions += key_collisions

    def pooled(self, counting: int) -> Shares:
        total = self.total[counting]
        return _shares(total[:, WINDOWS], 100.0 * total, total[:, WINDOWS])

    def mean(self, counting: int) -> Shares:
        return _shares(self.total[counting][:, WINDOWS], self.share_sums[counting], self.num_counted[counting])


def _shares(num_windows: np.ndarray, sums: np.ndarray, divisors: np.ndarray) -> Shares:
    shares = np.full(sums.shape, np.nan)
    np.divide(sums, divisors[:, None], out=shares, where=divisors[:, None] > 0)
    return Shares(num_windows, shares[:, ANY_ORDER], shares[:, MATRIX:])


def _count_batch(
    documents: Sequence[Document], readers: Sequence[WindowReader], sides: Sequence[SideReport]
) -> tuple[np.ndarray, int]:
    """Counts per document, int64 [D, 2, N, 2 + N], and key collisions; the sides account for the batch."""
    batches = [reader.read(documents) for reader in readers]
    spelled = [_spell(batch, reader.encoder.token_bytes) for batch, reader in zip(batches, readers, strict=True)]
    for side, batch, (text, ends) in zip(sides, batches, spelled, strict=True):
        side.add(documents, batch, text.tobytes(), ends)
    (target, reference), ((target_text, target_ends), (reference_text, reference_ends)) = batches, spelled
    counts: np.ndarray
    counts, collisions = _count_windows(
        target.keys,
        target_ends,
        target.bounds,
        reference.keys,
        reference_ends + len(target_text),
        reference.bounds,
        np.concatenate((target_text, reference_text)),
        TABLE_WINDOWS,
    )
    return counts, collisions


def _spell(batch: WindowBatch, token_bytes: TokenBytes) -> tuple[np.ndarray, np.ndarray]:
    """The bytes that tokens stand for, under the policy that strips invented spaces.

    Returns:
        text: uint8 [L].
        ends: position t has the bytes text[ends[t] : ends[t + 1]], int64 [T + 1].
    """
    rule = token_bytes.prefix
    text: np.ndarray
    ends: np.ndarray
    text, ends = _spell_tokens(
        batch.input_ids, batch.starts, token_bytes.data, token_bytes.offsets, rule != "none", rule == "always"
    )
    return text, ends


@njit(cache=True, nogil=True)
def _spell_tokens(ids, starts, data, offsets, strip, always):
    begins = np.empty(len(ids), dtype=np.int64)
    ends = np.zeros(len(ids) + 1, dtype=np.int64)
    at_segment_start = False
    for t in range(len(ids)):
        begin, end = offsets[ids[t]], offsets[ids[t] + 1]
        at_segment_start = at_segment_start or (strip and starts[t])
        if begin == end:
            at_segment_start = at_segment_start or always
        elif at_segment_start:
            begin += data[begin] == 0x20
            at_segment_start = False
        begins[t] = begin
        ends[t + 1] = ends[t] + end - begin
    text = np.empty(ends[-1], dtype=np.uint8)
    for t in range(len(ids)):
        for i in range(ends[t + 1] - ends[t]):
            text[ends[t] + i] = data[begins[t] + i]
    return text, ends


@njit(cache=True, nogil=True)
def _count_windows(keys, ends, bounds, reference_keys, reference_ends, reference_bounds, text, table_windows):
    """Counts, int64 [D, 2, N, 2 + N], and key collisions.

    A table entry is (key, first byte, number of bytes, orders): bit m of the orders says that the reference makes this
    window with m + 1 tokens, bit N + n that the target makes it with n + 1.
    """
    num_documents, max_order = len(bounds) - 1, keys.shape[1]
    counts = np.zeros((num_documents, 2, max_order, MATRIX + max_order), dtype=np.int64)
    table = np.empty((0, 4), dtype=np.int64)
    collisions = 0
    for d in range(num_documents):
        first, last = bounds[d], bounds[d + 1]
        reference_first, reference_last = reference_bounds[d], reference_bounds[d + 1]
        num_windows = (last - first + reference_last - reference_first) * max_order
        num_passes = 1 + num_windows // table_windows
        for turn in range(num_passes):
            size = _in_turn(keys[first:last], turn, num_passes)
            size += _in_turn(reference_keys[reference_first:reference_last], turn, num_passes)
            capacity = 16
            while capacity < 2 * size:
                capacity *= 2
            if capacity > len(table):
                table = np.empty((capacity, 4), dtype=np.int64)
            table[:capacity, 0] = -1
            share = (turn, num_passes)
            collisions += _enter_reference(
                table, capacity, text, reference_keys, reference_ends, reference_first, reference_last, share
            )
            collisions += _look_up_target(table, capacity, text, keys, ends, first, last, share, counts[d])
    return counts, collisions


@njit(cache=True, nogil=True)
def _enter_reference(table, capacity, text, keys, ends, first, last, share):
    """Mark the entries of the windows at positions first .. last - 1; returns key collisions."""
    turn, num_passes = share
    collisions = 0
    for t in range(first, last):
        for n in range(keys.shape[1]):
            key = keys[t, n]
            if key >= 0 and key % num_passes == turn:
                slot, collided = _slot_of(table, capacity, text, key, ends[t - n], ends[t + 1] - ends[t - n])
                table[slot, 3] |= 1 << n
                collisions += collided
    return collisions


@njit(cache=True, nogil=True)
def _look_up_target(table, capacity, text, keys, ends, first, last, share, counts):
    """Enter the windows at positions first .. last - 1 into counts, int64 [2, N, 2 + N]; returns key collisions."""
    turn, num_passes = share
    max_order = keys.shape[1]
    collisions = 0
    for t in range(first, last):
        for n in range(max_order):
            key = keys[t, n]
            if key >= 0 and key % num_passes == turn:
                slot, collided = _slot_of(table, capacity, text, key, ends[t - n], ends[t + 1] - ends[t - n])
                orders = table[slot, 3]
                collisions += collided
                _tally(counts[WEIGHTED, n], orders, max_order)
                if not orders >> (max_order + n) & 1:
                    table[slot, 3] |= 1 << (max_order + n)
                    _tally(counts[UNIQUE, n], orders, max_order)
    return collisions


@njit(cache=True, nogil=True)
def _in_turn(keys, turn, num_passes):
    """How many windows a pass has to do with, none of them twice in different passes."""
    if num_passes == 1:
        return keys.size
    count = 0
    for t in range(keys.shape[0]):
        for n in range(keys.shape[1]):
            count += keys[t, n] >= 0 and keys[t, n] % num_passes == turn
    return count


@njit(cache=True, nogil=True)
def _slot_of(table, capacity, text, key, begin, length):
    """The entry of a window, made if there is none; and 1 if it was made though other bytes have its key, else 0."""
    slot = (key ^ key >> 31) & (capacity - 1)
    collided = 0
    while table[slot, 0] >= 0:
        if table[slot, 0] == key:
            if table[slot, 2] == length:
                other = table[slot, 1]
                i = 0
                while i < length and text[other + i] == text[begin + i]:
                    i += 1
                if i == length:
                    return slot, 0
            collided = 1
        slot = (slot + 1) & (capacity - 1)
    table[slot, 0] = key
    table[slot, 1] = begin
    table[slot, 2] = length
    table[slot, 3] = 0
    return slot, collided


@njit(cache=True, nogil=True)
def _tally(count, orders, max_order):
    """Enter one target window into its counts, int64 [2 + N]."""
    count[WINDOWS] += 1
    found = orders & ((1 << max_order) - 1)
    count[ANY_ORDER] += found != 0
    m = MATRIX
    while found:
        count[m] += found & 1
        found >>= 1
        m += 1
