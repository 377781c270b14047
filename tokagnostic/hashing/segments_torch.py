"""Token ids to where a segment still waits for its first bytes, so that a sequence can be hashed on from any position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tokagnostic.tokens.token_bytes import PrefixRule

if TYPE_CHECKING:
    from torch import Tensor


def waiting_segments(has_bytes: Tensor, starts: Tensor, prefix: PrefixRule, before: Tensor | None = None) -> Tensor:
    """Whether a segment has begun at or before each position and none of its ids had bytes yet.

    Where it is True before an id with bytes, one leading space of that id was invented, see `HashCache`.

    Args:
        has_bytes: False at ids without bytes and at masked ones, bool [B, T].
        starts: True at each document's first position, bool [B, T].
        prefix: "first", where only documents begin segments, or "always", where ids without bytes do too.
        before: the answer for the position before the first, after its own id, bool [B]; by default False.

    Returns:
        The answer after each position's own id, bool [B, T]: what `before` has to be to go on behind it.
    """
    batch, length = has_bytes.shape
    places = torch.arange(length, device=has_bytes.device).expand(batch, length)
    opens = starts | ~has_bytes if prefix == "always" else starts
    last_opening = torch.where(opens, places, -1).cummax(dim=1).values if length else places
    last_bytes = torch.where(has_bytes, places, -1).cummax(dim=1).values if length else places
    # At one position the opening comes before the bytes, but for an id without bytes, which opens what comes behind it.
    waiting = last_opening > last_bytes
    if before is None:
        return waiting
    untouched = (last_opening < 0) & (last_bytes < 0)
    return waiting | (untouched & before.unsqueeze(1))
