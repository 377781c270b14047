"""Token ids in a tensor to the canonical ids of windows, and these to their mixes, on any device, without a graph break."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from tokagnostic.hashing.polynomial import LANE_BITS, NO_WINDOW, PRIME


def window_keys(
    input_ids: Tensor,
    starts: Tensor | None,
    codes: Tensor,
    num_unknown: Tensor,
    pad_id: int,
    min_order: int,
    max_order: int,
) -> Tensor:
    """Collect the canonical ids of every window of 1..N tokens that ends at each position.

    Args:
        input_ids: token ids, int64 [T] or [B, T]; ids below 0, and ids without a code, break windows.
        starts: True at the first position of each document, bool, same shape; by default position 0 of every row.
        codes: canonical id of each id, -1 for one without bytes, int64 [V], on the device of the ids.
        num_unknown: int64 [1], to which the number of ids that there is no code for is added.
        pad_id: what stands before a document's first id, and before a break.
        min_order: smallest order with windows.
        max_order: N.

    Returns:
        Keys, int64 [..., N]; -1 where no window exists.
    """
    if starts is None:
        starts = torch.zeros_like(input_ids, dtype=torch.bool)
        starts[..., :1] = True
    unknown = input_ids >= len(codes)
    num_unknown += unknown.sum()
    known = (input_ids >= 0) & ~unknown
    current = torch.where(known, codes[torch.where(known, input_ids, 0)], -1)
    exists = current >= 0
    newest = current << LANE_BITS
    # What the last positions hold, seen from each: the pad id from where a start or a break lies between.
    older = torch.where(exists, current, pad_id)
    keys = []
    for order in range(1, max_order + 1):
        if order > 1:
            older = torch.where(starts, pad_id, F.pad(older[..., :-1], (1, 0), value=pad_id))
            older = torch.where(exists, older, pad_id)
        keys.append(
            torch.where(exists, newest | older, NO_WINDOW) if order >= min_order else torch.full_like(current, -1)
        )
    return torch.stack(keys, dim=-1)


def mix_keys(keys: Tensor, multipliers: Sequence[int], min_order: int) -> Tensor:
    """The mix of every window from the keys of all orders.

    Args:
        keys: int64 [..., N]; for order n the newest and the oldest id of a window, or -1.
        multipliers: m_0, m_1, ..., at least N.
        min_order: smallest order with windows.

    Returns:
        Mixes of orders min_order..N, int64 [..., N - min_order + 1]; -1 where no window exists.
    """
    exists = keys[..., min_order - 1] >= 0
    mix = (keys[..., min_order - 1] >> LANE_BITS) * multipliers[0]
    mixes = [mix] if min_order == 1 else []
    for n in range(1, keys.shape[-1]):
        mix = mix ^ ((keys[..., n] & PRIME) * multipliers[n])
        mixes.append(mix)
    return torch.where(exists.unsqueeze(-1), torch.stack(mixes, dim=-1), NO_WINDOW)
