"""Keys, or token ids at once, to row numbers, by the backend that suits where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tokagnostic.hashing import rows_numba
from tokagnostic.hashing.addresses import head_offsets
from tokagnostic.hashing.hasher import Array, NgramHasher, has_triton

if TYPE_CHECKING:
    from torch import Tensor, device


class HeadRows:
    """Addresses keys in one table: each head takes the key modulo its own prime, and heads lie one after another.

    Args:
        moduli: M_k per head.
        first_row: where the rows of the first head begin in the table.

    Raises:
        InvalidValueError: if there is no head, or a modulus is not a whole number of at least 2 that 32 bits can hold.
    """

    def __init__(self, moduli: Sequence[int], first_row: int = 0) -> None:
        self.moduli = tuple(moduli)
        self.offsets = tuple(first_row + offset for offset in head_offsets(moduli))
        self.arrays = rows_numba.HeadArrays(moduli, first_row)
        self._tensors: dict[device, Tensor] = {}

    def __call__(self, keys: Array) -> Array:
        """Address every key once per head: row_k = offset_k + key mod M_k.

        Args:
            keys: int64 [...], NumPy or tensor; -1 for no window.

        Returns:
            Rows, int64 [..., K], of the kind and on the device of the keys; -1 where there is no key.
        """
        if isinstance(keys, np.ndarray):
            return rows_numba.rows_of_keys(keys, self.arrays)
        import torch

        if keys.is_cpu and not torch.compiler.is_compiling():
            return torch.from_numpy(rows_numba.rows_of_keys(keys.numpy(), self.arrays))
        from tokagnostic.hashing import rows_torch

        return rows_torch.rows_of_keys(keys, self.on(keys.device))

    def on(self, where: device) -> Tensor:
        """M_k, offset_k and floor((2 ** 64 - 1) / M_k) of each head, int64 [3, K], on a device."""
        import torch

        if where not in self._tensors:
            reciprocals = [(2**64 - 1) // modulus for modulus in self.moduli]
            self._tensors[where] = torch.tensor([self.moduli, self.offsets, reciprocals], device=where)
        return self._tensors[where]


class NgramRows:
    """Addresses the last 1..N tokens at every position in one table, in one pass over the ids.

    Equal to hashing and then addressing, but for the keys, which never have to be stored.

    Args:
        hasher: ids to keys.
        heads: keys to rows.
    """

    def __init__(self, hasher: NgramHasher, heads: HeadRows) -> None:
        self.hasher = hasher
        self.heads = heads

    def __call__(self, input_ids: Array, starts: Array | None = None) -> Array:
        """Address every window that ends at each position.

        Args:
            input_ids: token ids, integer [T] or [B, T], NumPy or tensor; an id below 0 is masked and breaks windows.
            starts: True at the first position of each document, bool, same shape; by default position 0 of every row.

        Returns:
            Rows, int64 [..., N, K], of the kind and on the device of the ids; -1 where no window exists.

        Raises:
            InvalidValueError: as the hasher's.
        """
        hasher, heads = self.hasher, self.heads
        if isinstance(input_ids, np.ndarray):
            return rows_numba.window_rows(input_ids, starts, hasher.cache, hasher.max_order, heads.arrays)
        import torch

        compiling = torch.compiler.is_compiling()
        if input_ids.is_cpu and not compiling:
            flags = None if starts is None else starts.numpy()
            rows = rows_numba.window_rows(input_ids.numpy(), flags, hasher.cache, hasher.max_order, heads.arrays)
            return torch.from_numpy(rows)
        if compiling or not has_triton(input_ids.device):
            return heads(hasher(input_ids, starts))
        from tokagnostic.hashing import windows_triton

        where = input_ids.device
        return windows_triton.window_rows(
            input_ids, starts, *hasher.on(where), hasher.cache.prefix, hasher.max_order, heads.on(where)
        )[1]
