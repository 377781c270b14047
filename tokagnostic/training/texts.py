"""A corpus to the text of a run, by how it shall be read; and where a run stands in it, to batches, to a checkpoint and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.errors import CorpusError, InvalidValueError
from tokagnostic.progress import progress_bar
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.training.blocks import Text
from tokagnostic.training.config import TextConfig
from tokagnostic.training.mixture import Mixture
from tokagnostic.training.packing import Batch, BlockSampler, TokenStream
from tokagnostic.training.streamed_text import StreamedText

_CURSOR = "text.cursor"


def load_text(corpus: CorpusConfig, config: TextConfig, encoder: TextEncoder, shows: bool = False) -> Text:
    """The text of a run, encoded or to be read while it is trained on.

    Args:
        corpus: where its documents come from.
        config: how to read it.
        encoder: turns text into ids.
        shows: whether to show how far encoding is.

    Raises:
        CorpusError: if there is no text.
        InvalidValueError: if there are not as many weights as sources.
        SourceError: if a source does not exist.
    """
    if not config.weights:
        return _text(corpus, config, encoder, shows)
    if corpus.limit is not None:
        raise InvalidValueError(
            f"a limit of {corpus.limit} documents for sources with weights",
            expected="either of the two",
            remedy="Leave the limit or the weights out",
        )
    if len(set(corpus.data)) != len(config.weights):
        raise InvalidValueError(
            f"{len(config.weights)} weights for the sources {', '.join(corpus.data)}",
            expected="one weight for each source, and each source once",
            remedy="Name as many weights as sources, in the same order",
        )
    parts = {name: _text(dataclasses.replace(corpus, data=(name,)), config, encoder, shows) for name in corpus.data}
    return Mixture(parts, config.weights)


def _text(corpus: CorpusConfig, config: TextConfig, encoder: TextEncoder, shows: bool) -> Text:
    documents = Corpus(corpus)
    if config.shuffle_buffer > 0:
        return StreamedText(documents, encoder, config.shuffle_buffer, config.processes)
    with progress_bar("encode", "B", shown=shows) as bar:
        stream = TokenStream.from_documents(documents, encoder, bar.update, config.processes)
    if stream.num_documents == 0:
        raise CorpusError(
            f"no text in {', '.join(corpus.data)}",
            expected="at least one document with text",
            remedy="Name a source that is not empty",
        )
    return stream


class TextPlace:
    """Where a run stands in its text: the batches of its updates, and the place as tensors of a checkpoint.

    Args:
        sampler: gives the batches.
        batches_per_step: batches of the sampler per update.
    """

    def __init__(self, sampler: BlockSampler, batches_per_step: int) -> None:
        self._sampler = sampler
        self._batches_per_step = batches_per_step
        self._coming: dict[int, tuple[Any, list[Batch]]] = {}

    def batches(self, step: int) -> list[Batch]:
        """The batches of one update, counted from 0; updates come in order."""
        if step in self._coming:
            return self._coming.pop(step)[1]
        first = step * self._batches_per_step
        return [self._sampler.batch(first + part) for part in range(self._batches_per_step)]

    def coming(self, step: int) -> list[Batch]:
        """The batches of the next update before its turn. Until then the place is still the one before them."""
        if step not in self._coming:
            cursor = self._sampler.cursor(step * self._batches_per_step)
            self._coming = {step: (cursor, self.batches(step))}
        return self._coming[step][1]

    def tensors(self, step: int) -> dict[str, Tensor]:
        """Where the text goes on after so many updates: JSON in UTF-8, uint8 [L], or nothing where the step says it."""
        coming = self._coming.get(step)
        cursor = self._sampler.cursor(step * self._batches_per_step) if coming is None else coming[0]
        if cursor is None:
            return {}
        return {_CURSOR: torch.from_numpy(np.frombuffer(json.dumps(cursor).encode(), dtype=np.uint8).copy())}

    def describe(self, step: int, part: int, rank: int) -> str:
        """What one batch of an update was made of, in words; the update is the latest.

        Args:
            step: updates before it.
            part: which of its batches.
            rank: of the process that has read it.
        """
        return self._sampler.describe(step * self._batches_per_step + part, rank)

    def go_to(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Go on there, or begin.

        Args:
            step: updates done.
            tensors: a checkpoint's; empty to begin with the first update.

        Raises:
            TrainingError: if the text there is not what the run was reading.
        """
        self._coming = {}
        cursor = json.loads(tensors[_CURSOR].numpy().tobytes()) if _CURSOR in tensors else None
        self._sampler.go_to(step * self._batches_per_step, cursor)
