"""Keys in a tensor to row numbers, on any device, without a graph break."""

from __future__ import annotations

import torch
from torch import Tensor

from tokagnostic.hashing.polynomial import NO_WINDOW


def rows_of_keys(keys: Tensor, heads: Tensor) -> Tensor:
    """Address every key once per head: row_k = offset_k + key mod M_k.

    Args:
        keys: int64 [...]; -1 for no window.
        heads: M_k and offset_k of each head in its first two lines, int64 [2 or more, K], on the device of the keys.

    Returns:
        Rows of the table that all heads share, int64 [..., K]; -1 where there is no key.
    """
    keys = keys.unsqueeze(-1)
    return torch.where(keys >= 0, keys % heads[0] + heads[1], NO_WINDOW)
