"""Token ids to keys, by the backend that suits where the ids are."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing.cache import HashCache
from tokagnostic.hashing.continuing_numba import continue_keys
from tokagnostic.hashing.windows_numba import window_keys

if TYPE_CHECKING:
    from torch import Tensor, device

Array = TypeVar("Array", np.ndarray, "Tensor")


class Past(Protocol):
    """The positions before a call's first, of which each backend asks what it needs to hash on."""

    @property
    def last_keys(self) -> Tensor | None:
        """Keys at the last positions, one or more, int64 [B, P, N]; None if they are not known."""

    @property
    def last_waiting(self) -> Tensor | None:
        """Whether a segment waits for its first bytes after each of them, bool [B, P]; None where none ever does."""

    def tail(self, length: int) -> tuple[Tensor, Tensor]:
        """Ids, int64, and starts, bool, [B, up to length] each, behind which hashing goes on as behind all of them."""


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

    def __call__(self, input_ids: Array, starts: Array | None = None, past: Past | None = None) -> Array:
        """Hash every window that ends at each position.

        Args:
            input_ids: token ids, integer [T] or [B, T], NumPy or tensor; an id below 0 is masked and breaks windows.
            starts: True at the first position of each document, bool, same shape; by default position 0 of every row, or
                none behind a past.
            past: what stands before the first position of tensors [B, T]; by default nothing.

        Returns:
            Keys, int64 [..., N], of the kind and on the device of the ids; -1 where no window exists.

        Raises:
            InvalidValueError: on the CPU, for an id that the cache does not have. On a device, where raising would
                stall it, such an id breaks windows and is counted in `num_unknown_ids`.
        """
        if isinstance(input_ids, np.ndarray):
            return window_keys(input_ids, starts, self.cache, self.max_order)
        if past is not None:
            return self._behind(past, input_ids, starts)
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

    def _behind(self, past: Past, input_ids: Tensor, starts: Tensor | None) -> Tensor:
        import torch

        if starts is None:
            starts = torch.zeros_like(input_ids, dtype=torch.bool)
        last_keys = past.last_keys
        here = input_ids.is_cpu and input_ids.dtype == torch.int64 and starts.is_cpu and starts.dtype == torch.bool
        if last_keys is not None and here and last_keys.is_cpu:
            return continue_keys(input_ids, starts, last_keys, past.last_waiting, self.cache, self.max_order)
        old_ids, old_starts = past.tail(max(1, self.max_order - 1))
        keys = self(torch.cat((old_ids, input_ids), dim=1), torch.cat((old_starts, starts), dim=1))
        return keys[:, old_ids.shape[1] :]

    def waiting(self, input_ids: Tensor, starts: Tensor, before: Tensor | None = None) -> Tensor | None:
        """Whether after each position a segment waits for its first bytes; None where no space is ever invented.

        Args:
            input_ids: token ids, int64 [B, T].
            starts: True at the first position of each document, bool [B, T].
            before: the answers for positions before the first, bool [B, P], of which the last counts; by default False.

        Returns:
            The answers, bool [B, T], by which a sequence can be hashed on from any position.
        """
        if self.cache.prefix == "none":
            return None
        from tokagnostic.hashing.segments_torch import waiting_segments

        steps = self.on(input_ids.device)[0]
        known = (input_ids >= 0) & (input_ids < len(steps))
        has_bytes = (steps[input_ids * known, 1] != 0) & known
        return waiting_segments(has_bytes, starts, self.cache.prefix, None if before is None else before[:, -1])

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
