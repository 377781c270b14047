"""A model, its tokenizer and documents to bits per byte of the source text: the number compared across tokenizers.

The rule, which every result states:

- The denominator is the UTF-8 length of the source documents, whatever the tokenizer makes of them.
- Each document stands alone, after the tokenizer's start id if it has one. The start id is context and not scored, and
  no end of a document is scored. Without a start id the first token is context too: it is not scored, and its bytes are
  left out of the denominator and reported.
- A document longer than the context is read in windows that begin `stride` tokens apart; each token is scored once, in
  the first window that reaches it. The memory is read with the true history of every position in its document, so that
  what it knows at a window's start does not depend on the window.
- Every token of the text is scored, one that stands for the unknown too: what a tokenizer destroys is not free.
- Sums of nats and of bytes are divided once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from tokagnostic.corpus import Document
from tokagnostic.errors import CorpusError, HostError, InvalidValueError
from tokagnostic.evaluation.bits_per_byte_report import BitsPerByte, DocumentScore, MemoryState, Score
from tokagnostic.evaluation.key_set import KeySet
from tokagnostic.evaluation.windows import AnyDocument, document_batches
from tokagnostic.hashing import HashCache, NgramHasher
from tokagnostic.hashing.polynomial import NO_WINDOW
from tokagnostic.host import attachment_of
from tokagnostic.memory.ahead import ReadAhead
from tokagnostic.tokens.encoder import TextEncoder


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
        model: a causal language model of transformers; the modes of its modules are restored afterwards.
        tokenizer: as `TextEncoder.of` takes it.
        documents: the text.
        context: tokens per window.
        stride: tokens between the beginnings of two windows, at most `context`; by default `context`, windows that do
            not overlap.
        batch_size: windows per call of the model.
        seen: window keys of the text that a memory was trained on; the score is then split by whether the longest window
            before a token is one of them.
        max_order: largest order of those windows.
        progress: told the bytes whose tokens were scored since it was last told.

    Raises:
        CorpusError: if there is no document with text, or one is not UTF-8.
        HostError: if the model gives a token no finite likelihood.
        InvalidValueError: if context, stride or batch size cannot be used.
    """
    encoder = TextEncoder.of(tokenizer)
    stride = context if stride is None else stride
    _check_sizes(model, context, stride, batch_size)
    scorer = _Scorer(model, context, stride, batch_size, progress)
    groups = None if seen is None else _Groups(encoder, seen, max_order)
    scores: list[DocumentScore] = []
    num_words = 0
    with _evaluating(model):
        for batch in document_batches(documents):
            kept = [document for document in batch if document.data]
            texts = [document.text for document in kept]
            num_words += sum(len(text.split()) for text in texts)
            sequences = [
                _Sequence.of(document, ids, encoder)
                for document, ids in zip(kept, encoder.encode_batch(texts), strict=True)
            ]
            for sequence, nats in zip(sequences, scorer(sequences), strict=True):
                scores.append(sequence.scored(nats))
                if groups is not None:
                    groups.add(sequence, nats)
    if not scores:
        raise CorpusError(
            "documents without a byte of text",
            expected="a text to measure on",
            remedy="Name a source that is not empty",
        )
    fidelity = encoder.token_bytes.fidelity
    return BitsPerByte(
        documents=scores,
        num_words=num_words,
        context=context,
        stride=stride,
        start_id=encoder.start_id,
        tokenizer={
            "name": encoder.name,
            "fidelity": None if fidelity is None else fidelity.line,
            "fingerprint": encoder.token_bytes.fingerprint,
        },
        memory=scorer.memory,
        seen=None if groups is None else groups.score(True),
        novel=None if groups is None else groups.score(False),
    )


def _check_sizes(model: nn.Module, context: int, stride: int, batch_size: int) -> None:
    for name, number in (("context", context), ("stride", stride), ("batch_size", batch_size)):
        if type(number) is not int or number < 1:
            raise InvalidValueError(
                f"{name} = {number!r}", expected="a whole number of at least 1", remedy=f"Set {name} to such a number"
            )
    if stride > context:
        raise InvalidValueError(
            f"stride {stride} with context {context}",
            expected="a stride of at most the context, for tokens between two windows would not be scored",
            remedy="Lower the stride, or leave it out",
        )
    longest = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if isinstance(longest, int) and context > longest:
        raise InvalidValueError(
            f"context {context} for a model of {longest} positions",
            expected=f"at most {longest} tokens per window",
            remedy="Lower the context; longer documents are read in several windows",
        )


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Within it all modules are in evaluation mode; afterwards each has its own again."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@dataclass(frozen=True, eq=False)
class _Sequence:
    """A document as the model is given it."""

    document: Document
    ids: np.ndarray
    """The start id, if there is one, and the document's ids, int64 [T]."""
    target_bytes: np.ndarray
    """Bytes of the source that each of ids[1:] stands for, int64 [T - 1]."""
    unscored: int
    exact: bool

    @classmethod
    def of(cls, document: Document, ids: np.ndarray, encoder: TextEncoder) -> _Sequence:
        starts, stops = encoder.token_bytes.spans(ids)
        num_bytes = stops - starts
        exact = encoder.token_bytes.join(ids) == document.data
        if encoder.start_id is not None and len(ids):
            return cls(document, np.concatenate(([encoder.start_id], ids)), num_bytes, 0, exact)
        # What the first token of a lossy tokenizer stands for may be longer than the whole document.
        first = int(num_bytes[0]) if len(ids) > 1 else len(document.data)
        return cls(document, ids, num_bytes[1:], min(first, len(document.data)), exact)

    @property
    def num_targets(self) -> int:
        return len(self.target_bytes)

    def scored(self, nats: np.ndarray) -> DocumentScore:
        """The document's sums, for nats per target, float64 [T - 1]."""
        total = float(nats.sum())
        source = self.document.source
        if not np.isfinite(total):
            raise HostError(
                f"the model's loss on {source} is {total}",
                expected="a finite likelihood of every token",
                remedy="Check that the model was trained to an end and loaded in a dtype that holds it",
            )
        return DocumentScore(source, total, len(nats), len(self.document.data), self.unscored, self.exact)


class _Groups:
    """The score of tokens after a longest window that is in a key set, and of the other tokens."""

    def __init__(self, encoder: TextEncoder, seen: KeySet, max_order: int) -> None:
        self._hasher = NgramHasher(HashCache.build(encoder.token_bytes), max_order)
        self._seen = seen
        self._nats = {True: 0.0, False: 0.0}
        self._num_bytes = {True: 0, False: 0}
        self._num_tokens = {True: 0, False: 0}

    def add(self, sequence: _Sequence, nats: np.ndarray) -> None:
        """Account for a document, its nats per target float64 [T - 1]."""
        is_seen = self._seen.contains(_longest(self._hasher(sequence.ids)))[: sequence.num_targets]
        for flag in (True, False):
            chosen = is_seen == flag
            self._nats[flag] += float(nats[chosen].sum())
            self._num_bytes[flag] += int(sequence.target_bytes[chosen].sum())
            self._num_tokens[flag] += int(chosen.sum())

    def score(self, flag: bool) -> Score:
        """Of the seen or of the other tokens."""
        return Score(self._nats[flag], self._num_bytes[flag], self._num_tokens[flag])


class _Scorer:
    """Sequences to the nats of every token but the first, each scored in the first window that reaches it."""

    def __init__(
        self, model: nn.Module, context: int, stride: int, batch_size: int, progress: Callable[[int], None] | None
    ) -> None:
        self._model = model
        self._context, self._stride, self._batch_size = context, stride, batch_size
        self._progress = progress
        self._device = next(model.parameters()).device
        attachment = attachment_of(model)
        self.memory: MemoryState = "none" if attachment is None else "off" if attachment.off else "on"
        self._attachment = attachment if self.memory == "on" else None

    def __call__(self, sequences: Sequence[_Sequence]) -> list[np.ndarray]:
        """Nats per target, float64 [T - 1], of each sequence."""
        nats = [np.zeros(sequence.num_targets) for sequence in sequences]
        keys = [self._keys(sequence.ids) for sequence in sequences]
        windows = [
            (s, *window) for s, sequence in enumerate(sequences) for window in self._windows(sequence.num_targets)
        ]
        # Windows of like length share a batch, so that little is computed on padding.
        windows.sort(key=lambda window: window[2] - window[1], reverse=True)
        groups = [windows[i : i + self._batch_size] for i in range(0, len(windows), self._batch_size)]
        calls = [_padded([keys[s][begin:end] for s, begin, end, _ in group]) for group in groups]
        with self._reading_ahead() as ahead:
            for group, given, following in zip(groups, calls, [*calls, None][1:], strict=True):
                if ahead is not None and following is not None:
                    ahead.start(following)
                scored = self._score([sequences[s].ids[begin : end + 1] for s, begin, end, _ in group], given)
                for (s, begin, end, fresh), row in zip(group, scored, strict=True):
                    nats[s][fresh:end] = row[fresh - begin :]
                if self._progress is not None:
                    self._progress(sum(int(sequences[s].target_bytes[fresh:end].sum()) for s, _, end, fresh in group))
        return nats

    def _windows(self, num_targets: int) -> Iterator[tuple[int, int, int]]:
        """Begin and end of each window, and the first target that no earlier window reached."""
        fresh = 0
        for begin in range(0, num_targets, self._stride):
            end = min(begin + self._context, num_targets)
            yield begin, end, fresh
            fresh = end
            if end == num_targets:
                return

    def _keys(self, ids: np.ndarray) -> np.ndarray:
        """Keys of every position with its true history, int64 [T, N]; N is 0 without a memory."""
        if self._attachment is None:
            return np.zeros((len(ids), 0), dtype=np.int64)
        return self._attachment.hasher(torch.from_numpy(ids)).numpy()

    def _reading_ahead(self) -> AbstractContextManager[ReadAhead | None]:
        return nullcontext() if self._attachment is None else ReadAhead(self._attachment.memory, self._device)

    @torch.inference_mode()
    def _score(self, rows: Sequence[np.ndarray], keys: torch.Tensor) -> list[np.ndarray]:
        """Nats of rows[i][1:] given what precedes them, float64; rows are padded on the right, where causality keeps
        padding out of sight.

        Args:
            rows: ids.
            keys: of all of them but the last, int64 [B, T, N]; -1 at padding.
        """
        ids = np.zeros((len(rows), max(len(row) for row in rows)), dtype=np.int64)
        for b, row in enumerate(rows):
            ids[b, : len(row)] = row
        given = torch.from_numpy(ids).to(self._device)
        reading = nullcontext() if self._attachment is None else self._attachment.given_keys(keys.to(self._device))
        with reading:
            logits = self._model(input_ids=given[:, :-1], use_cache=False).logits
        return [_nats(logits[b, : len(row) - 1], given[b, 1 : len(row)]) for b, row in enumerate(rows)]


def _padded(rows: Sequence[np.ndarray]) -> torch.Tensor:
    """Keys of several rows, int64 [T, N] each, in one tensor [B, T, N]; -1 behind the shorter ones."""
    padded = np.full((len(rows), max(len(row) for row in rows), rows[0].shape[1]), NO_WINDOW, dtype=np.int64)
    for b, row in enumerate(rows):
        padded[b, : len(row)] = row
    return torch.from_numpy(padded)


def _nats(logits: torch.Tensor, targets: torch.Tensor) -> np.ndarray:
    """Negative log-likelihood of each target, float64 [T], for logits [T, V]; one row at a time is widened."""
    shifted = logits.float()
    shifted = shifted - shifted.amax(dim=-1, keepdim=True)
    chosen = shifted.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    # A sum of many small shares is where a narrow type would lose them.
    wide = torch.float32 if logits.device.type == "mps" else torch.float64
    nats = shifted.exp_().sum(dim=-1, dtype=wide).log() - chosen.to(wide)
    return nats.cpu().numpy().astype(np.float64)


def _longest(keys: np.ndarray) -> np.ndarray:
    """The key of the longest window at each position, int64 [T], for keys int64 [T, N]; -1 where there is none."""
    # Windows of rising order exist up to some order and not beyond, so their number is the place of the longest.
    num_windows = (keys >= 0).sum(axis=1)
    longest: np.ndarray = np.where(num_windows > 0, keys[np.arange(len(keys)), num_windows - 1], NO_WINDOW)
    return longest
