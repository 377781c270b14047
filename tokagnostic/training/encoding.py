"""Documents to their token ids, in order, in this process or by several."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from tokagnostic.corpus import Document
from tokagnostic.errors import TokenizerError, WorkerError
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer

_BYTES_AT_ONCE = 1 << 20
_BATCHES_AHEAD = 2
"""Batches in flight per process."""

Place = TypeVar("Place")


@dataclass(frozen=True, eq=False)
class EncodedDocument(Generic[Place]):
    """One document's ids, and where the documents after it follow."""

    ids: np.ndarray
    """Token ids, integers [T], without a start id; empty for a text that the normaliser emptied."""
    source: str
    """Where the document comes from (`Document.source`)."""
    num_bytes: int
    """Bytes of its text."""
    after: Place
    """What came with the document."""


def encode_documents(
    documents: Iterable[tuple[Document, Place]],
    encoder: TextEncoder,
    processes: int = 0,
    progress: Callable[[int], object] | None = None,
) -> Iterator[EncodedDocument[Place]]:
    """Encode documents in their order, about a megabyte at a time; the ids do not depend on the number of processes.

    Args:
        documents: what to encode, each with what shall come out beside its ids.
        encoder: turns text into ids; text that spells a special token stays ordinary text.
        processes: worker processes, each of one thread; 0: this process, on the threads of the tokenizer's library.
        progress: told the number of bytes encoded since it was last told.

    Raises:
        CorpusError: if a document is not UTF-8.
        TokenizerError: if the library refuses a document, which is named by its source.
        WorkerError: if a process dies, with the documents that were being encoded.
    """
    batches = _batches(documents)
    encoded = _encoded_here(batches, encoder) if processes == 0 else _encoded_apart(batches, encoder, processes)
    for batch, all_ids in encoded:
        for (document, after), ids in zip(batch.items, all_ids, strict=True):
            yield EncodedDocument(ids, document.source, len(document.data), after)
        if progress is not None:
            progress(batch.num_bytes)


class _Batch(NamedTuple, Generic[Place]):
    items: list[tuple[Document, Place]]
    num_bytes: int

    @property
    def documents(self) -> list[Document]:
        return [document for document, _ in self.items]


def _batches(documents: Iterable[tuple[Document, Place]]) -> Iterator[_Batch[Place]]:
    items: list[tuple[Document, Place]] = []
    num_bytes = 0
    for document, after in documents:
        items.append((document, after))
        num_bytes += len(document.data)
        if num_bytes >= _BYTES_AT_ONCE:
            yield _Batch(items, num_bytes)
            items, num_bytes = [], 0
    if items:
        yield _Batch(items, num_bytes)


def _encoded_here(
    batches: Iterator[_Batch[Place]], encoder: TextEncoder
) -> Iterator[tuple[_Batch[Place], list[np.ndarray]]]:
    for batch in batches:
        yield batch, _encode(batch.documents, encoder)


def _encode(documents: list[Document], encoder: TextEncoder) -> list[np.ndarray]:
    texts = [document.text for document in documents]
    try:
        return encoder.encode_batch(texts)
    except TokenizerError as error:
        if len(documents) > 1:
            # The encoder knows the refused text by its place only.
            return [ids for document in documents for ids in _encode([document], encoder)]
        raise TokenizerError(
            f"{documents[0].source}: {error.given.removeprefix('document 0: ')}",
            expected=error.expected,
            remedy=error.remedy,
        ) from error


def _encoded_apart(
    batches: Iterator[_Batch[Place]], encoder: TextEncoder, processes: int
) -> Iterator[tuple[_Batch[Place], list[np.ndarray]]]:
    with tempfile.TemporaryDirectory(prefix="tokagnostic-") as folder:
        try:
            encoder.save(folder)
        except TokenizerError as error:
            raise TokenizerError(
                f"{processes} encoding processes: {error.given}",
                expected="a tokenizer that each of them can load from a file",
                remedy=f"Set text.processes to 0. {error.remedy}",
            ) from error
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start, initargs=(f"file:{folder}",))
        waiting: deque[tuple[_Batch[Place], Future[tuple[np.ndarray, np.ndarray]]]] = deque()
        try:
            for batch in batches:
                waiting.append((batch, _submit(pool, batch.documents)))
                if len(waiting) >= _BATCHES_AHEAD * processes:
                    yield _received(waiting)
            while waiting:
                yield _received(waiting)
        except BrokenProcessPool as error:
            first, last = waiting[0][0].documents[0], waiting[-1][0].documents[-1]
            raise WorkerError(
                f"one of {processes} encoding processes died between the documents {first.source} and {last.source}",
                expected="processes that live until all documents are encoded",
                remedy="Encode with fewer processes if memory ran out; a script that starts processes has to do its "
                "work under `if __name__ == '__main__':`",
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, documents: list[Document]) -> Future[tuple[np.ndarray, np.ndarray]]:
    # A submission may start a process, which inherits what is blocked: an interrupt from the keyboard reaches all of a
    # terminal's processes, and is for this one alone to answer.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(_encode_in_worker, documents)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _received(
    waiting: deque[tuple[_Batch[Place], Future[tuple[np.ndarray, np.ndarray]]]],
) -> tuple[_Batch[Place], list[np.ndarray]]:
    """The oldest batch, which stays in the queue until its ids are there."""
    batch, future = waiting[0]
    ids, ends = future.result()
    waiting.popleft()
    return batch, np.split(ids, ends[:-1])


_spec: list[str] = []
_encoder: list[TextEncoder] = []
"""In a spawned process: where its tokenizer lies, and the tokenizer once a batch has come."""


def _start(spec: str) -> None:
    os.putenv("TOKENIZERS_PARALLELISM", "false")  # of this process alone, which has one core
    _spec[:] = [spec]
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process that waits for work does not learn by itself that the one who gave it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode_in_worker(documents: list[Document]) -> tuple[np.ndarray, np.ndarray]:
    """Ids of all documents, int32 [T], and where each one's end, int64 [documents]."""
    if not _encoder:
        _encoder.append(load_tokenizer(_spec[0]))
    all_ids = _encode(documents, _encoder[0])
    return np.concatenate(all_ids).astype(np.int32), np.cumsum([len(ids) for ids in all_ids])
