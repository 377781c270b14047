"""A SentencePiece model turned into what encodes plain text with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tokagnostic.errors import MissingExtraError, TokenizerError
from tokagnostic.tokens.cutting import split_text
from tokagnostic.tokens.sentencepiece.model import SentencePieceModel

MODEL_FILE = "tokenizer.model"
CONFIG_FILE = "tokenizer_config.json"


def load_processor(serialized: bytes) -> Any:
    """The library's own processor of a model.

    Raises:
        MissingExtraError: if sentencepiece is not installed.
        TokenizerError: if it refuses the model.
    """
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError as error:
        raise MissingExtraError(
            "sentencepiece", extra="sentencepiece", purpose="encoding with a SentencePiece model"
        ) from error
    try:
        return SentencePieceProcessor(model_proto=serialized)
    except RuntimeError as error:
        raise TokenizerError(
            f"a SentencePiece model that its own library refuses ({' '.join(str(error).split())})",
            expected="a model that SentencePiece loads",
            remedy="Fetch or train the model again",
        ) from error


class SentencePieceEngine:
    """A private processor of a model; special pieces never come out of a text, which the library sees to itself.

    Args:
        model: the model.
    """

    def __init__(self, model: SentencePieceModel) -> None:
        self.model = model

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model}

    def parts(self, text: str) -> Iterator[str]:
        """Cut a long text; see `Engine`.

        Where spaces are squeezed, what becomes of one depends on all that lies around it. So the whole text is normalized
        first, and all that follows an empty first part is normalized text.
        """
        given = split_text(text)
        first = next(given)
        if not self.model.squeezes or len(first) == len(text) or not _is_encodable(text):
            yield first
            yield from given
        else:
            yield ""
            yield from split_text(self.model.text_of(self.normalize(text)))

    def encode(self, texts: Sequence[str], *, follows: bool) -> list[np.ndarray]:
        """Encode texts on the library's own threads; see `Engine`."""
        processor = self._continuing if follows else self.processor
        try:
            return [np.array(ids, dtype=np.int64) for ids in processor.encode(list(texts), out_type=int)]
        except (RuntimeError, TypeError) as error:
            for text in texts:
                text.encode()  # a lone surrogate is an error of its own
            raise TokenizerError(
                f"encoding a text failed in the sentencepiece library: {' '.join(str(error).split())}",
                expected="a text that the model can encode",
                remedy="Leave the text out",
            ) from error

    def normalize(self, text: str) -> str:
        """What the model makes of a text before it is cut into pieces."""
        return str(self.processor.normalize(text))

    def spellings(self) -> list[str | None]:
        """The pieces; see `Engine`."""
        return list(self.model.pieces)

    def save(self, folder: Path, start_id: int | None) -> None:
        """Write the model file, and a tokenizer_config.json that names the start; see `Engine`."""
        (folder / MODEL_FILE).write_bytes(self.model.serialized)
        config = {} if start_id is None else {"bos_token": self.model.pieces[start_id]}
        (folder / CONFIG_FILE).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")

    @cached_property
    def processor(self) -> Any:
        """The library's processor."""
        return load_processor(self.model.serialized)

    @cached_property
    def _continuing(self) -> Any:
        return load_processor(self.model.continuing)


def _is_encodable(text: str) -> bool:
    """Whether a text has no half of a surrogate pair, for which `encode` refuses it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
