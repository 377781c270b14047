"""Rows in eight bits a number to vectors: only what is looked up is ever unpacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tokagnostic.hashing.rows import HeadRows
from tokagnostic.memory.elsewhere import read_by_unique_keys
from tokagnostic.memory.gather_numba import can_gather, gather_codes
from tokagnostic.memory.quantised import QuantisedRows


class QuantisedStore(nn.Module):
    """Tables of codes and scales; features are float32.

    The tables are no parameters: nothing can train or cast them, and no wrapper of the model exchanges them. They go
    where the module goes.

    Args:
        tables: rows of each table, taken as they are, without a copy.
    """

    def __init__(self, tables: Sequence[QuantisedRows]) -> None:
        super().__init__()
        self.dim = tables[0].dim
        self.tables = list(tables)
        self.stays = False

    @property
    def tensors(self) -> list[Tensor]:
        """All that decides what is read."""
        return [tensor for table in self.tables for tensor in (table.codes, table.scales)]

    def device_of(self, table: int) -> torch.device:
        """Where a table lies."""
        return self.tables[table].codes.device

    def forward(self, rows: Tensor, table: int = 0) -> Tensor:
        """Look rows up, int64 [B, T, N, K], in one table.

        Returns:
            Features, float32 [B, T, N * K * dim]; zero where the row is -1.
        """
        vectors = self.tables[table].at(rows.clamp(min=0))
        return vectors.masked_fill_((rows < 0).unsqueeze(-1), 0).flatten(start_dim=-3)

    def read(self, keys: Tensor, heads: HeadRows, table: int = 0) -> Tensor:
        """Address keys, int64 [B, T, N], and look their rows up in one table: as `forward`, without rows between."""
        if keys.device != self.device_of(table):
            return read_by_unique_keys(keys, self.device_of(table), lambda few: self.read(few, heads, table))
        codes, scales = self.tables[table].codes, self.tables[table].scales
        if can_gather(codes, keys) and scales.is_contiguous():
            return gather_codes(codes, scales, keys, heads)
        features: Tensor = self(heads(keys), table)
        return features

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> QuantisedStore:
        if not self.stays:
            where = [fn(table.scales.new_empty(0)).device for table in self.tables]
            self.tables = [table.to(device) for table, device in zip(self.tables, where, strict=True)]
        return self
