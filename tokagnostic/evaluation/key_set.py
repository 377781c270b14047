"""A text and a tokenizer to the exact set of the text's window keys: what has been seen, and what is novel."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.evaluation.windows import AnyDocument, WindowReader, document_batches
from tokagnostic.tokens.encoder import TextEncoder


@dataclass(frozen=True, eq=False)
class KeySet:
    """The keys of all windows of orders 1..N of a text, each once.

    A key is the identity of a window's bytes, so that the set answers for every tokenizer and every order.

    Raises:
        InvalidValueError: if the keys are not in strictly rising order, or one of them is no key.
    """

    keys: np.ndarray
    """Keys in rising order, int64 [S]."""

    def __post_init__(self) -> None:
        if not _is_sorted_set(self.keys):
            raise InvalidValueError(
                f"a key set made of an array of dtype {self.keys.dtype} and shape {self.keys.shape}",
                expected="int64 keys of at least 0 in strictly rising order",
                remedy="Build the set with KeySet.of_keys or KeySet.of_documents",
            )

    @classmethod
    def of_documents(cls, documents: Iterable[AnyDocument], tokenizer: Any, max_order: int) -> KeySet:
        """The windows of a text under one tokenizer; no window crosses documents.

        Args:
            documents: the text.
            tokenizer: as `TextEncoder.of` takes it.
            max_order: N.

        Raises:
            CorpusError: if there is no document, or one is not UTF-8.
        """
        reader = WindowReader(TextEncoder.of(tokenizer), max_order)
        return cls.of_keys(reader.read(batch).keys for batch in document_batches(documents))

    @classmethod
    def of_keys(cls, pieces: Iterable[np.ndarray]) -> KeySet:
        """The set of all keys in the pieces, int64 arrays of any shape; -1 is no key."""
        runs = SortedRuns()
        for piece in pieces:
            runs.add(piece)
        return cls(runs.merged())

    def __len__(self) -> int:
        """The number of distinct keys."""
        return len(self.keys)

    def contains(self, keys: np.ndarray) -> np.ndarray:
        """Whether each key is in the set.

        Args:
            keys: int64 [...]; -1 for no window, which is in no set.

        Returns:
            bool [...].
        """
        if len(self.keys) == 0:
            return np.zeros(np.shape(keys), dtype=np.bool_)
        places = np.searchsorted(self.keys, keys)
        found: np.ndarray = self.keys[np.minimum(places, len(self.keys) - 1)] == keys
        return found

    def save(self, path: str | Path) -> None:
        """Write the set as a .npy file; nothing half-written is ever left under the final name."""
        path = Path(path)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            with partial.open("wb") as file:
                np.save(file, self.keys, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> KeySet:
        """Read a set that `save` wrote.

        Raises:
            SourceError: if the file is missing, damaged, or holds something else.
        """
        try:
            with Path(path).open("rb") as file:
                return cls(np.lib.format.read_array(file, allow_pickle=False))
        except (OSError, ValueError) as error:
            raise SourceError(
                f"key set {path} cannot be read ({error})",
                expected="a .npy file written by KeySet.save",
                remedy="Build the set again from the text",
            ) from error


class SortedRuns:
    """Gathers keys into one sorted set. Runs of like size are merged, so that each key is moved O(log S) times."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def add(self, keys: np.ndarray) -> None:
        """Take in keys, int64 of any shape; -1 is no key."""
        run = np.unique(keys)
        self._runs.append(run[np.searchsorted(run, 0) :])
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) >= len(self._runs[-2]):
            self._merge_last()

    def merged(self) -> np.ndarray:
        """All keys so far in strictly rising order, int64 [S]."""
        while len(self._runs) > 1:
            self._merge_last()
        return self._runs[0] if self._runs else np.zeros(0, dtype=np.int64)

    def _merge_last(self) -> None:
        both = np.concatenate((self._runs.pop(), self._runs.pop()))
        # The stable sort finds the two sorted halves and merges them in one pass.
        both.sort(kind="stable")
        fresh = np.ones(len(both), dtype=np.bool_)
        np.not_equal(both[1:], both[:-1], out=fresh[1:])
        self._runs.append(both[fresh])


def _is_sorted_set(keys: np.ndarray) -> bool:
    if keys.dtype != np.int64 or keys.ndim != 1:
        return False
    return len(keys) == 0 or (keys[0] >= 0 and bool(np.all(keys[1:] > keys[:-1])))
