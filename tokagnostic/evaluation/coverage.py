"""A memory's visit counts and another tokenizer to the share of a text's windows that the memory has been trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from tokagnostic.errors import CorpusError, InvalidValueError
from tokagnostic.evaluation.coverage_report import BAND_EDGES, BANDS, NUM_RANDOM_KEYS, Coverage, Covered, Noise
from tokagnostic.evaluation.key_set import KeySet, SortedRuns
from tokagnostic.evaluation.windows import AnyDocument, WindowReader, document_batches
from tokagnostic.hashing.polynomial import LANE_BITS, PRIME
from tokagnostic.memory import NgramMemory
from tokagnostic.memory.visits import window_visits
from tokagnostic.tokens.encoder import TextEncoder

CHUNK = 1 << 18


def coverage(
    documents: Iterable[AnyDocument],
    tokenizer: Any,
    memory: NgramMemory,
    *,
    max_order: int | None = None,
    key_set: KeySet | None = None,
) -> Coverage:
    """Say how much of a text's windows under a tokenizer a memory has seen in its training.

    Args:
        documents: the text, in one pass.
        tokenizer: as `TextEncoder.of` takes it; any, whatever the memory was trained with.
        memory: with the visits of its training.
        max_order: N of the question; by default that of the memory.
        key_set: the exact windows of the memory's training, to judge the sketch by.

    Raises:
        InvalidValueError: if the memory's rows do not depend on bytes alone.
        CorpusError: if there is no document, if none has a window, or if one is not UTF-8.
    """
    if not memory.config.by_bytes:
        raise InvalidValueError(
            f"a memory of kind {memory.config.kind}",
            expected="one whose rows are named by bytes: windows of another tokenizer have no rows in it",
            remedy="Ask a memory of kind joint",
        )
    encoder = TextEncoder.of(tokenizer)
    reader = WindowReader(encoder, memory.max_order if max_order is None else max_order)
    sketch = _Sketch(memory)
    judge = _Judge(sketch, key_set)
    weighted = [judge.blank() for _ in range(reader.max_order)]
    distinct = [SortedRuns() for _ in range(reader.max_order)]
    num_documents = 0
    for batch in document_batches(documents):
        num_documents += len(batch)
        keys = reader.read(batch).keys
        for n in range(reader.max_order):
            of_order = keys[:, n][keys[:, n] >= 0]
            weighted[n] += judge.counts(of_order)
            distinct[n].add(of_order)
    if not weighted[0].any():
        raise CorpusError(
            f"{num_documents} documents of which {encoder.name or 'the tokenizer'} makes no window",
            expected="a text that is not empty",
            remedy="Name a source with text in it",
        )
    return Coverage(
        tokenizer=encoder.name or "the tokenizer",
        max_order=reader.max_order,
        trained_order=memory.max_order,
        num_documents=num_documents,
        noise=sketch.noise,
        tables=sketch.table_noise,
        unique=judge.shares([judge.counts(runs.merged()) for runs in distinct]),
        weighted=judge.shares(weighted),
    )


class _Sketch:
    """A memory's visits as a function of keys, and what it answers to keys that were never written."""

    def __init__(self, memory: NgramMemory) -> None:
        self._memory = memory
        self._counts = [visits.counts.cpu() for visits in memory.visits]
        answers = self.table_answers(_random_keys())
        self.table_noise = tuple(Noise.measure([counts], answers[i]) for i, counts in enumerate(self._counts))
        self.noise = Noise.measure(self._counts, answers.min(axis=0))

    def __call__(self, keys: np.ndarray) -> np.ndarray:
        """Visits by the least count over all rows of all tables, int64 [S], for keys int64 [S]."""
        answers: np.ndarray = self.table_answers(keys).min(axis=0)
        return answers

    def table_answers(self, keys: np.ndarray) -> np.ndarray:
        """Visits by each table, int64 [tables, S], for keys int64 [S]."""
        tensor = torch.from_numpy(keys)
        return np.stack(
            [
                window_visits(counts, self._memory.addresser(tensor, table)).numpy()
                for table, counts in enumerate(self._counts)
            ]
        )


class _Judge:
    """Keys to counts: how many, covered, in each band; seen, seen but not covered, covered but not seen."""

    def __init__(self, sketch: _Sketch, key_set: KeySet | None) -> None:
        self._sketch = sketch
        self._key_set = key_set

    def blank(self) -> np.ndarray:
        """Counts of no key, int64 [5 + bands]."""
        return np.zeros(5 + len(BANDS), dtype=np.int64)

    def counts(self, keys: np.ndarray) -> np.ndarray:
        """Counts of keys, int64 [S], in chunks of bounded size."""
        total = self.blank()
        for begin in range(0, len(keys), CHUNK):
            chunk = keys[begin : begin + CHUNK]
            visits = self._sketch(chunk)
            covered = visits > self._sketch.noise.floor
            seen = np.zeros_like(covered) if self._key_set is None else self._key_set.contains(chunk)
            groups = (covered, seen, seen & ~covered, covered & ~seen)
            bands = np.bincount(np.searchsorted(BAND_EDGES, visits, side="right"), minlength=len(BANDS))
            total += [len(chunk), *(np.count_nonzero(group) for group in groups), *bands]
        return total

    def shares(self, counts: Sequence[np.ndarray]) -> Covered:
        """Percent per order, from the counts of each order."""
        table = np.stack(counts)  # [N, 5 + bands]
        windows = table[:, 0]
        percent = np.full(table.shape, np.nan)
        np.divide(100.0 * table, windows[:, None], out=percent, where=windows[:, None] > 0)
        exact = self._key_set is not None
        return Covered(
            num_windows=windows,
            covered=percent[:, 1],
            bands={name: percent[:, 5 + i] for i, name in enumerate(BANDS)},
            seen=percent[:, 2] if exact else None,
            seen_not_covered=percent[:, 3] if exact else None,
            covered_not_seen=percent[:, 4] if exact else None,
        )


def _random_keys() -> np.ndarray:
    """Keys drawn uniformly, the same ones each time, int64 [S]."""
    lanes = np.random.default_rng(0).integers(0, PRIME, size=(2, NUM_RANDOM_KEYS))
    keys: np.ndarray = lanes[0] << LANE_BITS | lanes[1]
    return keys
