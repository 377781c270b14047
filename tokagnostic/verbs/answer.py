"""What a verb came to, for machines and for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """A verb's result."""

    result: Any
    """JSON values."""
    text: str
    """The same in words."""
    as_json: bool
    """Which of the two was asked for."""
