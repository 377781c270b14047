"""A document's windows under both tokenizers, against a search of all windows."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from tests.evaluation.naive_overlap import naive_windows
from tokagnostic.hashing.polynomial import hash_bytes
from tokagnostic.studies.passage import choose_document, passage
from tokagnostic.tokens.encoder import TextEncoder

TEXT = "The river rose over the old stone bridge, and the river fell. caf\u00e9 \u65e5\u672c \U0001f600\n" * 3
PAIRS = [("byte_level", "metaspace"), ("metaspace", "unigram"), ("wordpiece", "byte_level")]


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
def test_a_window_is_found_where_the_other_makes_its_bytes(
    toy_tokenizers: dict[str, Tokenizer], names: tuple[str, str]
) -> None:
    encoders = [TextEncoder.from_tokenizer(toy_tokenizers[name], name) for name in names]
    shown = passage(TEXT, *encoders, max_order=3, max_bytes=90)
    made = [
        [set(naive_windows(encoder.token_bytes, encoder.encode(TEXT).tolist(), n)) for n in (1, 2, 3)]
        for encoder in encoders
    ]
    for side, other in (("target", made[1]), ("reference", made[0])):
        tokens = shown[side]["tokens"]
        for t, windows in enumerate(shown[side]["windows"]):
            for n, window in enumerate(windows, start=1):
                if window is not None:
                    data = bytes.fromhex("".join(token["hex"] for token in tokens[t + 1 - n : t + 1]))
                    assert window["key"] == str(hash_bytes(data))
                    assert [place["order"] for place in window["found"]] == [
                        m for m in (1, 2, 3) if data in other[m - 1]
                    ]


def test_chunks_divide_both_sides_without_a_gap(toy_tokenizers: dict[str, Tokenizer]) -> None:
    shown = passage(TEXT, toy_tokenizers["byte_level"], toy_tokenizers["metaspace"], max_bytes=90)
    ends = (0, 0)
    for t0, t1, r0, r1 in shown["chunks"]:
        assert (t0, r0) == ends
        ends = t1, r1
    assert ends == tuple(len(shown[side]["tokens"]) for side in ("target", "reference"))
    assert 0 < shown["end"] <= len(TEXT.encode())


def test_the_first_document_that_fills_a_passage_is_taken() -> None:
    assert choose_document(["a", "b" * 50, "c" * 100], max_bytes=40).data == b"b" * 50
    assert choose_document(["a", "bbb", "cc"], max_bytes=40).data == b"bbb"


@pytest.mark.parametrize("text", ["", " ", "a", "\x00"], ids=repr)
def test_nearly_nothing_is_a_passage_too(toy_tokenizers: dict[str, Tokenizer], text: str) -> None:
    shown = passage(text, toy_tokenizers["byte_level"], toy_tokenizers["metaspace"])
    assert shown["num_bytes"] == len(text)
