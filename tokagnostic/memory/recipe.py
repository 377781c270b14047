"""A memory to the description that makes its file readable without any other file or program state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing.addresses import head_offsets
from tokagnostic.hashing.cache import PrefixPolicy
from tokagnostic.memory.base import MemoryConfig, NgramMemory

VERSION = 1
"""Version of the file format."""

RowFormat = Literal["fp32", "bf16", "fp16", "int8", "fp8_e4m3"]
"""How a file stores the rows of its tables."""

BREAKS = ("document", "special", "unknown", "empty")
"""What ends every window: a document start, special and unknown ids, ids without bytes."""

_IDENTIFYING = ("digests", "hash", "tables", "kind", "config", "policy")


@dataclass(frozen=True)
class TableRecipe:
    """How keys reach the rows of one table."""

    moduli: tuple[int, ...]
    """M_k, one prime per head."""
    layers: tuple[int, ...]
    """Layers that the table was trained at; empty if nobody said."""

    @property
    def offsets(self) -> tuple[int, ...]:
        """First row of each head."""
        return tuple(head_offsets(self.moduli))

    @property
    def num_rows(self) -> int:
        """R: rows of all heads together."""
        return sum(self.moduli)


@dataclass(frozen=True)
class MemoryRecipe:
    """All that a memory file says about its tensors."""

    config: MemoryConfig
    """What the memory was built from; its `max_order` is that of the pretraining."""
    row_format: RowFormat
    """How rows are stored."""
    tables: tuple[TableRecipe, ...]
    """One entry per table."""
    prefix: PrefixPolicy
    """What the pretraining did with a space that its tokenizer invents."""
    digests: Mapping[str, str]
    """SHA-256 of each tensor's bytes as stored, lower-case hex."""
    trained_on: Mapping[str, Any] | None = None
    """For people: tokenizer, amount, data, licence, date."""
    block_size: int | None = None
    """Numbers per scale; None for rows that are not quantised."""

    @property
    def identity(self) -> str:
        """The name by which others refer to this memory, SHA-256 in lower-case hex."""
        return identity_of(self.to_dict())

    @property
    def max_order(self) -> int:
        """N of the pretraining."""
        return self.config.max_order

    @classmethod
    def of(
        cls,
        memory: NgramMemory,
        row_format: RowFormat,
        digests: Mapping[str, str],
        layers: Sequence[int] = (),
        trained_on: Mapping[str, Any] | None = None,
        block_size: int | None = None,
    ) -> MemoryRecipe:
        """Describe a memory that is about to be written.

        Args:
            memory: the memory.
            row_format: how its rows are stored.
            digests: SHA-256 of each tensor as stored.
            layers: the layers it was trained at; with a table per layer, one for each table in their order.
            trained_on: free words for people.
            block_size: numbers per scale; None for rows that are not quantised.

        Raises:
            InvalidValueError: if there is a table per layer, but not as many layers as tables.
        """
        moduli = memory.addresser.moduli
        if len(moduli) > 1 and layers and len(layers) != len(moduli):
            raise InvalidValueError(
                f"{len(layers)} layers for a memory of {len(moduli)} tables",
                expected="one layer for each table",
                remedy="Name the layers that the memory was trained at, in the order of its tables",
            )
        shared = len(moduli) == 1
        tables = tuple(
            TableRecipe(tuple(table), tuple(layers if shared else layers[i : i + 1])) for i, table in enumerate(moduli)
        )
        policy = memory.hasher.cache.policy
        return cls(memory.config, row_format, tables, policy, digests, trained_on, block_size)

    def to_dict(self) -> dict[str, Any]:
        """The recipe as plain JSON values, its identity not included."""
        config, law = self.config.to_dict(), self.config.law
        kind = config.pop("kind")
        values: dict[str, Any] = {
            "version": VERSION,
            "kind": kind,
            "config": {**config, "row_format": self.row_format, "block_size": self.block_size},
            "hash": law.stated,
            "tables": [
                {"moduli": list(table.moduli), "offsets": list(table.offsets), "layers": list(table.layers)}
                for table in self.tables
            ],
            "max_order": self.max_order,
            "policy": {"prefix": self.prefix, **dict.fromkeys(BREAKS, "break")},
            "golden": [law.golden(window, [table.moduli for table in self.tables]) for window in law.windows],
            "digests": dict(self.digests),
        }
        if self.trained_on is not None:
            values["trained_on"] = dict(self.trained_on)
        return values

    def to_json(self) -> str:
        """The recipe as a file holds it: canonical JSON, identity included.

        Raises:
            InvalidValueError: if `trained_on` holds what JSON cannot say.
        """
        values = self.to_dict()
        try:
            return canonical_json({**values, "identity": identity_of(values)}).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValueError(
                f"trained_on cannot be written as JSON ({error})",
                expected="text, numbers, lists and mappings of these",
                remedy="Turn other values into text first",
            ) from error


def canonical_json(value: object) -> bytes:
    """JSON with sorted keys and no spaces, in UTF-8: equal values are equal bytes."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()


def identity_of(values: Mapping[str, Any]) -> str:
    """SHA-256, in lower-case hex, of the fields of a recipe that decide what is read where."""
    return hashlib.sha256(canonical_json({name: values[name] for name in _IDENTIFYING})).hexdigest()


def table_name(table: int) -> str:
    """Name of a table's rows among the file's tensors."""
    return f"table.{table}"


def scale_name(table: int) -> str:
    """Name of the scales of a quantised table among the file's tensors."""
    return f"scale.{table}"


def visits_name(table: int) -> str:
    """Name of a table's counts among the file's tensors."""
    return f"visits.{table}"
