"""Documents and two tokenizers to sorted runs of window records in a work folder, through a buffer of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tokagnostic.corpus import Cursor, Document
from tokagnostic.evaluation.corpus_overlap.window_records import (
    RECORD_BYTES,
    REFERENCE,
    TARGET,
    enter_windows,
    sort_and_combine,
)
from tokagnostic.evaluation.corpus_overlap.work_folder import WorkFolder
from tokagnostic.hashing import HashCache
from tokagnostic.hashing.polynomial import BASES, CHECK_BASES, LAW
from tokagnostic.hashing.windows_numba import WindowStream
from tokagnostic.tokens.encoder import TextEncoder

PIECE = 1 << 14
"""Tokens that are hashed at once."""
BYTES_PER_MIB = 1 << 20
BATCH_MIB = 64
"""What a batch of a megabyte takes as text, as the tokenizer's own account of it, and as ids."""


def counting_settings(target: TextEncoder, reference: TextEncoder, max_order: int) -> dict[str, Any]:
    """What the records of a count depend on beside the text, as JSON values."""
    return {
        "target": target.token_bytes.fingerprint,
        "reference": reference.token_bytes.fingerprint,
        "max_order": max_order,
        "law": LAW["law"],
        "bases": [*BASES, *CHECK_BASES],
    }


class CorpusCounter:
    """Counts documents into a work folder that it saves between two batches, whenever it had to write.

    Args:
        work: the folder; what it already has stays.
        target: the tokenizer whose windows are looked for.
        reference: the tokenizer among whose windows they are looked for.
        memory_mib: MiB to use beside the tokenizers. Of these a batch gets `BATCH_MIB`, at most half, and the records
            the others, of which one half is space to sort the other half.
    """

    def __init__(self, work: WorkFolder, target: TextEncoder, reference: TextEncoder, memory_mib: int) -> None:
        self._work = work
        self._max_order = int(work.settings["max_order"])
        self._readers = {TARGET: _Reader(target, self._max_order), REFERENCE: _Reader(reference, self._max_order)}
        num_bytes = (memory_mib - min(BATCH_MIB, memory_mib / 2)) * BYTES_PER_MIB
        self._capacity = max(int(num_bytes) // RECORD_BYTES, 4 * self._max_order)
        self._records = np.empty((self._capacity // 2, 2), dtype=np.int64)
        self._scratch = np.empty_like(self._records)
        self._size = 0
        self._pending = list(work.runs)
        """Runs of the folder, those included that it does not yet name."""
        self._num_documents, self._num_bytes = work.num_documents, work.num_bytes

    def add(self, documents: Sequence[Document], cursor: Cursor | None) -> None:
        """Count a batch.

        Args:
            documents: the batch.
            cursor: where the documents after it follow, if the corpus has cursors.

        Raises:
            CorpusError: for a document that is not UTF-8.
        """
        num_windows = 0
        piece = min(PIECE, len(self._records) // 2 // self._max_order)
        for side, reader in self._readers.items():
            for keys, checks in reader.read(documents, piece):
                self._make_room(keys.size)
                before = self._size
                self._size = enter_windows(self._records, self._size, keys, checks, side)
                num_windows += self._size - before
        self._num_documents += len(documents)
        self._num_bytes += sum(len(document.data) for document in documents)
        # What is written between batches can be saved, so the next batch, if it is like this one, shall find room.
        self._make_room(num_windows)
        if len(self._pending) > len(self._work.runs):
            self._save(cursor)

    def finish(self) -> None:
        """Write what is left; the folder then holds all of the corpus."""
        self._work.complete = True
        self._save(None)

    def release(self) -> int:
        """Give the buffers back; returns how many records had room in them."""
        self._records = self._scratch = np.empty((0, 2), dtype=np.int64)
        return self._capacity

    def _make_room(self, num_windows: int) -> None:
        if self._size + num_windows <= len(self._records):
            return
        self._size = sort_and_combine(self._records[: self._size], self._scratch)
        if 2 * self._size > len(self._records):
            self._write()

    def _write(self) -> None:
        if self._size:
            self._pending.append(self._work.write_run([self._records[: self._size]]))
            self._size = 0

    def _save(self, cursor: Cursor | None) -> None:
        self._size = sort_and_combine(self._records[: self._size], self._scratch)
        self._write()
        self._work.runs = list(self._pending)
        self._work.num_documents, self._work.num_bytes = self._num_documents, self._num_bytes
        self._work.cursor = cursor
        self._work.save()


class _Reader:
    """One tokenizer, ready to turn documents into the keys of their windows under both pairs of bases."""

    def __init__(self, encoder: TextEncoder, max_order: int) -> None:
        self._encoder = encoder
        self._max_order = max_order
        self._caches = HashCache.build(encoder.token_bytes), HashCache.build_check(encoder.token_bytes)

    def read(self, documents: Sequence[Document], piece: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Keys and checks, int64 [at most piece, N] each, of all documents in order."""
        parts = self._encoder.encode_batch([document.text for document in documents])
        lengths = np.array([len(part) for part in parts])
        ids = np.concatenate(parts)
        starts = np.zeros(len(ids), dtype=np.bool_)
        starts[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
        del parts
        streams = [WindowStream(cache, self._max_order) for cache in self._caches]
        for begin in range(0, len(ids), piece):
            here = slice(begin, begin + piece)
            keys, checks = (stream.push(ids[here], starts[here]) for stream in streams)
            yield keys, checks
