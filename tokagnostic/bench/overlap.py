"""A text in two tokenizers' ids to the seconds that its overlap takes, against Python's sets of byte strings."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tokagnostic.bench.measuring import Row, bench_row, best_seconds
from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.evaluation.overlap.counting import count_pair, num_cores
from tokagnostic.evaluation.overlap.counts import ANY_ORDER, MATRIX, UNIQUE, WEIGHTED, WINDOWS
from tokagnostic.evaluation.overlap.sides import SideBatch, side_of
from tokagnostic.evaluation.overlap.table import count_windows
from tokagnostic.evaluation.windows import WindowReader
from tokagnostic.tokens import TokenBytes
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.train_tokenizers import train_byte_level_bpe, train_unigram

Pieces = list[list[bytes | None]]
"""The bytes of each token of each document."""


def measure_overlap(
    max_order: int = 7, limit: int | None = None, num_ids: tuple[int, int] = (4096, 2304), repeats: int = 3
) -> list[Row]:
    """The whole matrix of orders 1..N, unique and weighted, from token ids, with and without the causes of misses.

    Args:
        max_order: N.
        limit: of the embedded documents; None for all, some 2.3 MB.
        num_ids: of the two tokenizers, which are trained on the text.
        repeats: rounds.
    """
    documents = list(Corpus(CorpusConfig(limit=limit)))
    texts = [document.text for document in documents]
    encoders = [
        TextEncoder.from_tokenizer(train(texts, size))
        for train, size in zip((train_byte_level_bpe, train_unigram), num_ids, strict=True)
    ]
    readers = [WindowReader(encoder, max_order) for encoder in encoders]
    ids = [encoder.encode_batch(texts) for encoder in encoders]
    sizes = [len(document.data) for document in documents]
    source = np.frombuffer(b"".join(document.data for document in documents), dtype=np.uint8)
    bounds = np.concatenate(([0], np.cumsum(sizes)))

    def side(i: int) -> SideBatch:
        return side_of(encoders[i].token_bytes, readers[i].windows_of(ids[i]), documents)

    def in_threads() -> None:
        with ThreadPoolExecutor(2) as pool:
            target, reference = pool.map(side, range(2))
        count_pair(target, reference, source, bounds, num_cores())

    def rival() -> np.ndarray:
        target, reference = (spelled(encoder.token_bytes, its) for encoder, its in zip(encoders, ids, strict=True))
        return counts_by_sets(target, reference, max_order)

    plain, whole, threaded, by_sets = best_seconds(
        lambda: count_windows(side(0), side(1)),
        lambda: count_pair(side(0), side(1), source, bounds),
        in_threads,
        rival,
        repeats=repeats,
    )
    name = f"overlap of {sum(sizes) / 1e6:.1f} MB, orders 1..{max_order}"
    rows = (("", plain), (", with causes", whole), (f", with causes, {num_cores()} threads", threaded))
    return [
        bench_row(name + what, seconds, "s", "Python sets of bytes, no causes", by_sets, less_is_better=True)
        for what, seconds in rows
    ]


def spelled(token_bytes: TokenBytes, documents: Sequence[np.ndarray]) -> Pieces:
    """The bytes of each token, invented spaces taken out; None where there are none."""
    table = [token_bytes[v] for v in range(len(token_bytes))]
    pieces: Pieces = []
    for ids in documents:
        starts, stops = token_bytes.spans(ids)
        whole = token_bytes.offsets[ids]
        document = [table[v] for v in ids.tolist()]
        for t in np.flatnonzero(starts > whole).tolist():
            document[t] = token_bytes.data[starts[t] : stops[t]].tobytes() or None
        pieces.append(document)
    return pieces


def counts_by_sets(targets: Pieces, references: Pieces, max_order: int) -> np.ndarray:
    """What `count_windows` counts over all documents, by sets of byte strings: int64 [2, N, 2 + N]."""
    counts = np.zeros((2, max_order, MATRIX + max_order), dtype=np.int64)
    for target, reference in zip(targets, references, strict=True):
        made = [set(_windows(reference, m)) for m in range(1, max_order + 1)]
        anywhere = set().union(*made)
        for n in range(max_order):
            windows = _windows(target, n + 1)
            distinct = set(windows)
            counts[UNIQUE, n, WINDOWS] += len(distinct)
            counts[UNIQUE, n, ANY_ORDER] += len(distinct & anywhere)
            counts[WEIGHTED, n, WINDOWS] += len(windows)
            counts[WEIGHTED, n, ANY_ORDER] += sum(map(anywhere.__contains__, windows))
            for m, its in enumerate(made, start=MATRIX):
                counts[UNIQUE, n, m] += len(distinct & its)
                counts[WEIGHTED, n, m] += sum(map(its.__contains__, windows))
    return counts


def _windows(pieces: Sequence[bytes | None], order: int) -> list[bytes]:
    slices = (pieces[t : t + order] for t in range(len(pieces) - order + 1))
    return [b"".join(window) for window in slices if None not in window]  # type: ignore[arg-type]
