"""A memory to one safetensors file that names its own rows, and such a file, checked, back to a memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from tokagnostic.errors import InvalidValueError, MemoryFileError, SourceError
from tokagnostic.hashing.cache import HashCache
from tokagnostic.memory.base import NgramMemory, Origin
from tokagnostic.memory.container import (
    DTYPE_NAMES,
    Place,
    bytes_of,
    copy_tensors,
    digest_of,
    map_tensors,
    read_layout,
    write_layout,
)
from tokagnostic.memory.recipe import MemoryRecipe, RowFormat, table_name, visits_name
from tokagnostic.memory.recipe_reader import recipe_from_json
from tokagnostic.memory.visits import Visits

METADATA_KEY = "tokagnostic"
CHUNK_NUMBERS = 2**22
"""Numbers that are cast, hashed and written at a time."""

ROW_DTYPES: dict[RowFormat, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class SaveReport:
    """What was written."""

    path: Path
    """The file."""
    identity: str
    """The memory's name, see `MemoryRecipe.identity`."""
    num_bytes: int
    """Size of the file."""
    max_rounding: float
    """Largest absolute difference between a number and what was stored of it."""
    relative_rounding: float
    """Root mean square of these differences over the root mean square of the numbers; 0 if nothing was rounded."""


def save_memory(
    memory: NgramMemory,
    path: str | Path,
    row_format: RowFormat = "fp32",
    trained_on: Mapping[str, Any] | None = None,
    layers: Sequence[int] = (),
) -> SaveReport:
    """Write a memory under its final name, whole or not at all. Equal memories are equal files.

    Tables are cast, hashed and written piece by piece; no second copy of a table is made.

    Args:
        memory: the memory.
        path: the file, by convention `memory.safetensors`; one that exists is replaced.
        row_format: how rows are stored.
        trained_on: words for people: tokenizer, amount, data and its licence, date.
        layers: the layers it was trained at; with a table per layer, one for each table.

    Raises:
        InvalidValueError: if the row format is unknown, a number is not finite or does not fit it, or `trained_on` is
            no JSON.
        MemoryFileError: if the file cannot be written.
    """
    if row_format not in get_args(RowFormat):
        raise InvalidValueError(
            f"row_format = {row_format!r}",
            expected=f"one of {', '.join(get_args(RowFormat))}",
            remedy="Name one of these",
        )
    path = Path(path)
    tensors = _tensors_to_store(memory, ROW_DTYPES[row_format])
    rounding = _Rounding()
    digests = {}
    for name, (tensor, dtype) in tensors.items():
        digest = hashlib.sha256()
        for numbers, stored in pieces(tensor, dtype):
            if dtype.is_floating_point:
                rounding.add(name, numbers, stored, row_format)
            digest.update(bytes_of(stored))
        digests[name] = digest.hexdigest()
    recipe = MemoryRecipe.of(memory, row_format, digests, layers, trained_on)
    header = write_layout(
        {name: (dtype, tuple(tensor.shape)) for name, (tensor, dtype) in tensors.items()},
        {METADATA_KEY: recipe.to_json()},
    )
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(header)
            for tensor, dtype in tensors.values():
                for _, stored in pieces(tensor, dtype):
                    file.write(bytes_of(stored))
            file.flush()
            os.fsync(file.fileno())
            num_bytes = file.tell()
        partial.replace(path)
    except OSError as error:
        raise MemoryFileError(
            f"{path} cannot be written ({error.strerror or error})",
            expected="a folder that exists and has room for the file",
            remedy="Free space or name another path; nothing was left behind",
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return SaveReport(path, recipe.identity, num_bytes, rounding.largest, rounding.relative)


def read_recipe(path: str | Path) -> MemoryRecipe:
    """Read a file's description and check it against itself and the file's layout; no tensor is read.

    Raises:
        SourceError: if there is no such file.
        MemoryFileError: if it is damaged, foreign or newer than this program; the message names the field.
    """
    with _open(path) as file:
        return _read_header(file, path)[0]


def verify_memory(path: str | Path) -> None:
    """Compare every tensor of a memory file with its digest, which reads the whole file.

    Raises:
        SourceError: if there is no such file.
        MemoryFileError: if it is damaged, foreign or newer than this program.
    """
    with _open(path) as file:
        recipe, places = _read_header(file, path)
        _verify(file, path, recipe, places)


def load_memory(
    path: str | Path,
    cache: HashCache,
    trainable: bool = False,
    max_order: int | None = None,
    mapped: bool | None = None,
    verify: bool | None = None,
) -> NgramMemory:
    """Open a memory for the ids of a tokenizer that its pretraining need not have known.

    Rows keep the type that they are stored in, and features have it too; whoever reads them casts what was looked up.

    Args:
        path: a file that `save_memory` wrote.
        cache: the hash cache of the reader's tokenizer.
        trainable: copy the rows to float32 and let them be trained; by default they are frozen.
        max_order: largest order that is read; by default that of the pretraining.
        mapped: leave the rows in the file and fetch those looked up. By default frozen rows are mapped.
        verify: compare every tensor with its digest, which reads the whole file. By default done for copied rows.

    Raises:
        SourceError: if there is no such file.
        MemoryFileError: if it is damaged, foreign or newer than this program.
        InvalidValueError: if the cache is of another prefix policy or law, or trainable rows shall be mapped.
    """
    mapped = not trainable if mapped is None else mapped
    if mapped and trainable:
        raise InvalidValueError(
            "trainable=True with mapped=True",
            expected="trainable rows in memory, for no file is ever written in place",
            remedy="Leave mapped out, or load the memory frozen",
        )
    with _open(path) as file:
        recipe, places = _read_header(file, path)
        HashCache.of(cache, recipe.prefix)
        if verify or (verify is None and not mapped):
            _verify(file, path, recipe, places)
        tensors = map_tensors(file, places) if mapped else copy_tensors(file, places)
    tables = [tensors[table_name(i)] for i in range(len(recipe.tables))]
    if trainable:
        tables = [table.to(torch.float32) for table in tables]
    memory = recipe.config.build(cache, tables=tables, max_order=max_order)
    memory.visits = [Visits(table.num_rows, saved=tensors[visits_name(i)]) for i, table in enumerate(recipe.tables)]
    if trainable:
        return memory
    memory.origin = Origin(Path(path), recipe.identity, memory.versions, mapped)
    return memory.freeze()


class _Rounding:
    """What a cast changes, summed over all pieces of all tables."""

    def __init__(self) -> None:
        self.largest = 0.0
        self._square_of_error = 0.0
        self._square = 0.0

    @property
    def relative(self) -> float:
        """Relative root mean square error."""
        return (self._square_of_error / self._square) ** 0.5 if self._square_of_error else 0.0

    def add(self, name: str, numbers: Tensor, stored: Tensor, row_format: RowFormat) -> None:
        """Account for one piece.

        Raises:
            InvalidValueError: if a number is not finite, or not any more.
        """
        finite = torch.isfinite(stored)
        if not bool(finite.all()):
            raise InvalidValueError(
                f"`{name}` holds {float(numbers[~finite][0])!r}, which {row_format} cannot store",
                expected=f"finite numbers within {torch.finfo(stored.dtype).max:.6g} of zero",
                remedy="Store the rows as fp32 or bf16 if the number is finite; else train the memory again",
            )
        if stored.dtype == numbers.dtype:
            return
        exact = numbers.to(torch.float64)
        error = exact - stored.to(torch.float64)
        self.largest = max(self.largest, float(error.abs().max()))
        self._square_of_error += float(error.square().sum())
        self._square += float(exact.square().sum())


def _tensors_to_store(memory: NgramMemory, row_dtype: torch.dtype) -> dict[str, tuple[Tensor, torch.dtype]]:
    """All tensors by name with the types that they shall have in the file, wider types first."""
    rows = {table_name(i): (table.detach(), row_dtype) for i, table in enumerate(memory.store.tables)}
    counts = {visits_name(i): (visits.saturated(), torch.uint32) for i, visits in enumerate(memory.visits)}
    return dict(sorted({**rows, **counts}.items(), key=lambda item: -item[1][1].itemsize))


def pieces(tensor: Tensor, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    """A tensor on any device piece by piece on the CPU, as it is and as it shall be stored."""
    for numbers in tensor.reshape(-1).split(CHUNK_NUMBERS):
        numbers = numbers.cpu()
        yield numbers, numbers.to(dtype)


def _open(path: str | Path) -> BufferedReader:
    try:
        return open(path, "rb")
    except IsADirectoryError as error:
        raise MemoryFileError(
            f"{path} is a folder", expected="a memory file", remedy="Name the file in it, such as memory.safetensors"
        ) from error
    except OSError as error:
        raise SourceError(
            f"memory file {path} cannot be opened ({error.strerror or error})",
            expected="a file that can be read",
            remedy="Check the path, or export a memory there first",
        ) from error


def _read_header(file: BufferedReader, path: str | Path) -> tuple[MemoryRecipe, dict[str, Place]]:
    """The recipe of an open file and the places of its tensors, each checked against the other."""
    try:
        metadata, places = read_layout(file)
        if not isinstance(metadata.get(METADATA_KEY), str):
            raise MemoryFileError(
                f"the metadata have no text `{METADATA_KEY}`",
                expected="the recipe of a memory, without which no row can be named",
                remedy="Export the memory with save_memory",
            )
        recipe = recipe_from_json(metadata[METADATA_KEY])
        _check_tensors(recipe, places)
    except MemoryFileError as error:
        raise MemoryFileError(f"{path}: {error.given}", expected=error.expected, remedy=error.remedy) from error
    return recipe, places


def _check_tensors(recipe: MemoryRecipe, places: Mapping[str, Place]) -> None:
    wanted: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
    for i, table in enumerate(recipe.tables):
        wanted[table_name(i)] = (ROW_DTYPES[recipe.row_format], (table.num_rows, recipe.config.dim))
        wanted[visits_name(i)] = (torch.uint32, (table.num_rows,))
    found = {name: (place.dtype, place.shape) for name, place in places.items()}
    for name in sorted(wanted.keys() | found.keys()):
        if found.get(name) != wanted.get(name):
            raise MemoryFileError(
                f"the tensor `{name}` is {_described(found.get(name))}",
                expected=f"{_described(wanted.get(name))} by the recipe",
                remedy="Get the file again from where it came, or export the memory again",
            )


def _described(tensor: tuple[torch.dtype, tuple[int, ...]] | None) -> str:
    return "missing" if tensor is None else f"{DTYPE_NAMES[tensor[0]]} {list(tensor[1])}"


def _verify(file: BufferedReader, path: str | Path, recipe: MemoryRecipe, places: Mapping[str, Place]) -> None:
    for name, place in places.items():
        digest = digest_of(file, place)
        if digest != recipe.digests[name]:
            raise MemoryFileError(
                f"{path}: the tensor `{name}` has the digest {digest[:16]}...",
                expected=f"{recipe.digests[name][:16]}... by the recipe",
                remedy="Get the file again from where it came, or export the memory again",
            )
