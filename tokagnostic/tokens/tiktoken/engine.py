"""A vocabulary of ranks turned into an engine that encodes plain text, and into a proven reading."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tokagnostic.errors import MissingExtraError, TokenizerError
from tokagnostic.tokens.cutting import split_text
from tokagnostic.tokens.engine import Reading
from tokagnostic.tokens.proof import excerpt, probe_texts, prove
from tokagnostic.tokens.starts import find_start_id
from tokagnostic.tokens.tiktoken.description import RankDescription, write_description
from tokagnostic.tokens.tiktoken.rank_lines import write_rank_lines
from tokagnostic.tokens.tiktoken.vocabulary import RankVocabulary

_GROUPS_PER_THREAD = 4
_NAMES_PER_TEXT = 64


class RankEngine:
    """A private copy of an encoding, which knows no specials.

    Bytes without a rank get ids past the vocabulary: the library would otherwise die of them. An id is looked up only
    for what no merge covers, so that this changes no other text's ids.

    Args:
        vocabulary: the ranks, the pattern and the specials.

    Raises:
        MissingExtraError: if tiktoken is not installed.
        TokenizerError: if it does not take the pattern.
    """

    parts = staticmethod(split_text)

    def __init__(self, vocabulary: RankVocabulary) -> None:
        self.vocabulary = vocabulary
        self._num_ids = vocabulary.num_ids
        self._missing = vocabulary.missing_bytes
        fillers = {bytes((byte,)): self._num_ids + i for i, byte in enumerate(self._missing)}
        self._encoding = _build(vocabulary, vocabulary.ids | fillers if fillers else vocabulary.ids)

    def __reduce__(self) -> tuple[Any, ...]:
        """Goes to another process as its vocabulary, and is built again there."""
        return type(self), (self.vocabulary,)

    def encode(self, texts: Sequence[str], *, follows: bool) -> list[np.ndarray]:
        """Encode texts on one thread per core; see `Engine`. What a text follows makes no difference."""
        if len(texts) < 2:
            return self._encode_group(texts)
        num_threads = os.cpu_count() or 1
        # A group of texts per call: a thread that takes them one by one waits for the others at each.
        size = -(-len(texts) // (num_threads * _GROUPS_PER_THREAD))
        groups = [texts[start : start + size] for start in range(0, len(texts), size)]
        with ThreadPoolExecutor(num_threads) as pool:
            return [ids for group in pool.map(self._encode_group, groups) for ids in group]

    def spellings(self) -> list[str | None]:
        """The byte alphabet, and the names of specials; see `Engine`."""
        return self.vocabulary.spellings()

    def save(self, folder: Path, start_id: int | None) -> None:
        """Write the ranks as a .tiktoken file, and beside it the TOML that says the rest; see `Engine`."""
        vocabulary = self.vocabulary
        stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in vocabulary.name).strip(".") or "tokenizer"
        content = write_rank_lines(vocabulary.ids)
        (folder / f"{stem}.tiktoken").write_bytes(content)
        description = RankDescription.of(content, vocabulary.pattern, vocabulary.special, start_id)
        (folder / f"{stem}.toml").write_text(write_description(description, f"{stem}.tiktoken"), encoding="utf-8")

    def _encode_group(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> np.ndarray:
        text.encode()  # The library would put U+FFFD for half of a surrogate pair and say nothing.
        try:
            ids = np.array(self._encoding.encode_ordinary(text), dtype=np.int64)
        except BaseException as error:
            # What dies inside the library is no Exception, and its class cannot be imported.
            if type(error).__name__ != "PanicException":
                raise
            raise TokenizerError(
                f"tiktoken gave up on the text {excerpt(text)} ({' '.join(str(error).split())})",
                expected="a text that the pattern can split",
                remedy="Leave the text out, or install a newer tiktoken",
            ) from None
        if self._missing and (unspelled := ids[ids >= self._num_ids]).size:
            raise TokenizerError(
                f"the byte {self._missing[unspelled[0] - self._num_ids]:02X} of the text {excerpt(text)} has no rank",
                expected="a text that the vocabulary spells",
                remedy="Leave the text out",
            )
        return ids


def read_engine(engine: RankEngine, start_id: int | None = None) -> Reading:
    """Prove an engine on its own byte table.

    Args:
        engine: the private copy.
        start_id: the id put before a document; by default that of the first name in `START_NAMES`.

    Raises:
        TokenizerError: if the ids of a probe text do not join back to it.
    """
    vocabulary = engine.vocabulary
    token_bytes = vocabulary.token_bytes()
    may_refuse = bool(vocabulary.missing_bytes)

    def encode(text: str) -> np.ndarray | None:
        try:
            return engine.encode([text], follows=False)[0]
        except TokenizerError:
            if may_refuse:
                return None
            raise

    names = list(vocabulary.special)
    # Some vocabularies reserve a thousand specials; a text spells many of them at once.
    spellings = [" ".join(names[start : start + _NAMES_PER_TEXT]) for start in range(0, len(names), _NAMES_PER_TEXT)]
    texts = probe_texts(token_bytes, spellings)
    try:
        prove(token_bytes, encode, str.encode, texts, name=f"the encoding {vocabulary.name!r}")
    except TokenizerError as error:
        raise TokenizerError(
            error.given,
            expected=error.expected,
            remedy=f"Check the ranks, and that the pattern {excerpt(vocabulary.pattern)} leaves no character out",
        ) from error
    start = find_start_id(vocabulary.special) if start_id is None else start_id
    return Reading(token_bytes, engine, start, vocabulary.name)


def _build(vocabulary: RankVocabulary, ids: dict[bytes, int]) -> Any:
    try:
        import tiktoken
    except ImportError as error:
        raise MissingExtraError("tiktoken", extra="tiktoken", purpose="a tokenizer made of ranks") from error
    try:
        return tiktoken.Encoding(vocabulary.name, pat_str=vocabulary.pattern, mergeable_ranks=ids, special_tokens={})
    except ValueError as error:
        raise TokenizerError(
            f"tiktoken does not take the pattern {excerpt(vocabulary.pattern)} ({' '.join(str(error).split())})",
            expected="a regular expression of the Rust crate fancy-regex",
            remedy="Copy the pattern from the tokenizer's own source",
        ) from error
