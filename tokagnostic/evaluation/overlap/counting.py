"""A text and tokenizers to the share of one's n-grams that the other also makes, as byte strings.

Table 2 and Figure 2 of arXiv 2607.29065. Each document is compared with itself: a target window counts as found if the
reference makes a window of the same bytes anywhere in the same document.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tokagnostic.corpus import Document
from tokagnostic.errors import InvalidValueError
from tokagnostic.evaluation.overlap.causes import add_causes
from tokagnostic.evaluation.overlap.counts import OverlapCounts, check_order
from tokagnostic.evaluation.overlap.report import Overlap
from tokagnostic.evaluation.overlap.resampling import MAX_RESAMPLES, RESAMPLES
from tokagnostic.evaluation.overlap.shares import SideReport
from tokagnostic.evaluation.overlap.sides import SideBatch, read_side
from tokagnostic.evaluation.overlap.square import OverlapSquare
from tokagnostic.evaluation.overlap.table import count_windows
from tokagnostic.evaluation.windows import AnyDocument, WindowReader, document_batches
from tokagnostic.tokens.encoder import TextEncoder

PairCounts = list[list[OverlapCounts]]
"""Counts by target, then by reference."""


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
    return count_overlap(documents, [target], [reference], max_order)[0][0].finish()


def overlap_square(
    documents: Iterable[AnyDocument],
    targets: Sequence[Any],
    references: Sequence[Any],
    max_order: int = 7,
    *,
    processes: int | None = 1,
    resamples: int = RESAMPLES,
    seed: int = 0,
    file: str | Path | None = None,
    progress: Callable[[int], object] | None = None,
) -> OverlapSquare:
    """Measure the overlap of every target with every reference; each document is encoded once per tokenizer.

    Args:
        documents: the text, in one pass; documents of a corpus, or plain texts.
        targets: the tokenizers whose n-grams are looked for: specs as `load_tokenizer` takes them, or tokenizers as
            `TextEncoder.of` takes them.
        references: the tokenizers among whose n-grams they are looked for.
        max_order: N; orders 1..N of all sides.
        processes: how many count; None for one per core if the text is large enough for it.
        resamples: R; 0 for no intervals.
        seed: of the resampling.
        file: where the counts of a `Corpus` are saved now and then, and at the end; an interrupted count goes on there.
        progress: told the bytes of the documents that were read, those of an earlier sitting first.

    Raises:
        CorpusError: if there is no document, if none of them has a window, or if one is not UTF-8.
        InvalidValueError: if N is not a whole number from 1 to 31, if there is no tokenizer, or if the file belongs to
            another measurement.
        SourceError: if there is no such tokenizer.
        WorkerError: if a process dies.
    """
    from tokagnostic.evaluation.overlap.processes import count_overlap_in_processes

    counts = count_overlap_in_processes(
        documents,
        targets,
        references,
        max_order,
        processes=processes,
        resamples=resamples,
        seed=seed,
        file=file,
        progress=progress,
    )
    return OverlapSquare(tuple(tuple(pair.finish() for pair in row) for row in counts))


def count_overlap(
    documents: Iterable[AnyDocument],
    targets: Sequence[Any],
    references: Sequence[Any],
    max_order: int = 7,
    *,
    first_document: int = 0,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairCounts:
    """Count some documents of a corpus for every pair of tokenizers, batch by batch.

    Args:
        documents: the text, in one pass.
        targets: tokenizers, as `TextEncoder.of` takes them.
        references: likewise.
        max_order: N.
        first_document: the place of the first document in the whole corpus, which the resampling goes by. Parts that
            are counted apart need places that do not meet.
        resamples: R; 0 for no intervals.
        seed: of the resampling.

    Returns:
        Counts that `OverlapCounts.merge` adds to those of other documents.

    Raises:
        CorpusError: if there is no document, or if one is not UTF-8.
        InvalidValueError: if N is not a whole number from 1 to 31, or there is no tokenizer.
    """
    counter = OverlapCounter(targets, references, max_order, resamples=resamples, seed=seed)
    counts = counter.none()
    for batch in document_batches(documents):
        counter.add(counts, batch, first_document)
        first_document += len(batch)
    return counts


class OverlapCounter:
    """Tokenizers ready to be compared, document by document.

    Args:
        targets: tokenizers, as `TextEncoder.of` takes them. The same object on both sides is read once.
        references: likewise.
        max_order: N.
        resamples: R; 0 for no intervals.
        seed: of the resampling.
        threads: among how many to divide the documents of a batch; 0 for one per core that the process may use.

    Raises:
        InvalidValueError: if N is not a whole number from 1 to 31, or there is no tokenizer.
    """

    def __init__(
        self,
        targets: Sequence[Any],
        references: Sequence[Any],
        max_order: int = 7,
        *,
        resamples: int = RESAMPLES,
        seed: int = 0,
        threads: int = 0,
    ) -> None:
        self.max_order = check_order(max_order)
        for what, value, low, high in (
            ("number of targets", len(targets), 1, None),
            ("number of references", len(references), 1, None),
            ("number of resamples", resamples, 0, MAX_RESAMPLES),
            ("seed", seed, 0, (1 << 63) - 1),
        ):
            if type(value) is not int or value < low or (high is not None and value > high):
                raise InvalidValueError(
                    f"a {what} of {value!r}",
                    expected=f"a whole number of at least {low}"
                    if high is None
                    else f"a whole number from {low} to {high}",
                    remedy="Set it to such a number",
                )
        self._resamples, self._seed = resamples, seed
        self._threads = threads or num_cores()
        self._readers: list[WindowReader] = []
        seen: dict[int, int] = {}
        for tokenizer in (*targets, *references):
            if id(tokenizer) not in seen:
                seen[id(tokenizer)] = len(self._readers)
                self._readers.append(WindowReader(TextEncoder.of(tokenizer), max_order))
        self._targets = [seen[id(tokenizer)] for tokenizer in targets]
        self._references = [seen[id(tokenizer)] for tokenizer in references]

    def none(self) -> PairCounts:
        """The counts of no document, to be added to."""
        return [
            [
                OverlapCounts.none(
                    self._report(target, "target"),
                    self._report(reference, "reference"),
                    self.max_order,
                    resamples=self._resamples,
                    seed=self._seed,
                )
                for reference in self._references
            ]
            for target in self._targets
        ]

    def add(self, counts: PairCounts, documents: Sequence[Document], first_document: int) -> None:
        """Count documents that lie in memory, the first of which is at a place in the whole corpus.

        Raises:
            CorpusError: for a document that is not UTF-8.
        """
        source = np.frombuffer(b"".join(document.data for document in documents), dtype=np.uint8)
        sizes = np.array([len(document.data) for document in documents], dtype=np.int64)
        bounds = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)))
        with ThreadPoolExecutor(min(self._threads, len(self._readers))) as pool:
            sides = list(pool.map(lambda reader: read_side(reader, documents), self._readers))
        lossy = [side.lossy_sources(documents) for side in sides]
        for row, target in zip(counts, self._targets, strict=True):
            for pair, reference in zip(row, self._references, strict=True):
                counted, collisions = count_pair(sides[target], sides[reference], source, bounds, self._threads)
                pair.add(counted, sizes, first_document)
                pair.key_collisions += collisions
                for report, i in ((pair.target, target), (pair.reference, reference)):
                    report.add(sides[i].num_tokens, len(sides[i].text), lossy[i])

    def _report(self, reader: int, role: str) -> SideReport:
        encoder = self._readers[reader].encoder
        return SideReport(encoder.name or role, encoder.token_bytes.fingerprint)


def count_pair(
    target: SideBatch, reference: SideBatch, source: np.ndarray, source_bounds: np.ndarray, threads: int = 1
) -> tuple[np.ndarray, int]:
    """Count which of the target's windows the reference makes too, and why not the others, on some threads.

    Args:
        target: its side of some documents.
        reference: the other side of the same.
        source: their bytes one after another, uint8 [S].
        source_bounds: document d has the bytes source[source_bounds[d] : source_bounds[d + 1]], int64 [D + 1].
        threads: how many.

    Returns:
        Counts per document, int64 [D, 2, N, 2 + N + causes], and key collisions.
    """

    def count(first: int, last: int) -> tuple[np.ndarray, int]:
        own, other = target.part(first, last), reference.part(first, last)
        counts, missed, collisions = count_windows(own, other)
        add_causes(counts, missed, own, other, source, source_bounds[first : last + 1])
        return counts, collisions

    num_documents = len(target.exact)
    edges = np.searchsorted(target.bounds, np.arange(1, threads) * target.num_tokens // threads)
    borders = np.unique([0, *edges.clip(0, num_documents), num_documents]).tolist()
    if len(borders) <= 2:
        return count(0, num_documents)
    with ThreadPoolExecutor(len(borders) - 1) as pool:
        parts = list(pool.map(count, borders[:-1], borders[1:]))
    return np.concatenate([counts for counts, _ in parts]), sum(collisions for _, collisions in parts)


def num_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
