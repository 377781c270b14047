"""Keys to rows."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from tokagnostic.hashing.addresses import head_moduli, head_offsets, rows_of_keys
from tokagnostic.hashing.polynomial import NO_WINDOW


class ModuloAddresser:
    """Each head takes the key modulo its own prime; all heads of a table lie one after another in it.

    Primes are found on first use: a config from a foreign file can be compared with the file before it costs anything.

    Args:
        num_rows: rows asked for per head; every head gets a prime of at least this size.
        num_heads: K.
        num_tables: tables, each with primes that no other has.
    """

    def __init__(self, num_rows: int, num_heads: int, num_tables: int = 1) -> None:
        self.num_heads = num_heads
        self.num_tables = num_tables
        self._asked_rows = num_rows

    @cached_property
    def moduli(self) -> list[list[int]]:
        """M_k of each table's heads."""
        moduli: list[list[int]] = []
        taken: set[int] = set()
        for _ in range(self.num_tables):
            moduli.append(head_moduli(self._asked_rows, self.num_heads, taken))
            taken.update(moduli[-1])
        return moduli

    @cached_property
    def offsets(self) -> list[list[int]]:
        """First row of each table's heads."""
        return [head_offsets(moduli) for moduli in self.moduli]

    @property
    def num_rows(self) -> list[int]:
        """R of each table."""
        return [sum(moduli) for moduli in self.moduli]

    def __call__(self, keys: Tensor, table: int = 0) -> Tensor:
        """Address keys, int64 [...], in one table: rows, int64 [..., K]; -1 where there is no key."""
        if keys.device.type == "cpu" and not torch.compiler.is_compiling():
            return torch.from_numpy(rows_of_keys(keys.numpy(), self.moduli[table]))
        moduli = torch.tensor(self.moduli[table], device=keys.device)
        offsets = torch.tensor(self.offsets[table], device=keys.device)
        rows = keys.unsqueeze(-1) % moduli + offsets
        return torch.where(keys.unsqueeze(-1) >= 0, rows, NO_WINDOW)
