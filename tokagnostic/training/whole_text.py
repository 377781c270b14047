"""A text that lies in memory to its blocks: each a pure function of its number, in another order each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tokagnostic.training.blocks import shuffled

_NUM_KEPT_EPOCHS = 3  # a batch on a border reads the epoch that ends, the next, and the head of the one after


class WholeBlocks:
    """The blocks of a text in memory: the number is the whole cursor (see `Blocks`).

    Documents are put in a new order each epoch, the epochs laid end to end to one endless sequence, and that sequence
    is cut into blocks. The blocks that begin in one epoch are shuffled among themselves. Nothing is padded and nothing
    dropped: the last block of an epoch ends in the first tokens of the next, so every token of every document stands in
    the blocks exactly once per epoch. Orders depend on seed and epoch only.

    Args:
        ids: the ids of all documents one after another, int32 [M].
        document_offsets: where each one begins, and the last one ends, int64 [documents + 1].
        block_length: T, at most M.
        seed: another seed, another order.
    """

    def __init__(self, ids: np.ndarray, document_offsets: np.ndarray, block_length: int, seed: tuple[int, ...]) -> None:
        self._ids = ids
        self._offsets = document_offsets
        self._length = block_length
        self._seed = seed
        self._epochs: dict[int, _Epoch] = {}

    def read(self, numbers: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """See `Blocks.read`; here blocks come in any order."""
        begins = np.array([self._begin(number) for number in numbers])
        places = begins[:, None] + np.arange(self._length)  # [B, T], in the endless sequence
        input_ids = np.empty(places.shape, dtype=np.int64)
        starts = np.zeros(places.shape, dtype=bool)
        epochs = places // len(self._ids)
        for epoch in np.unique(epochs).tolist():
            inside = epochs == epoch
            input_ids[inside], starts[inside] = self._epoch(epoch).read(places[inside] % len(self._ids))
        return input_ids, starts

    def cursor(self, number: int) -> None:
        """None: the number says it all."""

    def documents(self, number: int) -> list[str]:
        """See `Blocks.documents`; here they are counted from 0 in the order of the text."""
        places = self._begin(number) + np.arange(self._length)
        epochs = places // len(self._ids)
        found = [
            self._epoch(epoch).documents(places[epochs == epoch] % len(self._ids))
            for epoch in np.unique(epochs).tolist()
        ]
        return [f"document {document}" for document in np.unique(np.concatenate(found)).tolist()]

    def go_to(self, number: int, cursor: Any) -> None:
        """Nothing to be done: any block can be read next."""

    def _first_block(self, epoch: int) -> int:
        """The first block that begins in an epoch; block g of the sequence begins at token g * T."""
        return -(-epoch * len(self._ids) // self._length)

    def _begin(self, number: int) -> int:
        """Where in the endless sequence the block begins that the shuffle puts at this number."""
        epoch = number * self._length // len(self._ids)
        first = self._first_block(epoch)
        return (first + int(self._epoch(epoch).block_order[number - first])) * self._length

    def _epoch(self, epoch: int) -> _Epoch:
        if epoch not in self._epochs:
            while len(self._epochs) >= _NUM_KEPT_EPOCHS:
                del self._epochs[next(iter(self._epochs))]
            num_blocks = self._first_block(epoch + 1) - self._first_block(epoch)
            self._epochs[epoch] = _Epoch(self._ids, self._offsets, (*self._seed, epoch), num_blocks)
        return self._epochs[epoch]


class _Epoch:
    """The order of documents and blocks in one epoch."""

    def __init__(self, ids: np.ndarray, offsets: np.ndarray, seed: tuple[int, ...], num_blocks: int) -> None:
        self._ids = ids
        order = self._order = shuffled(len(offsets) - 1, (*seed, 0))
        self.block_order = shuffled(num_blocks, (*seed, 1))
        lengths = np.diff(offsets)[order]
        self._ends = np.cumsum(lengths)
        self._begins = self._ends - lengths
        self._shifts = offsets[:-1][order] - self._begins

    def documents(self, places: np.ndarray) -> np.ndarray:
        """The document at each place, int64 [T]."""
        return self._order[np.searchsorted(self._ends, places, side="right")]

    def read(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids and document starts at places of this epoch's sequence, int64 [T] to int32 [T] and bool [T]."""
        documents = np.searchsorted(self._ends, places, side="right")
        return self._ids[places + self._shifts[documents]], places == self._begins[documents]
