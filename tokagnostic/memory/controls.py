"""A memory file to what is read in its place, to tell what its rows know from what any rows would bring."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from tokagnostic.hashing import HashCache
from tokagnostic.memory.base import NgramMemory, generator
from tokagnostic.memory.file import load_memory, read_recipe

Reading = Literal["frozen", "random", "permuted", "order1"]
"""The frozen table itself, noise of the same row lengths, the same rows in another order, or the frozen table's windows
of one token only."""

READINGS: tuple[Reading, ...] = get_args(Reading)


def load_reading(
    reading: Reading,
    file: str | Path,
    cache: HashCache,
    seed: int,
    *,
    max_order: int | None = None,
    verify: bool | None = None,
) -> NgramMemory:
    """Load a memory file, frozen, as one of the readings; only the untouched tables stay mapped to the file.

    Args:
        reading: which.
        file: the memory.
        cache: of the reader's tokenizer.
        seed: of noise and order; rows of a memory are drawn otherwise, for any seed.
        max_order: N to read; by default that of the memory. `order1` reads 1.
        verify: see `load_memory`.

    Raises:
        MemoryFileError: if the file cannot be believed.
    """
    order = 1 if reading == "order1" else max_order
    has_own_rows = reading in ("random", "permuted")
    if not has_own_rows:
        return load_memory(file, cache, max_order=order, verify=verify)
    # Numbers in eight bits with their scales cannot be drawn or put in order one by one: they are unpacked.
    unpacked = read_recipe(file).block_size is not None
    memory = load_memory(file, cache, trainable=unpacked, max_order=order, mapped=False, verify=verify).freeze()
    random = generator(_seed_of(reading, seed))
    with torch.no_grad():
        for table in memory.parameters():
            if reading == "random":
                table.copy_(noise_like(table, random))
            else:
                table.copy_(table[torch.randperm(len(table), generator=random)])
    return memory


def noise_like(table: Tensor, random: torch.Generator) -> Tensor:
    """Rows in random directions, each as long as the row that it stands in for, [R, dim]."""
    noise = torch.randn(table.shape, generator=random)
    lengths = torch.linalg.vector_norm(table.float(), dim=1, keepdim=True)
    noise *= lengths / torch.linalg.vector_norm(noise, dim=1, keepdim=True)
    return noise.to(table.dtype)


def _seed_of(reading: Reading, seed: int) -> int:
    """A seed that nothing else draws from: with the plain one, noise would point where the memory's fresh rows did."""
    return int.from_bytes(hashlib.sha256(f"{reading} {seed}".encode()).digest()[:7], "big")
