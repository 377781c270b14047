"""The tokenizer inside a GGUF file to a reading, by the family whose model it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokagnostic.errors import SourceError, TokenizerError
from tokagnostic.tokens.engine import Reading
from tokagnostic.tokens.gguf.model_file import model_file
from tokagnostic.tokens.gguf.pre_tokenizers import BYTE_LEVEL_STEPS
from tokagnostic.tokens.gguf.vocabulary import GGUFVocabulary, TokenType, read_vocabulary
from tokagnostic.tokens.huggingface.engine import collection_paused, read_description
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
    with collection_paused():
        return _read(read_vocabulary(path))


def _read(vocabulary: GGUFVocabulary) -> Reading:
    path = vocabulary.path
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
    steps = BYTE_LEVEL_STEPS.get(vocabulary.pre or "default")
    if steps is None:
        raise SourceError(
            f"{vocabulary.path} holds a tokenizer with the pre-tokenizer {vocabulary.pre!r}",
            expected=f"one of {', '.join(sorted(BYTE_LEVEL_STEPS))}",
            remedy="Load the tokenizer from the files that the model was converted from",
        )
    merges = vocabulary.merges or []
    pieces = _pieces(vocabulary)
    lost = next(((a, b) for a, b in merges if a not in pieces or b not in pieces or a + b not in pieces), None)
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
        "merges": merges,
    }
    return _read_steps(vocabulary, model, steps.normalizer, list(steps.pre_tokenizers))


def _read_word_piece(vocabulary: GGUFVocabulary) -> Reading:
    """BERT's WordPiece: the format marks the beginnings of words, the library what continues them."""
    unknown = next(iter(vocabulary.of_type(TokenType.UNKNOWN)), vocabulary.unknown_id)
    pieces: dict[str, int] = {}
    for token, v in _pieces(vocabulary).items():
        is_text = vocabulary.types[v] == TokenType.NORMAL and v != unknown
        bare = token.removeprefix(SPACE_MARK)
        piece = token if not is_text else bare if bare != token else f"##{token}"
        if pieces.setdefault(piece, v) != v:
            raise SourceError(
                f"{vocabulary.path} spells the ids {pieces[piece]} and {v} alike, {piece!r}",
                expected="one id for each piece",
                remedy="Convert the model again",
            )
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
    # The library's WordPiece knows no unused pieces; as specials they have no bytes either.
    return _read_steps(vocabulary, model, normalizer, [{"type": "BertPreTokenizer"}], also_added=TokenType.UNUSED)


def _pieces(vocabulary: GGUFVocabulary) -> dict[str, int]:
    """Ids by spelling; an unused id gets one that no text has, and that the byte alphabet cannot read."""
    in_bytes = vocabulary.of_type(TokenType.BYTE)
    if in_bytes:
        raise SourceError(
            f"{vocabulary.path} holds the byte piece {vocabulary.tokens[in_bytes[0]]!r}, id {in_bytes[0]}, in a tokenizer"
            f" of the model {vocabulary.model!r}",
            expected="byte pieces in SentencePiece models only",
            remedy="Convert the model again",
        )
    pieces = {token: v for v, token in enumerate(vocabulary.tokens)}
    for v in vocabulary.of_type(TokenType.UNUSED):
        pieces.pop(vocabulary.tokens[v], None)
        pieces[vocabulary.unused_spelling(v)] = v
    return pieces


def _read_steps(
    vocabulary: GGUFVocabulary,
    model: Step,
    normalizer: Step | None,
    pre_tokenizers: list[Step],
    *,
    also_added: TokenType | None = None,
) -> Reading:
    spellings = {v: piece for piece, v in model["vocab"].items()}
    kinds = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN, *filter(None, (also_added,)))
    added = [
        {
            "id": v,
            "content": spellings[v],
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
    return read_description(description)


def _sentencepiece_reader(model_type: ModelType, squeezes: bool) -> Callable[[GGUFVocabulary], Reading]:
    def read(vocabulary: GGUFVocabulary) -> Reading:
        return read_sentencepiece_proto(model_file(vocabulary, model_type, squeezes), vocabulary.name)

    return read


_READERS: dict[str, Callable[[GGUFVocabulary], Reading]] = {
    "gpt2": _read_byte_level,
    "bert": _read_word_piece,
    "llama": _sentencepiece_reader(ModelType.BPE, squeezes=False),
    "t5": _sentencepiece_reader(ModelType.UNIGRAM, squeezes=True),
}
"""Readers by the name that the format gives to a kind of tokenizer."""
