"""A tokenizer of the tokenizers library turned into a reading: its proven byte table, and a private copy that encodes."""

from __future__ import annotations

import dataclasses
import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from tokagnostic.tokens.cutting import split_text
from tokagnostic.tokens.engine import Reading
from tokagnostic.tokens.huggingface.losses import declare_fidelity
from tokagnostic.tokens.huggingface.pipeline import Pipeline, Step, describe, library_errors
from tokagnostic.tokens.huggingface.private import continuation_copy, private_copy, private_description
from tokagnostic.tokens.huggingface.probe import probe
from tokagnostic.tokens.huggingface.vocabulary import read_vocabulary
from tokagnostic.tokens.starts import find_start_id
from tokagnostic.tokens.token_bytes import TokenBytes


def read_pipeline(tokenizer: Any) -> Reading:
    """Read a `tokenizers.Tokenizer` or a fast tokenizer of transformers.

    The start is what a transformers tokenizer names as bos, else eos, else cls, else sep; for a bare tokenizer it is
    its first special token with a name in `START_NAMES`.

    Raises:
        TokenizerError: if the pipeline is of no known family, if it cannot spell a space, or if the ids of a probe
            text do not join back to what the declared fidelity promises.
    """
    with collection_paused():
        reading = read_description(describe(tokenizer))
    named = (getattr(tokenizer, f"{role}_token_id", None) for role in ("bos", "eos", "cls", "sep"))
    start_id = next((int(v) for v in named if v is not None), reading.start_id)
    return dataclasses.replace(reading, start_id=start_id, name=str(getattr(tokenizer, "name_or_path", "")))


def read_description(description: Step) -> Reading:
    """Read a tokenizer that is described as the library describes its own, with every setting of every step.

    Raises:
        TokenizerError: as `read_pipeline`.
    """
    original = Pipeline.from_description(description)
    table = read_vocabulary(original)
    copied = private_description(description)
    copy = private_copy(copied)
    fidelity = declare_fidelity(Pipeline.from_description(copied))
    token_bytes = TokenBytes(table.data, table.offsets, table.kinds, original.prefix, fidelity)
    probe(copy, copied, token_bytes, [token.content for token in original.added])
    start_id = find_start_id({token.content: token.id for token in original.added if token.special})
    return Reading(token_bytes, PipelineEngine(copy, copied, description), start_id)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector: a vocabulary is a million small objects, which it would walk again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class PipelineEngine:
    """The private copy of a tokenizer of the tokenizers library.

    Args:
        tokenizer: the private copy.
        copied: what the private copy was built from.
        description: the tokenizer as it was given.
    """

    parts = staticmethod(split_text)

    def __init__(self, tokenizer: Tokenizer, copied: Step, description: Step) -> None:
        self._tokenizer = tokenizer
        self._copied = copied
        self._description = description

    def encode(self, texts: Sequence[str], *, follows: bool) -> list[np.ndarray]:
        """Encode texts on the library's own threads; see `Engine`."""
        tokenizer = self._continuation if follows else self._tokenizer
        with library_errors("encoding a text"):
            encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    def spellings(self) -> list[str | None]:
        """The pieces of the vocabulary, added tokens over them; see `Engine`."""
        pipeline = Pipeline.from_description(self._description)
        pieces = zip(*pipeline.ids_and_pieces, strict=True)
        spelled = {**dict(pieces), **{token.id: token.content for token in pipeline.added}}
        return [spelled.get(v) for v in range(1 + max(spelled, default=-1))]

    def save(self, folder: Path, start_id: int | None) -> None:
        """Write a tokenizer.json and a tokenizer_config.json, which transformers reads too; see `Engine`."""
        (folder / "tokenizer.json").write_text(json.dumps(self._description, ensure_ascii=False), encoding="utf-8")
        start = [token["content"] for token in self._description["added_tokens"] if token["id"] == start_id]
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **({"bos_token": start[0]} if start else {})}
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")

    @cached_property
    def _continuation(self) -> Tokenizer:
        return continuation_copy(self._copied) or self._tokenizer
