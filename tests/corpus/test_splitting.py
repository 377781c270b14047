"""Lines, paragraphs and articles join to the text, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokagnostic.corpus.splitting import DocumentUnit, is_blank, split_bytes

UNITS: tuple[DocumentUnit, ...] = ("whole", "line", "paragraph", "article")
PIECES = [
    b"",
    b" ",
    b"\n",
    b"\r\n",
    b"\r",
    b" = A = \n",
    b" = = B = = \n",
    b"text",
    "\u2028\u0085é".encode(),
    b"\xff",
    b"\0",
]


@pytest.mark.parametrize("unit", UNITS)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=30))
def test_the_parts_of_any_bytes_join_to_the_bytes(unit: DocumentUnit, pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    assert b"".join(split_bytes(data, unit)) == data


@given(pieces=st.lists(st.sampled_from(PIECES), max_size=30))
def test_every_part_but_a_blank_text_holds_more_than_blank_lines(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    for unit in ("paragraph", "article"):
        parts = list(split_bytes(data, unit))
        assert is_blank(data) or not any(is_blank(part) for part in parts)


def test_a_line_ends_at_line_feed_and_nowhere_else() -> None:
    """D-07: CR, form feed, NEL and U+2028 stay inside a line."""
    data = b"a\r\nb\rc\n" + "d\u2028e\u0085f\x0cg".encode()
    assert list(split_bytes(data, "line")) == [b"a\r\n", b"b\rc\n", "d\u2028e\u0085f\x0cg".encode()]


def test_a_paragraph_takes_the_blank_lines_after_it_and_the_first_also_those_before() -> None:
    data = b"\n \na\nb\n\n\t\r\nc\n\n"
    assert list(split_bytes(data, "paragraph")) == [b"\n \na\nb\n\n\t\r\n", b"c\n\n"]


def test_an_article_starts_at_a_title_without_equals_signs() -> None:
    data = b" \n = One = \n \n text\n = = Section = = \n more = b\n \n = Two ( x ) = \n end"
    assert list(split_bytes(data, "article")) == [
        b" \n = One = \n \n text\n = = Section = = \n more = b\n \n",
        b" = Two ( x ) = \n end",
    ]


@pytest.mark.parametrize(
    "line",
    [b"= A = \n", b" = A = b\n", b" = A\n", b" =  = = \n", b" = = A = = \n", b"x = A = \n"],
    ids=repr,
)
def test_what_only_looks_like_a_title_starts_no_article(line: bytes) -> None:
    data = b"before\n" + line
    assert list(split_bytes(data, "article")) == [data]


def test_text_before_the_first_title_is_an_article_of_its_own() -> None:
    assert list(split_bytes(b"lead\n = A = \n", "article")) == [b"lead\n", b" = A = \n"]


@pytest.mark.parametrize("data", [b"", b" ", b"\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf \r\n"], ids=repr)
def test_white_space_and_a_byte_order_mark_are_blank(data: bytes) -> None:
    assert is_blank(data)


@pytest.mark.parametrize("data", [b"a", b"\0", "\u00a0".encode(), b"\xff"], ids=repr)
def test_every_other_byte_is_text(data: bytes) -> None:
    assert not is_blank(data)
