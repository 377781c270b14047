from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokagnostic.errors import SourceError
from tokagnostic.evaluation.corpus_overlap.sorted_runs import MIN_BLOCK, SortedRun, key_range, max_runs, merge_runs
from tokagnostic.evaluation.corpus_overlap.window_records import KEY_LIMIT, sort_and_combine

RUNS = st.lists(st.lists(st.integers(0, 40) | st.integers(0, KEY_LIMIT - 1), max_size=40), max_size=6)


def written(folder, keys: list[int], name: str = "run-000001.i64") -> SortedRun:
    """A run of one-token windows with these keys; keys that repeat are windows of different target orders."""
    order = np.arange(len(keys)) % 31 + 1
    records = np.stack((np.array(keys, dtype=np.int64), order << 17 | 1), axis=1).reshape(-1, 2)
    left = sort_and_combine(records, np.empty_like(records))
    return SortedRun.write(folder / name, [records[: left // 2], records[left // 2 : left]])


class TestMerging:
    @given(RUNS, st.integers(1, 200))
    @settings(max_examples=100, deadline=None)
    def test_gives_the_records_of_sorting_all_runs_at_once(self, tmp_path_factory, key_lists, capacity) -> None:
        folder = tmp_path_factory.mktemp("runs")
        runs = [written(folder, keys, f"run-{i}.i64") for i, keys in enumerate(key_lists)]
        chunks = list(merge_runs(runs, capacity))
        records = np.concatenate([run.take(len(run))[0] for run in runs] or [np.empty((0, 2), dtype=np.int64)])
        left = sort_and_combine(records, np.empty_like(records))
        merged = np.concatenate([*chunks, np.empty((0, 2), dtype=np.int64)])
        assert merged[:, 0].tolist() == records[:left, 0].tolist()
        assert sorted(merged.tolist()) == sorted(records[:left].tolist())
        key_sets = [set(chunk[:, 0].tolist()) for chunk in chunks]
        assert sum(map(len, key_sets)) == len(set().union(*key_sets)), "a key is in two arrays"

    def test_holds_about_a_block_of_each_run(self, tmp_path) -> None:
        random = np.random.default_rng(1)
        runs = [written(tmp_path, random.integers(0, KEY_LIMIT, 3000).tolist(), f"run-{i}.i64") for i in range(5)]
        sizes = [len(chunk) for chunk in merge_runs(runs, 2000)]
        assert max(sizes) <= 400 and sum(sizes) == 15_000

    def test_tells_how_much_was_merged(self, tmp_path) -> None:
        told: list[int] = []
        runs = [written(tmp_path, [1, 2, 3], "a"), written(tmp_path, [2, 3, 4], "b")]
        assert sum(len(chunk) for chunk in merge_runs(runs, 12, progress=told.append)) <= 6
        assert sum(told) == 6

    def test_of_many_runs_needs_as_many_least_blocks(self) -> None:
        assert max_runs(5 * 10 * MIN_BLOCK) == 10
        assert max_runs(1) == 2


class TestARun:
    @given(st.lists(st.integers(0, KEY_LIMIT - 1) | st.integers(0, 9), max_size=50), st.integers(1, 7))
    @settings(max_examples=60, deadline=None)
    def test_is_parted_by_keys_without_loss(self, tmp_path_factory, keys, num_parts) -> None:
        run = written(tmp_path_factory.mktemp("runs"), keys)
        parts = [run.between(*key_range(part, num_parts)) for part in range(num_parts)]
        assert np.concatenate([part.take(99)[0] for part in parts]).tolist() == run.take(99)[0].tolist()
        for p, part in enumerate(parts):
            low, high = key_range(p, num_parts)
            assert all(low <= key < high for key in part.take(99)[0][:, 0].tolist())

    @pytest.mark.parametrize("num_parts", [1, 3, 4])
    def test_is_parted_at_the_bounds_themselves(self, tmp_path, num_parts) -> None:
        bounds = [key_range(part, num_parts) for part in range(num_parts)]
        run = written(tmp_path, [key for low, high in bounds for key in (low, high - 1)])
        parts = [run.between(*bound).take(9)[0][:, 0].tolist() for bound in bounds]
        assert parts == [[low, high - 1] for low, high in bounds]

    @pytest.mark.parametrize("damage", ["missing", "cut inside a record", "cut after a record", "longer"])
    def test_that_is_damaged_is_refused(self, tmp_path, damage) -> None:
        run = written(tmp_path, [1, 2, 3])
        data = run.path.read_bytes()
        run.path.unlink()
        cuts = {"cut inside a record": data[:-1], "cut after a record": data[:-16], "longer": data + data[-16:]}
        if damage in cuts:
            run.path.write_bytes(cuts[damage])
        with pytest.raises(SourceError, match="count again"):
            SortedRun.of(run.path, 3)

    def test_that_shrinks_while_it_is_read_is_refused(self, tmp_path) -> None:
        run = written(tmp_path, [1, 2, 3])
        run.path.write_bytes(run.path.read_bytes()[:16])
        with pytest.raises(SourceError, match="count again"):
            run.take(3)

    @pytest.mark.parametrize("keys", [[1, 3, 2], [-1, 2, 3]], ids=["falling", "negative"])
    def test_whose_keys_do_not_rise_is_refused(self, tmp_path, keys) -> None:
        run = written(tmp_path, [1, 2, 3])
        np.array([[key, 1] for key in keys], dtype="<i8").tofile(run.path)
        with pytest.raises(SourceError, match="count again"):
            list(merge_runs([run], 100))

    def test_that_could_not_be_written_leaves_nothing(self, tmp_path) -> None:
        def chunks():
            yield np.zeros((1, 2), dtype=np.int64)
            raise RuntimeError("the text broke off")

        with pytest.raises(RuntimeError):
            SortedRun.write(tmp_path / "run-000001.i64", chunks())
        assert list(tmp_path.iterdir()) == []
