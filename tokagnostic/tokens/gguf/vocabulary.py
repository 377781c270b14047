"""The tokenizer keys of a GGUF file turned into one checked vocabulary: what every id is, and how pieces are made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np

from tokagnostic.errors import SourceError
from tokagnostic.tokens.gguf.metadata import Value, as_type, read_metadata

_PREFIX = "tokenizer.ggml."
_LIST = list
_NO_IDS = (-1, (1 << 32) - 1)
"""What writers put where there is no id, signed and unsigned."""
_START_ROLES = ("bos", "eos", "cls", "seperator", "separator")
"""Whose id starts a document, first match first; the format's own key is spelled `seperator`."""


class TokenType(IntEnum):
    """What an id is, by the number that the format gives to it."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, eq=False)
class GGUFVocabulary:
    """The tokenizer of a GGUF file, checked."""

    path: Path
    model: str
    """The kind of tokenizer: `llama`, `gpt2`, `t5`, `bert`, or another."""
    pre: str
    """The name of the pre-tokenizer; empty where the file names none."""
    tokens: list[str]
    """How each id is written, [V]; no two alike, but that several may be empty."""
    types: np.ndarray
    """A `TokenType` per id, int64 [V]; an empty token is unused."""
    scores: np.ndarray | None
    """float32 [V], for SentencePiece models."""
    merges: list[tuple[str, str]] | None
    """For byte-level BPE, in order."""
    add_space_prefix: bool | None
    remove_extra_whitespaces: bool | None
    charsmap: bytes
    """The precompiled normalizer of a SentencePiece model; empty where there is none."""
    lowercase: bool
    strip_accents: bool | None
    """None follows `lowercase`."""
    unknown_id: int | None
    start_id: int | None
    name: str
    """What the model is called."""

    def of_type(self, token_type: TokenType) -> list[int]:
        """The ids of one type."""
        ids: list[int] = np.flatnonzero(self.types == token_type).tolist()
        return ids

    @staticmethod
    def unused_spelling(v: int) -> str:
        """How an unused id is written where its own spelling could come up in a text, or is empty."""
        return f"\U0010ffff {v}"


def read_vocabulary(path: Path) -> GGUFVocabulary:
    """Read and check the tokenizer of a GGUF file.

    Raises:
        SourceError: if the file is broken, holds no tokenizer, or says of it what cannot be true.
    """
    values = read_metadata(path, lambda key: key == "general.name" or key.startswith(_PREFIX))
    model = as_type(values, _PREFIX + "model", str, path)
    raw = as_type(values, _PREFIX + "tokens", _LIST, path)
    if model is None or raw is None:
        raise _wrong(path, f"has no {_PREFIX}{'model' if model is None else 'tokens'}")
    tokens = _decode(raw, _PREFIX + "tokens", path)
    _check_unique(tokens, path)
    types = _types(as_type(values, _PREFIX + "token_type", np.ndarray, path), len(tokens), path)
    types[[v for v, token in enumerate(tokens) if not token]] = TokenType.UNUSED
    merges = as_type(values, _PREFIX + "merges", _LIST, path)
    start_ids = [_id(values, role, len(tokens), path) for role in _START_ROLES]
    return GGUFVocabulary(
        path=path,
        model=model,
        pre=as_type(values, _PREFIX + "pre", str, path) or "",
        tokens=tokens,
        types=types,
        scores=_scores(as_type(values, _PREFIX + "scores", np.ndarray, path), len(tokens), path),
        merges=None if merges is None else _merges(_decode(merges, _PREFIX + "merges", path), path),
        add_space_prefix=as_type(values, _PREFIX + "add_space_prefix", bool, path),
        remove_extra_whitespaces=as_type(values, _PREFIX + "remove_extra_whitespaces", bool, path),
        charsmap=_charsmap(as_type(values, _PREFIX + "precompiled_charsmap", np.ndarray, path), path),
        lowercase=as_type(values, _PREFIX + "normalizer.lowercase", bool, path) is not False,
        strip_accents=as_type(values, _PREFIX + "normalizer.strip_accents", bool, path),
        unknown_id=_id(values, "unknown", len(tokens), path),
        start_id=next((v for v in start_ids if v is not None), None),
        name=as_type(values, "general.name", str, path) or "",
    )


def _decode(strings: list[bytes], key: str, path: Path) -> list[str]:
    texts = []
    for i, data in enumerate(strings):
        try:
            texts.append(data.decode())
        except UnicodeDecodeError as error:
            raise _wrong(path, f"holds bytes that are no UTF-8 at place {i} of {key}") from error
    return texts


def _check_unique(tokens: list[str], path: Path) -> None:
    first: dict[str, int] = {}
    for v, token in enumerate(tokens):
        if token and first.setdefault(token, v) != v:
            raise _wrong(path, f"spells the ids {first[token]} and {v} alike, {token!r}")


def _id(values: dict[str, Value], role: str, num_ids: int, path: Path) -> int | None:
    token_id: int | None = as_type(values, f"{_PREFIX}{role}_token_id", int, path)
    if token_id is None or token_id in _NO_IDS:
        return None
    if not 0 <= token_id < num_ids:
        raise _wrong(path, f"names the {role} id {token_id} in a vocabulary of {num_ids} ids")
    return token_id


def _types(given: np.ndarray | None, num_ids: int, path: Path) -> np.ndarray:
    if given is None:
        return np.full(num_ids, TokenType.NORMAL, dtype=np.int64)
    types = _column(given, "token types", num_ids, path).astype(np.int64)
    unknown = np.flatnonzero((types < min(TokenType)) | (types > max(TokenType)))
    if unknown.size:
        raise _wrong(path, f"gives id {unknown[0]} the type {types[unknown[0]]}")
    return types


def _scores(given: np.ndarray | None, num_ids: int, path: Path) -> np.ndarray | None:
    if given is None:
        return None
    scores = _column(given, "scores", num_ids, path).astype(np.float32)
    if not np.isfinite(scores).all():
        raise _wrong(path, f"gives id {np.flatnonzero(~np.isfinite(scores))[0]} a score that is no number")
    return scores


def _column(given: np.ndarray, what: str, num_ids: int, path: Path) -> np.ndarray:
    if len(given) != num_ids:
        raise _wrong(path, f"holds {len(given)} {what} for {num_ids} ids")
    return given


def _merges(lines: list[str], path: Path) -> list[tuple[str, str]]:
    merges = []
    for i, line in enumerate(lines):
        left, space, right = line.partition(" ")
        if not (left and space and right):
            raise _wrong(path, f"holds the merge {line!r} at place {i}, which is not two pieces")
        merges.append((left, right))
    return merges


def _charsmap(given: np.ndarray | None, path: Path) -> bytes:
    if given is None:
        return b""
    if given.dtype.itemsize != 1:
        raise _wrong(path, f"holds a normalizer of {given.dtype}")
    return given.tobytes()


def _wrong(path: Path, what: str) -> SourceError:
    return SourceError(f"{path} {what}", expected="the tokenizer of a language model", remedy="Convert the model again")
