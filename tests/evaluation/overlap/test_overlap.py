from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from tests.evaluation.naive_overlap import naive_mean, naive_overlap
from tests.evaluation.overlap_tokenizers import TEXT, byte_level, metaspace, trained_byte_level, word_piece
from tokagnostic.corpus import Document
from tokagnostic.errors import CorpusError, InvalidValueError
from tokagnostic.evaluation.overlap import Overlap, OverlapCounter, count_overlap, ngram_overlap
from tokagnostic.evaluation.overlap import table as overlap_table
from tokagnostic.hashing.windows_numba import window_keys as original
from tokagnostic.tokens.encoder import TextEncoder

FAMILIES = ["byte-level", "metaspace", "pairs", "word-piece"]


@pytest.fixture(scope="module")
def encoders() -> dict[str, TextEncoder]:
    made = {
        "byte-level": trained_byte_level(330),
        "metaspace": metaspace(340),
        "pairs": byte_level([(b"i", b"n"), (b" ", b" "), (b"in", b"t"), (b"e", b"r")]),
        "word-piece": word_piece(),
    }
    return {name: TextEncoder.from_tokenizer(tokenizer, name) for name, tokenizer in made.items()}


def assert_equals_naive(result: Overlap, texts: list[str], target: TextEncoder, reference: TextEncoder) -> None:
    for unique, shares in ((True, result.unique), (False, result.weighted)):
        assert shares.to_dict() == naive_overlap(texts, target, reference, result.max_order, unique=unique)


class TestCounts:
    @pytest.mark.parametrize("reference", FAMILIES)
    @pytest.mark.parametrize("target", FAMILIES)
    def test_equal_those_of_python_sets(self, encoders, target, reference) -> None:
        result = ngram_overlap(TEXT, encoders[target], encoders[reference], max_order=5)
        assert_equals_naive(result, TEXT, encoders[target], encoders[reference])
        assert result.key_collisions == 0

    @given(st.lists(st.text(max_size=40), min_size=1, max_size=5), st.integers(1, 9))
    @settings(max_examples=60, deadline=None)
    def test_equal_those_of_python_sets_for_any_text(self, encoders, texts, max_order) -> None:
        texts = [*texts, "a"]
        result = ngram_overlap(texts, encoders["metaspace"], encoders["byte-level"], max_order)
        assert_equals_naive(result, texts, encoders["metaspace"], encoders["byte-level"])

    def test_hold_when_every_window_has_the_same_key(self, encoders, monkeypatch) -> None:
        """E-13: equal keys are not equal bytes, and chance collisions do not inflate the overlap."""
        monkeypatch.setattr(
            "tokagnostic.hashing.hasher.window_keys",
            lambda ids, starts, cache, max_order: np.minimum(original(ids, starts, cache, max_order), 7),
        )
        result = ngram_overlap(TEXT, encoders["metaspace"], encoders["byte-level"], 4)
        assert_equals_naive(result, TEXT, encoders["metaspace"], encoders["byte-level"])
        assert result.key_collisions > 0

    @pytest.mark.parametrize("table_windows", [1, 3, 64, 1000])
    def test_do_not_depend_on_the_number_of_passes(self, encoders, monkeypatch, table_windows) -> None:
        whole = ngram_overlap(TEXT, encoders["metaspace"], encoders["byte-level"])
        monkeypatch.setattr(overlap_table, "TABLE_WINDOWS", table_windows)
        assert ngram_overlap(TEXT, encoders["metaspace"], encoders["byte-level"]).to_dict() == whole.to_dict()

    @pytest.mark.parametrize("batch_documents", [1, 2, 3])
    def test_do_not_depend_on_the_batches(self, encoders, monkeypatch, batch_documents) -> None:
        whole = ngram_overlap(TEXT, encoders["metaspace"], encoders["byte-level"])
        monkeypatch.setattr("tokagnostic.evaluation.windows.BATCH_DOCUMENTS", batch_documents)
        assert ngram_overlap(TEXT, encoders["metaspace"], encoders["byte-level"]).to_dict() == whole.to_dict()

    @pytest.mark.parametrize("threads", [1, 2, 3, 50])
    def test_do_not_depend_on_the_number_of_threads(self, encoders, threads) -> None:
        texts = [*TEXT, "", *TEXT, "a"]
        pair = [encoders["metaspace"]], [encoders["byte-level"]]
        whole = count_overlap(texts, *pair)[0][0].to_dict()
        counter = OverlapCounter(*pair, threads=threads)
        counts = counter.none()
        counter.add(counts, [Document(text.encode(), "here") for text in texts], 0)
        assert counts[0][0].to_dict() == whole

    def test_are_the_same_for_documents_strings_and_bytes(self, encoders) -> None:
        kinds = [TEXT, [text.encode() for text in TEXT], [Document(text.encode(), "here") for text in TEXT]]
        first, *others = [ngram_overlap(kind, encoders["pairs"], encoders["metaspace"]).to_dict() for kind in kinds]
        assert all(other["unique"] == first["unique"] for other in others)


class TestShares:
    @pytest.mark.parametrize("name", FAMILIES)
    def test_of_a_tokenizer_with_itself_are_all_100_in_the_same_order(self, encoders, name) -> None:
        result = ngram_overlap(TEXT, encoders[name], encoders[name], max_order=2)
        for shares in (result.unique, result.weighted, result.mean_unique, result.mean_weighted):
            assert shares.same_order.tolist() == [100.0, 100.0]
            assert shares.any_order.tolist() == [100.0, 100.0]

    def test_of_bytes_found_under_another_number_of_tokens_count_in_any_order_only(self) -> None:
        whole = byte_level([(b"i", b"n"), (b"in", b"t")])
        result = ngram_overlap(["int"], whole, byte_level(), max_order=3)
        assert result.unique.any_order[0] == 100.0
        assert result.unique.matrix[0].tolist() == [0.0, 0.0, 100.0]
        assert result.to_dict()["unique"]["same_order"] == [0.0, None, None]

    def test_weighted_count_every_occurrence_and_unique_each_byte_string_once(self) -> None:
        pairs = byte_level([(b"a", b"b")])
        result = ngram_overlap(["ababab.a"], pairs, byte_level(), max_order=1)
        assert result.unique.num_windows.tolist() == [3]
        assert result.weighted.num_windows.tolist() == [5]
        assert result.unique.any_order.tolist() == [100 * 2 / 3]
        assert result.weighted.any_order.tolist() == [100 * 2 / 5]

    def test_pool_hits_over_windows_while_the_mean_weighs_documents_alike(self) -> None:
        pairs = byte_level([(b"a", b"b")])
        result = ngram_overlap(["ab", "xyz"], pairs, byte_level(), max_order=1)
        assert result.unique.any_order.tolist() == [75.0]
        assert result.mean_unique.any_order.tolist() == [50.0]

    @pytest.mark.parametrize("unique", [True, False], ids=["unique", "weighted"])
    def test_mean_over_documents_leaves_out_those_without_a_window(self, encoders, unique) -> None:
        texts = [*TEXT, "", "in"]
        result = ngram_overlap(texts, encoders["byte-level"], encoders["metaspace"], 4)
        shares = result.mean_unique if unique else result.mean_weighted
        expected = naive_mean(texts, encoders["byte-level"], encoders["metaspace"], 4, unique=unique)
        assert shares.any_order.tolist() == pytest.approx(expected, rel=1e-12)

    def test_compare_each_document_with_itself_alone(self) -> None:
        pairs = byte_level([(b"a", b"b")])
        assert ngram_overlap(["ab", "a b"], pairs, pairs, 1).unique.any_order.tolist() == [100.0]
        never_alone = ngram_overlap(["ab", "a"], byte_level(), pairs, 1)
        assert never_alone.unique.num_windows.tolist() == [3]
        assert never_alone.unique.any_order.tolist() == [100 / 3]


class TestPitfalls:
    EMOJI = "😀"  # F0 9F 98 80
    HALVES = ((b"\xf0", b"\x9f"), (b"\x98", b"\x80"))
    THIRDS = ((b"\x9f", b"\x98"),)

    @pytest.mark.parametrize("bos", [False, True], ids=["plain", "bos on one side"])
    def test_an_emoji_split_differently_is_matched_by_its_bytes_and_by_direction(self, bos) -> None:
        """E-13: halves against single, double, single; by hand, in both directions."""
        halves, thirds = byte_level(self.HALVES, bos=bos), byte_level(self.THIRDS)
        there = ngram_overlap([self.EMOJI], halves, thirds, max_order=3)
        back = ngram_overlap([self.EMOJI], thirds, halves, max_order=3)
        # halves: F09F 9880 | F09F9880; thirds: F0 9F98 80 | F09F98 9F9880 | F09F9880
        assert there.unique.num_windows.tolist() == [2, 1, 0]
        assert there.unique.to_dict()["any_order"] == [0.0, 100.0, None]
        assert there.unique.matrix[1].tolist() == [0.0, 0.0, 100.0]
        assert back.unique.num_windows.tolist() == [3, 2, 1]
        assert back.unique.to_dict()["any_order"] == [0.0, 0.0, 100.0]
        assert back.unique.matrix[2].tolist() == [0.0, 100.0, 0.0]

    def test_a_text_that_nfc_shortens_is_reported_and_misses(self) -> None:
        """T-14: the source has 6 bytes, the tokens of the tokenizer with NFC carry 5."""
        composed = TextEncoder.from_tokenizer(byte_level(normalizer=normalizers.NFC()), "composed")
        plain = TextEncoder.from_tokenizer(byte_level(), "plain")
        result = ngram_overlap(["plain", "cafe\u0301"], composed, plain, max_order=1)
        assert result.num_bytes == 11
        assert (result.target.num_bytes, result.reference.num_bytes) == (10, 11)
        assert (result.target.lossy_documents, result.reference.lossy_documents) == (1, 0)
        assert result.target.lossy_sources == ["document 1"]
        # plain: p l a i n; cafe: c a f and two bytes that only the composed letter has
        assert result.unique.any_order.tolist() == [80.0]
        assert "composed: the tokens of 1 documents do not join back" in result.to_text()

    def test_word_pieces_bring_no_space_that_the_source_does_not_have(self) -> None:
        """T-16: `(cafe)` against bytes; a decoded `( cafe )` would miss."""
        pieces = TextEncoder.from_tokenizer(word_piece(), "pieces")
        result = ngram_overlap(["(cafe)"], pieces, byte_level(), max_order=6)
        assert result.unique.to_dict()["any_order"][:3] == [100.0, 100.0, 100.0]
        assert result.target.lossy_documents == 0
        lossy = ngram_overlap(["Cafés"], pieces, byte_level(), max_order=6)
        assert (lossy.target.num_bytes, lossy.target.lossy_documents, lossy.reference.lossy_documents) == (5, 1, 0)

    def test_an_invented_leading_space_is_taken_out_on_both_sides(self, encoders) -> None:
        result = ngram_overlap(["in"], encoders["metaspace"], encoders["pairs"], max_order=2)
        assert result.unique.any_order[0] == 100.0
        assert result.target.num_bytes == 2
        assert result.to_dict()["prefix"] == "strip"

    def test_only_the_first_lossy_sources_are_named_and_all_are_counted(self) -> None:
        composed = byte_level(normalizer=normalizers.NFC())
        result = ngram_overlap(["e\u0301"] * 7, composed, byte_level(), max_order=1)
        assert result.target.lossy_documents == 7
        assert result.target.lossy_sources == [f"document {i}" for i in range(5)]

    @pytest.mark.parametrize("text", ["\0\0\0", "a" * 1001, "\ufeff\r\n\u2028"], ids=["NUL", "runs", "separators"])
    def test_degenerate_text_is_counted_like_any_other(self, encoders, text) -> None:
        result = ngram_overlap([text], encoders["metaspace"], encoders["byte-level"], 3)
        assert_equals_naive(result, [text], encoders["metaspace"], encoders["byte-level"])


class TestResult:
    def test_is_plain_json_with_every_field_of_the_command(self, encoders) -> None:
        values = json.loads(json.dumps(ngram_overlap(TEXT, encoders["byte-level"], encoders["pairs"], 7).to_dict()))
        assert (values["target"], values["reference"]) == ("byte-level", "pairs")
        assert values["orders"] == [1, 2, 3, 4, 5, 6, 7]
        assert values["num_documents"] == len(TEXT)
        for counting in ("unique", "weighted"):
            shares = values[counting]
            assert [len(shares["any_order"]), len(shares["same_order"]), len(shares["matrix"])] == [7, 7, 7]
            assert [len(row) for row in shares["matrix"]] == [7] * 7

    def test_is_a_table_with_a_dash_where_there_is_no_window(self) -> None:
        lines = ngram_overlap(["ab"], byte_level(), byte_level(), 3).to_text().splitlines()
        assert lines[2].split() == ["1", "2", "100.0", "100.0", "100.0", "100.0"]
        assert lines[4].split() == ["3", "0", "-", "-", "-", "-"]


class TestRefusals:
    @pytest.mark.parametrize("documents", [[], [""], ["", b""]], ids=["none", "empty", "two empty"])
    def test_a_text_without_windows_is_an_error(self, documents) -> None:
        with pytest.raises(CorpusError):
            ngram_overlap(documents, byte_level(), byte_level())

    @pytest.mark.parametrize("document", [b"\xff", "\ud800"], ids=["broken bytes", "lone surrogate"])
    def test_a_text_that_is_not_utf8_is_named(self, document) -> None:
        with pytest.raises(CorpusError, match="document 1"):
            ngram_overlap(["fine", document], byte_level(), byte_level())

    @pytest.mark.parametrize("max_order", [0, -1, 32, 2.0, True], ids=str)
    def test_an_order_that_is_no_whole_number_in_range_is_an_error(self, max_order) -> None:
        with pytest.raises(InvalidValueError, match="max_order"):
            ngram_overlap(["text"], byte_level(), byte_level(), max_order)
