"""A table's sparse gradient to its occurrences row by row, on CPUs: a radix sort of the row numbers alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from torch import Tensor

from tokagnostic.errors import InvalidValueError
from tokagnostic.training.rowwise_torch import occurrences_of

DIGIT = 11
"""Bits that one pass of the sort goes by: its counters fill half of a first cache."""


class Lookups(NamedTuple):
    """A sparse gradient, grouped by row."""

    rows: np.ndarray
    """Distinct rows in rising order, int64 [U]."""
    starts: np.ndarray
    """Where the occurrences of each row begin in `order`, and the end, int64 [U + 1]."""
    order: np.ndarray
    """Occurrences by row, and of one row in the order of the lookups, int64 [L]."""
    values: np.ndarray
    """Gradient of each occurrence, float32 [L, dim]."""


def grouped(gradient: Tensor | None) -> Lookups:
    """Sort the occurrences of a table's sparse gradient by row.

    Args:
        gradient: sparse [R, dim] on the CPU, not necessarily coalesced.

    Raises:
        InvalidValueError: for a dense gradient, or a row that the table does not have.
    """
    occurrences, values = occurrences_of(gradient)
    num_rows = 0 if gradient is None else len(gradient)
    rows, starts, order, bad = _sort(occurrences.numpy(), num_rows, len(occurrences).bit_length())
    if bad >= 0:
        raise InvalidValueError(
            f"row {int(occurrences[bad])} in the gradient of a table of {num_rows} rows",
            expected="rows from 0 to that number less 1",
            remedy="Look up rows that the table has; -1 stands for none, and gets no gradient",
        )
    return Lookups(rows, starts, order, values.detach().numpy())


@njit(cache=True, nogil=True)
def _sort(rows, num_rows, index_bits):
    """Group occurrences by row; the last result is where the first row stands that the table does not have, or -1."""
    size = len(rows)
    # Row and occurrence in one number: half of the memory that two would take to move around.
    now, other = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    for i in range(size):
        if rows[i] < 0 or rows[i] >= num_rows:
            return now, now, now, i
        now[i] = rows[i] << index_bits | i
    places, mask = np.empty(2**DIGIT, dtype=np.int64), 2**DIGIT - 1
    shift = index_bits
    while (num_rows - 1) >> (shift - index_bits) > 0:
        places[:] = 0
        for i in range(size):
            places[(now[i] >> shift) & mask] += 1
        below = 0
        for digit in range(len(places)):
            below, places[digit] = below + places[digit], below
        for i in range(size):
            digit = (now[i] >> shift) & mask
            other[places[digit]] = now[i]
            places[digit] += 1
        now, other = other, now
        shift += DIGIT
    distinct, starts = np.empty(size, dtype=np.int64), np.empty(size + 1, dtype=np.int64)
    num_distinct, last = 0, -1
    for i in range(size):
        row = now[i] >> index_bits
        now[i] &= (1 << index_bits) - 1
        if row != last:
            distinct[num_distinct], starts[num_distinct] = row, i
            num_distinct, last = num_distinct + 1, row
    starts[num_distinct] = size
    return distinct[:num_distinct], starts[: num_distinct + 1], now, -1
