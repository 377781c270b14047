"""A memory to one safetensors file that names its own rows, and such a file, checked, back to a memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
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
    are_finite,
    bytes_of,
    copy_tensors,
    map_tensors,
    pieces_in,
    read_layout,
    write_layout,
)
from tokagnostic.memory.quantised import QuantisedRows, block_size_of
from tokagnostic.memory.recipe import MemoryRecipe, RowFormat, scale_name, table_name, visits_name
from tokagnostic.memory.recipe_reader import recipe_from_json
from tokagnostic.memory.rounding import Rounding
from tokagnostic.memory.stored import ROW_DTYPES, stored_tensors
from tokagnostic.memory.visits import Visits

METADATA_KEY = "tokagnostic"


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
    block_size: int | None = None,
) -> SaveReport:
    """Write a memory under its final name, whole or not at all. Equal memories are equal files.

    Tables are cast, hashed and written piece by piece; no second copy of a table is made.

    Args:
        memory: the memory.
        path: the file, by convention `memory.safetensors`; one that exists is replaced.
        row_format: how rows are stored.
        trained_on: words for people: tokenizer, amount, data and its licence, date.
        layers: the layers it was trained at; with a table per layer, one for each table.
        block_size: numbers per scale of quantised rows; by default the largest divisor of dim up to 32.

    Raises:
        InvalidValueError: if the row format is unknown, the block does not fit it, a number is not finite or does not
            fit it, or `trained_on` is no JSON.
        MemoryFileError: if the file cannot be written.
    """
    if row_format not in get_args(RowFormat):
        raise InvalidValueError(
            f"row_format = {row_format!r}",
            expected=f"one of {', '.join(get_args(RowFormat))}",
            remedy="Name one of these",
        )
    path = Path(path)
    block_size = block_size_of(row_format, memory.store.dim, block_size)
    tensors = stored_tensors(memory, row_format, block_size)
    rounding = Rounding()
    digests = {}
    for name, tensor in tensors.items():
        digest = hashlib.sha256()
        for piece in tensor.pieces():
            rounding.add(name, piece, row_format)
            digest.update(bytes_of(piece.stored))
        digests[name] = digest.hexdigest()
    recipe = MemoryRecipe.of(memory, row_format, digests, layers, trained_on, block_size)
    header = write_layout(
        {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}, {METADATA_KEY: recipe.to_json()}
    )
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(header)
            for tensor in tensors.values():
                for piece in tensor.pieces():
                    file.write(bytes_of(piece.stored))
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
    Of quantised rows, only those looked up are unpacked, to float32.

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
    tables = [_rows_in(tensors, i, trainable) for i in range(len(recipe.tables))]
    memory = recipe.config.build(cache, tables=tables, max_order=max_order)
    _check_own_tensors(path, recipe.config.own_values(cache), tensors)
    memory.visits = [Visits(table.num_rows, saved=tensors[visits_name(i)]) for i, table in enumerate(recipe.tables)]
    if trainable:
        return memory
    memory.origin = Origin(Path(path), recipe.identity, memory.versions, mapped)
    return memory.freeze()


def _check_own_tensors(path: str | Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Refuse a file whose rows are addressed by other values than this program would address them by."""
    for name, values in expected.items():
        if not torch.equal(values, found[name]):
            raise MemoryFileError(
                f"{path}: the tensor `{name}` differs from what this program makes of the tokenizer",
                expected="equal values: a version of Unicode, or of what normalises texts, may have changed them",
                remedy="Read the file with the version that wrote it, or get it again from where it came",
            )


def _rows_in(tensors: Mapping[str, Tensor], table: int, trainable: bool) -> Tensor | QuantisedRows:
    rows, scales = tensors[table_name(table)], tensors.get(scale_name(table))
    if scales is None:
        return rows.to(torch.float32) if trainable else rows
    quantised = QuantisedRows(rows, scales)
    return quantised.numbers() if trainable else quantised


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
    dim, block_size = recipe.config.dim, recipe.block_size
    for i, table in enumerate(recipe.tables):
        wanted[table_name(i)] = (ROW_DTYPES[recipe.row_format], (table.num_rows, dim))
        wanted[visits_name(i)] = (torch.uint32, (table.num_rows,))
        if block_size is not None:
            wanted[scale_name(i)] = (torch.float32, (table.num_rows, dim // block_size))
    found = {name: (place.dtype, place.shape) for name, place in places.items()}
    for name, dtype in recipe.config.own_tensors.items():
        # Their length is the tokenizer's, which only its own hash cache knows.
        shape = found[name][1] if name in found else ()
        wanted[name] = (dtype, shape[:1] or (1,))
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
    """Compare every tensor with its digest, and make sure that every row is made of numbers."""
    for name, place in places.items():
        digest, finite = hashlib.sha256(), True
        for piece in pieces_in(file, place):
            digest.update(piece)
            finite = finite and are_finite(piece, place.dtype)
        if digest.hexdigest() != recipe.digests[name]:
            raise MemoryFileError(
                f"{path}: the tensor `{name}` has the digest {digest.hexdigest()[:16]}...",
                expected=f"{recipe.digests[name][:16]}... by the recipe",
                remedy="Get the file again from where it came, or export the memory again",
            )
        if not finite:
            raise MemoryFileError(
                f"{path}: the tensor `{name}` holds what is no finite number",
                expected="finite numbers in rows and scales, as save_memory writes them",
                remedy="Do not use this file; export the memory again from where it was trained",
            )
