"""The bytes of a SentencePiece model file turned into the facts that decide what its ids mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.sentencepiece.wire import fields, leading_pieces, message, number, piece

SPACE_MARK = "\u2581"
"""The character that stands for a space in pieces."""


class PieceType(IntEnum):
    """What a piece is; the numbers are those of the file."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class ModelType(IntEnum):
    """How pieces are chosen; the numbers are those of the file."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


@dataclass(frozen=True, eq=False)
class SentencePieceModel:
    """The pieces and rules of a model file. Settings that a file does not name have SentencePiece's own defaults."""

    serialized: bytes
    """The file itself."""
    pieces: tuple[str, ...]
    """The spelling of every id: no two are equal, none is empty or holds a NUL."""
    types: np.ndarray
    """A `PieceType` per id, uint8 [V]."""
    model_type: ModelType
    byte_fallback: bool
    """What no piece spells is spelled in bytes."""
    space_as_suffix: bool
    """The invented space comes behind a text."""
    normalizer: str
    """Name of the rules by which characters are rewritten."""
    rewrites: bool
    """Whether there are any such rules."""
    adds_space: bool
    """A space is invented before a text."""
    squeezes: bool
    """Runs of spaces become one, and those at both ends go."""
    marks_spaces: bool
    """Spaces are written as `SPACE_MARK`."""

    @classmethod
    def parse(cls, serialized: bytes) -> SentencePieceModel:
        """Read a model file.

        Raises:
            TokenizerError: if it is cut short, is no such file, or holds a piece that is no text, of no known type,
                empty, or there twice; it names the id.
        """
        try:
            return cls._parse(serialized)
        except (IndexError, ValueError) as error:
            raise TokenizerError(
                f"a SentencePiece model that cannot be read ({error})",
                expected="the protocol buffer that the SentencePiece trainer writes, whole",
                remedy="Fetch or copy the file again",
            ) from error

    @classmethod
    def _parse(cls, serialized: bytes) -> SentencePieceModel:
        spellings, types, place = leading_pieces(serialized)
        trainer, normalizer = bytearray(), bytearray()
        for field, value in fields(serialized[place:]):
            if field == 1:
                spelling, kind = piece(message(value))
                spellings.append(spelling)
                types.append(kind)
            elif field == 2:
                # Messages that occur twice are one message: later settings win.
                trainer += message(value)
            elif field == 3:
                normalizer += message(value)
        training, rules = dict(fields(bytes(trainer))), dict(fields(bytes(normalizer)))
        return cls(
            serialized=serialized,
            pieces=_read_spellings(spellings),
            types=_read_types(types),
            model_type=ModelType(number(training.get(3, ModelType.UNIGRAM))),
            byte_fallback=bool(number(training.get(35, False))),
            space_as_suffix=bool(number(training.get(24, False))),
            normalizer=message(rules.get(1, b"")).decode(),
            rewrites=bool(message(rules.get(2, b""))),
            adds_space=bool(number(rules.get(3, True))),
            squeezes=bool(number(rules.get(4, True))),
            marks_spaces=bool(number(rules.get(5, True))),
        )

    @property
    def is_text(self) -> np.ndarray:
        """Which pieces stand for their own spelling, bool [V]."""
        return np.isin(self.types, (PieceType.NORMAL, PieceType.USER_DEFINED))

    @cached_property
    def continuing(self) -> bytes:
        """The same model for the later parts of a text that was cut: it invents no space and removes none.

        Where spaces are squeezed it rewrites nothing either, so that it takes parts of a text that was normalized.
        """
        settings = b"\x18\x00\x20\x00" + (b"\x12\x00" if self.squeezes else b"")
        return self.serialized + bytes((0x1A, len(settings))) + settings

    def text_of(self, spelling: str) -> str:
        """The text that a piece, or a normalized text, stands for."""
        return spelling.replace(SPACE_MARK, " ") if self.marks_spaces else spelling


def _read_spellings(spellings: Sequence[bytes]) -> tuple[str, ...]:
    """Believe the spellings of all pieces only if each can be told from the others."""
    if not spellings:
        raise ValueError("it holds no piece")
    pieces = []
    try:
        for spelling in spellings:
            pieces.append(spelling.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"the piece of id {len(pieces)} is no UTF-8 text") from error
    joined = "\0".join(pieces)
    if "" in pieces or joined.count("\0") >= len(pieces):
        v = next(v for v, spelling in enumerate(pieces) if not spelling or "\0" in spelling)
        raise ValueError(f"the piece of id {v} is {'a text with a NUL' if pieces[v] else 'empty'}")
    if len(set(pieces)) < len(pieces):
        first: dict[str, int] = {}
        v = next(v for v, spelling in enumerate(pieces) if first.setdefault(spelling, v) != v)
        raise ValueError(f"ids {first[pieces[v]]} and {v} are both the piece {pieces[v]!r}")
    return tuple(pieces)


def _read_types(types: Sequence[int]) -> np.ndarray:
    known = frozenset(PieceType)
    if not known.issuperset(types):
        v = next(v for v, kind in enumerate(types) if kind not in known)
        raise ValueError(f"the piece of id {v} is of type {types[v]}, which there is not")
    return np.array(types, dtype=np.uint8)
