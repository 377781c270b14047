"""A vocabulary of a GGUF file turned back into the SentencePiece model file that it was converted from."""

from __future__ import annotations

import struct

from tokagnostic.tokens.gguf.vocabulary import GGUFVocabulary, TokenType
from tokagnostic.tokens.sentencepiece.model import SPACE_MARK, ModelType


def model_file(vocabulary: GGUFVocabulary, model_type: ModelType, squeezes: bool) -> bytes:
    """Write the protocol buffer, as far as it matters to ids.

    Args:
        vocabulary: what the GGUF file holds.
        model_type: how pieces are chosen.
        squeezes: whether runs of spaces become one where the file does not say.
    """
    pieces = _spellings(vocabulary)
    scores = [0.0] * len(pieces) if vocabulary.scores is None else vocabulary.scores.tolist()
    data = bytearray()
    for spelling, score, kind in zip(pieces, scores, vocabulary.types.tolist(), strict=True):
        data += _field(1, _field(1, spelling.encode()) + b"\x15" + struct.pack("<f", score) + _field(3, kind))
    has_bytes = bool(vocabulary.of_type(TokenType.BYTE))
    data += _field(2, _field(3, model_type) + _field(35, int(has_bytes)))
    adds_space = vocabulary.add_space_prefix is not False
    if vocabulary.remove_extra_whitespaces is not None:
        squeezes = vocabulary.remove_extra_whitespaces
    name = b"precompiled" if vocabulary.charsmap else b"identity"
    rules = _field(1, name) + _field(2, vocabulary.charsmap) + _field(3, int(adds_space)) + _field(4, int(squeezes))
    return bytes(data + _field(3, rules))


def _spellings(vocabulary: GGUFVocabulary) -> list[str]:
    """How the model file writes each id, [V].

    Converters write a user-defined piece with spaces, where the model has marks and would not match a space.
    """
    taken = set(vocabulary.tokens)
    pieces = [token or vocabulary.unused_spelling(v) for v, token in enumerate(vocabulary.tokens)]
    for v in vocabulary.of_type(TokenType.USER_DEFINED):
        marked = pieces[v].replace(" ", SPACE_MARK)
        if marked not in taken:
            pieces[v] = marked
    return pieces


def _field(number: int, value: int | bytes) -> bytes:
    """One field of a protocol buffer."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*data, number))
