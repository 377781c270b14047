"""A memory to what pickles and copies of it hold: its rows, or the file that they are mapped from.

Rows that are mapped are named by their file's path and identity, for a table may be larger than what sends it: whoever
unpickles it opens the same file, such as another process of the machine. All else is copied.
"""

from __future__ import annotations

import copyreg
from pathlib import Path
from typing import Any

from tokagnostic.errors import MemoryFileError, SourceError
from tokagnostic.hashing.cache import HashCache
from tokagnostic.memory.base import NgramMemory
from tokagnostic.memory.file import load_memory, read_recipe

_IN_THE_FILE = ("_parameters", "_buffers", "_modules", "addresser", "ahead", "origin", "visits")
"""Attributes of a memory that come with its file, or stay in the process."""


def register_pickling() -> None:
    """Have pickle, `torch.save` and copies ask here, for as long as the process runs."""
    copyreg.pickle(NgramMemory, _reduced)


def _reduced(memory: NgramMemory) -> Any:
    file = _file_of(memory)
    if file is None or memory.origin is None:
        return memory.__reduce_ex__(2)
    state = {name: value for name, value in vars(memory).items() if name not in _IN_THE_FILE}
    return _reopened, (file, memory.origin.identity, memory.hasher.cache, memory.max_order, memory.store.stays), state


def _file_of(memory: NgramMemory) -> Path | None:
    """The file that a memory's rows are mapped from; None if they are in memory, or the file holds others by now."""
    if memory.origin is None or not memory.origin.mapped or not memory.frozen or not memory.is_as_in_file:
        return None
    if any(not tensor.is_cpu for tensor in memory.store.tensors):
        return None
    path = memory.origin.path.absolute()
    try:
        return path if read_recipe(path).identity == memory.origin.identity else None
    except (SourceError, MemoryFileError):
        return None


def _reopened(path: Path, identity: str, cache: HashCache, max_order: int, stays: bool = False) -> NgramMemory:
    """The memory that a pickle names.

    Raises:
        SourceError: if its file is not there.
        MemoryFileError: if it is another memory's.
    """
    found = read_recipe(path).identity
    if found != identity:
        raise MemoryFileError(
            f"{path} holds the memory {found}",
            expected=f"the memory {identity}, of which the pickle holds no rows but names this file",
            remedy="Put the file back, or pickle the memory again, loaded with mapped=False to have its rows copied",
        )
    memory = load_memory(path, cache, max_order=max_order)
    return memory.stay() if stays else memory
