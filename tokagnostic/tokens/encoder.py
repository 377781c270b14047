"""A tokenizer reduced to what the project needs: plain text to ids, the bytes of every id, and the id of a start."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from tokagnostic.errors import CorpusError, TokenizerError
from tokagnostic.tokens.families import read_with_copy
from tokagnostic.tokens.pipeline import Step, library_errors
from tokagnostic.tokens.private import continuation_copy, private_description
from tokagnostic.tokens.token_bytes import TokenBytes

MAX_PART = 1 << 18
"""Characters of a text that are encoded in one call. Longer texts are cut."""
_BATCH_CHARACTERS = 1 << 23
_CUT_SEARCH = 1 << 14
_WORD_GAP = re.compile(r"\w(?=[ \n]\w)")
_ANY_GAP = re.compile(r"\S(?=\s)")

START_NAMES = (
    *("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|begin▁of▁sentence|>", "[BOS]"),
    *("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<|end▁of▁sentence|>", "[EOS]"),
    *("[CLS]", "<cls>", "[SEP]", "<sep>"),
)
"""Names under which a special token is taken for the start of a document, first match first, where nobody says which:
begin, else end, else classifier, else separator."""


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """Encodes plain text: no special id comes out of any text, nothing is padded or cut off.

    A text of more than `MAX_PART` characters is encoded in parts, so that time grows with its length. It is cut
    between two words at a single space or line end where there is one near the limit, else before any whitespace,
    else before a character that does not combine with the one before it. The joined bytes are those of the text
    either way; only the ids next to a cut may differ from those of the text encoded whole.
    """

    token_bytes: TokenBytes
    """The bytes and the kind of every id."""
    name: str
    """What the tokenizer is called, for people."""
    start_id: int | None
    """The id put before a document: begin, else end, else classifier or separator; None where there is none."""
    _tokenizer: Tokenizer = field(repr=False)
    _description: Step = field(repr=False)

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, name: str = "", start_id: int | None = None) -> TextEncoder:
        """Take a private copy of a tokenizer and prove its bytes.

        Args:
            tokenizer: a `tokenizers.Tokenizer` or a fast tokenizer of transformers.
            name: what to call it; by default its own name or path, if it has one.
            start_id: the id put before a document. By default what a transformers tokenizer names as bos, else eos,
                else cls, else sep; for a bare tokenizer its first special token with a name in `START_NAMES`.

        Raises:
            TokenizerError: if its bytes cannot be read or do not pass the probe.
        """
        token_bytes, copy, description = read_with_copy(tokenizer)
        if start_id is None:
            start_id = _find_start_id(tokenizer)
        return cls(token_bytes, name or str(getattr(tokenizer, "name_or_path", "")), start_id, copy, description)

    @classmethod
    def of(cls, tokenizer: Any) -> TextEncoder:
        """The encoder of a tokenizer; an encoder is its own."""
        return tokenizer if isinstance(tokenizer, cls) else cls.from_tokenizer(tokenizer)

    def encode(self, text: str) -> np.ndarray:
        """Encode one document.

        Returns:
            Token ids, int64 [T]; empty for an empty text.

        Raises:
            TokenizerError: if the library refuses the text.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encode many documents on the library's own threads.

        Args:
            texts: the documents.

        Returns:
            Token ids of each document, int64 [T].

        Raises:
            TokenizerError: if the library refuses a text; it names the document by its place in `texts`.
            CorpusError: if a text holds half of a surrogate pair, likewise.
        """
        parts: list[list[np.ndarray]] = [[] for _ in texts]
        for batch, follows in _batches(texts):
            tokenizer = self._continuation if follows else self._tokenizer
            for (i, _), ids in zip(batch, _encode_parts(tokenizer, batch), strict=True):
                parts[i].append(ids)
        return [document[0] if len(document) == 1 else np.concatenate(document) for document in parts]

    def save(self, folder: str | Path) -> None:
        """Write a folder that `load_tokenizer` and transformers read: the tokenizer as it was given, and its start."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(json.dumps(self._description, ensure_ascii=False), encoding="utf-8")
        start = [token["content"] for token in self._description["added_tokens"] if token["id"] == self.start_id]
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **({"bos_token": start[0]} if start else {})}
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")

    @cached_property
    def _continuation(self) -> Tokenizer:
        return continuation_copy(private_description(self._description)) or self._tokenizer


def _encode_parts(tokenizer: Tokenizer, batch: list[tuple[int, str]]) -> list[np.ndarray]:
    try:
        with library_errors(f"encoding document {batch[0][0]}"):
            encodings = tokenizer.encode_batch_fast([text for _, text in batch], add_special_tokens=False)
    except TokenizerError:
        if len(batch) == 1:
            _check_characters(*batch[0])
            raise
        # The library does not say which text it refused.
        return [ids for part in batch for ids in _encode_parts(tokenizer, [part])]
    return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]


def _check_characters(i: int, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"document {i} holds U+{ord(text[error.start]):04X}, half of a surrogate pair",
            expected="text that can be written as UTF-8",
            remedy="Read the text as UTF-8, or replace what cannot be read",
        ) from error


def _batches(texts: Sequence[str]) -> Iterator[tuple[list[tuple[int, str]], bool]]:
    """Group parts of texts, each with its document's place; first parts and later parts are kept apart, in order."""
    batch: list[tuple[int, str]] = []
    size, batch_follows = 0, False
    for i, text in enumerate(texts):
        for turn, part in enumerate(split_text(text)):
            if batch and (size + len(part) > _BATCH_CHARACTERS or batch_follows != (turn > 0)):
                yield batch, batch_follows
                batch, size = [], 0
            batch.append((i, part))
            size, batch_follows = size + len(part), turn > 0
    if batch:
        yield batch, batch_follows


def split_text(text: str) -> Iterator[str]:
    """Cut a text into parts of at most `MAX_PART` characters by the rule of `TextEncoder`; joined they are the text."""
    start = 0
    while len(text) - start > MAX_PART:
        cut = _find_cut(text, start + MAX_PART)
        yield text[start:cut]
        start = cut
    yield text[start:]


def _find_cut(text: str, limit: int) -> int:
    near = limit - _CUT_SEARCH
    for gap in (_WORD_GAP, _ANY_GAP):
        cuts = [match.end() for match in gap.finditer(text, near, limit)]
        if cuts:
            return cuts[-1]
    return next((cut for cut in range(limit, near, -1) if not _combines(text[cut])), limit)


def _combines(character: str) -> bool:
    """Whether normalization could merge a character into the one before it."""
    return unicodedata.category(character)[0] == "M" or "\u1160" <= character <= "\u11ff"


def _find_start_id(tokenizer: Any) -> int | None:
    for role in ("bos", "eos", "cls", "sep"):
        token_id = getattr(tokenizer, f"{role}_token_id", None)
        if token_id is not None:
            return int(token_id)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    special = {token.content: v for v, token in backend.get_added_tokens_decoder().items() if token.special}
    return next((special[name] for name in START_NAMES if name in special), None)
