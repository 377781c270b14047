"""A tokenizer object handed to the family that can read it."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.engine import Reading

_MISTRAL_OF_TRANSFORMERS = "transformers.tokenization_mistral_common"


def read_tokenizer(tokenizer: Any) -> Reading:
    """Read the bytes and the kind of every id, and prove the reading.

    Args:
        tokenizer: a `tokenizers.Tokenizer`, a tokenizer of transformers, fast or written in Python, a
            `SentencePieceProcessor`, a `tiktoken.Encoding`, or a tokenizer of mistral-common.

    Raises:
        TokenizerError: if its family is not known, if it cannot spell a space, or if the ids of a probe text do not
            join back to what the declared fidelity promises.
    """
    if isinstance(getattr(tokenizer, "backend_tokenizer", tokenizer), Tokenizer):
        from tokagnostic.tokens.huggingface.engine import read_pipeline

        return read_pipeline(tokenizer)
    modules = {cls.__module__ for cls in type(tokenizer).__mro__}
    libraries = {module.partition(".")[0] for module in modules}
    if "tiktoken" in libraries:
        from tokagnostic.tokens.tiktoken.reader import read_encoding

        return read_encoding(tokenizer)
    if "sentencepiece" in libraries:
        from tokagnostic.tokens.sentencepiece.reader import read_sentencepiece

        return read_sentencepiece(tokenizer)
    if "mistral_common" in libraries or _MISTRAL_OF_TRANSFORMERS in modules:
        from tokagnostic.tokens.mistral import read_mistral_object

        return read_mistral_object(tokenizer)
    if callable(tokenizer) and hasattr(tokenizer, "get_vocab") and hasattr(tokenizer, "added_tokens_decoder"):
        from tokagnostic.tokens.python_tokenizer import read_python_tokenizer

        return read_python_tokenizer(tokenizer)
    raise TokenizerError(
        f"an object of type {type(tokenizer).__name__} without a `backend_tokenizer`",
        expected="a tokenizer of tokenizers, transformers, sentencepiece, tiktoken or mistral-common",
        remedy="Load it with transformers.AutoTokenizer, or from its tokenizer.json with tokenizers.Tokenizer",
    )
