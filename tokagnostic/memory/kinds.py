"""The kinds of memory: the only list of their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from tokagnostic.hashing.cache import HashCache
from tokagnostic.hashing.hasher import NgramHasher
from tokagnostic.memory.addressers import ModuloAddresser
from tokagnostic.memory.base import MemoryConfig, NgramMemory, register_memory, require_number, require_whole
from tokagnostic.memory.quantised import QuantisedRows
from tokagnostic.memory.stores import fresh_tables, store_of


@register_memory("joint")
@dataclass(frozen=True)
class JointConfig(MemoryConfig):
    """One table for the windows of all orders, addressed by their bytes (arXiv 2607.29065)."""

    num_rows: int = 65_536
    """Rows asked for per head; each head gets the next free prime."""
    num_heads: int = 8
    """K: rows read per window, one from each head."""
    num_tables: int = 1
    """1: all attached layers read one table. More: one table per layer, in the order of the layers."""
    init_std: float = 0.02
    """Standard deviation of fresh rows."""
    seed: int = 0
    """Seed of fresh rows."""

    def __post_init__(self) -> None:
        require_whole("max_order", self.max_order, 1)
        require_whole("num_rows", self.num_rows, 2)
        require_whole("num_heads", self.num_heads, 1)
        require_whole("dim", self.dim, 1)
        require_whole("num_tables", self.num_tables, 1)
        require_whole("seed", self.seed, 0)
        require_number("init_std", self.init_std, 0)

    def hasher(self, cache: HashCache, max_order: int | None = None) -> NgramHasher:
        """What turns a tokenizer's ids into keys: the hash of their bytes."""
        return NgramHasher(cache, self.max_order if max_order is None else max_order)

    def addresser(self) -> ModuloAddresser:
        """What turns this memory's keys into rows."""
        return ModuloAddresser(self.num_rows, self.num_heads, self.num_tables)

    def build(
        self,
        cache: HashCache,
        tables: Sequence[Tensor | QuantisedRows] | None = None,
        max_order: int | None = None,
    ) -> NgramMemory:
        """A memory that reads the ids of one tokenizer, with fresh or with given rows."""
        addresser = self.addresser()
        if tables is None:
            tables = fresh_tables(addresser.num_rows, self.dim, self.init_std, self.seed)
        return NgramMemory(
            config=self,
            hasher=self.hasher(cache, max_order),
            addresser=addresser,
            store=store_of(tables),
        )
