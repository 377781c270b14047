"""Windows of canonical ids to rows: each table mixes them in its own way, and each order and head has its own rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from tokagnostic.hashing.addresses import head_moduli
from tokagnostic.hashing.polynomial import NO_WINDOW
from tokagnostic.hashing.rows import HeadRows
from tokagnostic.hashing.xor import mix_keys
from tokagnostic.memory.base import Store


class XorAddresser:
    """The rows of the published Engram (arXiv 2601.07372): a window's mix modulo a prime that no other head has.

    Primes go by table, order and head, and so do the rows within a table. A single token has rows only if `min_order`
    is 1; its place among the rows and features is kept, and empty.

    Args:
        num_rows: rows asked for per order and head; each gets a prime of at least this size.
        num_heads: K.
        num_tables: tables.
        orders: smallest and largest order with rows.
        multipliers: those of each table, N each; empty where rows are only to be counted.
    """

    def __init__(
        self,
        num_rows: int,
        num_heads: int,
        num_tables: int,
        orders: tuple[int, int],
        multipliers: Sequence[Sequence[int]] = (),
    ) -> None:
        self.num_heads = num_heads
        self.num_tables = num_tables
        self.min_order, max_order = orders
        self.num_orders = max_order - self.min_order + 1
        self.multipliers = tuple(tuple(numbers) for numbers in multipliers)
        self._asked_rows = num_rows
        self._found: list[list[HeadRows]] = []

    @property
    def heads(self) -> list[list[HeadRows]]:
        """What addresses the mixes of each order, by table."""
        # No cached_property: under Python 3.11 it takes a lock, which a compiled graph cannot.
        if not self._found:
            primes = head_moduli(self._asked_rows, self.num_tables * self.num_moduli)
            for table in range(self.num_tables):
                own = primes[table * self.num_moduli : (table + 1) * self.num_moduli]
                places = range(0, self.num_moduli, self.num_heads)
                self._found.append(
                    [HeadRows(own[place : place + self.num_heads], sum(own[:place])) for place in places]
                )
        return self._found

    @property
    def num_moduli(self) -> int:
        """Moduli of each table: one per order and head."""
        return self.num_orders * self.num_heads

    @property
    def moduli(self) -> list[list[int]]:
        """M of each table, order by order."""
        return [[modulus for heads in table for modulus in heads.moduli] for table in self.heads]

    @property
    def offsets(self) -> list[list[int]]:
        """First row of each head of each order, by table."""
        return [[offset for heads in table for offset in heads.offsets] for table in self.heads]

    @property
    def num_rows(self) -> list[int]:
        """R of each table."""
        return [sum(moduli) for moduli in self.moduli]

    def __call__(self, keys: Tensor, table: int = 0) -> Tensor:
        """Address windows of orders 1..N, int64 [..., N], in one table: rows, int64 [..., N, K]; -1 where there is none."""
        mixes = self._mixes(keys, table)
        rows = torch.stack([heads(mix) for heads, mix in zip(self.heads[table], mixes, strict=False)], dim=-2)
        return F.pad(rows, (0, 0, self.min_order - 1, 0), value=NO_WINDOW)

    def read(self, keys: Tensor, store: Store, table: int = 0) -> Tensor:
        """The features, [..., N * K * dim], that a store has for windows of orders 1..N, int64 [..., N]."""
        mixes = self._mixes(keys, table)
        orders = zip(self.heads[table], mixes, strict=False)
        features = torch.cat([store.read(mix.unsqueeze(-1), heads, table) for heads, mix in orders], dim=-1)
        return F.pad(features, ((self.min_order - 1) * self.num_heads * store.dim, 0))

    def _mixes(self, keys: Tensor, table: int) -> tuple[Tensor, ...]:
        """The mixes, int64 [...], of each order from the smallest on that has rows."""
        return mix_keys(keys, self.multipliers[table], self.min_order).unbind(-1)
