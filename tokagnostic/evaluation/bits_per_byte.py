"""A model, its tokenizer and documents to bits per byte of the source text: the number compared across tokenizers.

The rule, which every result states:

- The denominator is the UTF-8 length of the source documents, whatever the tokenizer makes of them.
- Each document stands alone, after the tokenizer's start id if it has one. The start id is context and not scored, and
  no end of a document is scored.
- A document longer than the context is read in windows that begin `stride` tokens apart; each token is scored once, in
  the first window that reaches it. The memory is read with the true history of every position in its document, so that
  what it knows at a window's start does not depend on the window.
- Sums of nats and of bytes are divided once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from tokagnostic.errors import InvalidValueError
from tokagnostic.evaluation.key_set import KeySet
from tokagnostic.evaluation.windows import AnyDocument, document_batches
from tokagnostic.hashing import HashCache, NgramHasher
from tokagnostic.hashing.polynomial import NO_WINDOW
from tokagnostic.host import attachment_of
from tokagnostic.tokens.encoder import TextEncoder


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
        """As JSON values."""
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
    num_bytes: int
    """UTF-8 length of the source."""
    num_unscored_bytes: int
    """Bytes of it that no scored token stands for: those of the first token where there is no start id."""
    exact: bool
    """Whether the document's ids join back to its bytes."""


@dataclass(frozen=True)
class BitsPerByte:
    """The result of an evaluation."""

    total: Score
    """All documents together: sums divided once (micro average)."""
    documents: list[DocumentScore]
    """Each document, in order; those without bytes are left out."""
    context: int
    """Tokens per window."""
    stride: int
    """Tokens between the beginnings of two windows."""
    seen: Score | None = None
    """Tokens predicted where the longest window before them is in the given key set; bytes are those of the tokens."""
    novel: Score | None = None
    """The other tokens."""

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of all documents together."""
        return self.total.bits_per_byte

    @property
    def mean_over_documents(self) -> float:
        """Mean of the documents' own bits per byte (macro average)."""
        values = [document.nats / math.log(2) / document.num_bytes for document in self.documents]
        return sum(values) / len(values)

    @property
    def num_inexact(self) -> int:
        """Documents whose ids do not join back: with any of them this is no code length of the source."""
        return sum(not document.exact for document in self.documents)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        result = {
            **self.total.to_dict(),
            "mean_over_documents": self.mean_over_documents,
            "num_documents": len(self.documents),
            "unscored_bytes": sum(document.num_unscored_bytes for document in self.documents),
            "lossy": self.num_inexact > 0,
            "num_inexact_documents": self.num_inexact,
            "rule": {"context": self.context, "stride": self.stride, "scored": "each token once, after a start id"},
        }
        if self.seen is not None and self.novel is not None:
            result |= {"seen": self.seen.to_dict(), "novel": self.novel.to_dict()}
        return result


def bits_per_byte(
    model: nn.Module,
    tokenizer: Any,
    documents: Iterable[AnyDocument],
    context: int = 256,
    stride: int | None = None,
    *,
    batch_size: int = 16,
    seen: KeySet | None = None,
    max_order: int = 3,
    progress: Callable[[int], None] | None = None,
) -> BitsPerByte:
    """Score a text under a causal language model, with its memory if one is attached and not disabled.

    Args:
        model: a causal language model of transformers; its mode is restored afterwards.
        tokenizer: as `TextEncoder.of` takes it.
        documents: the text.
        context: tokens per window.
        stride: tokens between the beginnings of two windows, at most `context`; by default `context`, windows that do
            not overlap.
        batch_size: windows per call of the model.
        seen: window keys of the text that a memory was trained on; the score is then split by whether the longest window
            before a token is one of them.
        max_order: largest order of those windows.
        progress: told the number of bytes scored since it was last told.

    Raises:
        CorpusError: if there is no document, or one is not UTF-8.
        InvalidValueError: if the stride does not fit the context.
    """
    encoder = TextEncoder.of(tokenizer)
    stride = context if stride is None else stride
    if not 1 <= stride <= context:
        raise InvalidValueError(
            f"stride {stride} with context {context}",
            expected="1 <= stride <= context",
            remedy="Choose a stride of at most the context, or leave it out",
        )
    scorer = _Scorer(model, encoder, context, stride, batch_size)
    lengths = encoder.token_bytes.lengths
    hasher = NgramHasher(HashCache.build(encoder.token_bytes), max_order)
    scores: list[DocumentScore] = []
    total, split = _Sum(), {True: _Sum(), False: _Sum()}
    was_training = model.training
    model.eval()
    try:
        for batch in document_batches(documents):
            kept = [document for document in batch if document.data]
            encoded = encoder.encode_batch([document.text for document in kept])
            sequences = [_with_start(ids, encoder.start_id) for ids in encoded]
            for document, sequence, ids, nats in zip(kept, sequences, encoded, scorer(sequences), strict=True):
                targets = sequence[1:]
                exact = encoder.token_bytes.join(ids) == document.data
                unscored = 0 if encoder.start_id is not None or not len(ids) else int(lengths[ids[0]])
                scores.append(DocumentScore(document.source, float(nats.sum()), len(document.data), unscored, exact))
                total.add(nats, len(document.data) - unscored)
                if seen is not None and len(targets):
                    is_seen = seen.contains(_longest(hasher(sequence)))[:-1]
                    for flag, group in split.items():
                        group.add(nats[is_seen == flag], int(lengths[targets[is_seen == flag]].sum()))
                if progress is not None:
                    progress(len(document.data))
    finally:
        model.train(was_training)
    return BitsPerByte(
        total.score(),
        scores,
        context,
        stride,
        None if seen is None else split[True].score(),
        None if seen is None else split[False].score(),
    )


class _Sum:
    def __init__(self) -> None:
        self.nats, self.num_bytes, self.num_tokens = 0.0, 0, 0

    def add(self, nats: np.ndarray, num_bytes: int) -> None:
        self.nats += float(nats.sum())
        self.num_bytes += num_bytes
        self.num_tokens += len(nats)

    def score(self) -> Score:
        return Score(self.nats, self.num_bytes, self.num_tokens)


class _Scorer:
    """Token sequences to the nats of every token but the first, each scored in the first window that reaches it."""

    def __init__(self, model: nn.Module, encoder: TextEncoder, context: int, stride: int, batch_size: int) -> None:
        self.model = model
        self.context, self.stride, self.batch_size = context, stride, batch_size
        self.device = next(model.parameters()).device
        attachment = attachment_of(model)
        self.attachment = None if attachment is None or attachment.off else attachment

    def __call__(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Nats per target, float64 [len - 1], for each sequence of ids, int64 [len]."""
        nats = [np.zeros(max(len(sequence) - 1, 0)) for sequence in sequences]
        keys = [self._keys(sequence) for sequence in sequences]
        windows = [
            (s, begin, end, fresh) for s in range(len(sequences)) for begin, end, fresh in self._windows(len(nats[s]))
        ]
        # Windows of like length share a batch, so that little is computed on padding.
        windows.sort(key=lambda window: window[2] - window[1], reverse=True)
        for i in range(0, len(windows), self.batch_size):
            group = windows[i : i + self.batch_size]
            scored = self._score(
                [sequences[s][begin : end + 1] for s, begin, end, _ in group],
                [keys[s][begin:end] for s, begin, end, _ in group],
            )
            for (s, begin, end, fresh), row in zip(group, scored, strict=True):
                nats[s][fresh:end] = row[fresh - begin : end - begin]
        return nats

    def _windows(self, num_targets: int) -> Iterator[tuple[int, int, int]]:
        """Begin and end of each window, and the first target that no earlier window reached."""
        fresh = 0
        for begin in range(0, num_targets, self.stride):
            end = min(begin + self.context, num_targets)
            yield begin, end, fresh
            fresh = end
            if end == num_targets:
                return

    def _keys(self, sequence: np.ndarray) -> np.ndarray:
        """Keys of every position with its true history, int64 [len, N]; N is 0 without a memory."""
        if self.attachment is None:
            return np.zeros((len(sequence), 0), dtype=np.int64)
        return np.asarray(self.attachment.hasher(sequence))

    @torch.inference_mode()
    def _score(self, rows: Sequence[np.ndarray], keys: Sequence[np.ndarray]) -> np.ndarray:
        """Nats of rows[i][1:] given what precedes them, float64 [B, T]; rows are padded on the right, where causality
        keeps padding out of sight.
        """
        longest = max(len(row) for row in rows)
        ids = np.zeros((len(rows), longest), dtype=np.int64)
        padded_keys = np.full((len(rows), longest - 1, keys[0].shape[1]), NO_WINDOW, dtype=np.int64)
        for b, (row, row_keys) in enumerate(zip(rows, keys, strict=True)):
            ids[b, : len(row)] = row
            padded_keys[b, : len(row_keys)] = row_keys
        inputs, targets = torch.from_numpy(ids).to(self.device).split([longest - 1, 1], dim=1)[0], ids[:, 1:]
        reading = (
            nullcontext()
            if self.attachment is None
            else self.attachment.given_keys(torch.from_numpy(padded_keys).to(self.device))
        )
        with reading:
            logits = self.model(input_ids=inputs, use_cache=False).logits
        losses = nn.functional.cross_entropy(
            logits.float().flatten(0, 1), torch.from_numpy(targets.copy()).to(self.device).flatten(), reduction="none"
        )
        return losses.view(targets.shape).double().cpu().numpy()


def _with_start(ids: np.ndarray, start_id: int | None) -> np.ndarray:
    return ids if start_id is None else np.concatenate(([start_id], ids))


def _longest(keys: np.ndarray) -> np.ndarray:
    """The key of the longest window at each position, int64 [T], for keys int64 [T, N]; -1 where there is none."""
    # Windows of rising order exist up to some order and not beyond, so their number is the place of the longest.
    num_windows = (keys >= 0).sum(axis=1)
    longest: np.ndarray = np.where(num_windows > 0, keys[np.arange(len(keys)), num_windows - 1], NO_WINDOW)
    return longest
