"""What a memory is: keys to rows to vectors, in three parts that can be replaced one by one."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor, nn

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing.cache import HashCache
from tokagnostic.hashing.hasher import Past
from tokagnostic.hashing.rows import HeadRows
from tokagnostic.memory.ahead import ReadAhead
from tokagnostic.memory.laws import Law
from tokagnostic.memory.quantised import QuantisedRows
from tokagnostic.memory.visits import Visits


class Hasher(Protocol):
    """Token ids to keys. Knows the tokenizer's hash cache and nothing of the memory."""

    cache: HashCache
    max_order: int

    def __call__(self, input_ids: Tensor, starts: Tensor | None = None, past: Past | None = None) -> Tensor:
        """Keys, int64 [B, T, N]; -1 where no window exists. What stands before the first position is in `past`."""

    def waiting(self, input_ids: Tensor, starts: Tensor, before: Tensor | None = None) -> Tensor | None:
        """What else has to be known to go on behind each position, bool [B, T], or None; `before`: at earlier ones, [B, P]."""


class Addresser(Protocol):
    """Keys to rows. Has no parameters."""

    num_heads: int
    """K: rows per key."""
    num_tables: int
    """Tables: 1 if all layers share one."""

    @property
    def num_moduli(self) -> int:
        """Moduli of each table; told before any is looked for."""

    @property
    def num_rows(self) -> list[int]:
        """R of each table: rows of all heads together."""

    @property
    def moduli(self) -> list[list[int]]:
        """M_k of each table's heads."""

    @property
    def offsets(self) -> list[list[int]]:
        """First row of each table's heads."""

    def __call__(self, keys: Tensor, table: int = 0) -> Tensor:
        """Rows, int64 [B, T, N, K]; -1 where there is no key."""

    def read(self, keys: Tensor, store: Store, table: int = 0) -> Tensor:
        """The features, [B, T, N * K * dim], that a store has for keys, int64 [B, T, N]."""


class Store(Protocol):
    """Rows to vectors. The only part that may have parameters."""

    dim: int
    stays: bool
    """Whether the tables remain where they are when the module is moved or cast."""

    @property
    def tables(self) -> Iterable[Tensor | QuantisedRows]:
        """The rows of each table, float [R, dim] or quantised."""

    @property
    def tensors(self) -> list[Tensor]:
        """All that decides what is read."""

    def device_of(self, table: int) -> torch.device:
        """Where a table lies."""

    def __call__(self, rows: Tensor, table: int = 0) -> Tensor:
        """Features, float [B, T, N * K * dim]; zero where there is no row."""

    def read(self, keys: Tensor, heads: HeadRows, table: int = 0) -> Tensor:
        """The features of what the heads make of keys, int64 [B, T, N]."""


@dataclass(frozen=True)
class Origin:
    """The file whose rows a memory has."""

    path: Path
    """Where it was when it was opened."""
    identity: str
    """The memory's name, see `MemoryRecipe.identity`."""
    versions: tuple[int | None, ...]
    """The tables' versions when they were read: torch counts every change of a tensor."""
    mapped: bool
    """Whether the rows were left in the file."""


class NgramMemory(nn.Module):
    """A hasher, an addresser and a store: what the last tokens' bytes have been worth in training.

    Args:
        config: what the memory was built from.
        hasher: ids to keys, bound to one tokenizer.
        addresser: keys to rows.
        store: rows to vectors, a module.
    """

    store: Store

    def __init__(self, config: MemoryConfig, hasher: Hasher, addresser: Addresser, store: Store) -> None:
        super().__init__()
        self.config = config
        self.hasher = hasher
        self.addresser = addresser
        self.store = store
        self.origin: Origin | None = None
        self.ahead: ReadAhead | None = None
        self.visits = [Visits(num_rows) for num_rows in addresser.num_rows]

    @property
    def max_order(self) -> int:
        """N: the largest order that is read."""
        return self.hasher.max_order

    @property
    def num_tables(self) -> int:
        """Tables: 1 if all layers share one."""
        return self.addresser.num_tables

    @property
    def feature_dim(self) -> int:
        """E = N * K * dim."""
        return self.max_order * self.addresser.num_heads * self.store.dim

    @property
    def versions(self) -> tuple[int | None, ...]:
        """How often each tensor of the store was changed; None where torch does not count."""
        return tuple(None if tensor.is_inference() else tensor._version for tensor in self.store.tensors)

    @property
    def is_as_in_file(self) -> bool:
        """Whether its rows came from a file and have not been changed since."""
        return self.origin is not None and self.origin.versions == self.versions

    @property
    def frozen(self) -> bool:
        """Whether no parameter of the store can be trained."""
        return not any(parameter.requires_grad for parameter in self.parameters())

    def freeze(self) -> NgramMemory:
        """Make every parameter of the store untrainable, and stop counting visits."""
        self.requires_grad_(False)
        return self

    def stay(self) -> NgramMemory:
        """Leave the tables where they are, such as in memory or in a mapped file, when the model is moved or cast.

        Where ids are on another device then, their distinct keys go to the tables and what they read comes back.
        """
        self.store.stays = True
        return self

    def __getstate__(self) -> dict[str, Any]:
        # What is being fetched belongs to calls of this process, and so does its thread.
        return {**self.__dict__, "ahead": None}

    def forward(self, input_ids: Tensor, starts: Tensor | None = None, layer: int = 0) -> Tensor:
        """Read the memory at every position.

        Args:
            input_ids: token ids, int64 [B, T]; ids below 0 are masked.
            starts: True at each document's first position, bool [B, T]; by default position 0 of every row.
            layer: which of the attached layers reads, counted from 0.

        Returns:
            Features, float [B, T, E]; zero where no window exists. Position t depends on ids up to t.
        """
        return self.features_of(self.hasher(input_ids, starts), layer)

    def rows(self, keys: Tensor, layer: int = 0) -> Tensor:
        """Row numbers of the table that a layer reads, int64 [B, T, N, K], for keys [B, T, N]."""
        return self.addresser(keys, self.table_of(layer))

    def features_of(self, keys: Tensor, layer: int = 0) -> Tensor:
        """Features, float [B, T, E], for keys [B, T, N]. In training each call counts one visit per row read."""
        table = self.table_of(layer)
        where = self.store.device_of(table)
        if self.training and not self.frozen:
            rows = self.addresser(keys.to(where), table)
            self.visits[table].count(rows)
            if keys.device == where:
                return self.store(rows, table)
        if self.ahead is not None and (features := self.ahead.take(keys, table)) is not None:
            return features
        return self.addresser.read(keys, self.store, table)

    def table_of(self, layer: int) -> int:
        """Which table a layer reads: the shared one, or its own.

        Raises:
            InvalidValueError: if the memory has tables of their own for fewer layers.
        """
        if self.num_tables == 1:
            return 0
        if not 0 <= layer < self.num_tables:
            raise InvalidValueError(
                f"layer {layer} of a memory with {self.num_tables} tables",
                expected=f"a layer from 0 to {self.num_tables - 1}",
                remedy="Attach at no more layers than the memory has tables, or share one table",
            )
        return layer


@dataclass(frozen=True)
class MemoryConfig(ABC):
    """The complete description of a memory without its values; subclasses are the kinds."""

    kind: ClassVar[str]
    by_bytes: ClassVar[bool] = True
    """Whether a window's rows depend on its bytes alone, so that any tokenizer may read the memory."""
    own_tensors: ClassVar[Mapping[str, torch.dtype]] = {}
    """What files of this kind hold beside tables and visits: tensors of one dimension, by name."""

    max_order: int = 3
    """N: windows of 1..N tokens are read."""
    dim: int = 32
    """Numbers per row."""

    @property
    @abstractmethod
    def law(self) -> Law:
        """How windows reach their rows, as files of this memory say it."""

    @abstractmethod
    def hasher(self, cache: HashCache, max_order: int | None = None) -> Hasher:
        """What turns a tokenizer's ids into this memory's keys; `max_order` is by default the config's."""

    @abstractmethod
    def addresser(self) -> Addresser:
        """What turns this memory's keys into rows; needs no tokenizer."""

    @abstractmethod
    def build(
        self,
        cache: HashCache,
        tables: Sequence[Tensor | QuantisedRows] | None = None,
        max_order: int | None = None,
    ) -> NgramMemory:
        """A memory that reads the ids of one tokenizer.

        Args:
            cache: the tokenizer's hash cache.
            tables: rows of an earlier memory of this config, float [R, dim] each or quantised, taken as they are; by
                default fresh.
            max_order: largest order that is read; by default the config's.
        """

    def own_values(self, cache: HashCache) -> dict[str, Tensor]:
        """The values of `own_tensors` under a tokenizer's hash cache, by name."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """The config as plain JSON values, its kind included."""
        return {"kind": self.kind, **dataclasses.asdict(self)}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> MemoryConfig:
        """The config of any kind from plain JSON values.

        Raises:
            InvalidValueError: for an unknown kind, an unknown field, or a value that the kind refuses.
        """
        fields = dict(values)
        kind = fields.pop("kind", None)
        if not isinstance(kind, str) or kind not in _KINDS:
            raise InvalidValueError(
                f"memory kind {kind!r}",
                expected=f"one of {', '.join(memory_kinds())}",
                remedy="Set `kind` to one of these",
            )
        known = {field.name for field in dataclasses.fields(_KINDS[kind])}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise InvalidValueError(
                f"unknown field {unknown[0]!r} in the config of a {kind} memory",
                expected=f"fields among {', '.join(sorted(known))}",
                remedy="Remove the field or correct its name",
            )
        return _KINDS[kind](**fields)


_KINDS: dict[str, type[MemoryConfig]] = {}

ConfigClass = TypeVar("ConfigClass", bound=type[MemoryConfig])


def register_memory(kind: str) -> Callable[[ConfigClass], ConfigClass]:
    """Make a config class known under the name that files and commands use."""

    def register(config_class: ConfigClass) -> ConfigClass:
        config_class.kind = kind
        _KINDS[kind] = config_class
        return config_class

    return register


def memory_kinds() -> list[str]:
    """The names of all registered kinds, sorted."""
    return sorted(_KINDS)


def require_whole(name: str, value: object, least: int) -> None:
    """Refuse anything but a whole number of at least `least`: no float from JSON, no bool.

    Raises:
        InvalidValueError: naming the field and its value.
    """
    if type(value) is not int or value < least:
        raise InvalidValueError(
            f"{name} = {value!r}",
            expected=f"a whole number of at least {least}",
            remedy=f"Set {name} to such a number",
        )


def require_number(name: str, value: object, least: float) -> None:
    """Refuse anything but a finite number of at least `least`: no text, no bool.

    Raises:
        InvalidValueError: naming the field and its value.
    """
    if type(value) not in (int, float) or not least <= value < math.inf:  # type: ignore[operator]
        raise InvalidValueError(
            f"{name} = {value!r}",
            expected=f"a finite number of at least {least}",
            remedy=f"Set {name} to such a number",
        )


def generator(seed: int) -> torch.Generator:
    """A random generator of its own, so that building a memory leaves the global one alone."""
    return torch.Generator().manual_seed(seed)
