"""A tokenizer object handed to the family that can read it."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.engine import Reading


def read_tokenizer(tokenizer: Any) -> Reading:
    """Read the bytes and the kind of every id, and prove the reading.

    Args:
        tokenizer: a `tokenizers.Tokenizer` or a fast tokenizer of transformers.

    Raises:
        TokenizerError: if its family is not known, if it cannot spell a space, or if the ids of a probe text do not
            join back to what the declared fidelity promises.
    """
    if isinstance(getattr(tokenizer, "backend_tokenizer", tokenizer), Tokenizer):
        from tokagnostic.tokens.huggingface.engine import read_pipeline

        return read_pipeline(tokenizer)
    raise TokenizerError(
        f"an object of type {type(tokenizer).__name__} without a `backend_tokenizer`",
        expected="a tokenizers.Tokenizer or a fast tokenizer of transformers",
        remedy="Load it with transformers.AutoTokenizer, or from its tokenizer.json with tokenizers.Tokenizer",
    )
