"""A table's sparse gradient to updates of the rows that it names, on CPUs: one pass over what was looked up.

Every row is read, updated and written once, while the sum of its lookups stays in the first cache. A row belongs to one
thread, so that the result is the same, bit for bit, for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit, types
from numba.extending import overload
from torch import Tensor

from tokagnostic.hashing.memory_numba import prefetch_to_write
from tokagnostic.training.grouping_numba import Lookups, grouped
from tokagnostic.training.rowwise_torch import LOW, MULTIPLIER, STRIDE

LEAST_PER_THREAD = 2**16
"""Numbers below which another thread costs more than it helps."""
LINE = 64
"""Bytes of a cache line; where lines are longer, some are asked for twice."""
AHEAD = 8
"""Rows that are asked for before they are needed: a processor waits for many lines in the time of one, but does not look
so far ahead itself."""
LARGEST_LISTED = 2**16
"""Counts whose corrections are listed at most: an exponential takes a fifth of the time of a row."""
FAST = {"reassoc", "contract", "nsz"}
"""Sums over a row may be taken in any order, as vector instructions need; NaN and infinity stay what they are."""


def sum_by_row(gradient: Tensor | None) -> tuple[Tensor, Tensor]:
    """A table's sparse gradient with the occurrences of each row added up in the order of the lookups.

    Args:
        gradient: sparse [R, dim] on the CPU, not necessarily coalesced.

    Returns:
        Distinct rows in rising order, int64 [U], and their gradients, float32 [U, dim].

    Raises:
        InvalidValueError: for a dense gradient, or a row that the table does not have.
    """
    lookups = grouped(gradient)
    totals = np.empty((len(lookups.rows), lookups.values.shape[1]), dtype=np.float32)
    _spread(_sum_rows, lookups, totals)
    return torch.from_numpy(lookups.rows), torch.from_numpy(totals)


def rmsprop_step(
    table: Tensor,
    gradient: Tensor | None,
    moments: Tensor,
    counts: Tensor,
    *,
    lr: float,
    beta: float,
    eps: float,
    seed: int,
) -> None:
    """Update the rows that were looked up; as `rowwise_torch.rmsprop_step`."""
    numbers = [np.float32(number) for number in (lr, beta, 1 - beta, eps)]
    state = (_numpy(table), moments.numpy(), counts.numpy())
    _spread(_rmsprop, grouped(gradient), *state, *numbers, _log(beta), _corrections(beta), seed)


def adam_step(
    table: Tensor,
    gradient: Tensor | None,
    means: Tensor,
    moments: Tensor,
    counts: Tensor,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    seed: int,
) -> None:
    """Update the rows that were looked up; as `rowwise_torch.adam_step`."""
    numbers = [np.float32(number) for beta in betas for number in (beta, 1 - beta)]
    logs = [_log(beta) for beta in betas]
    state = (_numpy(table), means.numpy(), moments.numpy().reshape(len(moments), -1), counts.numpy())
    corrections = [_corrections(beta) for beta in betas]
    rest = (np.float32(eps), moments.ndim == 1, seed)
    _spread(_adam, grouped(gradient), *state, np.float32(lr), *numbers, *logs, *corrections, *rest)


def _log(beta: float) -> float:
    return math.log(beta) if beta > 0 else -math.inf


@lru_cache(maxsize=16)
def _corrections(beta: float) -> np.ndarray:
    """1 - beta ** count for every count up to that from which on it is 1, or some of them, float32 [.]."""
    num_counts = math.ceil(-26 * math.log(2) / math.log(beta)) if beta > 0 else 1
    counts = np.arange(min(num_counts, LARGEST_LISTED) + 1)
    return -np.expm1(counts * _log(beta)).astype(np.float32) if beta > 0 else (counts > 0).astype(np.float32)


def _numpy(table: Tensor) -> np.ndarray:
    """The table itself, float32 or, as the bits of bfloat16, uint16 [R, dim]."""
    if table.dtype == torch.float32:
        return table.detach().numpy()
    return table.detach().view(torch.int16).numpy().view(np.uint16)


def _spread(kernel: Callable[..., None], lookups: Lookups, *arguments: Any) -> None:
    """Call a kernel for parts of the rows, in as many threads as torch would use."""
    num_rows, num_occurrences = len(lookups.rows), len(lookups.order)
    num_threads = max(1, min(torch.get_num_threads(), lookups.values.size // LEAST_PER_THREAD))
    even = np.arange(1, num_threads) * num_occurrences // num_threads
    borders = [0, *np.searchsorted(lookups.starts[:num_rows], even).tolist(), num_rows]
    parts = [(begin, end) for begin, end in pairwise(borders) if begin < end]

    def call(part: tuple[int, int]) -> None:
        kernel(*part, *lookups, *arguments)

    if len(parts) <= 1:
        for part in parts:
            call(part)
        return
    with ThreadPoolExecutor(len(parts) - 1) as pool:
        others = pool.map(call, parts[1:])
        call(parts[0])
        list(others)


@njit(cache=True, nogil=True)
def _sum_rows(begin, end, rows, starts, order, values, totals):
    for u in range(begin, end):
        _sum_row(order, starts[u], starts[u + 1], values, totals, u)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _rmsprop(
    begin, end, rows, starts, order, values, table, moments, counts, lr, beta, rest, eps, log_beta, corrections, seed
):
    total = np.empty((1, table.shape[1]), dtype=np.float32)
    for u in range(begin, end):
        ahead = min(u + AHEAD, end - 1)
        _fetch_row(values, order[starts[ahead]])
        _fetch_row(table, rows[ahead])
        prefetch_to_write(moments.ctypes.data + rows[ahead] * moments.itemsize)
        prefetch_to_write(counts.ctypes.data + rows[ahead] * counts.itemsize)
        row, only = rows[u], order[starts[u]]
        is_single = starts[u + 1] - starts[u] == 1
        if is_single:
            square = _mean_square(values, only)
        else:
            _sum_row(order, starts[u], starts[u + 1], values, total, 0)
            square = _mean_square(total, 0)
        count = counts[row] + 1
        moment = moments[row] * beta + square * rest
        counts[row], moments[row] = count, moment
        scale = lr / (np.sqrt(moment / _correction(count, log_beta, corrections)) + eps)
        # A gradient that is no sum is read where it lies.
        if is_single:
            _subtract(table, row, values, only, scale, count, seed)
        else:
            _subtract(table, row, total, 0, scale, count, seed)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _adam(
    begin, end, rows, starts, order, values, table, means, moments, counts, lr,
    first, first_rest, second, second_rest, log_first, log_second, first_corrections, second_corrections,
    eps, per_row, seed,
):  # fmt: skip
    dim = table.shape[1]
    step = np.empty((1, dim), dtype=np.float32)
    for u in range(begin, end):
        ahead = min(u + AHEAD, end - 1)
        _fetch_row(values, order[starts[ahead]])
        _fetch_row(table, rows[ahead])
        _fetch_row(means, rows[ahead])
        _fetch_row(moments, rows[ahead])
        prefetch_to_write(counts.ctypes.data + rows[ahead] * counts.itemsize)
        row = rows[u]
        _sum_row(order, starts[u], starts[u + 1], values, step, 0)
        count = counts[row] + 1
        counts[row] = count
        rate = lr / _correction(count, log_first, first_corrections)
        correction = np.float32(1) / _correction(count, log_second, second_corrections)
        for d in range(dim):
            means[row, d] = means[row, d] * first + step[0, d] * first_rest
        if per_row:
            moments[row, 0] = moments[row, 0] * second + _mean_square(step, 0) * second_rest
            scale = rate / (np.sqrt(moments[row, 0] * correction) + eps)
            _subtract(table, row, means, row, scale, count, seed)
        else:
            for d in range(dim):
                moments[row, d] = moments[row, d] * second + step[0, d] * step[0, d] * second_rest
                step[0, d] = means[row, d] / (np.sqrt(moments[row, d] * correction) + eps)
            _subtract(table, row, step, 0, rate, count, seed)


# What follows is put into the kernels, and gets whole arrays with the places in them: a view of a row would be counted
# in and out in a number that all threads share.


@njit(inline="always")
def _fetch_row(numbers, row):
    """Ask for every cache line of a row, float32 or uint16 [.., dim]."""
    width = numbers.shape[1] * numbers.itemsize
    address = numbers.ctypes.data + row * width
    for offset in range(0, width, LINE):
        prefetch_to_write(address + offset)
    prefetch_to_write(address + width - 1)


@njit(inline="always")
def _sum_row(order, begin, end, values, totals, at):
    """Fill totals[at], float32 [.., dim], with the sum of some occurrences' gradients in their order."""
    dim = values.shape[1]
    only = order[begin]
    for d in range(dim):
        totals[at, d] = values[only, d]
    for i in range(begin + 1, end):
        more = order[i]
        for d in range(dim):
            totals[at, d] += values[more, d]


@njit(inline="always")
def _mean_square(numbers, at):
    """Of one row of float32 [.., dim]."""
    total = np.float32(0)
    for d in range(numbers.shape[1]):
        total += numbers[at, d] * numbers[at, d]
    return total / np.float32(numbers.shape[1])


@njit(inline="always")
def _correction(count, log_beta, corrections):
    """1 - beta ** count, float32; looked up as long as it is listed."""
    if count < len(corrections):
        return corrections[count]
    return np.float32(-np.expm1(count * log_beta))


def _subtract(table, row, step, at, scale, count, seed):
    """Move one row of a table, float32 or the bits of bfloat16 [R, dim], by scale times step[at], float32 [.., dim]."""
    raise NotImplementedError("compiled code calls one of the functions below")


@overload(_subtract, inline="always")
def _subtract_by_dtype(table, row, step, at, scale, count, seed):
    return _subtract_fp32 if table.dtype == types.float32 else _subtract_bf16


def _subtract_fp32(table, row, step, at, scale, count, seed):
    for d in range(table.shape[1]):
        table[row, d] -= step[at, d] * scale


def _subtract_bf16(table, row, step, at, scale, count, seed):
    """As `rowwise_torch.stochastic_bf16`, on the bits of the numbers."""
    key = _mix(_mix((row & LOW) ^ seed) + count & LOW)
    numbers = np.empty(table.shape[1], dtype=np.float32)
    bits = numbers.view(np.uint32)
    for d in range(table.shape[1]):
        bits[d] = np.uint32(table[row, d]) << np.uint32(16)
    for d in range(table.shape[1]):
        numbers[d] -= step[at, d] * scale
    for d in range(table.shape[1]):
        number = np.int64(bits[d])
        is_finite = number & 0x7F800000 != 0x7F800000
        noise = (_mix(key ^ (d * STRIDE & LOW)) >> 16) * is_finite
        table[row, d] = np.uint16(number + noise >> 16 & 0xFFFF)


@njit(cache=True, nogil=True)
def _mix(number):
    """As `rowwise_torch._mix`."""
    for _ in range(2):
        number = ((number ^ (number >> 16)) * MULTIPLIER) & LOW
    return number ^ (number >> 16)
