"""The lines of a file of ranks, and the line that is damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokagnostic.errors import SourceError
from tokagnostic.tokens.tiktoken.rank_lines import read_rank_lines, write_rank_lines
from tokagnostic.tokens.token_bytes import LARGEST_ID


def test_a_line_is_base64_and_a_rank() -> None:
    assert read_rank_lines(b"IQ== 0\nIg== 2\n4oI= 7\n", "toy") == {b"!": 0, b'"': 2, b"\xe2\x82": 7}
    assert read_rank_lines(b"IQ== 0\r\n\r\nIg== 2", "toy") == {b"!": 0, b'"': 2}


@given(st.dictionaries(st.binary(min_size=1, max_size=9), st.integers(0, LARGEST_ID), min_size=1))
def test_what_is_written_is_read(ranks: dict[bytes, int]) -> None:
    apart = {token: rank for rank, token in {rank: token for token, rank in ranks.items()}.items()}
    read = read_rank_lines(write_rank_lines(apart), "toy")
    assert read == apart
    assert list(read.values()) == sorted(read.values())


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"I!== 5", "is not base64"),
        (b"IQ= 5", "is not base64"),
        (b"IQ 5", "is not base64"),
        (b"Iw==\t5", "is not base64"),
        (b" 5", "has no bytes"),
        (b"Iw==", "has no rank"),
        (b"Iw== ", "has no rank"),
        (b"Iw== -5", "has an impossible rank"),
        (b"Iw== 1_0", "has an impossible rank"),
        (b"Iw== 5 6", "has an impossible rank"),
        (b"Iw== five", "has an impossible rank"),
        (b"Iw== %d" % (LARGEST_ID + 1), "has an impossible rank"),
        (b"Ig== 5", "repeats the bytes of an earlier line"),
        (b"Iw== 1", "repeats the rank of an earlier line"),
        (b"\xff\xfe 5", "is not base64"),
    ],
    ids=repr,
)
def test_a_damaged_line_is_named_by_its_number(line: bytes, fault: str) -> None:
    with pytest.raises(SourceError, match=f"^line 3 of toy.tiktoken, .*{fault}") as caught:
        read_rank_lines(b"IQ== 0\nIg== 1\n" + line + b"\nJA== 9\n", "toy.tiktoken")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n\n"], ids=["empty", "blank"])
def test_a_file_without_lines_is_refused(content: bytes) -> None:
    with pytest.raises(SourceError, match="line 1 of toy"):
        read_rank_lines(content, "toy")


def test_a_long_line_is_shown_by_its_beginning() -> None:
    with pytest.raises(SourceError) as caught:
        read_rank_lines(b"x" * 10_000, "toy")
    assert len(str(caught.value)) < 300
