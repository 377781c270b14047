"""The bytes of a SentencePiece model file turned into the facts that decide what its ids mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from tokagnostic.errors import TokenizerError

_TEXT, _SCORE, _TYPE = b"\x0a", b"\x15", b"\x18"
"""Tags of the three fields of a piece."""
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


@dataclass(frozen=True)
class SentencePieceModel:
    """The pieces and rules of a model file. Settings that a file does not name have SentencePiece's own defaults."""

    serialized: bytes
    """The file itself."""
    pieces: tuple[str, ...]
    types: tuple[PieceType, ...]
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
            TokenizerError: if it is cut short, is no such file, or holds a piece that is no text or of no known type.
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
        pieces, types = [], []
        trainer, normalizer = bytearray(), bytearray()
        for field, value in _fields(serialized):
            if field == 1:
                piece, kind = _piece(_message(value))
                pieces.append(piece)
                types.append(kind)
            elif field == 2:
                # Messages that occur twice are one message: later settings win.
                trainer += _message(value)
            elif field == 3:
                normalizer += _message(value)
        if not pieces:
            raise ValueError("it holds no piece")
        training, rules = dict(_fields(bytes(trainer))), dict(_fields(bytes(normalizer)))
        return cls(
            serialized=serialized,
            pieces=tuple(pieces),
            types=tuple(types),
            model_type=ModelType(_number(training.get(3, ModelType.UNIGRAM))),
            byte_fallback=bool(training.get(35, False)),
            space_as_suffix=bool(training.get(24, False)),
            normalizer=_message(rules.get(1, b"")).decode(),
            rewrites=bool(rules.get(2, b"")),
            adds_space=bool(rules.get(3, True)),
            squeezes=bool(rules.get(4, True)),
            marks_spaces=bool(rules.get(5, True)),
        )

    @cached_property
    def continuing(self) -> bytes:
        """The same model for the later parts of a text that was cut: it invents no space and removes none."""
        settings = b"\x18\x00\x20\x00"
        return self.serialized + bytes((0x1A, len(settings))) + settings

    def text_of(self, spelling: str) -> str:
        """The text that a piece, or a normalized text, stands for."""
        return spelling.replace(SPACE_MARK, " ") if self.marks_spaces else spelling


def _piece(data: bytes) -> tuple[str, PieceType]:
    # Nearly all are written in this layout: the text, a score of 4 bytes, and the type if it is not the usual one.
    if data[:1] == _TEXT and data[1] < 0x80:
        rest = data[2 + data[1] :]
        if len(rest) == 5 and rest[:1] == _SCORE:
            return data[2:-5].decode(), PieceType.NORMAL
        if len(rest) == 7 and rest[:1] == _SCORE and rest[5:6] == _TYPE:
            return data[2:-7].decode(), PieceType(rest[6])
    piece, kind = b"", PieceType.NORMAL
    for field, value in _fields(data):
        if field == 1:
            piece = _message(value)
        elif field == 3:
            kind = PieceType(_number(value))
    return piece.decode(), kind


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a text or a message belongs")
    return value


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("a text where a number belongs")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer message in order: number and value; fixed-width values are left as bytes.

    Raises:
        IndexError: if it is cut short.
        ValueError: if it is no message.
    """
    place, end = 0, len(data)
    while place < end:
        tag, place = _varint(data, place)
        wire = tag & 7
        if wire == 0:
            number, place = _varint(data, place)
            yield tag >> 3, number
            continue
        if wire == 2:
            length, place = _varint(data, place)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {place}")
        if place + length > end:
            raise IndexError(f"cut short at byte {end}")
        yield tag >> 3, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    byte = data[place]
    if byte < 0x80:
        return byte, place + 1
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        place += 1
        byte = data[place]
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError(f"a number without an end at byte {place}")
    return number, place + 1
