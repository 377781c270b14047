"""A memory and the description of a file to whether the file holds the memory's rows."""

from __future__ import annotations

import hashlib

from tokagnostic.memory.base import NgramMemory
from tokagnostic.memory.container import bytes_of
from tokagnostic.memory.recipe import MemoryRecipe
from tokagnostic.memory.stored import stored_rows


def has_rows_of(recipe: MemoryRecipe, memory: NgramMemory) -> bool:
    """Whether a file's rows are those of a memory, each number rounded to the file's format.

    Rows are compared by their digests, which reads the memory's tables, unless the memory was opened from this one.

    Args:
        recipe: what the file says of itself.
        memory: the memory.
    """
    if memory.origin is not None and memory.is_as_in_file and memory.origin.identity == recipe.identity:
        return True
    if (recipe.config, [list(table.moduli) for table in recipe.tables]) != (memory.config, memory.addresser.moduli):
        return False
    for name, tensor in stored_rows(memory, recipe.row_format, recipe.block_size).items():
        digest = hashlib.sha256()
        for piece in tensor.pieces():
            digest.update(bytes_of(piece.stored))
        if digest.hexdigest() != recipe.digests[name]:
            return False
    return True
