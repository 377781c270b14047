"""Few keys on the CPU to the vectors of their rows, in one pass, whatever kind of numbers the vectors are made of."""

from __future__ import annotations

import numpy as np
import torch
from numba import carray, njit
from torch import Tensor

from tokagnostic.hashing.memory_numba import bytes_at, floats_at, integers_at, prefetch
from tokagnostic.hashing.rows import HeadRows
from tokagnostic.hashing.rows_numba import fill_rows

FEW = 512
"""Keys up to which one pass over them beats addressing and then looking up, for which torch has several threads."""

CODE_VALUES = {
    dtype: torch.arange(256, dtype=torch.int16).to(torch.uint8).view(dtype).to(torch.float32)
    for dtype in (torch.int8, torch.float8_e4m3fn)
}
"""What each byte of a quantised row stands for, before its scale: float32 [256]."""


def can_gather(table: Tensor, keys: Tensor) -> bool:
    """Whether keys can be looked up here: few of them, in memory, of which no gradient and no graph is made."""
    if torch.compiler.is_compiling() or keys.numel() > FEW or (table.requires_grad and torch.is_grad_enabled()):
        return False
    return keys.is_cpu and table.is_cpu and table.is_contiguous()


def gather(table: Tensor, keys: Tensor, heads: HeadRows) -> Tensor:
    """The rows of each key, one after another.

    Args:
        table: any dtype [R, dim].
        keys: int64 [..., N]; -1 for no window.
        heads: keys to rows of this table.

    Returns:
        Features in the table's dtype, [..., N * K * dim]; zero where there is no window.

    Raises:
        IndexError: if the heads speak of rows that the table does not have.
    """
    keys, arrays = keys.contiguous(), heads.arrays
    num_rows, dim = table.shape
    features = table.new_empty((*keys.shape[:-1], keys.shape[-1] * arrays.num_heads * dim))
    beyond = _gather(
        keys.data_ptr(),
        keys.numel(),
        arrays.table,
        arrays.num_heads,
        arrays.fast,
        table.data_ptr(),
        num_rows,
        dim * table.element_size(),
        features.data_ptr(),
    )
    _require_within(beyond, num_rows)
    return features


def gather_codes(codes: Tensor, scales: Tensor, keys: Tensor, heads: HeadRows) -> Tensor:
    """The rows of each key, one after another, each code times the scale of its block.

    Args:
        codes: int8 or float8_e4m3fn [R, dim].
        scales: float32 [R, dim / block].
        keys: int64 [..., N]; -1 for no window.
        heads: keys to rows of this table.

    Returns:
        Features, float32 [..., N * K * dim]; zero where there is no window.

    Raises:
        IndexError: if the heads speak of rows that the table does not have.
    """
    keys, arrays, values = keys.contiguous(), heads.arrays, CODE_VALUES[codes.dtype]
    num_rows, dim = codes.shape
    features = scales.new_empty((*keys.shape[:-1], keys.shape[-1] * arrays.num_heads * dim))
    beyond = _gather_codes(
        keys.data_ptr(),
        keys.numel(),
        arrays.table,
        arrays.num_heads,
        arrays.fast,
        codes.data_ptr(),
        scales.data_ptr(),
        values.data_ptr(),
        num_rows,
        scales.shape[1],
        dim // scales.shape[1],
        features.data_ptr(),
    )
    _require_within(beyond, num_rows)
    return features


def _require_within(beyond: int, num_rows: int) -> None:
    if beyond >= 0:
        raise IndexError(f"row {beyond} of a table of {num_rows} rows")


@njit(cache=True, nogil=True)
def _gather(keys, num_keys, heads, num_heads, fast, table, num_rows, row_bytes, features):
    """Fill features; returns the first row that the table does not have, or -1. Numbers come as addresses."""
    rows = np.empty(num_keys * num_heads, dtype=np.int64)
    fill_rows(carray(integers_at(keys), (1, num_keys)), heads, num_heads, fast, rows, 0)
    # Rows lie far apart: all are on their way before the first is waited for.
    for i in range(len(rows)):
        if rows[i] >= num_rows:
            return rows[i]
        prefetch(table + max(rows[i], 0) * row_bytes)
    sources = carray(bytes_at(table), (num_rows, row_bytes))
    targets = carray(bytes_at(features), (len(rows), row_bytes))
    for i in range(len(rows)):
        if rows[i] < 0:
            targets[i] = 0
        else:
            targets[i] = sources[rows[i]]
    return -1


@njit(cache=True, nogil=True)
def _gather_codes(
    keys, num_keys, heads, num_heads, fast, codes, scales, values, num_rows, num_blocks, block_size, features
):
    """Fill features; returns the first row that the table does not have, or -1. Numbers come as addresses."""
    rows = np.empty(num_keys * num_heads, dtype=np.int64)
    fill_rows(carray(integers_at(keys), (1, num_keys)), heads, num_heads, fast, rows, 0)
    for i in range(len(rows)):
        if rows[i] >= num_rows:
            return rows[i]
        prefetch(codes + max(rows[i], 0) * num_blocks * block_size)
        prefetch(scales + max(rows[i], 0) * num_blocks * 4)
    code_blocks = carray(bytes_at(codes), (num_rows, num_blocks, block_size))
    scale_blocks = carray(floats_at(scales), (num_rows, num_blocks))
    meaning = carray(floats_at(values), (256,))
    targets = carray(floats_at(features), (len(rows), num_blocks, block_size))
    for i in range(len(rows)):
        if rows[i] < 0:
            targets[i] = 0
            continue
        for block in range(num_blocks):
            scale = scale_blocks[rows[i], block]
            for j in range(block_size):
                targets[i, block, j] = meaning[code_blocks[rows[i], block, j]] * scale
    return -1
