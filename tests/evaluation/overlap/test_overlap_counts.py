from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluation.naive_overlap import naive_counts
from tests.evaluation.overlap_tokenizers import TEXT, byte_level, metaspace, trained_byte_level
from tokagnostic.errors import CorpusError, InvalidValueError
from tokagnostic.evaluation.overlap import OverlapCounter, count_overlap
from tokagnostic.evaluation.overlap.counts import ANY_ORDER, MATRIX, UNIQUE, WINDOWS, OverlapCounts
from tokagnostic.tokens.encoder import TextEncoder

N = 3
TEXTS = [*TEXT, "", "in", *TEXT[:2], "\u65e5"]


@pytest.fixture(scope="module")
def pair() -> tuple[TextEncoder, TextEncoder]:
    return TextEncoder.from_tokenizer(metaspace(340), "mark"), TextEncoder.from_tokenizer(trained_byte_level(330), "b")


def counts_of(texts, pair, first_document=0, **settings) -> OverlapCounts:
    return count_overlap(texts, [pair[0]], [pair[1]], N, first_document=first_document, **settings)[0][0]


class TestMerging:
    @given(st.integers(1, len(TEXTS) - 2), st.integers(1, len(TEXTS) - 1))
    @settings(max_examples=15, deadline=None)
    def test_parts_in_any_grouping_is_the_whole_to_the_last_bit(self, pair, first, second) -> None:
        first, second = sorted((first, second))
        parts = [
            counts_of(TEXTS[begin:end], pair, begin)
            for begin, end in ((0, first), (first, second), (second, len(TEXTS)))
            if begin < end
        ]
        left = parts[0]
        for part in parts[1:]:
            left = left.merge(part)
        right = parts[-1]
        for part in reversed(parts[:-1]):
            right = part.merge(right)
        whole = counts_of(TEXTS, pair)
        for counts in (left, right):
            assert counts.totals.tolist() == whole.totals.tolist()
            assert counts.finish().to_dict() | {"tokenizers": 0} == whole.finish().to_dict() | {"tokenizers": 0}

    @pytest.mark.parametrize("other", ["seed", "resamples", "order", "tokenizer"])
    def test_counts_of_another_measurement_is_refused(self, pair, other) -> None:
        own = counts_of(TEXTS, pair)
        its = {
            "seed": lambda: counts_of(TEXTS, pair, seed=1),
            "resamples": lambda: counts_of(TEXTS, pair, resamples=3),
            "order": lambda: count_overlap(TEXTS, [pair[0]], [pair[1]], N + 1)[0][0],
            "tokenizer": lambda: counts_of(TEXTS, (pair[0], byte_level())),
        }[other]()
        with pytest.raises(InvalidValueError, match="one pair of tokenizers"):
            own.merge(its)

    def test_none_changes_nothing(self, pair) -> None:
        counter = OverlapCounter([pair[0]], [pair[1]], N)
        own = counts_of(TEXTS, pair)
        assert counter.none()[0][0].merge(own).to_dict() == own.to_dict()


class TestAsJson:
    def test_counts_come_back_equal(self, pair) -> None:
        counts = counts_of(TEXTS, pair, resamples=5)
        again = OverlapCounts.from_dict(json.loads(json.dumps(counts.to_dict())))
        assert again.to_dict() == counts.to_dict()
        assert again.finish().to_dict() == counts.finish().to_dict()

    def test_counts_without_resamples_come_back_too(self, pair) -> None:
        counts = counts_of(TEXTS, pair, resamples=0)
        assert OverlapCounts.from_dict(counts.to_dict()).to_dict() == counts.to_dict()

    @pytest.mark.parametrize(
        "change",
        [
            {"version": 2},
            {"max_order": 40},
            {"max_order": "3"},
            {"num_bytes": 1.5},
            {"totals": [[1]]},
            {"totals": None},
            {"counted": "no"},
            {"target": {"name": "x"}},
            {"resamples": 4},
            {"seed": None},
        ],
        ids=str,
    )
    def test_anything_else_is_refused(self, pair, change) -> None:
        with pytest.raises(InvalidValueError):
            OverlapCounts.from_dict(counts_of(TEXTS, pair, resamples=2).to_dict() | change)

    @pytest.mark.parametrize("values", [None, [], "text", {}], ids=str)
    def test_no_object_at_all_is_refused(self, values) -> None:
        with pytest.raises(InvalidValueError):
            OverlapCounts.from_dict(values)


class TestShares:
    def test_of_all_orders_together_weigh_every_window_alike(self, pair) -> None:
        found = windows = 0
        for counted, any_order, _ in naive_counts(TEXTS, *pair, N, unique=True):
            found, windows = found + sum(any_order), windows + sum(counted)
        assert counts_of(TEXTS, pair).finish().unique.all_orders == 100.0 * found / windows

    def test_intervals_are_those_of_the_resampled_documents(self, pair) -> None:
        counts = counts_of(TEXTS, pair, resamples=200, seed=4)
        bounds = counts.finish().to_dict()["intervals"]
        assert (bounds["level"], bounds["resamples"], bounds["seed"]) == (95, 200, 4)
        each = [counts_of([text], pair, d, resamples=200, seed=4).resampled for d, text in enumerate(TEXTS)]
        assert counts.resampled.tolist() == sum(each).tolist()
        result = counts.finish()
        for n in range(N):
            low, high = bounds["unique"]["any_order"][n]
            assert low <= result.unique.any_order[n] <= high

    @pytest.mark.parametrize("texts", [["one"], ["one", ""]], ids=["one", "one and an empty one"])
    def test_of_one_document_have_no_interval_and_say_why(self, pair, texts) -> None:
        values = counts_of(texts, pair).finish().to_dict()
        assert values["intervals"] is None
        assert "say nothing of how documents differ" in values["no_intervals"]
        assert values["empty_documents"] == len(texts) - 1
        assert "no intervals: 1 documents" in counts_of(texts, pair).finish().to_text()

    def test_a_mean_is_exact_whatever_the_order_of_documents(self, pair) -> None:
        texts = [f"{text} {i}" for i, text in enumerate(TEXTS * 3)]
        forwards, backwards = counts_of(texts, pair, resamples=0), counts_of(texts[::-1], pair, resamples=0)
        assert forwards.share_sums.tolist() == backwards.share_sums.tolist()
        counts = naive_counts(texts, *pair, N, unique=True)
        shares = [100 * any_order[0] / windows[0] for windows, any_order, _ in counts if windows[0]]
        assert forwards.finish().mean_unique.any_order[0] == pytest.approx(sum(shares) / len(shares), rel=1e-14)

    def test_columns_are_as_named(self, pair) -> None:
        totals = counts_of(TEXTS, pair).totals
        assert (totals[UNIQUE, :, ANY_ORDER] <= totals[UNIQUE, :, MATRIX : MATRIX + N].sum(axis=1)).all()
        assert (totals[UNIQUE, :, ANY_ORDER] <= totals[UNIQUE, :, WINDOWS]).all()
        assert np.all(totals >= 0)


class TestSettings:
    @pytest.mark.parametrize(
        "settings", [{"resamples": -1}, {"seed": -1}, {"seed": 2**63}, {"targets": []}, {"references": []}], ids=str
    )
    def test_that_cannot_be_used_are_refused(self, pair, settings) -> None:
        sides = {"targets": [pair[0]], "references": [pair[1]]}
        with pytest.raises(InvalidValueError):
            OverlapCounter(**(sides | settings))

    def test_a_text_without_windows_is_an_error_at_the_end_alone(self, pair) -> None:
        counts = counts_of(["", ""], pair)
        assert counts.empty_documents == 2
        with pytest.raises(CorpusError, match="makes no window"):
            counts.finish()
