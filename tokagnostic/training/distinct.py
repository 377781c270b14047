"""Keys as they come to about how many different ones there were, in a space that does not grow with them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

NUM_KEPT = 2**14
"""Hashes kept: as many different keys are counted exactly, more with a standard error of 0.8 %."""
_MOST = np.uint64(2**64 - 1)


class DistinctKeys:
    """The least hashes of all keys so far: k of them, of which the largest is x of the whole range, tell of (k - 1) / x keys.

    The estimate of k minimum values (Bar-Yossef et al. 2002), in its form without bias (Beyer et al. 2007, "On synopses for
    distinct-value estimation under multiset operations"). It does not matter in which order or how often keys come, nor
    whether they come to one sketch or to several that are then joined.
    """

    def __init__(self) -> None:
        self._least = np.zeros(0, dtype=np.uint64)  # rising

    def add(self, keys: np.ndarray) -> None:
        """Take in keys, int64 of any shape; -1 is no key. The cost is that of hashing them."""
        self._take(_mixed(keys[keys >= 0]))

    def __len__(self) -> int:
        """How many different keys there were, exactly up to `NUM_KEPT`."""
        if len(self._least) < NUM_KEPT:
            return len(self._least)
        return round((NUM_KEPT - 1) / (int(self._least[-1]) / 2**64))

    @property
    def state(self) -> Tensor:
        """All that is kept, int64 [NUM_KEPT], for a checkpoint or another sketch."""
        padded = np.full(NUM_KEPT, _MOST)
        padded[: len(self._least)] = self._least
        return torch.from_numpy(padded.view(np.int64))

    def join(self, states: Tensor) -> None:
        """Take in what other sketches have kept, int64 [..., NUM_KEPT]."""
        hashes = states.cpu().numpy().reshape(-1).view(np.uint64)
        self._take(hashes[hashes != _MOST])

    def _take(self, hashes: np.ndarray) -> None:
        if len(self._least) == NUM_KEPT:
            hashes = hashes[hashes < self._least[-1]]
        if len(hashes):
            self._least = np.union1d(self._least, hashes)[:NUM_KEPT]


def _mixed(keys: np.ndarray) -> np.ndarray:
    """A one-to-one hash, uint64 [L]: keys of short windows are not spread over their range (the finaliser of SplitMix64)."""
    hashes = keys.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * np.uint64(factor)
    return hashes ^ (hashes >> np.uint64(31))
