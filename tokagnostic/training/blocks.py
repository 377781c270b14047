"""What a text gives to a run: blocks of ids, numbered from 0 without end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class TextCounts:
    """What there is of a text, or what was read of it."""

    documents: int = 0
    """Documents with at least one token; one that is read again in a later epoch counts again."""
    bytes: int = 0
    """Bytes of their text."""
    tokens: int = 0
    """Their tokens, start ids included."""


class Blocks(Protocol):
    """Blocks of one text, of one length and in one order."""

    def read(self, numbers: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Blocks by their numbers, which rise and do not go back behind those of earlier calls.

        Returns:
            Token ids, int64 [B, T].
            True at the first token of each document, bool [B, T].
        """
        ...

    def cursor(self, number: int) -> Any:
        """From where the blocks from `number` on can be read again, as a JSON value; None: the number is enough."""
        ...

    def documents(self, number: int) -> list[str]:
        """Names of the documents that a block has text of, for people; the block is one of those that were read last."""
        ...

    def go_to(self, number: int, cursor: Any) -> None:
        """Make the block `number` the next; with None for a cursor, the text is read up to it.

        Raises:
            TrainingError: if the text there is not the one that the cursor was taken from.
        """
        ...


class Text(Protocol):
    """What a run is trained on."""

    @property
    def identity(self) -> Any:
        """What a resumed run compares to know its text again, a JSON value."""
        ...

    @property
    def counts(self) -> TextCounts:
        """What there is of it, where it lies in memory, or what was read so far."""
        ...

    def blocks(self, block_length: int, seed: tuple[int, ...]) -> Blocks:
        """Its blocks in the order of a seed.

        Raises:
            TrainingError: if it is known to have fewer tokens than one block.
        """
        ...


def shuffled(num: int, entropy: tuple[int, ...]) -> np.ndarray:
    """A permutation of 0..num-1, int64 [num]."""
    # Raw draws, because NumPy keeps the bits of PCG64 from version to version but not those of Generator.permutation.
    draws = np.random.PCG64(np.random.SeedSequence(entropy)).random_raw(num)
    return np.argsort(draws, kind="stable")
