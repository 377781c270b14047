"""Parts drawn by the bytes of each document."""

from __future__ import annotations

import hashlib
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokagnostic.corpus import Document, partition
from tokagnostic.errors import CorpusError, InvalidValueError

DOCUMENTS = [Document(f"document {i}".encode(), f"d:{i}") for i in range(2_000)]
SHARES = {"held_out": 0.1, "target": 0.3, "rest": 0.6}


def test_every_document_is_in_one_part_and_in_order() -> None:
    numbers = [[int(document.source[2:]) for document in part] for part in partition(DOCUMENTS, SHARES).values()]
    assert sorted(chain(*numbers)) == list(range(len(DOCUMENTS)))
    assert all(part == sorted(part) for part in numbers)


def test_parts_have_about_their_shares() -> None:
    parts = partition(DOCUMENTS, SHARES)
    # Four standard deviations of a binomial draw.
    for name, share in SHARES.items():
        assert abs(len(parts[name]) - 2_000 * share) < 4 * (2_000 * share * (1 - share)) ** 0.5


def test_the_draw_is_a_hash_of_seed_names_and_bytes() -> None:
    parts = partition(DOCUMENTS, {"a": 0.5, "b": 0.5}, seed=7)
    first_bits = [hashlib.sha256(b"7\0a\0b\0" + document.data).digest()[0] >> 7 for document in DOCUMENTS]
    assert parts["b"] == [document for document, bit in zip(DOCUMENTS, first_bits, strict=True) if bit]


@given(order=st.permutations(DOCUMENTS[:20]))
def test_a_document_falls_the_same_way_whatever_stands_beside_it(order: list[Document]) -> None:
    alone = {name for document in order[:1] for name, part in partition([document], SHARES).items() if part}
    among = {name for name, part in partition(order, SHARES).items() if order[0] in part}
    assert alone == among


def test_equal_bytes_fall_into_one_part() -> None:
    twins = [Document(document.data, "copy") for document in DOCUMENTS[:50]]
    parts = partition([*DOCUMENTS[:50], *twins], SHARES)
    assert all(len({document.data for document in part}) * 2 == len(part) for part in parts.values())


def test_a_part_dealt_again_under_other_names_is_dealt_afresh() -> None:
    rest = partition(DOCUMENTS, {"held_out": 0.5, "rest": 0.5})["rest"]
    third = partition(rest, {"third": 1 / 3})["third"]
    assert 0.25 * len(rest) < len(third) < 0.42 * len(rest)


def test_another_seed_deals_otherwise() -> None:
    assert partition(DOCUMENTS, SHARES, seed=0) != partition(DOCUMENTS, SHARES, seed=1)


@pytest.mark.parametrize("shares", [{}, {"a": -0.1}, {"a": 0.7, "b": 0.7}, {"a": float("nan")}], ids=str)
def test_shares_that_cannot_be_dealt_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError):
        partition(DOCUMENTS, shares)


def test_bytes_that_are_no_text_say_so() -> None:
    with pytest.raises(CorpusError, match=r"document x:3 breaks UTF-8 at its byte 1"):
        _ = Document(b"a\xff", "x:3").text
