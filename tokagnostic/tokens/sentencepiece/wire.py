"""The bytes of a protocol buffer turned into numbered fields, and those of a SentencePiece model into its pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

_TEXT, _SCORE, _TYPE = 0x0A, 0x15, 0x18
"""Tags of the three fields of a piece."""
_PIECE = 0x0A
"""Tag of a piece in the file."""
_NORMAL = 1
"""The type of a piece that names none."""


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in order: number and value; fixed-width values are left as bytes.

    Raises:
        IndexError: if it is cut short.
        ValueError: if it is no message.
    """
    place, end = 0, len(data)
    while place < end:
        tag, place = _varint(data, place)
        wire = tag & 7
        if wire == 0:
            value, place = _varint(data, place)
            yield tag >> 3, value
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


def message(value: int | bytes) -> bytes:
    """A value that has to be a text or a message."""
    if isinstance(value, int):
        raise ValueError("a number where a text or a message belongs")
    return value


def number(value: int | bytes) -> int:
    """A value that has to be a number."""
    if isinstance(value, bytes):
        raise ValueError("a text where a number belongs")
    return value


def leading_pieces(data: bytes) -> tuple[list[bytes], list[int], int]:
    """Read the pieces with which a model file begins, which are all of them in files as the trainer writes them.

    Returns:
        The spelling and the type of each piece, and the place of the first field that is none.

    Raises:
        IndexError: if it is cut short.
        ValueError: if a piece is no message.
    """
    bodies, stops = [], []
    place, end = 0, len(data)
    while place < end and data[place] == _PIECE:
        length = data[place + 1]
        if length < 0x80:
            place += 2
        else:
            length, place = _varint(data, place + 1)
        bodies.append(place)
        place += length
        stops.append(place)
    if place > end:
        raise IndexError(f"cut short at byte {end}")
    starts, ends, types, is_usual = _usual_layout(np.frombuffer(data, dtype=np.uint8), bodies, stops)
    spellings = [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    kinds = types.tolist()
    for v in np.flatnonzero(~is_usual).tolist():
        spellings[v], kinds[v] = piece(data[bodies[v] : stops[v]])
    return spellings, kinds, place


def piece(data: bytes) -> tuple[bytes, int]:
    """The spelling and the type of one piece."""
    spelling, kind = b"", _NORMAL
    for field, value in fields(data):
        if field == 1:
            spelling = message(value)
        elif field == 3:
            kind = number(value)
    return spelling, kind


def _usual_layout(
    data: np.ndarray, bodies: Sequence[int], stops: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Where the spellings lie, the types, and which pieces are laid out as nearly all are.

    That is the spelling, a score of 4 bytes, and the type if it is not the usual one.
    """
    body, stop = np.array(bodies, dtype=np.int64), np.array(stops, dtype=np.int64)

    def at(places: np.ndarray) -> np.ndarray:
        return data.take(places, mode="clip").astype(np.int64)

    start = body + 2
    length = at(body + 1)
    end = start + length
    rest = stop - end
    has_type = (rest == 7) & (at(end + 5) == _TYPE)
    is_usual = (at(body) == _TEXT) & (length < 0x80) & ((rest == 5) | has_type) & (at(end) == _SCORE)
    types = np.where(has_type, at(end + 6), _NORMAL)
    return start, end, types, is_usual & (types < 0x80)


def _varint(data: bytes, place: int) -> tuple[int, int]:
    byte = data[place]
    if byte < 0x80:
        return byte, place + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        place += 1
        byte = data[place]
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError(f"a number without an end at byte {place}")
    return value, place + 1
