"""Rows to vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tokagnostic.hashing.rows import HeadRows
from tokagnostic.memory.base import Store, generator
from tokagnostic.memory.elsewhere import read_by_unique_keys
from tokagnostic.memory.gather_numba import can_gather, gather
from tokagnostic.memory.quantised import QuantisedRows
from tokagnostic.memory.quantised_store import QuantisedStore


class TableStore(nn.Module):
    """One table of vectors per set of rows; a window's features are its heads' vectors, order by order.

    A trainable table gets sparse gradients, which hold the rows looked up and no others,
    so that a training step costs what it looks up, however large the table is.

    Args:
        tables: rows of each table, float [R, dim]; they become parameters as they are, without a copy.
    """

    tables: nn.ParameterList

    def __init__(self, tables: Sequence[Tensor]) -> None:
        super().__init__()
        self.dim = tables[0].shape[1]
        self.tables = nn.ParameterList(nn.Parameter(table) for table in tables)
        self.stays = False

    @property
    def tensors(self) -> list[Tensor]:
        """All that decides what is read."""
        return list(self.tables)

    def device_of(self, table: int) -> torch.device:
        """Where a table lies."""
        where: torch.device = self.tables[table].device
        return where

    def forward(self, rows: Tensor, table: int = 0) -> Tensor:
        """Look rows up, int64 [B, T, N, K], in one table.

        Returns:
            Features, in the table's dtype, [B, T, N * K * dim]; zero where the row is -1.
        """
        return lookup(self.tables[table], rows).flatten(start_dim=-3)

    def read(self, keys: Tensor, heads: HeadRows, table: int = 0) -> Tensor:
        """Address keys, int64 [B, T, N], and look their rows up in one table: as `forward`, without rows between."""
        rows_of_table: Tensor = self.tables[table]
        if keys.device != rows_of_table.device:
            return read_by_unique_keys(keys, rows_of_table.device, lambda few: self.read(few, heads, table))
        if can_gather(rows_of_table, keys):
            return gather(rows_of_table, keys, heads)
        features: Tensor = self(heads(keys), table)
        return features

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> TableStore:
        if not self.stays:
            super()._apply(fn, recurse)
        return self


def store_of(tables: Sequence[Tensor | QuantisedRows]) -> Store:
    """The store that reads tables as they are, all of them quantised or none."""
    codes = [table for table in tables if isinstance(table, QuantisedRows)]
    if codes:
        return QuantisedStore(codes)
    return TableStore([table for table in tables if isinstance(table, Tensor)])


def fresh_tables(num_rows: Sequence[int], dim: int, init_std: float, seed: int) -> list[Tensor]:
    """Rows of small normal noise.

    Args:
        num_rows: R of each table.
        dim: numbers per row.
        init_std: standard deviation.
        seed: of a generator of their own.

    Returns:
        Tables, float32 [R, dim] each.
    """
    random = generator(seed)
    # In place: a second copy of a table would be the largest thing that a run ever holds.
    return [torch.randn(rows, dim, generator=random).mul_(init_std) for rows in num_rows]


def lookup(table: Tensor, rows: Tensor) -> Tensor:
    """Rows of a table, zero for row -1.

    Args:
        table: float [R, dim].
        rows: int64 [...].

    Returns:
        Vectors in the table's dtype, [..., dim]; differentiable towards the table, whose gradient is sparse.
    """
    if not (table.requires_grad and torch.is_grad_enabled()):
        return _gather(table, rows)
    vectors: Tensor = _Lookup.apply(table, rows)
    return vectors


def _gather(table: Tensor, rows: Tensor) -> Tensor:
    flat = rows.reshape(-1)
    # A compiled graph cannot look; filling nothing costs it little.
    if not torch.compiler.is_compiling() and (flat.numel() == 0 or int(flat.min()) >= 0):
        return table.index_select(0, flat).view(*rows.shape, table.shape[1])
    vectors = table.index_select(0, flat.clamp(min=0)).view(*rows.shape, table.shape[1])
    return vectors.masked_fill((rows < 0).unsqueeze(-1), 0)


class _Lookup(torch.autograd.Function):
    """Gather whose gradient never mentions a row that was not looked up, not even with a zero."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.table_shape = table.shape  # type: ignore[attr-defined]
        return _gather(table, rows)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors  # type: ignore[attr-defined]
        (gradient,) = gradients
        flat_rows, values = rows.reshape(-1), gradient.reshape(-1, gradient.shape[-1])
        real = flat_rows >= 0
        if not bool(real.all()):
            flat_rows, values = flat_rows[real], values[real]
        shape = ctx.table_shape  # type: ignore[attr-defined]
        return torch.sparse_coo_tensor(flat_rows.unsqueeze(0), values, shape, check_invariants=False), None
