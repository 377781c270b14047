"""A memory to the tensors of its file, piece by piece, so that no second copy of a table is ever made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tokagnostic.memory.base import NgramMemory
from tokagnostic.memory.quantised import CODE_DTYPES, QuantisedRows, scales_of
from tokagnostic.memory.recipe import RowFormat, scale_name, table_name, visits_name

CHUNK_NUMBERS = 2**22
"""Numbers that are cast, hashed and written at a time."""

ROW_DTYPES: dict[RowFormat, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": CODE_DTYPES["int8"],
    "fp8_e4m3": CODE_DTYPES["fp8_e4m3"],
}


@dataclass(frozen=True)
class Piece:
    """Some rows of one tensor, on the CPU."""

    stored: Tensor
    """As they are stored."""
    numbers: Tensor | None = None
    """What they were, for rows of a table."""
    read: Tensor | None = None
    """What a reader will take them for, for rows of a table."""


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file that is yet to be written."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[Piece]]
    """Made anew at every call; together they are the tensor."""


def stored_tensors(memory: NgramMemory, row_format: RowFormat, block_size: int | None) -> dict[str, StoredTensor]:
    """All tensors of a memory's file by name, wider types first.

    Args:
        memory: the memory.
        row_format: how rows shall be stored.
        block_size: numbers per scale; None for rows that are not quantised.
    """
    tensors = stored_rows(memory, row_format, block_size)
    for i, visits in enumerate(memory.visits):
        counts = visits.saturated()
        tensors[visits_name(i)] = StoredTensor(torch.uint32, tuple(counts.shape), partial(_whole, counts))
    for name, values in memory.config.own_values(memory.hasher.cache).items():
        tensors[name] = StoredTensor(values.dtype, tuple(values.shape), partial(_whole, values))
    return dict(sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize))


def stored_rows(memory: NgramMemory, row_format: RowFormat, block_size: int | None) -> dict[str, StoredTensor]:
    """The tensors that hold rows: of each table, and of its scales if it is quantised."""
    dtype, tensors = ROW_DTYPES[row_format], {}
    for i, table in enumerate(memory.store.tables):
        rows = table if isinstance(table, QuantisedRows) else table.detach()
        num_rows = rows.num_rows if isinstance(rows, QuantisedRows) else len(rows)
        shape = num_rows, memory.store.dim
        tensors[table_name(i)] = StoredTensor(dtype, shape, partial(_row_pieces, rows, dtype, block_size))
        if block_size is not None:
            tensors[scale_name(i)] = StoredTensor(
                torch.float32, (num_rows, shape[1] // block_size), partial(_scale_pieces, rows, dtype, block_size)
            )
    return tensors


def _row_pieces(table: Tensor | QuantisedRows, dtype: torch.dtype, block_size: int | None) -> Iterator[Piece]:
    for part in _parts(table):
        if isinstance(part, QuantisedRows):
            numbers = part.numbers()
            if _is_stored_so(part, dtype, block_size):
                yield Piece(part.codes, numbers, numbers)
                continue
        else:
            numbers = part
        if block_size is None:
            stored = numbers.to(dtype)
            yield Piece(stored, numbers, stored)
        else:
            codes = QuantisedRows.of(numbers, dtype, block_size)
            yield Piece(codes.codes, numbers, codes.numbers())


def _scale_pieces(table: Tensor | QuantisedRows, dtype: torch.dtype, block_size: int) -> Iterator[Piece]:
    for part in _parts(table):
        if not isinstance(part, QuantisedRows):
            yield Piece(scales_of(part, dtype, block_size))
        elif _is_stored_so(part, dtype, block_size):
            yield Piece(part.scales)
        else:
            yield Piece(scales_of(part.numbers(), dtype, block_size))


def _is_stored_so(rows: QuantisedRows, dtype: torch.dtype, block_size: int | None) -> bool:
    """Whether rows have this form already: quantised again, their scales could differ in the last bit."""
    return rows.codes.dtype == dtype and rows.block_size == block_size


def _parts(table: Tensor | QuantisedRows) -> Iterator[Tensor | QuantisedRows]:
    if isinstance(table, QuantisedRows):
        step = max(1, CHUNK_NUMBERS // table.dim)
        for begin in range(0, table.num_rows, step):
            yield table.part(begin, begin + step).to(torch.device("cpu"))
    else:
        for rows in table.split(max(1, CHUNK_NUMBERS // table.shape[1])):
            yield rows.cpu()


def _whole(tensor: Tensor) -> Iterator[Piece]:
    for part in tensor.split(CHUNK_NUMBERS):
        yield Piece(part)
