"""What is computed to the most bytes of tensors that were alive at once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):
    """Counts within it the storages that operations of torch make, on any device, and those that go again.

    What is made by other means is not seen: arrays of NumPy, workspaces of libraries, what an allocator keeps in reserve.

    Attributes:
        alive: bytes made within it and not gone yet.
        peak: the most that these have been.
    """

    def __init__(self) -> None:
        super().__init__()
        self.alive = 0
        self.peak = 0
        self._known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and look at what it gives back."""
        given = {id(leaf.untyped_storage()) for leaf in tree_leaves((args, kwargs)) if _is_dense(leaf)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if _is_dense(leaf) and id(leaf.untyped_storage()) not in given:
                self._add(leaf.untyped_storage())
        return result

    def _add(self, storage: Any) -> None:
        if storage in self._known:
            return
        num_bytes = storage.nbytes()
        self._known[storage] = num_bytes
        self.alive += num_bytes
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._remove, num_bytes)

    def _remove(self, num_bytes: int) -> None:
        self.alive -= num_bytes


def _is_dense(value: object) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided
