"""Counts per document to counts per resample of the documents, and those to an interval, whoever counted what where.

Poisson bootstrap: in resample r, document d stands as often as a Poisson(1) number w(d, r) says, which depends on the
seed, d and r alone. So every process can add up its own documents, and the sums of all processes are those of one. It
differs from drawing D documents out of D in that the number of documents drawn is itself random; for a ratio of sums
the two agree as D grows. A resample that has drawn no window of an order says nothing of it and is left out there.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from tokagnostic.evaluation.overlap.shares import LEVEL

RESAMPLES = 1000
MAX_RESAMPLES = 100_000
"""More say nothing that these do not; their counts would take gigabytes."""
_WEIGHTS_AT_ONCE = 1 << 22

_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFT_30, _SHIFT_27, _SHIFT_31, _HALF = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_STEPS = np.array(
    [int(2**32 * math.fsum(math.exp(-1) / math.factorial(j) for j in range(k + 1))) for k in range(12)], dtype=np.uint64
)
"""w(d, r) is the number of these that a uniform 32-bit number reaches: the distribution function of Poisson(1)."""


def poisson_weights(num_documents: int, resamples: int, seed: int, first_document: int) -> np.ndarray:
    """How often each document stands in each resample: Poisson(1) numbers out of SplitMix64's mixing function.

    With mix(x) as in SplitMix64 and G its increment, the uniform number behind w(d, r) is the upper half of
    mix(mix(mix(seed + G) + d + G) + r + G), modulo 2 ** 64.

    Args:
        num_documents: D.
        resamples: R.
        seed: 0 to 2 ** 63 - 1.
        first_document: the place of the first document in the corpus.

    Returns:
        Weights, float64 [D, R], all of them whole numbers from 0 to 12.
    """
    weights: np.ndarray = _weights(num_documents, resamples, np.uint64(seed), np.uint64(first_document), _STEPS)
    return weights


def resampled_sums(counts: np.ndarray, resamples: int, seed: int, first_document: int) -> np.ndarray:
    """Sum counts over the documents of each resample.

    Args:
        counts: int64 [D, ...], whose sum over the documents is below 2 ** 49.
        resamples: R.
        seed: of the weights.
        first_document: the place of the first document in the corpus.

    Returns:
        int64 [R, ...]; exact, since sums of whole numbers below 2 ** 53 are exact in float64 in any order.
    """
    flat = counts.reshape(len(counts), math.prod(counts.shape[1:])).astype(np.float64)
    sums = np.zeros((resamples, flat.shape[1]))
    step = max(_WEIGHTS_AT_ONCE // max(resamples, 1), 1)
    for begin in range(0, len(flat) if resamples else 0, step):
        part = flat[begin : begin + step]
        sums += poisson_weights(len(part), resamples, seed, first_document + begin).T @ part
    return sums.astype(np.int64).reshape(resamples, *counts.shape[1:])


def interval_of(sums: np.ndarray) -> np.ndarray:
    """Percentile intervals of the shares of found windows.

    Args:
        sums: int64 [R, 2, N, 1 + S]: windows, then found in S ways.

    Returns:
        Lower and upper bound in percent, float64 [2, S, N, 2]; NaN where no resample has a window.
    """
    windows, found = sums[..., :1], sums[..., 1:]
    shares = np.full(found.shape, np.nan)
    np.divide(100.0 * found, windows, out=shares, where=windows > 0)
    tail = (100 - LEVEL) / 2
    bounds = np.full((2, *shares.shape[1:]), np.nan)
    drawn = windows[..., 0].max(axis=0, initial=0) > 0  # [2, N]
    bounds[:, drawn] = np.nanpercentile(shares[:, drawn], (tail, 100 - tail), axis=0)
    return bounds.transpose(1, 3, 2, 0)


@njit(cache=True, nogil=True)
def _mix(x):
    x = (x ^ (x >> _SHIFT_30)) * _FIRST
    x = (x ^ (x >> _SHIFT_27)) * _SECOND
    return x ^ (x >> _SHIFT_31)


@njit(cache=True, nogil=True)
def _weights(num_documents, resamples, seed, first_document, steps):
    weights = np.empty((num_documents, resamples))
    salt = _mix(seed + _GOLDEN)
    for d in range(num_documents):
        document = _mix(salt + first_document + np.uint64(d) + _GOLDEN)
        for r in range(resamples):
            uniform = _mix(document + np.uint64(r) + _GOLDEN) >> _HALF
            k = 0
            while k < len(steps) and uniform >= steps[k]:
                k += 1
            weights[d, r] = k
    return weights
