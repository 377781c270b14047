"""A SentencePiece model, as a file, as bytes or as a live processor, to a reading."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from tokagnostic.errors import SourceError, TokenizerError
from tokagnostic.tokens.engine import Reading
from tokagnostic.tokens.proof import probe_texts, prove
from tokagnostic.tokens.sentencepiece.engine import CONFIG_FILE, SentencePieceEngine
from tokagnostic.tokens.sentencepiece.model import PieceType, SentencePieceModel
from tokagnostic.tokens.sentencepiece.vocabulary import read_vocabulary
from tokagnostic.tokens.starts import configured_starts
from tokagnostic.tokens.token_bytes import TokenBytes

_NUM_SPELLED = 64
"""Pieces of each kind that stand apart from the others, spelled in the probe texts."""


def read_sentencepiece(processor: Any) -> Reading:
    """Read a live `SentencePieceProcessor`.

    Raises:
        TokenizerError: if its bytes cannot be read or do not pass the probe.
    """
    return read_sentencepiece_proto(processor.serialized_model_proto())


def read_sentencepiece_file(path: Path) -> Reading:
    """Read a `.model` file, and its start from a tokenizer_config.json beside it if there is one.

    Raises:
        SourceError: if a file cannot be read.
        TokenizerError: if its bytes cannot be read or do not pass the probe.
        MissingExtraError: if sentencepiece is not installed.
    """
    try:
        serialized = path.read_bytes()
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read ({error})", expected="a SentencePiece model", remedy="Check the path"
        ) from error
    try:
        reading = read_sentencepiece_proto(serialized)
    except TokenizerError as error:
        raise SourceError(f"{path}: {error.given}", expected=error.expected, remedy=error.remedy) from error
    pieces = reading.engine.spellings()
    starts = (pieces.index(piece) for piece in configured_starts(path.parent / CONFIG_FILE) if piece in pieces)
    start_id = next(starts, None)
    return reading if start_id is None else dataclasses.replace(reading, start_id=start_id)


def read_sentencepiece_proto(serialized: bytes, name: str = "") -> Reading:
    """Read a model from its bytes.

    Args:
        serialized: the protocol buffer.
        name: what the model is called.

    Raises:
        TokenizerError: if its bytes cannot be read or do not pass the probe.
        MissingExtraError: if sentencepiece is not installed.
    """
    model = SentencePieceModel.parse(serialized)
    engine = SentencePieceEngine(model)
    token_bytes = read_vocabulary(model, engine.normalize)
    processor = engine.processor
    if processor.get_piece_size() != len(model.pieces):
        raise TokenizerError(
            f"a SentencePiece model of {len(model.pieces)} pieces, of which its own library sees "
            f"{processor.get_piece_size()}",
            expected="as many pieces as the file holds",
            remedy="Fetch the model again",
        )
    _prove(token_bytes, engine)
    start_id = next((v for v in (processor.bos_id(), processor.eos_id()) if v >= 0), None)
    return Reading(token_bytes, engine, start_id, name)


def _prove(token_bytes: TokenBytes, engine: SentencePieceEngine) -> None:
    model = engine.model

    def expected(text: str) -> bytes:
        if not (model.rewrites or model.squeezes):
            return model.text_of(text).encode()
        data = model.text_of(engine.normalize(text)).encode()
        return data.removeprefix(b" ") if model.adds_space else data

    spelled = (PieceType.CONTROL, PieceType.UNKNOWN, PieceType.USER_DEFINED)
    places = np.concatenate([np.flatnonzero(model.types == kind)[:_NUM_SPELLED] for kind in spelled])
    texts = list(probe_texts(token_bytes, [model.pieces[v] for v in places.tolist()]))
    encoded = dict(zip(texts, engine.encode(texts, follows=False), strict=True))
    prove(token_bytes, encoded.__getitem__, expected, texts, name="the SentencePiece model")
