"""The beginning of a document and two tokenizers to the windows of both, each with where the other makes the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np

from tokagnostic.corpus import Document
from tokagnostic.evaluation.overlap.alignment import align
from tokagnostic.evaluation.windows import AnyDocument, WindowReader, document_batches
from tokagnostic.tokens.encoder import TextEncoder

MAX_BYTES = 600
MAX_CANDIDATES = 1000
"""Documents that are looked at to find one that fills a passage."""


def choose_document(documents: Iterable[AnyDocument], max_bytes: int = MAX_BYTES) -> Document:
    """The first document that fills a passage, or the longest of the first `MAX_CANDIDATES` if none of these does.

    Args:
        documents: a text; no more of it is read than it takes.
        max_bytes: of the passage.

    Raises:
        CorpusError: if there is no document, or for a text that has no UTF-8.
    """
    longest: Document | None = None
    for document in islice(documents, MAX_CANDIDATES):
        [[candidate]] = document_batches([document])
        if longest is None or len(candidate.data) > len(longest.data):
            longest = candidate
        if len(longest.data) >= max_bytes:
            break
    return longest if longest is not None else next(document_batches([]))[0]


def passage(
    document: AnyDocument, target: Any, reference: Any, max_order: int = 7, max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """Cut the beginning of a document with two tokenizers, and look up every window of either among the other's.

    Windows are matched on their bytes, within the whole document, as `ngram_overlap` does; invented leading spaces are
    taken out.

    Args:
        document: a document of a corpus, or a text.
        target: one tokenizer, as `TextEncoder.of` takes it.
        reference: the other.
        max_order: N.
        max_bytes: about how much of the document to take; the passage ends where both tokenizers cut, if they do.

    Returns:
        Plain JSON values. Under `target` and `reference`: `tokens`, and `windows[t][n - 1]` for the window of order n
        that ends at token t, or None where there is none. A window has its `key` as a decimal string; `found`, for each
        order in which the other makes the same bytes the nearest place, as the other's last token, whether that is the
        same place of the source, and its offset there; and how the other cuts its place. `chunks` are the first and
        last (exclusive) tokens of target and reference between places where both cut.

    Raises:
        CorpusError: if the document is not UTF-8.
        InvalidValueError: if N is not a whole number of at least 1.
    """
    [[document]] = document_batches([document])
    sides = [_Side.read(document, TextEncoder.of(tokenizer), max_order) for tokenizer in (target, reference)]
    chunks = _chunks(sides[0], sides[1], max_bytes)
    lengths = chunks[-1][1::2] if chunks else (0, 0)
    end = max(int(side.before[length]) for side, length in zip(sides, lengths, strict=True))
    return {
        "source": document.source,
        "num_bytes": len(document.data),
        "end": end,
        "max_order": max_order,
        "chunks": [list(chunk) for chunk in chunks],
        "target": sides[0].to_dict(lengths[0], sides[1]),
        "reference": sides[1].to_dict(lengths[1], sides[0]),
    }


@dataclass(frozen=True, eq=False)
class _Side:
    """What one tokenizer makes of a whole document."""

    encoder: TextEncoder
    exact: bool
    input_ids: np.ndarray
    keys: np.ndarray
    """int64 [T, N]; -1 for no window."""
    text: bytes
    ends: np.ndarray
    """Token t has the bytes text[ends[t] : ends[t + 1]], int64 [T + 1]."""
    taken: np.ndarray
    """Whether the prefix rule took a space from the front of a token, bool [T]."""
    before: np.ndarray
    """For each border between tokens, where in the source the last copied byte before it ends, int64 [T + 1]."""
    after: np.ndarray
    """Where the first copied byte after it begins, int64 [T + 1]."""

    @classmethod
    def read(cls, document: Document, encoder: TextEncoder, max_order: int) -> _Side:
        batch = WindowReader(encoder, max_order).read([document])
        table = encoder.token_bytes
        starts, stops = table.spans(batch.input_ids)
        text = table.join(batch.input_ids)
        ends = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(stops - starts)))
        size = len(document.data)
        exact = text == document.data
        before, after = ends, ends
        if not exact:
            places = align(np.frombuffer(text, dtype=np.uint8), np.frombuffer(document.data, dtype=np.uint8))
            copied = places >= 0
            reached = np.maximum.accumulate(np.concatenate(([0], np.where(copied, places + 1, 0))))
            coming = np.minimum.accumulate(np.concatenate((np.where(copied, places, size), [size]))[::-1])[::-1]
            before, after = reached[ends], coming[ends]
        taken = starts > table.offsets[batch.input_ids]
        return cls(encoder, exact, batch.input_ids, batch.keys, text, ends, taken, before, after)

    def bytes_of(self, last: int, order: int) -> bytes:
        """The bytes of the window of an order that ends at a token."""
        return self.text[self.ends[last + 1 - order] : self.ends[last + 1]]

    def place_of(self, last: int, order: int) -> tuple[int, int]:
        """Where in the source a window begins and ends."""
        end = int(self.before[last + 1])
        return min(int(self.after[last + 1 - order]), end), end

    def to_dict(self, num_tokens: int, other: _Side) -> dict[str, Any]:
        """The first tokens and their windows as plain JSON values."""
        max_order = self.keys.shape[1]
        spellings = self.encoder.spellings()
        index = _index(other.keys, self.keys[:num_tokens])
        windows = [
            [self._window(t, order, other, index) for order in range(1, max_order + 1)] for t in range(num_tokens)
        ]
        tokens = [
            {
                "id": v,
                "spelling": spellings[v] if v < len(spellings) else None,
                "hex": self.bytes_of(t, 1).hex(),
                "begin": self.place_of(t, 1)[0],
                "end": self.place_of(t, 1)[1],
                "took_space": bool(self.taken[t]),
            }
            for t, v in enumerate(self.input_ids[:num_tokens].tolist())
        ]
        return {
            "name": self.encoder.name,
            "exact": self.exact,
            "num_tokens": len(self.input_ids),
            "tokens": tokens,
            "windows": windows,
        }

    def _window(self, last: int, order: int, other: _Side, index: _Index) -> dict[str, Any] | None:
        key = int(self.keys[last, order - 1])
        if key < 0:
            return None
        begin, end = self.place_of(last, order)
        found = []
        for other_order, lasts in index.get(key, {}).items():
            wanted = self.bytes_of(last, order)
            for place in _by_nearness(other.after[lasts + 1 - other_order], begin):
                other_last = int(lasts[place])
                if other.bytes_of(other_last, other_order) == wanted:
                    there = other.place_of(other_last, other_order)
                    same = there == (begin, end)
                    found.append({"order": other_order, "last": other_last, "here": same, "begin": there[0]})
                    break
        return {"key": str(key), "found": found, **self._cuts(last, order, other)}

    def _cuts(self, last: int, order: int, other: _Side) -> dict[str, Any]:
        """Whether the other tokenizer cuts where a window begins and ends, and into how many tokens it cuts it then."""
        first = other.border(int(self.before[last + 1 - order]), int(self.after[last + 1 - order]), leftmost=False)
        stop = other.border(int(self.before[last + 1]), int(self.after[last + 1]), leftmost=True)
        both = first is not None and stop is not None
        return {
            "begin_cut": first is not None,
            "end_cut": stop is not None,
            "other_tokens": stop - first if both else None,  # type: ignore[operator]
        }

    def border(self, low: int, high: int, *, leftmost: bool) -> int | None:
        """The border between tokens that lies at a place of the source, up to bytes that no side copies; None if none."""
        if leftmost:
            border = int(np.searchsorted(self.after, low))
            return border if border < len(self.before) and self.before[border] <= high else None
        border = int(np.searchsorted(self.before, high, side="right")) - 1
        return border if border >= 0 and self.after[border] >= low else None

    def open_end(self, border: int, max_bytes: int) -> int:
        """The last border before so many bytes, at least one behind the given one if there is one."""
        least = border + (border + 1 < len(self.before))
        return max(least, int(np.searchsorted(self.before, max_bytes, "right")) - 1)


_Index = dict[int, dict[int, np.ndarray]]
"""Key to order to the last tokens of its windows, rising."""


def _index(keys: np.ndarray, wanted: np.ndarray) -> _Index:
    """Where a side's windows have one of the wanted keys.

    Args:
        keys: of the side, int64 [T, N].
        wanted: the keys looked for, int64 [T', N].
    """
    known = np.unique(wanted[wanted >= 0])
    index: _Index = {}
    if not len(known):
        return index
    for order in range(1, keys.shape[1] + 1):
        column = keys[:, order - 1]
        slots = np.searchsorted(known, column).clip(max=len(known) - 1)
        lasts = np.flatnonzero(known[slots] == column)
        lasts = lasts[np.argsort(slots[lasts], kind="stable")]
        values, firsts = np.unique(slots[lasts], return_index=True)
        for slot, group in zip(values.tolist(), np.split(lasts, firsts[1:]), strict=False):
            index.setdefault(int(known[slot]), {})[order] = group
    return index


def _by_nearness(places: np.ndarray, place: int) -> Iterator[int]:
    """The indices of rising places, those nearest to a place first and earlier ones first among equals."""
    right = int(np.searchsorted(places, place))
    left = right - 1
    while left >= 0 or right < len(places):
        if right == len(places) or (left >= 0 and place - places[left] <= places[right] - place):
            yield left
            left -= 1
        else:
            yield right
            right += 1


def _chunks(target: _Side, reference: _Side, max_bytes: int) -> list[Sequence[int]]:
    """The first tokens of both sides, divided wherever both cut at one place of the source."""
    borders = [(0, 0)]
    t = r = 1
    limit = max_bytes + 1  # of tokens too, or many without bytes at one place would go on for ever
    while t < min(len(target.before), limit) and r < min(len(reference.before), limit):
        low, high = max(target.before[t], reference.before[r]), min(target.after[t], reference.after[r])
        if low > max_bytes:
            break
        if low <= high:
            borders.append((t, r))
        behind = low > high and target.after[t] < reference.before[r]
        ahead = low > high and not behind
        t += not ahead
        r += not behind
    t, r = borders[-1]
    if target.before[t] * 2 < max_bytes:
        # They never cut at one place from here on, or the document ends.
        open_end = target.open_end(t, max_bytes), reference.open_end(r, max_bytes)
        if open_end != (t, r):
            borders.append(open_end)
    return [(t, after_t, r, after_r) for (t, r), (after_t, after_r) in pairwise(borders)]
