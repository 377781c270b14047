"""Pieces read all at once, held to the field by field reading of the same bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokens.sentencepiece.naive_wire import field
from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.sentencepiece.model import PieceType, SentencePieceModel
from tokagnostic.tokens.sentencepiece.wire import fields, leading_pieces, message, piece

SCORE = b"\x15" + struct.pack("<f", -1.5)
SPELLINGS = st.binary(max_size=8) | st.binary(min_size=120, max_size=300)
LAYOUTS = {
    "usual": lambda text, kind: field(1, text) + SCORE + (b"" if kind == 1 else bytes((0x18, kind))),
    "type said": lambda text, kind: field(1, text) + SCORE + bytes((0x18, kind)),
    "turned": lambda text, kind: bytes((0x18, kind)) + SCORE + field(1, text),
    "no score": lambda text, kind: field(1, text) + bytes((0x18, kind)),
    "unknown field": lambda text, kind: field(1, text) + SCORE + bytes((0x18, kind)) + field(9, b"\x0a\x01"),
    "said twice": lambda text, kind: field(1, b"zz") + bytes((0x18, 2)) + field(1, text) + bytes((0x18, kind)),
    "wide type": lambda text, kind: field(1, text) + SCORE + bytes((0x18, kind | 0x80, 0)),
}
PIECES = st.tuples(SPELLINGS, st.sampled_from(PieceType), st.sampled_from(sorted(LAYOUTS)))


@given(st.lists(PIECES, max_size=12), st.sampled_from([b"", b"\x12\x02\x18\x02", b"\x12\x00\x0a\x03\x0a\x01a"]))
def test_any_layout_of_pieces_is_read(pieces: list[tuple[bytes, PieceType, str]], rest: bytes) -> None:
    data = b"".join(field(1, LAYOUTS[layout](text, int(kind))) for text, kind, layout in pieces)
    spellings, types, place = leading_pieces(data + rest)
    assert (spellings, types) == ([text for text, _, _ in pieces], [int(kind) for _, kind, _ in pieces])
    assert place == len(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_field_by_field_or_refused(noise: bytes) -> None:
    data = field(1, field(1, b"a") + SCORE) + noise
    try:
        spellings, types, place = leading_pieces(data)
    except (IndexError, ValueError):
        with pytest.raises((IndexError, ValueError)):
            [piece(message(value)) for number, value in fields(data) if number == 1]
        return
    slowly = [piece(message(value)) for number, value in fields(data[:place]) if number == 1]
    assert list(zip(spellings, types, strict=True)) == slowly


@given(st.binary(max_size=80))
def test_a_file_of_any_bytes_is_a_model_or_one_error(data: bytes) -> None:
    try:
        SentencePieceModel.parse(data)
    except TokenizerError as error:
        assert "cannot be read" in str(error)


def test_a_piece_after_other_fields_is_a_piece() -> None:
    first, second = field(1, field(1, b"a")), field(1, field(1, b"b") + bytes((0x18, 4)))
    model = SentencePieceModel.parse(first + field(2, b"\x18\x02") + second)
    assert model.pieces == ("a", "b")
    assert model.types.tolist() == [PieceType.NORMAL, PieceType.USER_DEFINED]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (field(1, field(1, b"\xff") + SCORE), "the piece of id 0 is no UTF-8 text"),
        (field(1, field(1, b"a") + SCORE + b"\x18\x07"), "the piece of id 0 is of type 7"),
        (field(1, field(1, b"a") + SCORE)[:-1], "cut short at byte 9"),
        (b"\x0a\x02\x08\x05", "a number where a text or a message belongs"),
        (field(1, field(1, b"a")) + field(2, field(35, b"\0")), "a text where a number belongs"),
        (b"\x0b", "wire type 3"),
    ],
    ids=["no UTF-8", "type", "cut short", "number for text", "text for number", "group"],
)
def test_what_is_wrong_is_said(data: bytes, said: str) -> None:
    with pytest.raises(TokenizerError, match=said):
        SentencePieceModel.parse(data)
