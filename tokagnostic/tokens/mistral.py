"""A tokenizer of the mistral-common package, live or by version, to a reading of the family that it belongs to."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokagnostic.errors import MissingExtraError, SourceError, TokenizerError
from tokagnostic.tokens.engine import Reading

_SENTENCEPIECE = re.compile(r".*\.model\.(v\d+\w*)")
_TEKKEN = re.compile(r"tekken_(\d+)\.json")


def read_mistral(version: str) -> Reading:
    """Read a tokenizer whose file the installed mistral-common carries.

    Args:
        version: `v1`, `v2`, `v3`, `v7` and so on, as the files' names say; `tekken` or `v3-tekken` for the first
            tekken, that of Mistral Nemo, and `tekken-240911` and so on for each.

    Raises:
        SourceError: if the package carries no such tokenizer; it lists those that there are.
        MissingExtraError: if mistral-common is not installed.
    """
    files = mistral_files()
    if version not in files:
        raise SourceError(
            f"mistral-common carries no tokenizer {version!r}",
            expected=f"one of {', '.join(sorted(files)) or '(none)'}",
            remedy="Check the spelling, or name the tokenizer's file",
        )
    if files[version].suffix == ".json":
        from tokagnostic.tokens.tiktoken.tekken import read_tekken_file

        return read_tekken_file(files[version])
    from tokagnostic.tokens.sentencepiece.reader import read_sentencepiece_file

    return read_sentencepiece_file(files[version])


def read_mistral_object(tokenizer: Any) -> Reading:
    """Read a tokenizer of mistral-common, or what wraps one: its instruct tokenizers, and the class of transformers.

    Raises:
        TokenizerError: if there is no Tekkenizer and no SentencePiece model inside, or the ids of a probe text do not
            join back to what its fidelity promises.
    """
    inner = tokenizer
    for name in ("tokenizer", "instruct_tokenizer", "tokenizer"):
        inner = getattr(inner, name, inner)
    classes = {cls.__name__ for cls in type(inner).__mro__}
    if "Tekkenizer" in classes:
        from tokagnostic.tokens.tiktoken.tekken import read_tekkenizer

        return read_tekkenizer(inner)
    if "SentencePieceTokenizer" in classes and hasattr(inner, "_model"):
        from tokagnostic.tokens.sentencepiece.reader import read_sentencepiece

        return read_sentencepiece(inner._model)
    raise TokenizerError(
        f"an object of type {type(tokenizer).__name__} without a tokenizer inside",
        expected="a Tekkenizer, a SentencePieceTokenizer, or a wrapper of one",
        remedy="Load the tokenizer from its tekken.json or its .model",
    )


def mistral_files() -> dict[str, Path]:
    """The tokenizers that the installed mistral-common carries, by version; the package itself is not imported.

    Raises:
        MissingExtraError: if it is not installed.
    """
    package = find_spec("mistral_common")
    if package is None:
        raise MissingExtraError("mistral-common", extra="mistral", purpose="a tokenizer by Mistral's version")
    found: dict[str, Path] = {}
    for folder in package.submodule_search_locations or ():
        for path in sorted(Path(folder, "data").glob("*")):
            if match := _SENTENCEPIECE.fullmatch(path.name):
                found[match[1]] = path
            elif match := _TEKKEN.fullmatch(path.name):
                found[f"tekken-{match[1]}"] = path
                found.setdefault("tekken", path)
                found.setdefault("v3-tekken", path)
    return found
