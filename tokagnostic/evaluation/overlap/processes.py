"""Batches of documents to counts on several processes, equal to the last bit to those of one.

Processes are spawned, and each loads its tokenizers itself: by spec, or from a folder that they were saved to. What
travels is documents to a process and counts back, which are merged in the documents' order.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokagnostic.corpus import Corpus, Cursor, Document
from tokagnostic.errors import InvalidValueError, WorkerError
from tokagnostic.evaluation.overlap.counting import OverlapCounter, PairCounts, num_cores
from tokagnostic.evaluation.overlap.resampling import RESAMPLES
from tokagnostic.evaluation.overlap.saved_counts import SavedCounts
from tokagnostic.evaluation.resumed import ResumedDocuments
from tokagnostic.evaluation.windows import AnyDocument, document_batches, group_documents
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer

SMALL_BYTES = 32 << 20
"""A text of fewer bytes is done before further processes would have loaded their tokenizers."""
BATCHES_AHEAD = 2
"""Batches in flight per process."""


def count_overlap_in_processes(
    documents: Iterable[AnyDocument],
    targets: Sequence[Any],
    references: Sequence[Any],
    max_order: int = 7,
    *,
    processes: int | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    file: str | Path | None = None,
    progress: Callable[[int], object] | None = None,
) -> PairCounts:
    """Count documents for every pair of tokenizers.

    Args:
        documents: the text, in one pass; no more of it lies in memory than the batches in flight.
        targets: specs as `load_tokenizer` takes them, or tokenizers as `TextEncoder.of` takes them.
        references: likewise.
        max_order: N.
        processes: how many; 1 is this one. None: one per core that this process may use, or this one alone where the
            text has fewer than `SMALL_BYTES`.
        resamples: R; 0 for no intervals.
        seed: of the resampling.
        file: where the counts of a `Corpus` are saved now and then, and at the end; an interrupted count goes on there.
        progress: told the bytes of the documents that were read, those of an earlier sitting first.

    Raises:
        CorpusError: if there is no document, or if one is not UTF-8.
        InvalidValueError: if a setting cannot be used, or the file belongs to another measurement.
        SourceError: if there is no such tokenizer.
        WorkerError: if a process dies.
    """
    loaded, sides = _load(targets, references)
    encoders = list(loaded.values())
    counter = _counter(encoders, sides, max_order, resamples, seed, 0)
    counts, saved = counter.none(), None
    if file is not None and isinstance(documents, Corpus):
        saved = SavedCounts.open(file, _settings(encoders, sides, max_order, resamples, seed, documents))
        counts = saved.counts or counts
    first = counts[0][0].num_documents
    source = ResumedDocuments(documents, None if saved is None else saved.cursor, first)
    if progress is not None:
        progress(counts[0][0].num_bytes)
    # Nothing may follow what an interrupted count had saved.
    batches = _numbered(group_documents(source) if first else document_batches(source), source, first, progress)
    processes, batches = _divide(batches, processes)
    if processes == 1:
        sums = _counted_here(batches, counter, counts)
    else:
        sums = _counted_apart(batches, counts, processes, loaded, (sides, max_order, resamples, seed))
    for cursor, counts in sums:
        if saved is not None:
            saved.save_when_due(counts, cursor)
    if saved is not None:
        saved.save(counts, source.cursor)
    return counts


def _load(targets: Sequence[Any], references: Sequence[Any]) -> tuple[dict[Any, TextEncoder], list[list[int]]]:
    """Every tokenizer once, by what it was named by, and the places of both sides among them."""
    loaded: dict[Any, TextEncoder] = {}
    for tokenizer in (*targets, *references):
        name = _identity(tokenizer)
        if name not in loaded:
            loaded[name] = load_tokenizer(tokenizer) if isinstance(tokenizer, str) else TextEncoder.of(tokenizer)
    places = {name: i for i, name in enumerate(loaded)}
    return loaded, [[places[_identity(tokenizer)] for tokenizer in side] for side in (targets, references)]


def _divide(batches: Iterator[_Batch], processes: int | None) -> tuple[int, Iterator[_Batch]]:
    """How many processes are worth it, by reading ahead where nobody says, and all of the batches."""
    if processes is not None:
        if type(processes) is not int or processes < 1:
            raise InvalidValueError(
                f"processes = {processes!r}", expected="a whole number of at least 1", remedy="Set it to such a number"
            )
        return processes, batches
    held: list[_Batch] = []
    size, most = 0, num_cores()
    while most > 1 and size < SMALL_BYTES:
        batch = next(batches, None)
        if batch is None:
            return 1, _chain(held, batches)
        held.append(batch)
        size += sum(len(document.data) for document in batch.documents)
    return most, _chain(held, batches)


def _counted_here(
    batches: Iterator[_Batch], counter: OverlapCounter, counts: PairCounts
) -> Iterator[tuple[Cursor | None, PairCounts]]:
    """The counts after each batch, and where the documents after it follow."""
    for batch in batches:
        counter.add(counts, batch.documents, batch.first)
        yield batch.cursor, counts


def _counted_apart(
    batches: Iterator[_Batch],
    counts: PairCounts,
    processes: int,
    loaded: dict[Any, TextEncoder],
    settings: tuple[Any, ...],
) -> Iterator[tuple[Cursor | None, PairCounts]]:
    """The same by several processes."""
    with tempfile.TemporaryDirectory(prefix="tokagnostic-") as folder:
        specs = [_spec_of(name, encoder, Path(folder)) for name, encoder in loaded.items()]
        for cursor, part in _counted(batches, (specs, *settings), processes):
            counts = [
                [pair.merge(other) for pair, other in zip(row, others, strict=True)]
                for row, others in zip(counts, part, strict=True)
            ]
            yield cursor, counts


def _settings(
    encoders: Sequence[TextEncoder],
    sides: Sequence[Sequence[int]],
    max_order: int,
    resamples: int,
    seed: int,
    corpus: Corpus,
) -> dict[str, Any]:
    """What counts depend on, as JSON values."""
    prints = [[encoders[i].token_bytes.fingerprint for i in side] for side in sides]
    numbers = {"max_order": max_order, "resamples": resamples, "seed": seed}
    return {"targets": prints[0], "references": prints[1], **numbers, "corpus": corpus.description}


@dataclass(frozen=True)
class _Batch:
    first: int
    """The place of its first document in the corpus."""
    documents: list[Document]
    cursor: Cursor | None
    """Where the documents after it follow, in a corpus."""


def _numbered(
    batches: Iterator[list[Document]], source: ResumedDocuments, first: int, progress: Callable[[int], object] | None
) -> Iterator[_Batch]:
    for documents in batches:
        yield _Batch(first, documents, source.cursor)
        first += len(documents)
        if progress is not None:
            progress(sum(len(document.data) for document in documents))


def _chain(held: list[_Batch], batches: Iterator[_Batch]) -> Iterator[_Batch]:
    """The batches that were read ahead, let go one by one, and the others."""
    while held:
        yield held.pop(0)
    yield from batches


def _identity(tokenizer: Any) -> Any:
    return tokenizer if isinstance(tokenizer, str) else id(tokenizer)


def _counter(
    encoders: Sequence[TextEncoder],
    sides: Sequence[Sequence[int]],
    max_order: int,
    resamples: int,
    seed: int,
    threads: int,
) -> OverlapCounter:
    targets, references = ([encoders[i] for i in side] for side in sides)
    return OverlapCounter(targets, references, max_order, resamples=resamples, seed=seed, threads=threads)


def _spec_of(name: Any, encoder: TextEncoder, folder: Path) -> str:
    """A spec by which another process gets the same tokenizer."""
    if isinstance(name, str):
        return name
    place = folder / str(name)
    encoder.save(place)
    return f"file:{place}"


def _counted(
    batches: Iterator[_Batch], settings: tuple[Any, ...], processes: int
) -> Iterator[tuple[Cursor | None, PairCounts]]:
    """The counts of each batch, in order, and where the documents after it follow."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start, initargs=settings)
    waiting: deque[tuple[Cursor | None, Future[PairCounts]]] = deque()
    try:
        for batch in batches:
            waiting.append((batch.cursor, pool.submit(_count, batch)))
            if len(waiting) >= BATCHES_AHEAD * processes:
                cursor, counted = waiting.popleft()
                yield cursor, counted.result()
        while waiting:
            cursor, counted = waiting.popleft()
            yield cursor, counted.result()
    except BrokenProcessPool as error:
        raise WorkerError(
            f"one of {processes} counting processes died ({error})",
            expected="processes that live until all documents are counted",
            remedy="Count with fewer processes if memory ran out; a script that starts processes has to do its work "
            "under `if __name__ == '__main__':`",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_state: list[OverlapCounter] = []
"""In a spawned process, its counter."""


def _start(specs: list[str], sides: list[list[int]], max_order: int, resamples: int, seed: int) -> None:
    _state[:] = [_counter([load_tokenizer(spec) for spec in specs], sides, max_order, resamples, seed, 1)]


def _count(batch: _Batch) -> PairCounts:
    counts = _state[0].none()
    _state[0].add(counts, batch.documents, batch.first)
    return counts
