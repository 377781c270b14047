"""The names of special tokens turned into the id that starts a document, where nobody says which it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokagnostic.errors import SourceError

START_NAMES = (
    *("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|begin▁of▁sentence|>", "[BOS]"),
    *("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<|end▁of▁sentence|>", "[EOS]"),
    *("[CLS]", "<cls>", "[SEP]", "<sep>"),
)
"""First match first: begin, else end, else classifier, else separator."""


def find_start_id(special: Mapping[str, int]) -> int | None:
    """The id of the first of `START_NAMES` that is there.

    Args:
        special: ids of the special tokens by name.
    """
    return next((special[name] for name in START_NAMES if name in special), None)


def configured_starts(config: Path) -> Iterator[str]:
    """How a tokenizer_config.json spells the begin, else end, else classifier or separator token, as far as it names them.

    Args:
        config: the file; nothing if it is not there.

    Raises:
        SourceError: if it cannot be read.
    """
    if not config.is_file():
        return
    try:
        settings: Any = json.loads(config.read_bytes())
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{config} cannot be read ({error})", expected="a JSON file", remedy="Mend or remove the file"
        ) from error
    for role in ("bos", "eos", "cls", "sep"):
        token = settings.get(f"{role}_token") if isinstance(settings, dict) else None
        content = token.get("content") if isinstance(token, dict) else token
        if isinstance(content, str):
            yield content
