"""An encoding of the tiktoken package, live or by name, to a reading."""

from __future__ import annotations

from typing import Any

from tokagnostic.errors import MissingExtraError, SourceError, TokenizerError
from tokagnostic.tokens.engine import Reading
from tokagnostic.tokens.tiktoken.engine import RankEngine, read_engine
from tokagnostic.tokens.tiktoken.vocabulary import RankVocabulary


def read_encoding(encoding: Any) -> Reading:
    """Read a `tiktoken.Encoding`. Its ids are its ranks; what lies between them and its specials are holes.

    Raises:
        TokenizerError: if its ranks cannot be read, or the ids of a probe text do not join back to it.
    """
    return read_engine(RankEngine(vocabulary_of(encoding)))


def vocabulary_of(encoding: Any) -> RankVocabulary:
    """The ranks, the pattern and the specials of a `tiktoken.Encoding`.

    Raises:
        TokenizerError: if it keeps them elsewhere, as another version of the package might.
    """
    try:
        return RankVocabulary(
            encoding.name,
            encoding._pat_str,
            dict(encoding._mergeable_ranks),
            dict(encoding._special_tokens),
        )
    except AttributeError as error:
        raise TokenizerError(
            f"an encoding of type {type(encoding).__name__} without its parts ({error})",
            expected="an object of tiktoken.Encoding",
            remedy="Load the tokenizer from its .tiktoken file",
        ) from error


def read_tiktoken_name(name: str) -> Reading:
    """Read an encoding of the tiktoken package by name, such as `cl100k_base`; it is downloaded unless it is cached.

    Raises:
        SourceError: if there is no encoding of this name, or it cannot be fetched.
        MissingExtraError: if tiktoken is not installed.
    """
    try:
        import tiktoken
    except ImportError as error:
        raise MissingExtraError("tiktoken", extra="tiktoken", purpose=f"the encoding {name}") from error
    if name not in tiktoken.list_encoding_names():
        raise SourceError(
            f"tiktoken has no encoding {name!r}",
            expected=f"one of {', '.join(tiktoken.list_encoding_names())}",
            remedy="Check the spelling",
        )
    try:
        encoding = tiktoken.get_encoding(name)
    except (OSError, ValueError) as error:
        raise SourceError(
            f"the encoding {name} is not in tiktoken's cache and cannot be fetched ({' '.join(str(error).split())})",
            expected="its file of ranks",
            remedy="Check the connection, or download the .tiktoken file and name its path",
        ) from error
    return read_encoding(encoding)
