from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from tests.evaluation.naive_causes import naive_align, naive_causes
from tests.evaluation.overlap_tokenizers import (
    TEXT,
    byte_level,
    lower_unigram,
    metaspace,
    trained_byte_level,
    word_piece,
)
from tokagnostic.evaluation.overlap import count_overlap
from tokagnostic.evaluation.overlap.alignment import align
from tokagnostic.evaluation.overlap.counts import ANY_ORDER, MATRIX, WINDOWS
from tokagnostic.evaluation.overlap.shares import CAUSES
from tokagnostic.tokens.encoder import TextEncoder

N = 3
ODD_TEXT = [
    *TEXT,
    "",
    " a leading space, and Ünïcode CAPITALS",
    "   three  spaces\n\n\tand tabs ",
    "e\u0301 e\u0301tude re\u0301sume\u0301 ﬁne ①②",
    "日本語 internal 日本語internal日 bytes",
    "THE INTERNAL WINDOW of the internal window",
    "\ufeff\r\n\u2028 bytes \0 of <unk> <s> [UNK]",
    " ",
    "in\u00a0in in in in ininin",
]


@pytest.fixture(scope="module")
def encoders() -> dict[str, TextEncoder]:
    made = {
        "byte-level": trained_byte_level(330),
        "metaspace": metaspace(340),
        "pairs": byte_level([(b"i", b"n"), (b" ", b" "), (b"in", b"t"), (b"e", b"r")]),
        "nfc": byte_level([(b" ", b"i")], normalizer=normalizers.NFC()),
        "folding": byte_level(
            [(b"t", b"h")], normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
        ),
        "word-piece": word_piece(),
        "unigram": lower_unigram(),
        "always": lower_unigram("always"),
    }
    return {name: TextEncoder.from_tokenizer(tokenizer, name) for name, tokenizer in made.items()}


NAMES = ["byte-level", "metaspace", "pairs", "nfc", "folding", "word-piece", "unigram", "always"]


def causes_of(texts, target, reference, max_order=N) -> list[dict[str, list[int]]]:
    totals = count_overlap(texts, [target], [reference], max_order, resamples=0)[0][0].totals
    return [dict(zip(CAUSES, counted[:, MATRIX + max_order :].T.tolist(), strict=True)) for counted in totals]


def assert_equal_naive(texts, target, reference, max_order=N) -> None:
    for unique, causes in zip((True, False), causes_of(texts, target, reference, max_order), strict=True):
        assert causes == naive_causes(texts, target, reference, max_order, unique=unique)


class TestCauses:
    @pytest.mark.parametrize("reference", NAMES)
    @pytest.mark.parametrize("target", NAMES)
    def test_equal_their_definition_in_plain_python(self, encoders, target, reference) -> None:
        assert_equal_naive(ODD_TEXT, encoders[target], encoders[reference])

    @given(
        st.lists(st.text("in terAÉé日\u0301\n ▁<unk>", max_size=24), min_size=1, max_size=3),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.integers(1, 4),
    )
    @settings(max_examples=150, deadline=None)
    def test_equal_their_definition_for_any_text(self, encoders, texts, target, reference, max_order) -> None:
        assert_equal_naive([*texts, "a"], encoders[target], encoders[reference], max_order)

    @pytest.mark.parametrize("reference", NAMES)
    @pytest.mark.parametrize("target", NAMES)
    def test_and_finds_make_all_windows(self, encoders, target, reference) -> None:
        totals = count_overlap(ODD_TEXT, [encoders[target]], [encoders[reference]], 7, resamples=0)[0][0].totals
        assert np.array_equal(totals[..., WINDOWS] - totals[..., ANY_ORDER], totals[..., MATRIX + 7 :].sum(axis=-1))

    def test_each_occur_somewhere(self, encoders) -> None:
        met = set()
        for target in NAMES:
            for reference in NAMES:
                for causes in causes_of(ODD_TEXT, encoders[target], encoders[reference]):
                    met |= {cause for cause, numbers in causes.items() if any(numbers)}
        assert met == set(CAUSES)


class TestByHand:
    def only(self, text, target, reference, order=1, max_order=1) -> set[str]:
        causes = causes_of([text], target, reference, max_order)[0]
        return {cause for cause, numbers in causes.items() if numbers[order - 1]}

    def test_a_border_inside_a_token_of_the_reference_is_a_cut_point(self) -> None:
        assert self.only("int", byte_level(), byte_level([(b"i", b"n")])) == {"cut_points"}

    def test_too_many_tokens_of_the_reference_are_told_from_other_borders(self) -> None:
        whole = byte_level([(b"i", b"n"), (b"in", b"t")])
        assert self.only("int", whole, byte_level(), 1, 2) == {"more_tokens"}
        assert self.only("int", whole, byte_level(), 1, 3) == set()

    def test_letters_that_nfc_composes_are_normalisation_on_either_side(self) -> None:
        composed, plain = byte_level(normalizer=normalizers.NFC()), byte_level()
        assert self.only("e\u0301", composed, plain) == {"normalisation"}
        assert self.only("e\u0301", plain, composed) == {"normalisation"}

    def test_text_that_the_reference_does_not_know_is_special(self, encoders) -> None:
        assert self.only("river 日本", byte_level(), encoders["unigram"]) >= {"special"}

    def test_a_space_of_the_text_that_was_taken_for_an_invented_one_is_prefix(self, encoders) -> None:
        """T-11: ` a` and `a` are one token under Metaspace, so the byte-level ` a` is missed for its prefix alone."""
        joined = byte_level([(b" ", b"a")])
        assert self.only(" a", joined, encoders["unigram"]) == {"prefix"}

    def test_an_unknown_id_behind_a_taken_space_makes_no_window_of_its_neighbours(self, encoders) -> None:
        """The reference has `t`, unknown, `h` at the start and ` the` in one token: it makes ` th` under no policy."""
        joined = byte_level([(b" ", b"t"), (b" t", b"h")])
        assert self.only("t\u65e5h the", joined, encoders["unigram"], 1, 3) >= {"cut_points"}
        assert "prefix" not in self.only("t\u65e5h the", joined, encoders["unigram"], 1, 3)


class TestAlignment:
    @given(st.binary(max_size=60), st.binary(max_size=60))
    @settings(max_examples=200, deadline=None)
    @example(b"abc", b"")
    def test_equals_the_rules_in_plain_python(self, text, source) -> None:
        self.check(text, source)

    @given(st.text("abAB \n", max_size=200), st.lists(st.tuples(st.integers(0, 200), st.text("aé日 ", max_size=3))))
    @settings(max_examples=200, deadline=None)
    def test_equals_the_rules_for_texts_that_were_edited(self, source, edits) -> None:
        text = source
        for place, new in edits:
            text = text[:place] + new + text[place + 2 :]
        self.check(text.lower().encode(), source.encode())

    def test_finds_back_after_a_long_loss(self) -> None:
        source = b"the beginning " + bytes(range(128, 256)) * 9 + b" and the end"
        text = b"the beginning  and the end"
        places = self.check(text, source)
        assert [place is not None for place in places].count(True) >= len(text) - 2

    def test_of_equal_bytes_is_the_identity(self) -> None:
        text = np.frombuffer(TEXT[2].encode(), dtype=np.uint8)
        assert align(text, text).tolist() == list(range(len(text)))

    @staticmethod
    def check(text: bytes, source: bytes) -> list[int | None]:
        found = align(np.frombuffer(text, dtype=np.uint8), np.frombuffer(source, dtype=np.uint8)).tolist()
        expected = naive_align(text, source)
        assert [None if place < 0 else place for place in found] == expected
        return expected
