"""Keys to rows."""

from __future__ import annotations

from torch import Tensor

from tokagnostic.hashing.addresses import head_moduli, head_offsets
from tokagnostic.hashing.rows import HeadRows
from tokagnostic.memory.base import Store


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
        self._found: list[HeadRows] = []

    @property
    def heads(self) -> list[HeadRows]:
        """What addresses keys in each table."""
        # No cached_property: under Python 3.11 it takes a lock, which a compiled graph cannot.
        if not self._found:
            taken: set[int] = set()
            for _ in range(self.num_tables):
                moduli = head_moduli(self._asked_rows, self.num_heads, taken)
                taken.update(moduli)
                self._found.append(HeadRows(moduli))
        return self._found

    @property
    def num_moduli(self) -> int:
        """K: each head has one."""
        return self.num_heads

    @property
    def moduli(self) -> list[list[int]]:
        """M_k of each table's heads."""
        return [list(heads.moduli) for heads in self.heads]

    @property
    def offsets(self) -> list[list[int]]:
        """First row of each table's heads."""
        return [head_offsets(moduli) for moduli in self.moduli]

    @property
    def num_rows(self) -> list[int]:
        """R of each table."""
        return [sum(moduli) for moduli in self.moduli]

    def __call__(self, keys: Tensor, table: int = 0) -> Tensor:
        """Address keys, int64 [...], in one table: rows, int64 [..., K]; -1 where there is no key."""
        return self.heads[table](keys)

    def read(self, keys: Tensor, store: Store, table: int = 0) -> Tensor:
        """The features, [..., N * K * dim], that a store has for keys, int64 [..., N]."""
        return store.read(keys, self.heads[table], table)
