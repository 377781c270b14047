"""The kinds of memory: the only list of their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing.cache import HashCache
from tokagnostic.hashing.hasher import NgramHasher
from tokagnostic.hashing.xor import XorHasher, multipliers_of
from tokagnostic.memory.addressers import ModuloAddresser
from tokagnostic.memory.base import MemoryConfig, NgramMemory, register_memory, require_number, require_whole
from tokagnostic.memory.laws import ByteLaw, XorLaw
from tokagnostic.memory.quantised import QuantisedRows
from tokagnostic.memory.stores import fresh_tables, store_of
from tokagnostic.memory.xor_addresser import XorAddresser

MOST_IDS = 2**31
"""Canonical ids: two of them fit into one key."""
MOST_ORDERS = 64
"""N of a memory with multipliers: no file may make their drawing long."""
MOST_TABLES = 1024
"""Likewise its tables."""


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

    @property
    def law(self) -> ByteLaw:
        """The hash of bytes."""
        return ByteLaw()

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


@register_memory("xor")
@dataclass(frozen=True)
class XorConfig(MemoryConfig):
    """Engram as published (arXiv 2601.07372): tables for the canonical ids of 2..N tokens, apart by order and head.

    Its rows are named by one tokenizer's ids and mean nothing under another one. A single token reads no row, and its
    place among the features is zero.
    """

    by_bytes: ClassVar[bool] = False
    own_tensors: ClassVar[Mapping[str, torch.dtype]] = {"canonical_ids": torch.int32}

    num_rows: int = 65_536
    """Rows asked for per order and head; each gets the next prime that no other has."""
    num_heads: int = 8
    """K: rows read per window, one from each head."""
    num_tables: int = 1
    """1: all attached layers read one table. More: one table per layer, in the order of the layers."""
    layers: tuple[int, ...] = ()
    """Number of each table's layer, which seeds its multipliers; unset: 0, 1, ..."""
    min_order: int = 2
    """Smallest order with rows: 2 as published, or 1."""
    num_ids: int | Literal["auto"] = "auto"
    """Canonical ids that multipliers are made for; auto: as many as the tokenizer has, which the memory then states."""
    pad_id: int | None = None
    """Canonical id that stands before a document's first; unset: the last, which with num_ids auto no token has."""
    tokenizer: str = ""
    """Fingerprint of the only tokenizer whose ids may be read; unset: that of the tokenizer that a memory is built for."""
    init_std: float = 0.02
    """Standard deviation of fresh rows."""
    seed: int = 0
    """Seed of fresh rows and of the multipliers."""

    def __post_init__(self) -> None:
        # JSON has lists only.
        layers: object = self.layers
        object.__setattr__(self, "layers", tuple(layers) if isinstance(layers, list) else layers)
        require_whole("min_order", self.min_order, 1)
        require_whole("max_order", self.max_order, self.min_order)
        require_whole("num_rows", self.num_rows, 2)
        require_whole("num_heads", self.num_heads, 1)
        require_whole("dim", self.dim, 1)
        require_whole("num_tables", self.num_tables, 1)
        require_whole("seed", self.seed, 0)
        require_number("init_std", self.init_std, 0)
        if self.num_ids != "auto":
            require_whole("num_ids", self.num_ids, 1)
        if self.pad_id is not None:
            require_whole("pad_id", self.pad_id, 0)
        self._check_bounds()

    def _check_bounds(self) -> None:
        bounds = {"min_order": 2, "max_order": MOST_ORDERS, "num_tables": MOST_TABLES}
        bounds |= {} if self.num_ids == "auto" else {"num_ids": MOST_IDS, "pad_id": self.num_ids - 1}
        for name, most in bounds.items():
            if (getattr(self, name) or 0) > most:
                raise InvalidValueError(
                    f"{name} = {getattr(self, name)}",
                    expected=f"at most {most}",
                    remedy=f"Set {name} to such a number",
                )
        layers = self.layers
        if not isinstance(layers, tuple) or not all(type(layer) is int and layer >= 0 for layer in layers):
            raise InvalidValueError(
                f"layers = {layers!r}", expected="whole numbers from 0", remedy="Name the layers, or leave layers out"
            )
        if layers and len(layers) != self.num_tables:
            raise InvalidValueError(
                f"layers = {layers!r} for {self.num_tables} tables",
                expected="one layer for each table",
                remedy="Name as many layers as there are tables, or leave layers out",
            )
        if not isinstance(self.tokenizer, str):
            raise InvalidValueError(
                f"tokenizer = {self.tokenizer!r}",
                expected="the fingerprint of a tokenizer",
                remedy="Leave tokenizer out: building a memory sets it",
            )

    @property
    def law(self) -> XorLaw:
        """The mix of canonical ids.

        Raises:
            InvalidValueError: if the config leaves its numbers to a tokenizer.
        """
        if self.num_ids == "auto" or not self.tokenizer:
            raise InvalidValueError(
                f"num_ids = {self.num_ids!r} with the tokenizer {self.tokenizer!r}",
                expected="the numbers of one tokenizer",
                remedy="Build the memory for a tokenizer: its config states them",
            )
        pad_id = self.num_ids - 1 if self.pad_id is None else self.pad_id
        multipliers = (
            multipliers_of(layer, self.max_order, self.num_ids, self.seed)
            for layer in self.layers or range(self.num_tables)
        )
        return XorLaw(tuple(map(tuple, multipliers)), self.num_ids, pad_id, self.min_order)

    def bound_to(self, cache: HashCache) -> XorConfig:
        """The config with what it leaves to a tokenizer.

        Raises:
            InvalidValueError: if it is another tokenizer's already.
        """
        if self.tokenizer not in ("", cache.token_fingerprint):
            raise InvalidValueError(
                f"the tokenizer {cache.token_fingerprint[:16]}... for a memory of the ids of {self.tokenizer[:16]}...",
                expected="the tokenizer that the memory was trained with: under another one its rows mean nothing",
                remedy="Read it with that tokenizer; a memory of kind joint can be read with any",
            )
        num_ids = self.num_ids
        if num_ids == "auto":
            num_ids = int(cache.canonical_ids.max(initial=-1)) + 1 + (self.pad_id is None)
        return dataclasses.replace(self, num_ids=num_ids, tokenizer=cache.token_fingerprint)

    def hasher(self, cache: HashCache, max_order: int | None = None) -> XorHasher:
        """What turns a tokenizer's ids into keys: the canonical ids of windows."""
        max_order, law = self.max_order if max_order is None else max_order, self.bound_to(cache).law
        if type(max_order) is not int or not self.min_order <= max_order <= self.max_order:
            raise InvalidValueError(
                f"max_order = {max_order!r} for a memory of orders {self.min_order} to {self.max_order}",
                expected="an order that the memory has rows for",
                remedy=f"Read orders up to {self.max_order}",
            )
        return XorHasher(cache, max_order, law.num_ids, law.pad_id, self.min_order)

    def addresser(self) -> XorAddresser:
        """What turns this memory's keys into rows; one of a config that leaves its numbers to a tokenizer only counts."""
        multipliers = self.law.multipliers if self.tokenizer and self.num_ids != "auto" else ()
        return XorAddresser(
            self.num_rows, self.num_heads, self.num_tables, (self.min_order, self.max_order), multipliers
        )

    def own_values(self, cache: HashCache) -> dict[str, Tensor]:
        """The canonical id of each of a tokenizer's ids, int32 [V]."""
        return {"canonical_ids": torch.from_numpy(cache.canonical_ids)}

    def build(
        self,
        cache: HashCache,
        tables: Sequence[Tensor | QuantisedRows] | None = None,
        max_order: int | None = None,
    ) -> NgramMemory:
        """A memory that reads the ids of one tokenizer, with fresh or with given rows."""
        config = self.bound_to(cache)
        addresser = config.addresser()
        if tables is None:
            tables = fresh_tables(addresser.num_rows, self.dim, self.init_std, self.seed)
        return NgramMemory(
            config=config,
            hasher=config.hasher(cache, max_order),
            addresser=addresser,
            store=store_of(tables),
        )
