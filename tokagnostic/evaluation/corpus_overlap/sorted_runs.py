"""Sorted runs of records on disk to one stream of combined records in rising key order, in bounded memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tokagnostic.errors import SourceError
from tokagnostic.evaluation.corpus_overlap.window_records import KEY_LIMIT, RECORD_BYTES, sort_and_combine

RECORD_TYPE = "<i8"
MIN_BLOCK = 4096
"""Records of each run that a merge holds at least: 64 KiB, below which reads are mostly seeks."""


@dataclass(frozen=True)
class SortedRun:
    """A file of combined records in rising key order, or a stretch of it: two little-endian int64 per record."""

    path: Path
    begin: int
    end: int
    """Records begin .. end - 1 of the file."""

    @classmethod
    def of(cls, path: Path, num_records: int | None = None) -> SortedRun:
        """All records of a file.

        Raises:
            SourceError: if there is no such file, or it does not hold that many records.
        """
        try:
            num_bytes = path.stat().st_size
        except OSError:
            num_bytes = -1
        if num_bytes < 0 or num_bytes % RECORD_BYTES or num_records not in (None, num_bytes // RECORD_BYTES):
            raise _damaged(path)
        return cls(path, 0, num_bytes // RECORD_BYTES)

    @classmethod
    def write(cls, path: Path, chunks: Iterable[np.ndarray]) -> SortedRun:
        """Write combined records, int64 [R, 2] each, in rising key order; nothing half-written has the final name."""
        partial = path.with_name(f"{path.name}.partial")
        try:
            with partial.open("wb") as file:
                for chunk in chunks:
                    chunk.astype(RECORD_TYPE, copy=False).tofile(file)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return cls.of(path)

    def __len__(self) -> int:
        return self.end - self.begin

    def take(self, count: int) -> tuple[np.ndarray, SortedRun]:
        """The first records, int64 [at most count, 2], and the run of the others.

        Raises:
            SourceError: if the file has become shorter, or its keys do not rise.
        """
        count = min(count, len(self))
        records = np.fromfile(self.path, RECORD_TYPE, 2 * count, offset=self.begin * RECORD_BYTES)
        keys = records[::2]
        if len(records) < 2 * count or keys.min(initial=0) < 0 or np.any(keys[1:] < keys[:-1]):
            raise _damaged(self.path)
        return records.reshape(-1, 2).astype(np.int64, copy=False), replace(self, begin=self.begin + count)

    def between(self, low: int, high: int) -> SortedRun:
        """The stretch of the records whose keys are low .. high - 1."""
        places = range(self.begin, self.end)
        begin, end = (
            self.begin + bisect_left(places, bound, key=lambda place: int(self._at(place))) for bound in (low, high)
        )
        return replace(self, begin=begin, end=end)

    def _at(self, place: int) -> int:
        return int(np.fromfile(self.path, RECORD_TYPE, 1, offset=place * RECORD_BYTES)[0])


def _damaged(path: Path) -> SourceError:
    return SourceError(
        f"{path} does not hold the records that were written there",
        expected="a run as it was left",
        remedy="Remove the work folder and count again",
    )


def key_range(part: int, num_parts: int) -> tuple[int, int]:
    """The first key of a part of the key space and the first beyond it; parts are of equal width."""
    return part * KEY_LIMIT // num_parts, (part + 1) * KEY_LIMIT // num_parts


def merge_runs(
    runs: Sequence[SortedRun], capacity: int, *, progress: Callable[[int], object] | None = None
) -> Iterator[np.ndarray]:
    """Merge runs.

    Each run is read in blocks. All records below the least of the blocks' last keys are taken out, sorted and combined;
    no record of a smaller key can come later.

    Args:
        runs: at most `max_runs(capacity)`.
        capacity: records that may be held: a fifth in blocks, in what is sorted, in the space to sort it and in the
            array before.
        progress: told the records that were merged since it was last told.

    Yields:
        Combined records, int64 [R, 2], in rising key order; all records of a key are in the same array.
    """
    block = max(capacity // 5 // max(len(runs), 1), 2)
    heads = [_Head(run) for run in runs if len(run)]
    while heads:
        for head in heads:
            head.fill(block)
        limit = min((head.last_key for head in heads if head.has_more), default=KEY_LIMIT)
        records = np.concatenate([head.below(limit) for head in heads])
        heads = [head for head in heads if head.has_more or len(head.records)]
        num_records = len(records)
        yield records[: sort_and_combine(records, np.empty_like(records))]
        if progress is not None:
            progress(num_records)


def max_runs(capacity: int) -> int:
    """How many runs may be merged at once with room for so many records."""
    return max(capacity // 5 // MIN_BLOCK, 2)


class _Head:
    """The records of a run that a merge holds, and where the others are."""

    def __init__(self, run: SortedRun) -> None:
        self.records = np.empty((0, 2), dtype=np.int64)
        self._rest = run

    @property
    def has_more(self) -> bool:
        return len(self._rest) > 0

    @property
    def last_key(self) -> int:
        return int(self.records[-1, 0])

    def fill(self, block: int) -> None:
        """Hold a block again, and at least two keys, of which the last may have more records in the file."""
        while self.has_more and (len(self.records) < block or self.records[0, 0] == self.last_key):
            missing = block - len(self.records)
            more, self._rest = self._rest.take(missing if missing > 0 else len(self.records))
            self.records = np.concatenate((self.records, more))

    def below(self, limit: int) -> np.ndarray:
        """Take out the records whose keys are below a limit."""
        place = bisect_left(range(len(self.records)), limit, key=lambda i: int(self.records[i, 0]))
        taken, self.records = self.records[:place], self.records[place:]
        return taken
