"""Some documents to blocks in an order of their own, and to the place from which they can be made again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tokagnostic.corpus import Cursor
from tokagnostic.errors import TrainingError
from tokagnostic.training.blocks import TextCounts, shuffled
from tokagnostic.training.encoding import EncodedDocument

_DIGEST_BYTES = 8


@dataclass(frozen=True)
class Place:
    """Where a buffer begins. All fields are JSON values."""

    first_block: int = 0
    """Blocks of all buffers before."""
    epoch: int = 0
    """Epochs before."""
    number: int = 0
    """Buffers before it in its epoch."""
    epoch_tokens: int = 0
    """Tokens before it in its epoch."""
    corpus: dict[str, Any] | None = None
    """The `Cursor` at which its documents begin; None: where the corpus begins."""
    carried_ids: list[int] = field(default_factory=list)
    """Tokens before it that did not fill a block."""
    carried_starts: list[bool] = field(default_factory=list)
    """Which of them are the first of a document."""
    documents: int = 0
    """This and what follows: what was read before, in all epochs (`TextCounts`)."""
    bytes: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, cursor: Mapping[str, Any]) -> Place:
        """The place in a cursor.

        Raises:
            TrainingError: if there is none.
        """
        try:
            return cls(**cursor["place"])
        except (KeyError, TypeError) as error:
            raise TrainingError(
                f"a cursor without a place ({error})",
                expected="a cursor of a streamed text",
                remedy="Resume with the settings that the run was started with",
            ) from error

    @property
    def counts(self) -> TextCounts:
        """What was read before."""
        return TextCounts(self.documents, self.bytes, self.tokens)


class Buffer:
    """Documents laid end to end in an order of their own and cut into blocks, which are shuffled in turn.

    Args:
        place: where it begins.
        documents: what it holds, in the order of the corpus, their start ids included.
        ended: whether no document of the epoch follows.
        block_length: T.
        seed: another seed, other orders.
    """

    def __init__(
        self,
        place: Place,
        documents: Sequence[EncodedDocument[Cursor]],
        ended: bool,
        block_length: int,
        seed: tuple[int, ...],
    ) -> None:
        self.place = place
        self._documents = documents
        self._length = block_length
        entropy = (*seed, place.epoch, place.number)
        order = self._document_order = shuffled(len(documents), (*entropy, 0))
        all_ids = [documents[i].ids for i in order]
        ids = np.concatenate([np.array(place.carried_ids, dtype=np.int32), *all_ids])
        starts = np.zeros(len(ids), dtype=bool)
        starts[: len(place.carried_ids)] = place.carried_starts
        lengths = np.array([len(document_ids) for document_ids in all_ids], dtype=np.int64)
        self._ends = len(place.carried_ids) + np.cumsum(lengths)
        starts[self._ends - lengths] = True
        self.num_tokens = int(lengths.sum())
        """Tokens of its documents."""
        self.num_blocks = len(ids) // block_length
        """Blocks that end in it."""
        num_used = self.num_blocks * block_length
        self._ids = ids[:num_used].reshape(self.num_blocks, block_length)
        self._starts = starts[:num_used].reshape(self.num_blocks, block_length)
        self._order = shuffled(self.num_blocks, (*entropy, 1))
        after = documents[-1].after if documents else None
        self.place_after = Place(
            first_block=place.first_block + self.num_blocks,
            epoch=place.epoch + ended,
            number=0 if ended else place.number + 1,
            epoch_tokens=0 if ended else place.epoch_tokens + self.num_tokens,
            corpus=None if ended or after is None else asdict(after),
            carried_ids=ids[num_used:].tolist(),
            carried_starts=starts[num_used:].tolist(),
            documents=place.documents + len(documents),
            bytes=place.bytes + sum(document.num_bytes for document in documents),
            tokens=place.tokens + self.num_tokens,
        )
        """Where the buffer after it begins."""

    def block(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids, int32 [T], and document starts, bool [T], of a block that ends in it."""
        i = self._order[number - self.place.first_block]
        return self._ids[i], self._starts[i]

    def documents(self, number: int) -> list[str]:
        """Names of the documents that a block has text of, less those of the buffer before."""
        begin = int(self._order[number - self.place.first_block]) * self._length
        first = np.searchsorted(self._ends, max(begin, len(self.place.carried_ids)), side="right")
        last = np.searchsorted(self._ends, begin + self._length - 1, side="right")
        return [self._documents[i].source for i in self._document_order[first : last + 1]]

    @property
    def cursor(self) -> dict[str, Any]:
        """Where it begins, and a digest of each of its documents' ids, as JSON values."""
        return {"place": asdict(self.place), "documents": self._digests()}

    def refuse_change(self, cursor: Mapping[str, Any]) -> None:
        """Make sure that its documents are those that a cursor was taken from.

        Raises:
            TrainingError: naming the first that is another one.
        """
        saved, found = cursor["documents"], self._digests()
        if saved != found:
            same = next((i for i, (one, other) in enumerate(zip(saved, found, strict=False)) if one != other), -1)
            where = self._documents[same].source if self._documents else "the text"
            raise TrainingError(
                f"{where} is not the document that the run had read there",
                expected="the text that the run was started with",
                remedy="Put the file back, or start another run in another folder",
            )

    def _digests(self) -> list[str]:
        return [
            hashlib.sha256(document.ids.astype("<i4").tobytes()).hexdigest()[: 2 * _DIGEST_BYTES]
            for document in self._documents
        ]
