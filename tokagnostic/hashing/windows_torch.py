"""Token ids in a tensor to the keys of all windows that end at each position, on any device, without a graph break."""

from __future__ import annotations

import torch
from torch import Tensor

from tokagnostic.hashing.polynomial import LANE_BITS, NO_WINDOW, PRIME
from tokagnostic.tokens.token_bytes import PrefixRule


def window_keys(
    input_ids: Tensor,
    starts: Tensor | None,
    steps: Tensor,
    start_steps: Tensor,
    num_unknown: Tensor,
    prefix: PrefixRule,
    max_order: int,
) -> Tensor:
    """Hash every window of 1..N tokens that ends at each position.

    Args:
        input_ids: token ids, int64 [T] or [B, T]; ids below 0, and ids that the cache does not have, break windows.
        starts: True at the first position of each document, bool, same shape; by default position 0 of every row.
        steps: C(t) and B(|t|) of each id, int64 [V, 2], on the device of the ids.
        start_steps: the same at a segment start, int64 [V, 2].
        num_unknown: int64 [1], to which the number of ids that the cache does not have is added.
        prefix: where segment starts are.
        max_order: N.

    Returns:
        Keys, int64 [..., N]; -1 where no window exists.
    """
    if starts is None:
        starts = torch.zeros_like(input_ids, dtype=torch.bool)
        starts[..., :1] = True
    unknown = input_ids >= len(steps)
    num_unknown += unknown.sum()
    known = (input_ids >= 0) & ~unknown
    index = torch.where(known, input_ids, 0)
    value, power = (steps[index] * known.unsqueeze(-1)).unbind(-1)  # [..., T]
    if prefix != "none":
        start_value, start_power = start_steps[index].unbind(-1)
        begins = _segment_starts(power != 0, starts, always=prefix == "always")
        value, power = torch.where(begins, start_value, value), torch.where(begins, start_power, power)
    has_bytes = power != 0
    keys = [torch.where(has_bytes, value, NO_WINDOW)]
    extendable = has_bytes & ~starts
    for _ in range(1, max_order):
        shorter = torch.nn.functional.pad(keys[-1][..., :-1], (1, 0), value=NO_WINDOW)
        keys.append(torch.where(extendable & (shorter >= 0), _extend(shorter, power, value), NO_WINDOW))
    return torch.stack(keys, dim=-1)


def _extend(key: Tensor, power: Tensor, value: Tensor) -> Tensor:
    """Eq. 8, both lanes: key * power + value mod P."""
    lane_0 = ((key >> LANE_BITS) * (power >> LANE_BITS) + (value >> LANE_BITS)) % PRIME
    lane_1 = ((key & PRIME) * (power & PRIME) + (value & PRIME)) % PRIME
    return lane_0 << LANE_BITS | lane_1


def _segment_starts(has_bytes: Tensor, starts: Tensor, *, always: bool) -> Tensor:
    """True at the first id with bytes of each segment, bool [..., T].

    A segment begins with a document and, if `always`, after every id without bytes.
    """
    after_gap = torch.nn.functional.pad(~has_bytes[..., :-1], (1, 0), value=False)
    opens = starts | after_gap if always else starts
    # The number of ids with bytes before the latest opening is subtracted from the number up to here: the first is 1.
    count = has_bytes.long().cumsum(-1)
    before = torch.where(opens, count - has_bytes.long(), -1).cummax(-1).values
    return has_bytes & (before >= 0) & (count - before == 1)
