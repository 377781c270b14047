"""What a family of tokenizers has to give, so that nothing above it knows families: an engine and a byte table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from tokagnostic.tokens.token_bytes import TokenBytes


class Engine(Protocol):
    """A private copy of a tokenizer that encodes plain text: no special id comes out of any text, nothing is cut off."""

    def parts(self, text: str) -> Iterator[str]:
        """Cut a long text into what `encode` takes call by call, such as `split_text` does."""
        ...

    def encode(self, texts: Sequence[str], *, follows: bool) -> list[np.ndarray]:
        """Encode texts, on as many threads as the library has.

        Args:
            texts: what to encode.
            follows: whether they continue texts encoded before, so that no leading space is invented.

        Returns:
            Token ids of each text, int64 [T].

        Raises:
            TokenizerError: if the library refuses one of them.
        """
        ...

    def spellings(self) -> list[str | None]:
        """How the tokenizer itself writes each id, [V], for people; None for a hole.

        Families without strings are written in the byte alphabet, as the world's converters write them.
        """
        ...

    def save(self, folder: Path, start_id: int | None) -> None:
        """Write the tokenizer as it was given into an existing folder, so that `load_tokenizer` reads it back.

        Args:
            folder: where to.
            start_id: the id put before a document, to be found again.
        """
        ...


@dataclass(frozen=True, eq=False)
class Reading:
    """A tokenizer as its family reads it."""

    token_bytes: TokenBytes
    """The bytes and the kind of every id, proven on the engine."""
    engine: Engine
    start_id: int | None = None
    """The id put before a document, where the tokenizer names one."""
    name: str = ""
    """What the tokenizer calls itself."""
