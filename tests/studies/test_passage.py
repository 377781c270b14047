from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from naive import key_of
from tokenizers import AddedToken

from tokagnostic.corpus import Document
from tokagnostic.errors import CorpusError, InvalidValueError
from tokagnostic.evaluation.overlap import ngram_overlap
from tokagnostic.hashing.windows_numba import window_keys as original
from tokagnostic.studies.passage import MAX_CANDIDATES, choose_document, passage
from tokagnostic.tokens.encoder import TextEncoder

FAMILIES = ("byte_level", "metaspace", "unigram", "wordpiece")
SENTENCE = "She said that the international bridge was closed, and that nobody knew when it would open."
TEXT = f"{SENTENCE}\nThe river  runs:\tCafés, naïve; 日本語 \U0001f600!\r\nThe internal bridge was closed.\n{SENTENCE}"
SIDES = (("target", "reference"), ("reference", "target"))


@pytest.fixture(scope="module")
def encoders(toy_tokenizers) -> dict[str, TextEncoder]:
    return {family: TextEncoder.from_tokenizer(tokenizer, family) for family, tokenizer in toy_tokenizers.items()}


def pieces_of(encoder: TextEncoder, text: str) -> list[bytes]:
    """The bytes of each position, by the rule as it is written: one leading space is not the text's."""
    prefix = encoder.token_bytes.prefix
    pieces, at_start = [], prefix != "none"
    for v in encoder.encode(text).tolist():
        token = encoder.token_bytes[v] or b""
        pieces.append(token.removeprefix(b" ") if at_start else token)
        at_start = not token and (at_start or prefix == "always")
    return pieces


def windows_of(encoder: TextEncoder, text: str, max_order: int) -> dict[tuple[int, int], bytes]:
    """The bytes of the window of each order that ends at each token."""
    pieces = pieces_of(encoder, text)
    return {
        (t, n): b"".join(pieces[t + 1 - n : t + 1])
        for t in range(len(pieces))
        for n in range(1, max_order + 1)
        if n <= t + 1 and all(pieces[t + 1 - n : t + 1])
    }


def assert_is_what_a_slow_search_says(
    text: str, target: TextEncoder, reference: TextEncoder, max_order: int = 4
) -> None:
    result = passage(text, target, reference, max_order, max_bytes=80)
    json.dumps(result, allow_nan=False)
    encoders = {"target": target, "reference": reference}
    for side, other in SIDES:
        own, others = (windows_of(encoders[name], text, max_order) for name in (side, other))
        tokens, windows = result[side]["tokens"], result[side]["windows"]
        assert len(tokens) == len(windows)
        assert [token["id"] for token in tokens] == encoders[side].encode(text).tolist()[: len(tokens)]
        assert [bytes.fromhex(token["hex"]) for token in tokens] == pieces_of(encoders[side], text)[: len(tokens)]
        for t, at_token in enumerate(windows):
            for n, window in enumerate(at_token, 1):
                assert (window is not None) == ((t, n) in own)
                if window is None:
                    continue
                assert window["key"] == str(key_of(own[t, n]))
                orders = {m for (_, m), data in others.items() if data == own[t, n]}
                assert {match["order"] for match in window["found"]} == orders
                for match in window["found"]:
                    assert others[match["last"], match["order"]] == own[t, n]


@pytest.mark.parametrize("reference", FAMILIES)
@pytest.mark.parametrize("target", FAMILIES)
def test_every_window_has_the_bytes_the_key_and_the_matches_of_a_slow_search(encoders, target, reference) -> None:
    assert_is_what_a_slow_search_says(TEXT, encoders[target], encoders[reference])


@given(text=st.text(max_size=60))
@example(text=" ")
@example(text="  a")
@settings(max_examples=40, deadline=None)
def test_so_it_is_for_any_text(encoders, text) -> None:
    assert_is_what_a_slow_search_says(text, encoders["metaspace"], encoders["byte_level"])
    assert_is_what_a_slow_search_says(text, encoders["wordpiece"], encoders["unigram"])


def test_the_shares_of_a_passage_that_is_its_whole_document_are_the_overlap(encoders) -> None:
    target, reference = encoders["metaspace"], encoders["byte_level"]
    result = passage(TEXT, target, reference, 5, max_bytes=len(TEXT.encode()))
    assert result["end"] == result["num_bytes"] == len(TEXT.encode())
    shares = ngram_overlap([TEXT], target, reference, 5).weighted
    for n in range(5):
        windows = [at_token[n] for at_token in result["target"]["windows"] if at_token[n] is not None]
        assert len(windows) == shares.num_windows[n]
        assert 100 * sum(bool(window["found"]) for window in windows) / len(windows) == pytest.approx(
            shares.any_order[n]
        )


def test_chunks_divide_both_sides_where_both_cut(encoders) -> None:
    result = passage(TEXT, encoders["metaspace"], encoders["byte_level"], max_bytes=200)
    last_ends = (0, 0)
    for t, after_t, r, after_r in result["chunks"]:
        assert (t, r) == last_ends and after_t > t and after_r > r
        last_ends = (after_t, after_r)
        spelled = [
            b"".join(bytes.fromhex(token["hex"]) for token in result[side]["tokens"][a:b])
            for side, a, b in (("target", t, after_t), ("reference", r, after_r))
        ]
        assert spelled[0] == spelled[1]
        inner = [
            {token["end"] for token in result[side]["tokens"][a : b - 1]}
            for side, a, b in (("target", t, after_t), ("reference", r, after_r))
        ]
        assert not inner[0] & inner[1]
    assert last_ends == (len(result["target"]["tokens"]), len(result["reference"]["tokens"]))
    assert 100 < result["end"] <= 200


def test_a_tokenizer_that_drops_spaces_is_still_laid_beside_the_other(encoders) -> None:
    result = passage("The river runs through the old town", encoders["wordpiece"], encoders["byte_level"], 3)
    assert not result["target"]["exact"] and result["reference"]["exact"]
    assert result["end"] == 35
    assert len(result["chunks"]) >= 6
    for t, after_t, r, after_r in result["chunks"]:
        words = [
            b"".join(bytes.fromhex(token["hex"]) for token in result[side]["tokens"][a:b])
            for side, a, b in (("target", t, after_t), ("reference", r, after_r))
        ]
        assert words[0].lower().strip() == words[1].lower().strip()


def test_a_miss_says_how_the_other_cuts_its_place(byte_toy) -> None:
    target = TextEncoder.from_tokenizer(byte_toy((("a", "b"), ("c", "d"))), "pairs")
    reference = TextEncoder.from_tokenizer(byte_toy((("b", "c"),)), "middle")
    windows = passage("abcdab", target, reference, 2)["target"]["windows"]
    ab, cd = windows[0][0], windows[1][0]
    # a bc d a b
    assert [match["order"] for match in ab["found"]] == [2]
    assert (ab["found"][0]["last"], ab["found"][0]["here"], ab["found"][0]["begin"]) == (4, False, 4)
    assert (ab["begin_cut"], ab["end_cut"], ab["other_tokens"]) == (True, False, None)
    assert cd["found"] == [] and (cd["begin_cut"], cd["end_cut"]) == (False, True)
    abcd = windows[1][1]
    assert abcd["found"] == [] and (abcd["begin_cut"], abcd["end_cut"], abcd["other_tokens"]) == (True, True, 3)


def test_the_nearest_of_many_places_is_told_and_the_same_place_first(byte_toy) -> None:
    tokenizer = byte_toy()
    windows = passage("a" * 3000, tokenizer, tokenizer, 3)["target"]["windows"]
    for t, at_token in enumerate(windows):
        for n, window in enumerate(at_token[: t + 1]):
            assert [(match["order"], match["last"], match["here"]) for match in window["found"]] == [(n + 1, t, True)]


def test_equal_keys_of_other_bytes_are_no_match(encoders, monkeypatch) -> None:
    """E-13: keys find candidates, bytes decide."""
    monkeypatch.setattr(
        "tokagnostic.hashing.hasher.window_keys",
        lambda ids, starts, cache, max_order: np.minimum(original(ids, starts, cache, max_order), 7),
    )
    text = SENTENCE
    result = passage(text, encoders["metaspace"], encoders["byte_level"], 3, max_bytes=40)
    others = windows_of(encoders["byte_level"], text, 3)
    own = windows_of(encoders["metaspace"], text, 3)
    for t, at_token in enumerate(result["target"]["windows"]):
        for n, window in enumerate(at_token, 1):
            if window is not None:
                assert {match["order"] for match in window["found"]} == {
                    m for (_, m), data in others.items() if data == own[t, n]
                }


@pytest.mark.parametrize(
    "text", ["", " ", "\0", "<|endoftext|></script>", "\ufeffx\r\n\u2028", "日本" * 500, " " * 5000, "e\u0301" * 20]
)
def test_degenerate_texts(encoders, text) -> None:
    for target, reference in (("metaspace", "byte_level"), ("unigram", "wordpiece")):
        result = passage(text, encoders[target], encoders[reference], 3, max_bytes=60)
        assert result["end"] <= 62
        for side in ("target", "reference"):
            assert len(result[side]["tokens"]) <= 61


def test_tokens_without_bytes_have_no_window_and_their_own_spelling(encoders) -> None:
    result = passage("river ☃ town", encoders["unigram"], encoders["byte_level"], 2)
    bare = [t for t, token in enumerate(result["target"]["tokens"]) if not token["hex"]]
    assert bare and all(result["target"]["windows"][t] == [None, None] for t in bare)
    assert result["target"]["tokens"][bare[0]]["spelling"] == "<unk>"


def test_where_a_space_was_taken_is_told(encoders, byte_toy) -> None:
    tokens = passage("town", encoders["metaspace"], byte_toy(), 2)["target"]["tokens"]
    assert tokens[0]["took_space"] and not any(token["took_space"] for token in tokens[1:])
    assert b"".join(bytes.fromhex(token["hex"]) for token in tokens) == b"town"


def test_sides_that_never_cut_at_one_place_are_shown_all_the_same(byte_toy) -> None:
    odd = byte_toy((("a", "a"),), added=(AddedToken("b", special=False),))
    text = "b" + "a" * 400
    result = passage(text, odd, byte_toy((("b", "a"), ("a", "a"))), 2, max_bytes=100)
    assert result["chunks"][-1][1] >= 49 and 95 <= result["end"] <= 101


class TestChoice:
    def test_is_the_first_document_that_fills_the_passage(self) -> None:
        assert choose_document(["a", "bb", "c" * 9, "d" * 20], max_bytes=9).data == b"c" * 9

    def test_is_the_longest_where_none_does_and_reads_no_endless_text(self) -> None:
        def endless():
            for _ in range(MAX_CANDIDATES):
                yield "ab"
            raise AssertionError("read too far")

        assert choose_document(["a", "bb", "c"]).data == b"bb"
        assert choose_document(endless()).data == b"ab"

    def test_needs_a_document(self) -> None:
        with pytest.raises(CorpusError, match="no document"):
            choose_document([])


def test_refusals(byte_toy) -> None:
    with pytest.raises(InvalidValueError, match="max_order"):
        passage("a", byte_toy(), byte_toy(), 0)
    with pytest.raises(CorpusError, match="UTF-8"):
        passage(Document(b"\xff", "broken"), byte_toy(), byte_toy())
