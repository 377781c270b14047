from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokagnostic.evaluation.corpus_overlap.window_records import (
    CHECK_SURPLUS,
    KEY_LIMIT,
    LARGEST_ORDER,
    MAX_COUNT,
    REFERENCE,
    TARGET,
    enter_windows,
    sort_and_combine,
    tally,
)

CHECK_LIMIT = KEY_LIMIT >> CHECK_SURPLUS
WINDOWS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, 255, 256, 2**31, KEY_LIMIT - 1]),
        st.sampled_from([0, 1, CHECK_LIMIT - 1]),
        st.integers(1, LARGEST_ORDER),
        st.sampled_from([TARGET, REFERENCE]),
    ),
    max_size=60,
)
"""Key, check, order, side."""


def records_of(windows: list[tuple[int, int, int, int]]) -> np.ndarray:
    records = np.empty((len(windows), 2), dtype=np.int64)
    size = 0
    for key, check, order, side in windows:
        keys = np.full((1, LARGEST_ORDER), -1, dtype=np.int64)
        keys[0, order - 1] = key
        checks = np.where(keys < 0, keys, check << CHECK_SURPLUS | 5)
        size = enter_windows(records, size, keys, checks, side)
    assert size == len(windows)
    return records


def naive_counts(windows: list[tuple[int, int, int, int]], max_order: int) -> list[list[list[int]]]:
    occurrences: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    orders: dict[tuple[int, int], set[int]] = defaultdict(set)
    for key, check, order, side in windows:
        if side == TARGET:
            occurrences[key, check][order] += 1
        else:
            orders[key, check].add(order)
    counts = np.zeros((2, max_order, 2 + max_order), dtype=np.int64)
    for string, counter in occurrences.items():
        for n, number in counter.items():
            for counting, weight in ((0, 1), (1, number)):
                counts[counting, n - 1, 0] += weight
                counts[counting, n - 1, 1] += weight * bool(orders[string])
                for m in orders[string]:
                    counts[counting, n - 1, 1 + m] += weight
    return counts.tolist()


def count(records: np.ndarray) -> tuple[list[list[list[int]]], int, int]:
    counts = np.zeros((2, LARGEST_ORDER, 2 + LARGEST_ORDER), dtype=np.int64)
    num_strings, key_collisions = tally(records, counts)
    return counts.tolist(), num_strings, key_collisions


@given(WINDOWS)
@settings(max_examples=200, deadline=None)
def test_combined_records_count_what_python_sets_count(windows) -> None:
    records = records_of(windows)
    left = sort_and_combine(records, np.empty_like(records))
    strings = {window[:2] for window in windows}
    keys = {key for key, _ in strings}
    assert count(records[:left]) == (naive_counts(windows, LARGEST_ORDER), len(strings), len(strings) - len(keys))


@given(WINDOWS, st.integers(0, 60))
@settings(max_examples=100, deadline=None)
def test_combining_what_was_combined_in_parts_gives_the_same_records(windows, cut) -> None:
    whole = records_of(windows)
    left = sort_and_combine(whole, np.empty_like(whole))
    parts = [records_of(windows[:cut]), records_of(windows[cut:])]
    joined = np.concatenate([part[: sort_and_combine(part, np.empty_like(part))] for part in parts])
    joined = joined[: sort_and_combine(joined, np.empty_like(joined))]
    assert sorted(joined.tolist()) == sorted(whole[:left].tolist())
    assert joined[:, 0].tolist() == whole[:left, 0].tolist()


def test_a_string_that_both_sides_make_with_one_number_of_tokens_is_one_record() -> None:
    records = records_of([(7, 3, 2, TARGET), (7, 3, 5, REFERENCE), (7, 3, 2, TARGET), (7, 3, 5, REFERENCE)])
    assert sort_and_combine(records, np.empty_like(records)) == 1


@pytest.mark.parametrize("occurrences", [MAX_COUNT - 1, MAX_COUNT, MAX_COUNT + 1, 3 * MAX_COUNT + 7])
def test_a_string_may_occur_more_often_than_a_record_can_say(occurrences) -> None:
    windows = [(7, 3, 2, TARGET)] * occurrences + [(7, 3, 1, REFERENCE)]
    records = records_of(windows)
    left = sort_and_combine(records, np.empty_like(records))
    assert left == -(-occurrences // MAX_COUNT)
    assert count(records[:left]) == (naive_counts(windows, LARGEST_ORDER), 1, 0)


@pytest.mark.parametrize("size", [0, 1, 63, 100, 70_001])
def test_any_number_of_keys_is_sorted(size) -> None:
    random = np.random.default_rng(3)
    keys = random.integers(0, KEY_LIMIT, size) >> random.integers(0, 62, size)
    records = np.stack((keys, np.full(size, 1 << 17 | 1)), axis=1)
    left = sort_and_combine(records, np.empty_like(records))
    assert records[:left, 0].tolist() == sorted(set(keys.tolist()))
