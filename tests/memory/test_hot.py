"""Hot rows, and visits of several trainings, against plain numbers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokagnostic.errors import InvalidValueError
from tokagnostic.memory import load_memory, save_memory
from tokagnostic.memory.file import verify_memory
from tokagnostic.memory.hot import hottest, keep_hot_rows
from tokagnostic.memory.quantised import CODE_DTYPES
from tokagnostic.memory.visits import SATURATED, merged_visits, window_visits

FORMATS = ("fp32", "bf16", "fp16", *CODE_DTYPES)
some_counts = st.lists(st.integers(0, 3) | st.integers(0, SATURATED), min_size=1, max_size=30)


def hottest_by_hand(counts: list[int], num_rows: int) -> list[bool]:
    order = sorted(range(len(counts)), key=lambda row: (-counts[row], row))[:num_rows]
    return [row in order and counts[row] > 0 for row in range(len(counts))]


@settings(deadline=None)
@given(counts=some_counts, num_rows=st.integers(1, 40))
def test_the_hottest_rows_are_those_with_most_visits_and_never_one_without(counts, num_rows):
    assert hottest(torch.tensor(counts), num_rows).tolist() == hottest_by_hand(counts, num_rows)


class TestKeepHotRows:
    @pytest.mark.parametrize("row_format", FORMATS)
    @pytest.mark.parametrize("num_rows", [1, 40, 10**6], ids=str)
    def test_a_kept_row_reads_as_before_and_any_other_as_nothing(self, trained, path, cache, ids, row_format, num_rows):
        save_memory(trained, path, row_format)
        whole = load_memory(path, cache)
        cut = load_memory(path, cache, mapped=False)
        result = keep_hot_rows(cut, num_rows)
        hot = [torch.tensor(hottest_by_hand(visits.counts.tolist(), num_rows)) for visits in whole.visits]
        assert not cut.is_as_in_file
        for layer in range(2):
            rows = whole.rows(whole.hasher(ids), layer)
            kept = (hot[layer][rows.clamp(min=0)] & (rows >= 0)).unsqueeze(-1)
            expected = torch.where(kept, whole(ids, layer=layer).view(*rows.shape, -1), 0)
            assert torch.equal(cut(ids, layer=layer), expected.flatten(-3))
            assert torch.equal(cut.visits[layer].counts, whole.visits[layer].counts * hot[layer])
        counts = [visits.counts for visits in whole.visits]
        assert (result.kept, result.rows) == (sum(int(h.sum()) for h in hot), sum(map(len, hot)))
        assert result.least_visits == min(int(c[h].min()) for c, h in zip(counts, hot, strict=True))
        served = sum(int(c[h].sum()) for c, h in zip(counts, hot, strict=True))
        assert result.share_of_lookups == served / sum(int(c.sum()) for c in counts)

    def test_what_is_left_is_a_memory_file_like_any(self, trained, path, cache, ids):
        """No reader has to know that rows were cut, and none believes that it has seen what they stood for."""
        keep_hot_rows(trained, 40)
        save_memory(trained, path)
        verify_memory(path)
        found = load_memory(path, cache)
        assert torch.equal(found(ids), trained.eval()(ids))
        rows = found.rows(found.hasher(ids))
        some_head_is_cut = (found.visits[0].counts[rows.clamp(min=0)] == 0).any(-1)
        assert some_head_is_cut.any()
        assert not window_visits(found.visits[0].counts, rows)[some_head_is_cut].any()

    @pytest.mark.parametrize("num_rows", [0, -1, 2.0, True])
    def test_a_number_that_is_none_is_refused(self, trained, num_rows):
        with pytest.raises(InvalidValueError, match="hot_rows"):
            keep_hot_rows(trained, num_rows)

    def test_a_memory_without_visits_is_refused(self, make_memory):
        with pytest.raises(InvalidValueError, match="ever written"):
            keep_hot_rows(make_memory(), 5)


class TestMergedVisits:
    @settings(deadline=None)
    @given(data=st.data(), base=some_counts, num_runs=st.integers(1, 4))
    def test_equal_the_start_once_and_what_each_run_added(self, data, base, num_runs):
        added = data.draw(
            st.lists(
                st.lists(st.integers(0, SATURATED), min_size=len(base), max_size=len(base)),
                min_size=num_runs,
                max_size=num_runs,
            )
        )
        runs = [torch.tensor([min(b + a, SATURATED) for b, a in zip(base, own, strict=True)]) for own in added]
        before = [run.clone() for run in runs]
        merged = merged_visits(runs, torch.tensor(base)).tolist()
        assert merged == [
            min(sum(counts) - (num_runs - 1) * start, SATURATED)
            for start, *counts in zip(base, *(run.tolist() for run in runs), strict=True)
        ]
        assert all(start <= count for start, count in zip(base, merged, strict=True))
        assert all(torch.equal(run, copy) for run, copy in zip(runs, before, strict=True))

    def test_without_a_base_they_are_added(self):
        assert merged_visits([torch.tensor([1, 2]), torch.tensor([0, SATURATED])]).tolist() == [1, SATURATED]

    def test_the_order_of_runs_does_not_matter(self):
        runs, base = [torch.tensor([3, 9]), torch.tensor([4, 5]), torch.tensor([3, 5])], torch.tensor([3, 5])
        assert merged_visits(runs, base).tolist() == merged_visits(runs[::-1], base).tolist() == [4, 9]

    def test_a_run_that_did_not_start_there_is_refused(self):
        with pytest.raises(InvalidValueError, match="fewer than"):
            merged_visits([torch.tensor([3, 9]), torch.tensor([9, 4])], torch.tensor([3, 5]))
