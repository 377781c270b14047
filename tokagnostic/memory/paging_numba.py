"""Rows of a mapped table to requests for the pages of the file that they lie in, all at once and without waiting.

A lookup in a file that is not in memory waits for one page after the other. Asked for together, they are on their way
together, which a disk answers several times as fast.
"""

from __future__ import annotations

import mmap

from numba import njit, types
from torch import Tensor

ADVICE: int | None = getattr(mmap, "MADV_WILLNEED", None)
"""How systems that can be asked call it; None on others."""

_madvise = types.ExternalFunction("madvise", types.intc(types.uintp, types.uintp, types.intc))


def request_rows(table: Tensor, rows: Tensor) -> None:
    """Ask for what holds some rows of a table. Where that is memory, or the system cannot be asked, nothing happens.

    Args:
        table: any dtype [R, dim], contiguous, on the CPU.
        rows: int64 [U], rising, none below 0.
    """
    if ADVICE is not None:
        row_bytes = table.shape[1] * table.element_size()
        _request(table.data_ptr(), row_bytes, rows.numpy(), mmap.PAGESIZE, ADVICE)


@njit(cache=True, nogil=True)
def _request(address, row_bytes, rows, page_bytes, advice):
    asked = 0  # the end of what was asked for
    for row in rows:
        begin = max((address + row * row_bytes) // page_bytes * page_bytes, asked)
        end = -(-(address + (row + 1) * row_bytes) // page_bytes) * page_bytes
        if begin < end:
            _madvise(begin, end - begin, advice)
            asked = end
