"""A tokenizer.json, and the start that a tokenizer_config.json beside it names, to a reading."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from tokenizers import Tokenizer

from tokagnostic.errors import SourceError, TokenizerError
from tokagnostic.tokens.engine import Reading
from tokagnostic.tokens.huggingface.engine import read_pipeline
from tokagnostic.tokens.huggingface.pipeline import library_errors
from tokagnostic.tokens.huggingface.vocabulary import check_highest_id
from tokagnostic.tokens.starts import configured_starts

_LONG_NUMBER = re.compile(rb":\s*\d{8,}\s*[,}]")
"""An id that may be beyond belief."""


def read_pipeline_file(file: Path) -> Reading:
    """Read a tokenizer.json.

    Raises:
        SourceError: if the file, or the tokenizer_config.json beside it, cannot be read.
        TokenizerError: if its bytes cannot be read or do not pass the probe.
    """
    try:
        content = file.read_bytes()
        with library_errors(f"reading {file}"):
            tokenizer = Tokenizer.from_str(content.decode())
    except (OSError, UnicodeDecodeError, TokenizerError) as error:
        why = error.given if isinstance(error, TokenizerError) else f"{file}: {error}"
        raise SourceError(
            f"{file} cannot be read as a tokenizer ({why})",
            expected="a tokenizer.json of the tokenizers library, or a file whose name ends in .model, .tiktoken or .gguf",
            remedy="Save the tokenizer again with save_pretrained, or give the file the ending of its format",
        ) from error
    if _LONG_NUMBER.search(content):
        # The library would write its vocabulary out id by id.
        check_highest_id(max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1))
    reading = read_pipeline(tokenizer)
    starts = map(tokenizer.token_to_id, configured_starts(file.parent / "tokenizer_config.json"))
    start_id = next((token_id for token_id in starts if token_id is not None), None)
    return reading if start_id is None else dataclasses.replace(reading, start_id=start_id)
