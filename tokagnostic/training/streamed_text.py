"""A text larger than memory to its blocks, by a buffer of documents that is filled, shuffled and used up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tokagnostic.corpus import Corpus, Cursor
from tokagnostic.errors import InvalidValueError, TokagnosticError, TrainingError
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.training.blocks import TextCounts
from tokagnostic.training.encoding import EncodedDocument, encode_documents
from tokagnostic.training.shuffle_buffer import Buffer, Place


class StreamedText:
    """A corpus that is read and encoded while it is trained on (see `Text`).

    Args:
        corpus: the documents, each once per epoch, in its order.
        encoder: turns them into ids.
        shuffle_buffer: documents that are shuffled with each other; up to twice as many lie in memory, as ids.
        processes: see `encode_documents`.

    Raises:
        InvalidValueError: if the buffer holds no document.
    """

    def __init__(self, corpus: Corpus, encoder: TextEncoder, shuffle_buffer: int, processes: int = 0) -> None:
        if shuffle_buffer < 1:
            raise InvalidValueError(
                f"shuffle_buffer {shuffle_buffer}", expected="1 document or more", remedy="Raise shuffle_buffer"
            )
        self.corpus = corpus
        self.encoder = encoder
        self.shuffle_buffer = shuffle_buffer
        self.processes = processes
        self.counts = TextCounts()
        """What was read so far, over all epochs and sittings."""

    @property
    def identity(self) -> dict[str, Any]:
        """Files by name with what tells each from a changed one, and the size of the buffer."""
        return {"files": self.corpus.identities(), "shuffle_buffer": self.shuffle_buffer}

    def blocks(self, block_length: int, seed: tuple[int, ...]) -> StreamedBlocks:
        """See `Text.blocks`; nothing is read yet."""
        return StreamedBlocks(self, block_length, seed)


class StreamedBlocks:
    """The blocks of a streamed text (see `Blocks`).

    The buffer takes the next documents of an epoch, lays them end to end in an order of their own behind the tokens
    that the buffer before it could not fill a block with, and gives the blocks, again in an order of their own. So
    every token of every document stands in the blocks exactly once per epoch, and orders depend on the seed, the epoch,
    the buffer's number in it and the documents alone: a buffer is made again by reading its documents again. With each
    block some documents of the next buffer are read, so that no step waits for a whole buffer.

    Args:
        text: what to read.
        block_length: T, tokens per block.
        seed: another seed, another order.
    """

    def __init__(self, text: StreamedText, block_length: int, seed: tuple[int, ...]) -> None:
        self._text = text
        self._length = block_length
        self._seed = seed
        self._buffer: Buffer | None = None
        self._next = _Filling(text, Place())

    def read(self, numbers: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """See `Blocks.read`.

        Raises:
            CorpusError: if a document cannot be read as it stands.
            SourceError: if a source cannot be read.
            TokenizerError: if the tokenizer's library refuses a document.
            TrainingError: if an epoch has fewer tokens than a block.
            WorkerError: if a process that encodes dies.
        """
        input_ids = np.empty((len(numbers), self._length), dtype=np.int64)
        starts = np.empty(input_ids.shape, dtype=bool)
        for row, number in enumerate(numbers):
            buffer = self._buffer_of(number)
            input_ids[row], starts[row] = buffer.block(number)
            self._next.pull(-(-self._text.shuffle_buffer // buffer.num_blocks))
        return input_ids, starts

    def cursor(self, number: int) -> dict[str, Any]:
        """The place at which the buffer of block `number` begins, and the digests of its documents."""
        return self._buffer_of(number).cursor

    def documents(self, number: int) -> list[str]:
        """See `Blocks.documents`; none of a block that the latest buffer no longer holds."""
        buffer = self._buffer
        return [] if buffer is None or number < buffer.place.first_block else buffer.documents(number)

    def go_to(self, number: int, cursor: Any) -> None:
        """See `Blocks.go_to`; the documents of one buffer are read again, and compared.

        Raises:
            TrainingError: naming the first document that is another one.
        """
        self._buffer = None
        self._next = _Filling(self._text, Place() if cursor is None else Place.of(cursor))
        buffer = self._buffer_of(number)
        if cursor is not None:
            # A cursor stands at the buffer that its block is in, so the first buffer that was made is that one.
            buffer.refuse_change(cursor)

    def _buffer_of(self, number: int) -> Buffer:
        """The buffer that holds a block, made from the documents after those of the latest."""
        buffer = self._buffer
        while buffer is None or number >= buffer.place_after.first_block:
            place, (documents, ended) = self._next.place, self._next.whole()
            buffer = self._buffer = Buffer(place, documents, ended, self._length, self._seed)
            self._refuse_less_than_a_block(place.epoch_tokens + buffer.num_tokens, ended)
            self._next = self._next.followed_by(buffer.place_after)
            self._text.counts = buffer.place_after.counts
        if number < buffer.place.first_block:
            raise TrainingError(
                f"block {number} of a streamed text after block {buffer.place.first_block}",
                expected="blocks in order",
                remedy="Go to the block with the cursor that was taken there",
            )
        return buffer

    def _refuse_less_than_a_block(self, epoch_tokens: int, ended: bool) -> None:
        if ended and epoch_tokens < self._length:
            raise TrainingError(
                f"{epoch_tokens} tokens in {', '.join(self._text.corpus.config.data)}",
                expected=f"at least one block of {self._length} tokens",
                remedy="Give more text or a shorter block length",
            )


class _Filling:
    """The documents of the buffer that comes next, as far as they were read."""

    def __init__(
        self, text: StreamedText, place: Place, documents: Iterator[EncodedDocument[Cursor]] | None = None
    ) -> None:
        self.place = place
        self._text = text
        self._documents = self._read() if documents is None else documents
        self._held: list[EncodedDocument[Cursor]] = []
        self._ended = False
        self._broken: TokagnosticError | None = None

    def pull(self, count: int) -> None:
        """Read so many documents more, but none that the buffer has no room for or that the next epoch begins with."""
        for _ in range(min(count, self._text.shuffle_buffer - len(self._held))):
            document = self._read_next()
            if document is None:
                self._ended = True
                return
            self._held.append(document)

    def _read_next(self) -> EncodedDocument[Cursor] | None:
        # After an error a generator looks as if it had come to its end, which it has not.
        if self._broken is not None:
            raise self._broken
        try:
            return next(self._documents, None)
        except TokagnosticError as error:
            self._broken = error
            raise

    def whole(self) -> tuple[list[EncodedDocument[Cursor]], bool]:
        """The documents of the buffer, and whether the epoch ends in it."""
        self.pull(self._text.shuffle_buffer)
        return self._held, self._ended

    def followed_by(self, place: Place) -> _Filling:
        """The one after it."""
        return _Filling(self._text, place, None if self._ended else self._documents)

    def _read(self) -> Iterator[EncodedDocument[Cursor]]:
        """The rest of the epoch, without documents that the normaliser emptied."""
        text = self._text
        cursor = None if self.place.corpus is None else Cursor(**self.place.corpus)
        start = np.array([] if text.encoder.start_id is None else [text.encoder.start_id], dtype=np.int32)
        for document in encode_documents(text.corpus.iterate(cursor), text.encoder, text.processes):
            if len(document.ids) > 0:
                yield dataclasses.replace(document, ids=np.concatenate((start, document.ids.astype(np.int32))))
