"""The byte alphabet, one string at a time and a whole vocabulary at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tokagnostic.tokens.alphabet import byte_symbols, bytes_of_many, bytes_of_symbols


def read_one(piece: str) -> bytes | None:
    try:
        return bytes_of_symbols(piece)
    except KeyError:
        return None


def test_every_byte_has_its_own_symbol() -> None:
    assert bytes_of_symbols("".join(byte_symbols())) == bytes(range(256))
    assert byte_symbols()[ord(" ")] == "\u0120"


@given(st.lists(st.text(max_size=5) | st.text(sorted(byte_symbols()), max_size=5), max_size=12))
def test_many_pieces_at_once_are_read_as_one_by_one(pieces: list[str]) -> None:
    assert bytes_of_many(pieces) == [read_one(piece) for piece in pieces]
