from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokagnostic.evaluation.overlap.resampling import interval_of, poisson_weights, resampled_sums

M64 = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def naive_mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & M64
    return x ^ (x >> 31)


def naive_weight(seed: int, document: int, resample: int) -> int:
    """The law as the docstring states it, in Python's integers."""
    salted = naive_mix(naive_mix((seed + GOLDEN) & M64) + document + GOLDEN & M64)
    uniform = naive_mix(salted + resample + GOLDEN & M64) >> 32
    k = 0
    while k < 12 and uniform >= int(2**32 * math.fsum(math.exp(-1) / math.factorial(j) for j in range(k + 1))):
        k += 1
    return k


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**50), st.integers(0, 5), st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_weights_equal_the_law_in_pythons_integers(seed, first, num_documents, resamples) -> None:
    expected = [[naive_weight(seed, first + d, r) for r in range(resamples)] for d in range(num_documents)]
    assert poisson_weights(num_documents, resamples, seed, first).tolist() == expected


def test_weights_are_distributed_as_poisson_1() -> None:
    weights = poisson_weights(400, 500, 3, 0)
    for k in range(6):
        share, p = np.mean(weights == k), math.exp(-1) / math.factorial(k)
        assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / weights.size)
    # Neither a document nor a resample is favoured, and neighbours are not alike.
    assert abs(weights.mean(axis=0) - 1).max() < 5 / math.sqrt(400)
    assert abs(np.corrcoef(weights[:-1].ravel(), weights[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(weights[:, :-1].ravel(), weights[:, 1:].ravel())[0, 1]) < 0.02


@given(st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=30, deadline=None)
def test_sums_of_two_parts_are_those_of_the_whole(first, second) -> None:
    counts = np.random.default_rng(first).integers(0, 2**40, (first + second, 2, 3))
    whole = resampled_sums(counts, 9, 5, 11)
    parts = resampled_sums(counts[:first], 9, 5, 11) + resampled_sums(counts[first:], 9, 5, 11 + first)
    assert whole.tolist() == parts.tolist()


def test_sums_are_exact_beyond_their_blocks() -> None:
    counts = np.random.default_rng(0).integers(0, 1000, (2500, 1))
    weights = poisson_weights(2500, 4, 1, 0).astype(np.int64)
    assert resampled_sums(counts, 4, 1, 0)[:, 0].tolist() == (weights * counts).sum(axis=0).tolist()


def test_an_interval_is_made_of_percentiles_over_the_resamples_that_have_a_window() -> None:
    random = np.random.default_rng(0)
    sums = random.integers(1, 50, (80, 2, 3, 3))
    sums[:20, 0, 1, 0] = 0
    sums[:, 1, 2, 0] = 0
    bounds = interval_of(sums)
    assert bounds.shape == (2, 2, 3, 2)
    assert np.isnan(bounds[1, :, 2]).all()
    for counting, n in ((0, 0), (0, 1), (1, 1)):
        for way in range(2):
            drawn = [100.0 * row[1 + way] / row[0] for row in sums[:, counting, n].tolist() if row[0]]
            assert bounds[counting, way, n] == pytest.approx(np.percentile(drawn, (2.5, 97.5)), rel=1e-12)


def test_an_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Documents that find each of 10 windows with chance 0.6: 95 of 100 intervals should hold 60 percent."""
    random = np.random.default_rng(1)
    held = 0
    for trial in range(200):
        found = random.binomial(10, 0.6, 60)
        counts = np.stack((np.full(60, 10), found), axis=-1)[:, None, None, :]
        low, high = interval_of(resampled_sums(counts, 300, trial, 0))[0, 0, 0]
        held += low <= 60 <= high
    assert 178 <= held <= 199
