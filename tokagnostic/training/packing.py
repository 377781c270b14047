"""Documents to fixed-length blocks of token ids, laid end to end without padding, and blocks to the batches of a run."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokagnostic.errors import InvalidValueError, TrainingError
from tokagnostic.training.blocks import Text, TextCounts
from tokagnostic.training.encoding import encode_documents
from tokagnostic.training.whole_text import WholeBlocks

if TYPE_CHECKING:
    from tokagnostic.corpus import Document
    from tokagnostic.tokens.encoder import TextEncoder


_NAMED = 4
"""Documents of a batch that are named to people."""


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
    num_bytes: int = 0
    """Bytes of the documents, where they were texts."""

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
        processes: int = 0,
    ) -> TokenStream:
        """Encode documents, each after the encoder's start id if it has one.

        Args:
            documents: what to encode, taken about one megabyte at a time.
            encoder: turns text into ids; text that spells a special token stays ordinary text.
            progress: told the number of bytes encoded since it was last told.
            processes: see `encode_documents`.

        Raises:
            CorpusError: if a document is not UTF-8.
            TokenizerError: if the tokenizer's library refuses a document.
            WorkerError: if a process dies.
        """
        num_bytes = 0

        def told(count: int) -> None:
            nonlocal num_bytes
            num_bytes += count
            if progress is not None:
                progress(count)

        encoded = encode_documents(((document, None) for document in documents), encoder, processes, told)
        stream = cls.from_ids((document.ids for document in encoded), encoder.start_id)
        return cls(stream.ids, stream.document_offsets, num_bytes)

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

    @property
    def identity(self) -> str:
        """See `Text.identity`."""
        return self.digest

    @property
    def counts(self) -> TextCounts:
        """See `Text.counts`."""
        return TextCounts(self.num_documents, self.num_bytes, self.num_tokens)

    def blocks(self, block_length: int, seed: tuple[int, ...]) -> WholeBlocks:
        """See `Text.blocks`.

        Raises:
            TrainingError: if there are no tokens, or fewer than one block.
        """
        if self.num_tokens < block_length:
            raise TrainingError(
                f"{self.num_tokens} tokens in {self.num_documents} documents",
                expected=f"at least one block of {block_length} tokens",
                remedy="Give more text or a shorter block length",
            )
        return WholeBlocks(self.ids, self.document_offsets, block_length, seed)


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
    """The batches of a run: those of a step are the blocks that follow those of the steps before.

    The rows of all ranks of one step are those that one process with a batch of `batch_size * world_size` would get, in
    order of rank, so that no row depends on the number of ranks.

    Args:
        text: what the blocks are taken from: a `TokenStream`, of which any step can be asked at any time, or a text that
            is read as it is used, whose steps come in order.
        block_length: T, tokens per block.
        batch_size: B, blocks per step and rank.
        seed: another seed, another order.
        rank: which share of each step's blocks to give.
        world_size: number of ranks.

    Raises:
        InvalidValueError: if a size is below 1, the seed is negative, or the rank is outside the world.
        TrainingError: if the text has no tokens, or fewer than one block.
    """

    def __init__(
        self,
        text: Text,
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
        self.block_length = block_length
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size
        self._blocks = text.blocks(block_length, (seed,))

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
        input_ids, starts = self._blocks.read(range(first, first + self.batch_size))
        starts[:, 0] = True
        column = np.arange(self.block_length)
        position_ids = column - np.maximum.accumulate(np.where(starts, column, 0), axis=1)
        return Batch(input_ids, starts, position_ids)

    def describe(self, step: int, rank: int) -> str:
        """What the batch of a step is made of in one process, in words, for who looks for it in the text."""
        first = (step * self.world_size + rank) * self.batch_size
        numbers = range(first, first + self.batch_size)
        words = f"blocks {first} to {numbers[-1]} of the text"
        if rank != self.rank:  # which that process has read
            return f"{words}, read by process {rank}"
        names = list(dict.fromkeys(name for number in numbers for name in self._blocks.documents(number)))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"{words} ({', '.join(names[:_NAMED])}{more})" if names else words

    def cursor(self, step: int) -> Any:
        """From where the text goes on at a step, for all ranks, as a JSON value; None where the step says it all."""
        return self._blocks.cursor(step * self.world_size * self.batch_size)

    def go_to(self, step: int, cursor: Any = None) -> None:
        """Make a step the next.

        Args:
            step: the step.
            cursor: what `cursor` gave for it, by any rank; without it a text that is read as it is used is read up to
                there.

        Raises:
            TrainingError: if the text there is not the one that the cursor was taken from.
        """
        self._blocks.go_to(step * self.world_size * self.batch_size, cursor)


def _check_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise InvalidValueError(
                f"{name} {value}", expected=f"{least} or more", remedy=f"Raise {name.replace('_', ' ')}"
            )
