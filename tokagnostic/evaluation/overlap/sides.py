"""Documents and one tokenizer to all that counting needs of it: windows, their bytes, and where these stand in the source.

It is made once per tokenizer and batch, however many others the tokenizer is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from tokagnostic.corpus import Document
from tokagnostic.evaluation.overlap.alignment import align
from tokagnostic.evaluation.windows import WindowBatch, WindowReader
from tokagnostic.tokens import TokenBytes

BARE, TAKEN = 1, 2
"""Marks of a position: its id has no bytes; the prefix rule took a space from its front."""


@dataclass(frozen=True, eq=False)
class SideBatch:
    """What one tokenizer makes of some documents, one after another."""

    keys: np.ndarray
    """Key of the window of each order that ends at each position, int64 [T, N]; -1 where there is none."""
    bounds: np.ndarray
    """Document d holds the positions bounds[d] .. bounds[d + 1] - 1, int64 [D + 1]."""
    text: np.ndarray
    """The bytes that the ids stand for, without the spaces that the prefix rule took, uint8 [L]."""
    ends: np.ndarray
    """Position t has the bytes text[ends[t] : ends[t + 1]], int64 [T + 1]."""
    marks: np.ndarray
    """`BARE` and `TAKEN` per position, uint8 [T]."""
    exact: np.ndarray
    """Whether a document's ids stand for exactly its bytes, bool [D]."""
    places: np.ndarray
    """Offset in its document's source of each byte of a document that is not exact, int64 [L], or -1; only defined
    there, and of no length where all documents are exact."""

    @property
    def num_tokens(self) -> int:
        """T."""
        return len(self.marks)

    def part(self, first: int, last: int) -> SideBatch:
        """The documents first .. last - 1 alone; positions and bytes keep their numbers."""
        return replace(self, bounds=self.bounds[first : last + 1], exact=self.exact[first:last])

    def lossy_sources(self, documents: Sequence[Document]) -> list[str]:
        """The names of the documents that are not exact."""
        return [documents[d].source for d in np.flatnonzero(~self.exact).tolist()]


def read_side(reader: WindowReader, documents: Sequence[Document]) -> SideBatch:
    """Tokenize, hash, spell and align a batch of documents.

    Raises:
        CorpusError: for a document that is not UTF-8.
    """
    return side_of(reader.encoder.token_bytes, reader.read(documents), documents)


def side_of(token_bytes: TokenBytes, batch: WindowBatch, documents: Sequence[Document]) -> SideBatch:
    """Spell and align a batch of documents whose windows are known.

    Args:
        token_bytes: the bytes of the vocabulary.
        batch: the documents' windows.
        documents: themselves.
    """
    rule = token_bytes.prefix
    text, ends, marks = _spell(
        batch.input_ids, batch.starts, token_bytes.data, token_bytes.offsets, rule != "none", rule == "always"
    )
    borders = ends[batch.bounds].tolist()
    spelled = text.tobytes()
    exact = np.array(
        [
            spelled[begin:end] == document.data
            for document, begin, end in zip(documents, borders[:-1], borders[1:], strict=True)
        ],
        dtype=np.bool_,
    )
    places = np.zeros(0 if exact.all() else len(text), dtype=np.int64)
    for d in np.flatnonzero(~exact).tolist():
        begin, end = borders[d], borders[d + 1]
        places[begin:end] = align(text[begin:end], np.frombuffer(documents[d].data, dtype=np.uint8))
    return SideBatch(batch.keys, batch.bounds, text, ends, marks, exact, places)


@njit(cache=True, nogil=True)
def _spell(ids, starts, data, offsets, strip, always):
    """The bytes of each position under the policy that takes invented spaces out: text, ends, marks."""
    begins = np.empty(len(ids), dtype=np.int64)
    ends = np.zeros(len(ids) + 1, dtype=np.int64)
    marks = np.zeros(len(ids), dtype=np.uint8)
    at_segment_start = False
    for t in range(len(ids)):
        begin, end = offsets[ids[t]], offsets[ids[t] + 1]
        at_segment_start = at_segment_start or (strip and starts[t])
        if begin == end:
            at_segment_start = at_segment_start or always
            marks[t] = BARE
        elif at_segment_start:
            if data[begin] == 0x20:
                begin += 1
                marks[t] = TAKEN
            at_segment_start = False
        begins[t] = begin
        ends[t + 1] = ends[t] + end - begin
    text = np.empty(ends[-1], dtype=np.uint8)
    for t in range(len(ids)):
        for i in range(ends[t + 1] - ends[t]):
            text[ends[t] + i] = data[begins[t] + i]
    return text, ends, marks
