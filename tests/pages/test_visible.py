from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokagnostic.pages.visible import visible, visible_name, visible_pieces


@pytest.mark.parametrize(
    ("data", "pieces"),
    [
        (b"", [""]),
        ("the river", ["the", "·", "river"]),
        (b" a\n\t\r", ["", "·", "a", "⏎", "", "⇥", "", "␍", ""]),
        (b"\0", ["", "U+0000", ""]),
        ("\u2028\ufeff\u202e", ["", "U+2028", "", "U+FEFF", "", "U+202E", ""]),
        ("日".encode()[:2], ["", "E6", "", "97", ""]),
        (b"a\xffb", ["a", "FF", "b"]),
        ("\u0301", ["◌\u0301"]),
        ("e\u0301", ["e\u0301"]),
        (" \u0301", ["", "·", "◌\u0301"]),
        ("\U0001f468\u200d", ["\U0001f468", "U+200D", ""]),
        ("\ud800", ["", "ED", "", "A0", "", "80", ""]),
    ],
    ids=repr,
)
def test_what_cannot_be_seen_is_a_mark(data, pieces) -> None:
    assert visible_pieces(data) == pieces


def test_marks_that_are_words_stand_in_brackets_in_a_text() -> None:
    assert visible(b"a b\xff\0") == "a·b⟨FF⟩⟨U+0000⟩"


def test_a_name_keeps_its_spaces() -> None:
    assert visible_name("my  model\n\u202e") == "my  model⏎⟨U+202E⟩"


@given(st.binary(max_size=40))
def test_every_character_of_the_pieces_prints_and_no_text_is_lost(data) -> None:
    pieces = visible_pieces(data)
    assert len(pieces) % 2 == 1
    assert all(c.isprintable() and c != " " for piece in pieces for c in piece)
    back = {"·": b" ", "⏎": b"\n", "⇥": b"\t", "␍": b"\r"}
    joined = b""
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            joined += piece.replace("◌", "").encode() if "◌".encode() not in data else piece.encode()
        elif piece.startswith("U+"):
            joined += chr(int(piece[2:], 16)).encode()
        else:
            joined += back.get(piece) or bytes.fromhex(piece)
    assert joined == data or "◌".encode() in data
