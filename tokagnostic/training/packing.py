"""Documents to fixed-length blocks of token ids, laid end to end without padding and shuffled anew each epoch."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tokagnostic.errors import InvalidValueError, TrainingError

if TYPE_CHECKING:
    from tokagnostic.corpus import Document
    from tokagnostic.tokens.encoder import TextEncoder

_BYTES_AT_ONCE = 1 << 20
_NUM_KEPT_EPOCHS = 3  # a batch on a border reads the epoch that ends, the next, and the head of the one after


@dataclass(frozen=True, eq=False)
class TokenStream:
    """The ids of many documents one after another, held in memory at 4 bytes per token: for corpora of up to some
    hundred megabytes.

    Raises:
        InvalidValueError: if the offsets do not partition the ids into documents of one token or more.
    """

    ids: np.ndarray
    """Token ids, int32 [M]."""
    document_offsets: np.ndarray
    """Document d has ids[document_offsets[d] : document_offsets[d + 1]], int64 [documents + 1]."""

    def __post_init__(self) -> None:
        offsets = self.document_offsets
        if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(self.ids) or np.any(np.diff(offsets) < 1):
            raise InvalidValueError(
                "document offsets that do not partition the ids",
                expected=f"a strictly rising sequence from 0 to {len(self.ids)}",
                remedy="Build the stream with TokenStream.from_documents or TokenStream.from_ids",
            )

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Document],
        encoder: TextEncoder,
        progress: Callable[[int], None] | None = None,
    ) -> TokenStream:
        """Encode documents, each after the encoder's start id if it has one.

        Args:
            documents: what to encode, taken about one megabyte at a time.
            encoder: turns text into ids; text that spells a special token stays ordinary text.
            progress: told the number of bytes encoded since it was last told.

        Raises:
            CorpusError: if a document is not UTF-8.
        """
        return cls.from_ids(_encode(documents, encoder, progress), encoder.start_id)

    @classmethod
    def from_ids(cls, documents: Iterable[np.ndarray], start_id: int | None = None) -> TokenStream:
        """Lay the ids of documents end to end. A document without ids is left out, its start id too.

        Args:
            documents: token ids per document, integers [T].
            start_id: the id put before each document; None puts none.
        """
        all_ids, offsets = array("i"), array("q", [0])  # buffers that grow in place: no list of millions of arrays
        for ids in documents:
            if len(ids) > 0:
                if start_id is not None:
                    all_ids.append(start_id)
                all_ids.frombytes(np.asarray(ids).astype(np.int32).tobytes())
                offsets.append(len(all_ids))
        return cls(np.asarray(all_ids, dtype=np.int32), np.asarray(offsets, dtype=np.int64))

    @property
    def num_documents(self) -> int:
        """Documents with at least one token."""
        return len(self.document_offsets) - 1

    @property
    def num_tokens(self) -> int:
        """M: tokens of all documents, start ids included."""
        return len(self.ids)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in lower-case hex, of ids (int32) and offsets (int64), little-endian.

        A resumed run compares it to know that its data are those it was started with.
        """
        digest = hashlib.sha256(self.ids.astype("<i4").tobytes())
        digest.update(self.document_offsets.astype("<i8").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Batch:
    """Packed rows. Positions count from a row's latest start, so no document sees another through them."""

    input_ids: np.ndarray
    """Token ids, int64 [B, T]."""
    starts: np.ndarray
    """True at the first token of each document and of each row, bool [B, T]."""
    position_ids: np.ndarray
    """Tokens since the latest start, int64 [B, T]."""


class BlockSampler:
    """The batches of a run, each a pure function of its step: the step number is the whole cursor.

    Documents are put in a new order each epoch, the epochs laid end to end to one endless sequence, and that sequence
    is cut into blocks. The blocks that begin in one epoch are shuffled among themselves, and batches are dealt from
    them in order. Nothing is padded and nothing dropped: the last block of an epoch ends in the first tokens of the
    next, so every token of every document stands in the blocks exactly once per epoch, and batches run on over the
    border. Orders depend on seed and epoch only; the rows of all ranks of one step are those that one process with a
    batch of `batch_size * world_size` would get, in order of rank.

    Args:
        stream: the documents.
        block_length: T, tokens per block.
        batch_size: B, blocks per step and rank.
        seed: another seed, another order.
        rank: which share of each step's blocks to give.
        world_size: number of ranks.

    Raises:
        InvalidValueError: if a size is below 1, the seed is negative, or the rank is outside the world.
        TrainingError: if the stream has no tokens, or fewer than one block.
    """

    def __init__(
        self,
        stream: TokenStream,
        block_length: int,
        batch_size: int,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        _check_at_least(1, block_length=block_length, batch_size=batch_size, world_size=world_size)
        _check_at_least(0, seed=seed, rank=rank)
        if rank >= world_size:
            raise InvalidValueError(
                f"rank {rank} of {world_size}", expected="a rank below the world size", remedy="Count ranks from 0"
            )
        if stream.num_tokens < block_length:
            raise TrainingError(
                f"{stream.num_tokens} tokens in {stream.num_documents} documents",
                expected=f"at least one block of {block_length} tokens",
                remedy="Give more text or a shorter block length",
            )
        self.stream = stream
        self.block_length = block_length
        self.batch_size = batch_size
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self._epochs: dict[int, _Epoch] = {}

    def num_steps(self, num_epochs: float = 1.0) -> int:
        """The least number of steps after which all ranks together have seen that many epochs of tokens."""
        return math.ceil(num_epochs * self.stream.num_tokens / self._tokens_per_step)

    def epoch_of(self, step: int) -> float:
        """Epochs of tokens that all ranks together have seen before a step."""
        return step * self._tokens_per_step / self.stream.num_tokens

    def batches(self, start_step: int = 0) -> Iterator[Batch]:
        """The batches from a step on, without end."""
        step = start_step
        while True:
            yield self.batch(step)
            step += 1

    def batch(self, step: int) -> Batch:
        """The batch of one step, counted from 0.

        Raises:
            InvalidValueError: if the step is negative.
        """
        _check_at_least(0, step=step)
        first = (step * self.world_size + self.rank) * self.batch_size
        block_starts = np.array([self._block_start(slot) for slot in range(first, first + self.batch_size)])
        places = block_starts[:, None] + np.arange(self.block_length)  # [B, T], in the endless sequence
        input_ids = np.empty(places.shape, dtype=np.int64)
        starts = np.zeros(places.shape, dtype=bool)
        epochs = places // self.stream.num_tokens
        for epoch in np.unique(epochs).tolist():
            inside = epochs == epoch
            input_ids[inside], starts[inside] = self._epoch(epoch).read(places[inside] % self.stream.num_tokens)
        starts[:, 0] = True
        column = np.arange(self.block_length)
        position_ids = column - np.maximum.accumulate(np.where(starts, column, 0), axis=1)
        return Batch(input_ids, starts, position_ids)

    @property
    def _tokens_per_step(self) -> int:
        return self.batch_size * self.world_size * self.block_length

    def _first_block(self, epoch: int) -> int:
        """The first block that begins in an epoch; block g begins at token g * T of the endless sequence."""
        return -(-epoch * self.stream.num_tokens // self.block_length)

    def _block_start(self, slot: int) -> int:
        """Where in the endless sequence the block begins that the shuffle puts at this slot."""
        epoch = slot * self.block_length // self.stream.num_tokens
        first = self._first_block(epoch)
        return (first + int(self._epoch(epoch).block_order[slot - first])) * self.block_length

    def _epoch(self, epoch: int) -> _Epoch:
        if epoch not in self._epochs:
            while len(self._epochs) >= _NUM_KEPT_EPOCHS:
                del self._epochs[next(iter(self._epochs))]
            num_blocks = self._first_block(epoch + 1) - self._first_block(epoch)
            self._epochs[epoch] = _Epoch(self.stream, self.seed, epoch, num_blocks)
        return self._epochs[epoch]


class _Epoch:
    """The order of documents and blocks in one epoch."""

    def __init__(self, stream: TokenStream, seed: int, epoch: int, num_blocks: int) -> None:
        self._ids = stream.ids
        order = _shuffled(stream.num_documents, (seed, epoch, 0))
        self.block_order = _shuffled(num_blocks, (seed, epoch, 1))
        lengths = np.diff(stream.document_offsets)[order]
        self._ends = np.cumsum(lengths)
        self._begins = self._ends - lengths
        self._shifts = stream.document_offsets[:-1][order] - self._begins

    def read(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids and document starts at places of this epoch's sequence, int64 [T] to int32 [T] and bool [T]."""
        documents = np.searchsorted(self._ends, places, side="right")
        return self._ids[places + self._shifts[documents]], places == self._begins[documents]


def _shuffled(num: int, entropy: tuple[int, ...]) -> np.ndarray:
    """A permutation of 0..num-1, int64 [num]."""
    # Raw draws, because NumPy keeps the bits of PCG64 from version to version but not those of Generator.permutation.
    draws = np.random.PCG64(np.random.SeedSequence(entropy)).random_raw(num)
    return np.argsort(draws, kind="stable")


def _encode(
    documents: Iterable[Document], encoder: TextEncoder, progress: Callable[[int], None] | None
) -> Iterator[np.ndarray]:
    texts: list[str] = []
    num_bytes = 0
    for document in documents:
        texts.append(document.text)
        num_bytes += len(document.data)
        if num_bytes >= _BYTES_AT_ONCE:
            yield from encoder.encode_batch(texts)
            if progress is not None:
                progress(num_bytes)
            texts, num_bytes = [], 0
    if texts:
        yield from encoder.encode_batch(texts)
        if progress is not None:
            progress(num_bytes)


def _check_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise InvalidValueError(
                f"{name} {value}", expected=f"{least} or more", remedy=f"Raise {name.replace('_', ' ')}"
            )
