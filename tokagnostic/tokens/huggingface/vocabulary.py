"""A pipeline's vocabulary turned into bytes: one reader per spelling, chosen by the pipeline."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.alphabet import byte_symbols, bytes_of_many
from tokagnostic.tokens.huggingface.pipeline import Pipeline
from tokagnostic.tokens.token_bytes import LARGEST_ID, TokenBytes, TokenKind

Reader = Callable[[Sequence[str]], tuple[list[bytes | None], np.ndarray]]
"""Turns the pieces of a vocabulary into their bytes, [V], and their kinds, uint8 [V]."""

_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


def read_vocabulary(pipeline: Pipeline) -> TokenBytes:
    """Read every id; the model's pieces first, then the added tokens over them.

    Args:
        pipeline: the steps of the tokenizer as it was given.

    Raises:
        TokenizerError: if the pipeline is of no known family, or if it cannot spell a space.
    """
    read = _choose_reader(pipeline)
    added = {token.id: token for token in pipeline.added}
    ids, pieces = pipeline.ids_and_pieces
    num_ids = 1 + max(max(ids, default=-1), max(added, default=-1))
    check_highest_id(num_ids - 1)
    data: list[bytes | None] = [None] * num_ids
    kinds = np.full(num_ids, TokenKind.HOLE, dtype=np.uint8)
    all_bytes, kinds[ids] = read(pieces)
    for v, piece_bytes in zip(ids, all_bytes, strict=True):
        data[v] = piece_bytes
    for i in np.flatnonzero(np.isin(ids, [*added])).tolist():
        v, piece = ids[i], pieces[i]
        if added[v].content != piece:
            raise TokenizerError(
                f"id {v} is both the piece {piece!r} and the added token {added[v].content!r}",
                expected="one token per id",
                remedy="Give the added token an id of its own",
            )
    for v, token in added.items():
        data[v] = None if token.special else pipeline.text_of(token.content).encode()
        kinds[v] = TokenKind.SPECIAL if token.special else TokenKind.ADDED
    if pipeline.unknown_id is not None:
        data[pipeline.unknown_id], kinds[pipeline.unknown_id] = None, TokenKind.UNKNOWN
    return TokenBytes.from_list(data, kinds=kinds.tolist())


def check_highest_id(highest: int) -> None:
    """Refuse an id that would make a table of gigabytes.

    Raises:
        TokenizerError: if it is beyond `LARGEST_ID`.
    """
    if highest > LARGEST_ID:
        raise TokenizerError(
            f"a tokenizer with the id {highest}",
            expected=f"ids from 0 to {LARGEST_ID}",
            remedy="Mend the tokenizer's file",
        )


def _choose_reader(pipeline: Pipeline) -> Reader:
    """Find the family: byte alphabet, mark for a space, or pieces that are literal text."""
    kind = pipeline.model["type"]
    if kind not in ("BPE", "Unigram", "WordPiece", "WordLevel"):
        raise _unknown_family(pipeline, f"a model of type {kind}")
    spell: Reader
    if pipeline.is_byte_level:
        _check_space(pipeline, byte_symbols()[ord(" ")])
        spell = _read_byte_symbols
    elif pipeline.mark is not None:
        _check_mark(pipeline, pipeline.mark)
        spell = _mark_reader(pipeline.mark)
    else:
        if kind == "BPE":
            _check_space(pipeline, " ")
        spell = _read_literally
    if kind == "BPE" and pipeline.unknown_id is None and _affixes(pipeline) != ("", ""):
        raise _unknown_family(pipeline, "BPE with word affixes and without an unknown token")
    return _byte_fallback_reader(_affix_reader(spell, *_affixes(pipeline)), pipeline.has_byte_fallback)


def _read_byte_symbols(pieces: Sequence[str]) -> tuple[list[bytes | None], np.ndarray]:
    read = bytes_of_many(pieces)
    are_outside = [piece_bytes is None for piece_bytes in read]
    return read, np.where(are_outside, TokenKind.UNREACHABLE, TokenKind.TEXT).astype(np.uint8)


def _read_literally(pieces: Sequence[str]) -> tuple[list[bytes | None], np.ndarray]:
    return [piece.encode() for piece in pieces], np.full(len(pieces), TokenKind.TEXT, dtype=np.uint8)


def _mark_reader(mark: str) -> Reader:
    return lambda pieces: _read_literally([piece.replace(mark, " ") for piece in pieces])


def _byte_fallback_reader(reader: Reader, has_byte_fallback: bool) -> Reader:
    if not has_byte_fallback:
        return reader

    def read(pieces: Sequence[str]) -> tuple[list[bytes | None], np.ndarray]:
        data, kinds = reader(pieces)
        for i, piece in enumerate(pieces):
            match = _BYTE_PIECE.fullmatch(piece) if piece.startswith("<0x") else None
            if match:
                data[i], kinds[i] = bytes((int(match[1], 16),)), TokenKind.BYTE
        return data, kinds

    return read


def _affix_reader(reader: Reader, prefix: str, suffix: str) -> Reader:
    """Take the sign of a continuing piece (`##`) or of a word's end (`</w>`) off before reading the piece."""
    if not (prefix or suffix):
        return reader
    # A piece that is nothing but the sign never continues a word: it is the sign as text.
    return lambda pieces: reader([(piece.removeprefix(prefix) or piece).removesuffix(suffix) for piece in pieces])


def _affixes(pipeline: Pipeline) -> tuple[str, str]:
    model = pipeline.model
    return model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""


def _check_space(pipeline: Pipeline, symbol: str) -> None:
    if symbol not in pipeline.vocab and not (pipeline.drops_whitespace or pipeline.has_byte_fallback):
        raise TokenizerError(
            f"the pipeline {pipeline} needs the symbol {symbol!r} to spell a space, and the vocabulary lacks it",
            expected="a pipeline and a vocabulary that belong together",
            remedy="Load the tokenizer from its own tokenizer.json; the class named in its config may override it",
        )


def _check_mark(pipeline: Pipeline, mark: str) -> None:
    """Refuse a vocabulary in which a space would be spelled by the three bytes of the mark, or not at all."""
    if mark in pipeline.vocab:
        return
    if pipeline.model["type"] != "BPE" and not pipeline.has_byte_fallback and any(mark in p for p in pipeline.vocab):
        return
    instead = "would become the bytes E2 96 81" if pipeline.has_byte_fallback and mark == "\u2581" else "would be lost"
    raise TokenizerError(
        f"the vocabulary has no piece for the mark {mark!r} of the pipeline {pipeline}, so a space {instead}",
        expected="a piece that is the mark alone",
        remedy="Add the mark to the vocabulary, or load the tokenizer from its own tokenizer.json",
    )


def _unknown_family(pipeline: Pipeline, found: str) -> TokenizerError:
    return TokenizerError(
        f"the pipeline {pipeline}: {found}",
        expected="byte-level BPE, BPE or Unigram with a mark for the space, WordPiece, or WordLevel",
        remedy="Convert the tokenizer to one of these families",
    )
