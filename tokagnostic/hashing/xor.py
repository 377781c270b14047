"""The published Engram's address of a window: its canonical ids, each times a number of its place, by exclusive or.

For order n at position t, `mix = x_t * m_0 xor x_{t-1} * m_1 xor ... xor x_{t-n+1} * m_{n-1}`, and each head takes the mix
modulo a prime of its own. The numbers m belong to a layer, so the mixes of several layers differ; what they have in
common are the ids. A key is therefore the pair of the newest and the oldest id of its window, and the mix of an order is
made from the keys of all orders up to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing import xor_numba
from tokagnostic.hashing.cache import HashCache
from tokagnostic.hashing.hasher import Array, Past
from tokagnostic.hashing.windows_numba import kernel_inputs, unknown_id

if TYPE_CHECKING:
    from torch import Tensor, device

LAYER_STEP = 10007
"""What a layer adds to the seed of its multipliers."""


def multipliers_of(layer: int, max_order: int, num_ids: int, seed: int = 0) -> list[int]:
    """The numbers m_0 .. m_{N-1} of one layer, odd, as the published code draws them.

    Args:
        layer: number of the layer.
        max_order: N.
        num_ids: canonical ids; an id below it times any of the numbers is below 2 ** 63.
        seed: of all layers.
    """
    half = max(1, (2**63 - 1) // num_ids // 2)
    draws = np.random.default_rng(seed + LAYER_STEP * layer).integers(0, half, size=max_order, dtype=np.int64)
    return [2 * int(draw) + 1 for draw in draws]


class XorHasher:
    """Collects the canonical ids of the last 1..N tokens at every position.

    Before a document's first position, and before an id without bytes, stands the pad id: every window whose last id has
    bytes exists, and none reaches across. The published code knows documents only as rows; those of later models break at
    ends of documents and at images in this way.

    Args:
        cache: the tokenizer's hash cache.
        max_order: N.
        num_ids: canonical ids that addresses are made for.
        pad_id: the canonical id that stands where there is none.
        min_order: smallest order with windows; 2 in the published law.

    Raises:
        InvalidValueError: if the cache has more canonical ids than that, or does not know its tokens.
    """

    def __init__(self, cache: HashCache, max_order: int, num_ids: int, pad_id: int, min_order: int = 2) -> None:
        self.cache = cache
        self.max_order = max_order
        self.num_ids = num_ids
        self.pad_id = pad_id
        self.min_order = min_order
        canonical = cache.canonical_ids
        if canonical.max(initial=0) >= num_ids:
            raise InvalidValueError(
                f"a tokenizer of {int(canonical.max()) + 1} canonical ids for addresses made for {num_ids}",
                expected=f"at most {num_ids}",
                remedy="Set num_ids to at least that many, or to auto",
            )
        self.codes = np.full(cache.num_ids, -1, dtype=np.int64)
        """Canonical id of each id, -1 for one without bytes, int64 [V]."""
        has_bytes = cache.steps[: len(canonical), 1] != 0
        self.codes[: len(canonical)] = np.where(has_bytes, canonical, -1)
        self._tensors: dict[device, tuple[Tensor, Tensor]] = {}

    def __call__(self, input_ids: Array, starts: Array | None = None, past: Past | None = None) -> Array:
        """Collect every window that ends at each position.

        Args:
            input_ids: token ids, integer [T] or [B, T], NumPy or tensor; an id below 0 is masked and breaks windows.
            starts: True at the first position of each document, bool, same shape; by default position 0 of every row, or
                none behind a past.
            past: what stands before the first position of tensors [B, T]; by default nothing.

        Returns:
            Keys, int64 [..., N]: for order n `x_t << 31 | x_{t-n+1}`, -1 where no window exists.

        Raises:
            InvalidValueError: on the CPU, for an id that the cache does not have. On a device, where raising would
                stall it, such an id breaks windows and is counted in `num_unknown_ids`.
        """
        if isinstance(input_ids, np.ndarray):
            return self._on_cpu(input_ids, starts)
        import torch

        if past is not None:
            if starts is None:
                starts = torch.zeros_like(input_ids, dtype=torch.bool)
            old_ids, old_starts = past.tail(max(1, self.max_order - 1))
            keys = self(torch.cat((old_ids, input_ids), dim=1), torch.cat((old_starts, starts), dim=1))
            return keys[:, old_ids.shape[1] :]
        if input_ids.is_cpu and not torch.compiler.is_compiling():
            flags = None if starts is None else starts.numpy()
            return torch.from_numpy(self._on_cpu(input_ids.numpy(), flags))
        from tokagnostic.hashing import xor_torch

        return xor_torch.window_keys(
            input_ids, starts, *self.on(input_ids.device), self.pad_id, self.min_order, self.max_order
        )

    def waiting(self, input_ids: Tensor, starts: Tensor, before: Tensor | None = None) -> Tensor | None:
        """None: canonical ids are the same at the start of a segment, so nothing else has to be known to go on."""
        return None

    @property
    def num_unknown_ids(self) -> int:
        """How many ids that the cache does not have were met on devices so far."""
        return sum(int(num_unknown) for _, num_unknown in self._tensors.values())

    def on(self, where: device) -> tuple[Tensor, Tensor]:
        """The codes on a device, and a count of the ids met there that the cache does not have."""
        import torch

        if where not in self._tensors:
            self._tensors[where] = (
                torch.from_numpy(self.codes).to(where),
                torch.zeros(1, dtype=torch.int64, device=where),
            )
        return self._tensors[where]

    def _on_cpu(self, input_ids: np.ndarray, starts: np.ndarray | None) -> np.ndarray:
        ids, flags = kernel_inputs(input_ids, starts)
        keys = np.empty((*ids.shape, self.max_order), dtype=np.int64)
        bad = xor_numba.fill_keys(ids, flags, self.codes, self.pad_id, self.min_order, keys)
        if bad >= 0:
            raise unknown_id(ids, bad, self.cache)
        return keys.reshape(*np.shape(input_ids), self.max_order)


def mix_keys(keys: Array, multipliers: tuple[int, ...], min_order: int) -> Array:
    """The mix of every window from the keys of all orders.

    Args:
        keys: of `XorHasher`, int64 [..., N], NumPy or tensor.
        multipliers: m_0 .. m_{N-1} of one layer, or more.
        min_order: smallest order with windows.

    Returns:
        Mixes of orders min_order..N, int64 [..., N - min_order + 1]; -1 where no window exists.
    """
    if isinstance(keys, np.ndarray):
        return xor_numba.mix_keys(keys, np.array(multipliers, dtype=np.int64), min_order)
    import torch

    if keys.is_cpu and not torch.compiler.is_compiling():
        return torch.from_numpy(xor_numba.mix_keys(keys.numpy(), np.array(multipliers, dtype=np.int64), min_order))
    from tokagnostic.hashing import xor_torch

    return xor_torch.mix_keys(keys, multipliers, min_order)
