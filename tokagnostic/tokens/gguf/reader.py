"""The tokenizer inside a GGUF file to a reading, by the family whose model it is."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tokagnostic.errors import SourceError, TokenizerError
from tokagnostic.tokens.engine import Reading
from tokagnostic.tokens.gguf.pre_tokenizers import BYTE_LEVEL_STEPS
from tokagnostic.tokens.gguf.vocabulary import GGUFVocabulary, TokenType, read_vocabulary
from tokagnostic.tokens.huggingface.engine import read_pipeline
from tokagnostic.tokens.huggingface.pipeline import library_errors
from tokagnostic.tokens.sentencepiece.model import SPACE_MARK, ModelType
from tokagnostic.tokens.sentencepiece.reader import read_sentencepiece_proto

Step = dict[str, Any]


def read_gguf_file(path: Path) -> Reading:
    """Read the tokenizer of a GGUF file; its tensors are not touched.

    Raises:
        SourceError: if the file cannot be believed, or its tokenizer is of no known family.
        TokenizerError: if its bytes do not pass the probe.
        MissingExtraError: if it is a SentencePiece model and sentencepiece is not installed.
    """
    vocabulary = read_vocabulary(path)
    if vocabulary.model not in _READERS:
        raise SourceError(
            f"{path} holds a tokenizer of the model {vocabulary.model!r}",
            expected=f"one of {', '.join(sorted(_READERS))}",
            remedy="Load the tokenizer from the files that the model was converted from",
        )
    try:
        reading = _READERS[vocabulary.model](vocabulary)
    except TokenizerError as error:
        raise TokenizerError(f"{path}: {error.given}", expected=error.expected, remedy=error.remedy) from error
    start_id = reading.start_id if vocabulary.start_id is None else vocabulary.start_id
    return dataclasses.replace(reading, start_id=start_id, name=vocabulary.name)


def _read_byte_level(vocabulary: GGUFVocabulary) -> Reading:
    """Byte-level BPE: the file has pieces and merges, and the name of the rest."""
    steps = BYTE_LEVEL_STEPS.get(vocabulary.pre)
    if steps is None:
        raise SourceError(
            f"{vocabulary.path} holds a tokenizer with the pre-tokenizer {vocabulary.pre!r}",
            expected=f"one of {', '.join(filter(None, sorted(BYTE_LEVEL_STEPS)))}",
            remedy="Load the tokenizer from the files that the model was converted from",
        )
    merges = vocabulary.merges or []
    pieces = _pieces(vocabulary)
    lost = next((pair for pair in merges if not {*pair, "".join(pair)} <= pieces.keys()), None)
    if lost is not None:
        raise SourceError(
            f"{vocabulary.path} merges {lost[0]!r} and {lost[1]!r}, of which one or the whole is no piece",
            expected="merges of pieces",
            remedy="Convert the model again",
        )
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": steps.ignores_merges,
        "vocab": pieces,
        "merges": [list(pair) for pair in merges],
    }
    return _read_steps(vocabulary, model, steps.normalizer, list(steps.pre_tokenizers))


def _read_word_piece(vocabulary: GGUFVocabulary) -> Reading:
    """BERT's WordPiece: the format marks the beginnings of words, the library what continues them."""
    unknown = next(iter(vocabulary.of_type(TokenType.UNKNOWN)), vocabulary.unknown_id)
    pieces = {}
    for token, v in _pieces(vocabulary).items():
        is_text = vocabulary.types[v] == TokenType.NORMAL and v != unknown
        bare = token.removeprefix(SPACE_MARK)
        pieces[token if not is_text else bare if bare != token else f"##{token}"] = v
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]" if unknown is None else vocabulary.tokens[unknown],
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": pieces,
    }
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": vocabulary.strip_accents,
        "lowercase": vocabulary.lowercase,
    }
    return _read_steps(vocabulary, model, normalizer, [{"type": "BertPreTokenizer"}])


def _pieces(vocabulary: GGUFVocabulary) -> dict[str, int]:
    """Ids by spelling; an unused id gets one that no text has."""
    unused = {*vocabulary.of_type(TokenType.UNUSED), *(v for v, token in enumerate(vocabulary.tokens) if not token)}
    return {f"\U0010ffff {v}" if v in unused else token: v for v, token in enumerate(vocabulary.tokens)}


def _read_steps(
    vocabulary: GGUFVocabulary, model: Step, normalizer: Step | None, pre_tokenizers: list[Step]
) -> Reading:
    kinds = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)
    added = [
        {
            "id": v,
            "content": vocabulary.tokens[v],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": bool(vocabulary.types[v] != TokenType.USER_DEFINED),
        }
        for v in sorted(v for kind in kinds for v in vocabulary.of_type(kind))
    ]
    description = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
        "post_processor": None,
        "decoder": None,
        "model": model,
    }
    with library_errors("building the tokenizer of a GGUF file"):
        tokenizer = Tokenizer.from_str(json.dumps(description, ensure_ascii=False))
    return read_pipeline(tokenizer)


def _sentencepiece_reader(model_type: ModelType, squeezes: bool) -> Callable[[GGUFVocabulary], Reading]:
    def read(vocabulary: GGUFVocabulary) -> Reading:
        return read_sentencepiece_proto(_model_file(vocabulary, model_type, squeezes), vocabulary.name)

    return read


def _model_file(vocabulary: GGUFVocabulary, model_type: ModelType, squeezes: bool) -> bytes:
    """The SentencePiece model file that a GGUF file was converted from, as far as it matters to ids."""
    scores = [0.0] * len(vocabulary.tokens) if vocabulary.scores is None else vocabulary.scores.tolist()
    data = bytearray()
    for token, score, kind in zip(vocabulary.tokens, scores, vocabulary.types.tolist(), strict=True):
        piece = _field(1, token.encode()) + b"\x15" + struct.pack("<f", score) + _field(3, kind)
        data += _field(1, piece)
    has_bytes = bool(vocabulary.of_type(TokenType.BYTE))
    data += _field(2, _field(3, model_type) + _field(35, int(has_bytes)))
    adds_space = vocabulary.add_space_prefix is not False
    if vocabulary.remove_extra_whitespaces is not None:
        squeezes = vocabulary.remove_extra_whitespaces
    name = b"precompiled" if vocabulary.charsmap else b"identity"
    rules = _field(1, name) + _field(2, vocabulary.charsmap) + _field(3, int(adds_space)) + _field(4, int(squeezes))
    return bytes(data + _field(3, rules))


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


_READERS: dict[str, Callable[[GGUFVocabulary], Reading]] = {
    "gpt2": _read_byte_level,
    "bert": _read_word_piece,
    "llama": _sentencepiece_reader(ModelType.BPE, squeezes=False),
    "t5": _sentencepiece_reader(ModelType.UNIGRAM, squeezes=True),
}
"""Readers by the name that the format gives to a kind of tokenizer."""
