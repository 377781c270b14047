"""A tokenizer reduced to what the project needs: plain text to ids, the bytes of every id, and the id of a start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokagnostic.errors import CorpusError, TokenizerError
from tokagnostic.tokens.engine import Engine, Reading
from tokagnostic.tokens.families import read_tokenizer
from tokagnostic.tokens.token_bytes import TokenBytes

_BATCH_CHARACTERS = 1 << 23


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """Encodes plain text: no special id comes out of any text, nothing is padded or cut off.

    A text of more than `MAX_PART` characters is encoded in parts, see `split_text`. The joined bytes are those of the
    text either way; only the ids next to a cut may differ from those of the text encoded whole.
    """

    token_bytes: TokenBytes
    """The bytes and the kind of every id."""
    name: str
    """What the tokenizer is called, for people."""
    start_id: int | None
    """The id put before a document: begin, else end, else classifier or separator; None where there is none."""
    _engine: Engine = field(repr=False)

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, name: str = "", start_id: int | None = None) -> TextEncoder:
        """Take a private copy of a tokenizer and prove its bytes.

        Args:
            tokenizer: whatever `read_tokenizer` takes.
            name: what to call it; by default its own name or path, if it has one.
            start_id: the id put before a document; by default what the tokenizer names as begin, else end, else
                classifier, else separator.

        Raises:
            TokenizerError: if its bytes cannot be read or do not pass the probe.
        """
        return cls.from_reading(read_tokenizer(tokenizer), name, start_id)

    @classmethod
    def from_reading(cls, reading: Reading, name: str = "", start_id: int | None = None) -> TextEncoder:
        """Take what a family has read; name and start as in `from_tokenizer`."""
        start = reading.start_id if start_id is None else start_id
        return cls(reading.token_bytes, name or reading.name, start, reading.engine)

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
        for batch, follows in self._batches(texts):
            for (i, _), ids in zip(batch, self._encode_parts(batch, follows), strict=True):
                parts[i].append(ids)
        return [document[0] if len(document) == 1 else np.concatenate(document) for document in parts]

    def spellings(self) -> list[str | None]:
        """How the tokenizer itself writes each id, [V], for people; None for a hole."""
        return self._engine.spellings()

    def save(self, folder: str | Path) -> None:
        """Write a folder that `load_tokenizer` reads: the tokenizer as it was given, and its start."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._engine.save(folder, self.start_id)

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[tuple[int, str]], bool]]:
        """Group parts of texts, each with its document's place; first parts and later parts are kept apart, in order."""
        batch: list[tuple[int, str]] = []
        size, batch_follows = 0, False
        for i, text in enumerate(texts):
            for turn, part in enumerate(self._engine.parts(text)):
                if batch and (size + len(part) > _BATCH_CHARACTERS or batch_follows != (turn > 0)):
                    yield batch, batch_follows
                    batch, size = [], 0
                batch.append((i, part))
                size, batch_follows = size + len(part), turn > 0
        if batch:
            yield batch, batch_follows

    def _encode_parts(self, batch: list[tuple[int, str]], follows: bool) -> list[np.ndarray]:
        try:
            return self._engine.encode([text for _, text in batch], follows=follows)
        except (TokenizerError, UnicodeEncodeError) as error:
            if len(batch) > 1:
                # A library does not say which text it refused.
                return [ids for part in batch for ids in self._encode_parts([part], follows)]
            _check_characters(*batch[0])
            if not isinstance(error, TokenizerError):
                raise
            raise TokenizerError(
                f"document {batch[0][0]}: {error.given}", expected=error.expected, remedy=error.remedy
            ) from error


def _check_characters(i: int, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"document {i} holds U+{ord(text[error.start]):04X}, half of a surrogate pair",
            expected="text that can be written as UTF-8",
            remedy="Read the text as UTF-8, or replace what cannot be read",
        ) from error
