"""Token ids to keys, by the backend that suits where the ids are."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing.cache import HashCache
from tokagnostic.hashing.windows_numba import window_keys

if TYPE_CHECKING:
    from torch import Tensor, device

Array = TypeVar("Array", np.ndarray, "Tensor")


class NgramHasher:
    """Hashes the last 1..N tokens at every position.

    The cache's arrays follow the ids to their device on first use. They are no buffers of any module, so that casting,
    sharding or loading a model cannot touch them.

    Args:
        cache: the tokenizer's hash cache.
        max_order: N.

    Raises:
        InvalidValueError: if N is not a whole number of at least 1.
    """

    def __init__(self, cache: HashCache, max_order: int) -> None:
        if type(max_order) is not int or max_order < 1:
            raise InvalidValueError(
                f"max_order = {max_order!r}",
                expected="a whole number of at least 1",
                remedy="Set max_order to 1 or more",
            )
        self.cache = cache
        self.max_order = max_order
        self._tensors: dict[device, tuple[Tensor, Tensor, Tensor]] = {}

    def __call__(self, input_ids: Array, starts: Array | None = None) -> Array:
        """Hash every window that ends at each position.

        Args:
            input_ids: token ids, integer [T] or [B, T], NumPy or tensor; an id below 0 is masked and breaks windows.
            starts: True at the first position of each document, bool, same shape; by default position 0 of every row.

        Returns:
            Keys, int64 [..., N], of the kind and on the device of the ids; -1 where no window exists.

        Raises:
            InvalidValueError: on the CPU, for an id that the cache does not have. On a device, where raising would
                stall it, such an id breaks windows and is counted in `num_unknown_ids`.
        """
        if isinstance(input_ids, np.ndarray):
            return window_keys(input_ids, starts, self.cache, self.max_order)
        import torch

        if input_ids.is_cpu and not torch.compiler.is_compiling():
            flags = None if starts is None else starts.numpy()
            return torch.from_numpy(window_keys(input_ids.numpy(), flags, self.cache, self.max_order))
        from tokagnostic.hashing import windows_torch

        window_keys_there = windows_torch.window_keys
        if not torch.compiler.is_compiling() and has_triton(input_ids.device):
            from tokagnostic.hashing import windows_triton

            window_keys_there = windows_triton.window_keys
        return window_keys_there(
            input_ids, starts, *self.on(input_ids.device), prefix=self.cache.prefix, max_order=self.max_order
        )

    def waiting(self, input_ids: Tensor, starts: Tensor, before: Tensor | None = None) -> Tensor | None:
        """Whether after each position a segment waits for its first bytes; None where no space is ever invented.

        Args:
            input_ids: token ids, int64 [B, T].
            starts: True at the first position of each document, bool [B, T].
            before: the answer for the position before the first, bool [B]; by default False.

        Returns:
            The answers, bool [B, T], by which a sequence can be hashed on from any position.
        """
        if self.cache.prefix == "none":
            return None
        from tokagnostic.hashing.segments_torch import waiting_segments

        steps = self.on(input_ids.device)[0]
        known = (input_ids >= 0) & (input_ids < len(steps))
        has_bytes = (steps[input_ids * known, 1] != 0) & known
        return waiting_segments(has_bytes, starts, self.cache.prefix, before)

    @property
    def num_unknown_ids(self) -> int:
        """How many ids that the cache does not have were met on devices so far."""
        return sum(int(num_unknown) for *_, num_unknown in self._tensors.values())

    def on(self, where: device) -> tuple[Tensor, Tensor, Tensor]:
        """What kernels on a device work with: the cache's steps, its steps at segment starts, and a count.

        Returns:
            steps: C(t) and B(|t|) of each id, int64 [V, 2].
            start_steps: the same at a segment start, int64 [V, 2].
            num_unknown: ids met so far that the cache does not have, int64 [1].
        """
        import torch

        if where not in self._tensors:
            steps = torch.from_numpy(self.cache.steps).to(where)
            same = self.cache.start_steps is self.cache.steps
            start_steps = steps if same else torch.from_numpy(self.cache.start_steps).to(where)
            self._tensors[where] = steps, start_steps, torch.zeros(1, dtype=torch.int64, device=where)
        return self._tensors[where]


@cache
def has_triton(where: device) -> bool:
    """Whether kernels of Triton run on a device: it is a GPU, and the package is there."""
    return where.type == "cuda" and find_spec("triton") is not None
