"""A table's sparse gradient to updates of the rows that it names, on any device.

Functions of the same names in `rowwise_numba` do the same on CPUs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tokagnostic.errors import InvalidValueError

LOW = 2**32 - 1
MULTIPLIER = 0x45D9F3B
"""Of the mixing function; so small that no product of it with 32 bits leaves the numbers of int64."""
STRIDE = 0x9E3779B9
"""2 ** 32 divided by the golden ratio: keeps the keys of neighbouring columns apart."""
TABLE_DTYPES = (torch.float32, torch.bfloat16)


def occurrences_of(gradient: Tensor | None) -> tuple[Tensor, Tensor]:
    """The rows that a table's sparse gradient names and what it says of each, in the order of the lookups.

    Args:
        gradient: sparse [R, dim], not necessarily coalesced.

    Returns:
        Rows, int64 [L], and gradients, float32 [L, dim].

    Raises:
        InvalidValueError: for a dense gradient, which would make every row count as looked up.
    """
    if gradient is None or not gradient.is_sparse or gradient.sparse_dim() != 1:
        raise InvalidValueError(
            "a dense gradient for a table",
            expected="a sparse gradient, as memory lookups make it",
            remedy="Give this parameter to another optimizer",
        )
    return gradient._indices()[0], gradient._values().float()


def sum_by_row(gradient: Tensor | None) -> tuple[Tensor, Tensor]:
    """A table's sparse gradient with the occurrences of each row added up.

    Args:
        gradient: sparse [R, dim], not necessarily coalesced.

    Returns:
        Distinct rows in rising order, int64 [U], and their gradients, float32 [U, dim].

    Raises:
        InvalidValueError: for a dense gradient.
    """
    occurrences, values = occurrences_of(gradient)
    rows, where = torch.unique(occurrences, return_inverse=True)
    return rows, values.new_zeros(len(rows), values.shape[1]).index_add_(0, where, values)


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
    """Update the rows that were looked up, as `RowwiseRMSProp` says.

    Args:
        table: float32 or bfloat16 [R, dim].
        gradient: sparse [R, dim].
        moments: float32 [R].
        counts: updates of each row, int32 [R].
        lr: step length.
        beta: decay of the moments.
        eps: added to the root.
        seed: of the rounding of a table in bfloat16.
    """
    rows, total = sum_by_row(gradient)
    count = counts[rows] + 1
    moment = moments[rows] * beta + total.square().mean(dim=1) * (1 - beta)
    counts[rows], moments[rows] = count, moment
    root = (moment / _correction(beta, count)).sqrt() + eps
    _subtract(table, rows, total * (lr / root).unsqueeze(1), count, seed)


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
    """Update the rows that were looked up, as `LazyAdam` says.

    Args:
        table: float32 or bfloat16 [R, dim].
        gradient: sparse [R, dim].
        means: float32 [R, dim].
        moments: float32, [R, dim], or [R] for one per row.
        counts: updates of each row, int32 [R].
        lr: step length.
        betas: decays of means and moments.
        eps: added to the root.
        seed: of the rounding of a table in bfloat16.
    """
    rows, total = sum_by_row(gradient)
    first, second = betas
    count = counts[rows] + 1
    square = total.square().mean(dim=1) if moments.ndim == 1 else total.square()
    mean = means[rows] * first + total * (1 - first)
    moment = moments[rows] * second + square * (1 - second)
    counts[rows], means[rows], moments[rows] = count, mean, moment
    corrected = (moment.unsqueeze(1) if moments.ndim == 1 else moment) / _correction(second, count).unsqueeze(1)
    root = corrected.sqrt() + eps
    _subtract(table, rows, mean * (lr / _correction(first, count)).unsqueeze(1) / root, count, seed)


def _correction(beta: float, count: Tensor) -> Tensor:
    """What a decayed sum that began at zero lacks after so many updates, float32 [U]."""
    return (1 - beta ** count.double()).float()


def _subtract(table: Tensor, rows: Tensor, steps: Tensor, count: Tensor, seed: int) -> None:
    if table.dtype == torch.float32:
        table.index_add_(0, rows, steps, alpha=-1)
    else:
        table[rows] = stochastic_bf16(table[rows].float() - steps, rows, count, seed)


def stochastic_bf16(numbers: Tensor, rows: Tensor, count: Tensor, seed: int) -> Tensor:
    """Round up or down with chances that make the result right on average.

    What is added before the lower 16 bits are cut off is a hash of seed, row, count and column: no generator has to be
    saved, and the order and the number of threads do not matter.

    Args:
        numbers: float32 [U, dim].
        rows: int64 [U].
        count: which update of the row this is, integer [U].
        seed: below 2 ** 32.

    Returns:
        bfloat16 [U, dim]; numbers that bfloat16 holds stay as they are.
    """
    key = _mix((rows & LOW) ^ seed)
    key = _mix((key + count) & LOW)
    columns = torch.arange(numbers.shape[1], device=numbers.device) * STRIDE & LOW
    noise = (_mix(key.unsqueeze(1) ^ columns) >> 16).int()
    bits = numbers.contiguous().view(torch.int32)
    bits = torch.where(numbers.isfinite(), bits + noise, bits) & -(2**16)
    return bits.view(torch.float32).bfloat16()


def _mix(numbers: Tensor) -> Tensor:
    """A bijection of 32 bits whose every bit depends on all of its input's (C. Wellons, "Hash function prospector")."""
    for _ in range(2):
        numbers = ((numbers ^ (numbers >> 16)) * MULTIPLIER) & LOW
    return numbers ^ (numbers >> 16)
