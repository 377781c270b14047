"""A tokenizer.json, and the start that a tokenizer_config.json beside it names, to a reading."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tokagnostic.errors import SourceError, TokenizerError
from tokagnostic.tokens.engine import Reading
from tokagnostic.tokens.huggingface.engine import read_pipeline
from tokagnostic.tokens.huggingface.pipeline import library_errors


def read_pipeline_file(file: Path) -> Reading:
    """Read a tokenizer.json.

    Raises:
        SourceError: if the file, or the tokenizer_config.json beside it, cannot be read.
        TokenizerError: if its bytes cannot be read or do not pass the probe.
    """
    try:
        with library_errors(f"reading {file}"):
            tokenizer = Tokenizer.from_str(file.read_bytes().decode())
    except (OSError, UnicodeDecodeError, TokenizerError) as error:
        why = error.given if isinstance(error, TokenizerError) else f"{file}: {error}"
        raise SourceError(
            f"{file} cannot be read as a tokenizer ({why})",
            expected="a tokenizer.json of the tokenizers library, or a file whose name ends in .model, .tiktoken or .gguf",
            remedy="Save the tokenizer again with save_pretrained, or give the file the ending of its format",
        ) from error
    reading = read_pipeline(tokenizer)
    start_id = _configured_start_id(tokenizer, file.parent / "tokenizer_config.json")
    return reading if start_id is None else dataclasses.replace(reading, start_id=start_id)


def _configured_start_id(tokenizer: Tokenizer, config: Path) -> int | None:
    """The id of the begin, else end, else classifier or separator token that a tokenizer_config.json names."""
    if not config.is_file():
        return None
    try:
        settings: Any = json.loads(config.read_bytes())
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{config} cannot be read ({error})", expected="a JSON file", remedy="Mend or remove the file"
        ) from error
    for role in ("bos", "eos", "cls", "sep"):
        token = settings.get(f"{role}_token") if isinstance(settings, dict) else None
        content = token.get("content") if isinstance(token, dict) else token
        token_id = tokenizer.token_to_id(content) if isinstance(content, str) else None
        if token_id is not None:
            return token_id
    return None
