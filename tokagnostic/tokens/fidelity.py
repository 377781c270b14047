"""One statement about a tokenizer: what its ids keep of a text, and what they invent or destroy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from tokagnostic.errors import InvalidValueError

if TYPE_CHECKING:
    from tokagnostic.tokens.token_bytes import TokenBytes

FidelityLevel = Literal["exact", "nfc", "lossy"]
"""What the joined bytes of a text's ids equal: its bytes; the bytes of its NFC form; neither."""


@dataclass(frozen=True)
class Fidelity:
    """What the ids of a text keep of its bytes.

    Raises:
        InvalidValueError: if the level is of another name, or promises less than everything without a reason.
    """

    level: FidelityLevel
    """`exact`: joined ids are the text. `nfc`: they are its NFC form. `lossy`: they are neither."""
    reasons: tuple[str, ...] = ()
    """Why the level is not `exact`; under `exact`, the few characters that are the exception."""

    def __post_init__(self) -> None:
        if self.level not in get_args(FidelityLevel) or (self.level != "exact" and not self.reasons):
            raise InvalidValueError(
                f"fidelity level {self.level!r} with {len(self.reasons)} reasons",
                expected="exact, or nfc or lossy with a reason",
                remedy="Name a level and say why it is not exact",
            )

    @property
    def line(self) -> str:
        """The whole statement in one line."""
        why = "; ".join(self.reasons)
        match self.level:
            case "exact":
                return f"exact, except that {why}" if why else "exact"
            case "nfc":
                return f"exact up to NFC: {why}"
            case _:
                return f"lossy: {why}"


def joins_back(token_bytes: TokenBytes, text: str, token_ids: Sequence[int] | np.ndarray) -> bool:
    """Whether the ids of one document stand for exactly the bytes of its text, the invented leading space aside.

    Args:
        token_bytes: the bytes of the vocabulary.
        text: the document.
        token_ids: its ids, int [T].
    """
    return token_bytes.join(token_ids) == text.encode()
