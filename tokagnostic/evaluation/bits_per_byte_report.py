"""Nats over a text to bits per byte of its source: to JSON values and to lines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

MemoryState = Literal["none", "on", "off"]
"""Whether the scored model has a memory, and whether it was read."""


@dataclass(frozen=True)
class Score:
    """Nats over some text."""

    nats: float
    """Sum of negative log-likelihoods of the scored tokens."""
    num_bytes: int
    """Bytes of source text that these tokens stand for."""
    num_tokens: int
    """Scored tokens."""

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte; NaN over no bytes."""
        return self.nats / math.log(2) / self.num_bytes if self.num_bytes else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; null over no bytes."""
        return {
            "bits_per_byte": self.bits_per_byte if self.num_bytes else None,
            "nats": self.nats,
            "bytes": self.num_bytes,
            "tokens": self.num_tokens,
        }


@dataclass(frozen=True)
class DocumentScore:
    """Nats over one document."""

    source: str
    """Where the document is from."""
    nats: float
    """Sum over its scored tokens."""
    num_tokens: int
    """Scored tokens."""
    num_bytes: int
    """UTF-8 length of the source."""
    num_unscored_bytes: int
    """Bytes of it that no scored token stands for: those of the first token where there is no start id."""
    exact: bool
    """Whether the document's ids join back to its bytes."""

    @property
    def score(self) -> Score:
        """Over the bytes that were scored."""
        return Score(self.nats, self.num_bytes - self.num_unscored_bytes, self.num_tokens)


@dataclass(frozen=True)
class BitsPerByte:
    """The result of an evaluation."""

    documents: list[DocumentScore]
    """Each document, in order; those without bytes are left out."""
    num_words: int
    """Pieces of the text between white space, for those who divide by words."""
    context: int
    """Tokens per window."""
    stride: int
    """Tokens between the beginnings of two windows."""
    start_id: int | None
    """What stands before each document as context; None if nothing does."""
    tokenizer: dict[str, Any]
    """Name, fidelity and fingerprint of the tokenizer."""
    memory: MemoryState
    """Whether a memory was read."""
    seen: Score | None = None
    """Tokens predicted where the longest window before them is in the given key set; bytes are those of the tokens."""
    novel: Score | None = None
    """The other tokens."""

    @property
    def total(self) -> Score:
        """All documents together: sums divided once (micro average)."""
        scores = [document.score for document in self.documents]
        return Score(
            math.fsum(score.nats for score in scores),
            sum(score.num_bytes for score in scores),
            sum(score.num_tokens for score in scores),
        )

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of all documents together; NaN where no byte could be scored."""
        return self.total.bits_per_byte

    @property
    def mean_over_documents(self) -> float:
        """Mean of the documents' own bits per byte (macro average) over those with a scored byte; NaN without any."""
        values = [document.score.bits_per_byte for document in self.documents if document.score.num_bytes]
        return math.fsum(values) / len(values) if values else math.nan

    @property
    def num_unscored_bytes(self) -> int:
        """Bytes of the source that are in no sum and in no denominator."""
        return sum(document.num_unscored_bytes for document in self.documents)

    @property
    def num_inexact(self) -> int:
        """Documents whose ids do not join back: with any of them this is no code length of the source."""
        return sum(not document.exact for document in self.documents)

    @property
    def notes(self) -> list[str]:
        """What a reader of the number has to know besides it."""
        notes = []
        if self.num_inexact:
            notes.append(
                f"lossy: the ids of {self.num_inexact:,} of {len(self.documents):,} documents do not join back to their "
                "bytes, so this is no code length of the source and not to be ranked with exact tokenizers"
            )
        if self.num_unscored_bytes:
            notes.append(
                f"the tokenizer has no start id: the first token of each document is context only, and its bytes "
                f"({self.num_unscored_bytes:,} in all) are left out of the denominator"
            )
        return notes

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; null where nothing was scored."""
        total = self.total
        bits = total.nats / math.log(2)
        mean = self.mean_over_documents
        result = {
            **total.to_dict(),
            "words": self.num_words,
            "bits_per_token": bits / total.num_tokens if total.num_tokens else None,
            "bits_per_word": bits / self.num_words if self.num_words else None,
            "mean_over_documents": None if math.isnan(mean) else mean,
            "num_documents": len(self.documents),
            "unscored_bytes": self.num_unscored_bytes,
            "lossy": self.num_inexact > 0,
            "num_inexact_documents": self.num_inexact,
            "notes": self.notes,
            "memory": self.memory,
            "tokenizer": self.tokenizer,
            "rule": {
                "context": self.context,
                "stride": self.stride,
                "start_id": self.start_id,
                "scored": "each token of the text once, in the first window that reaches it; the start id is context only",
                "denominator": "UTF-8 bytes of the source without unscored_bytes; sums are divided once",
                "memory_history": "the true one of each document, whatever the window",
            },
        }
        if self.seen is not None and self.novel is not None:
            result |= {"seen": self.seen.to_dict(), "novel": self.novel.to_dict()}
        return result
