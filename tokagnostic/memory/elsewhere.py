"""Keys on one device to features of a table on another: each distinct key crosses once, and its rows come back once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def read_by_unique_keys(keys: Tensor, where: torch.device, read: Callable[[Tensor], Tensor]) -> Tensor:
    """Look distinct keys up where the table is, and spread what they read over the windows here.

    What crosses between the devices is 8 bytes per distinct key and K * dim numbers back, whatever a call repeats.
    A gradient takes the same way back, summed over equal keys before it crosses.

    Args:
        keys: int64 [..., N]; -1 for no window.
        where: the device of the table.
        read: distinct keys on that device, int64 [U, 1], to their features there, [U, K * dim].

    Returns:
        Features on the device of the keys, [..., N * K * dim], bit-equal to a lookup of every key.
    """
    distinct, places = torch.unique(keys, return_inverse=True)
    features = _moved(read(distinct.unsqueeze(-1).to(where)), keys.device)
    spread = features.index_select(0, places.reshape(-1))
    return spread.view(*keys.shape, features.shape[-1]).flatten(start_dim=-2)


def _moved(features: Tensor, where: torch.device) -> Tensor:
    if where.type == "cuda" and features.is_cpu and not features.requires_grad:
        # From pinned memory the copy goes on while the host computes; torch keeps such memory for the next call.
        return features.pin_memory().to(where, non_blocking=True)
    return features.to(where)
