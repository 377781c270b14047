"""Rows with padding to their real positions side by side, so that what looks at neighbours never sees padding, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tokagnostic.hashing.hasher import Past
from tokagnostic.hashing.polynomial import NO_WINDOW
from tokagnostic.memory.base import Hasher


@dataclass(frozen=True, eq=False)
class RealPositions:
    """Where the real positions of a call are."""

    real: Tensor
    """False at padding, bool [B, T]."""
    order: Tensor
    """Positions, the real ones first, each kind in order, int64 [B, T]."""

    @classmethod
    def of(cls, real: Tensor) -> RealPositions:
        """Sort a call's positions by whether they are real, bool [B, T]."""
        return cls(real, real.logical_not().long().argsort(dim=1, stable=True))

    @property
    def last(self) -> Tensor:
        """The last real position at or before each, -1 if there is none, int64 [B, T]."""
        return last_real(self.real)

    def side_by_side(self, values: Tensor) -> Tensor:
        """What belongs to the positions, [B, T, ...], the real ones first; padding is moved behind them."""
        return values.gather(1, _as_wide(self.order, values))

    def in_place(self, values: Tensor) -> Tensor:
        """What `side_by_side` has moved, back where it was, [B, T, ...]."""
        return torch.zeros_like(values).scatter(1, _as_wide(self.order, values), values)


class Hashed(NamedTuple):
    """What is read at the positions of a call, and what hashing on behind it takes."""

    keys: Tensor
    """int64 [B, T, N]; -1 at padding and where no window exists."""
    starts: Tensor
    """True at each document's first real position, bool [B, T]."""
    kept_keys: Tensor
    """At padding those of the last real position before it, int64 [B, T, N]."""
    waiting: Tensor | None
    """Whether after each position a segment waits for its first bytes, bool [B, T]; None where no space is invented."""


def hash_real(hasher: Hasher, ids: Tensor, starts: Tensor, padding: RealPositions | None, past: Past | None) -> Hashed:
    """Hash the real ids of a call as if there were no others.

    Args:
        hasher: ids to keys.
        ids: masked at padding, int64 [B, T].
        starts: True at each document's first position, bool [B, T]; one at padding counts for the next real position.
        padding: where the real ones are; None if all are.
        past: the positions before the call.
    """
    old_waiting = None if past is None else past.last_waiting
    if padding is None:
        keys = hasher(ids, starts, past)
        return Hashed(keys, starts, keys, hasher.waiting(ids, starts, old_waiting))
    real, last = padding.real, padding.last
    real_starts = _true_since(starts, previous_real(real)) & real
    packed_ids, packed_starts = padding.side_by_side(ids), padding.side_by_side(real_starts)
    keys = padding.in_place(hasher(packed_ids, packed_starts, past))
    old_keys = None if past is None else past.last_keys
    before = keys.new_full(keys[:, :1].shape, NO_WINDOW) if old_keys is None else old_keys[:, -1:]
    waiting = hasher.waiting(packed_ids, packed_starts, old_waiting)
    if waiting is not None:
        waited = waiting.new_zeros(len(ids), 1) if old_waiting is None else old_waiting[:, -1:]
        # A start at padding opens a segment that waits for the next real id.
        waiting = _carried(padding.in_place(waiting), waited, last) | (_true_since(starts, last) & ~real)
    return Hashed(keys.masked_fill(~real.unsqueeze(-1), NO_WINDOW), real_starts, _carried(keys, before, last), waiting)


def last_real(real: Tensor) -> Tensor:
    """The last real position at or before each, -1 if there is none, int64 [B, T], from bool [B, T]."""
    places = torch.where(real, torch.arange(real.shape[1], device=real.device), -1)
    return places.cummax(dim=1).values if real.shape[1] else places


def previous_real(real: Tensor) -> Tensor:
    """The last real position before each, -1 if there is none, int64 [B, T], from bool [B, T]."""
    return F.pad(last_real(real)[:, :-1], (1, 0), value=-1) if real.shape[1] else last_real(real)


def _true_since(flags: Tensor, places: Tensor) -> Tensor:
    """Whether a flag, bool [B, T], is True behind a place and up to each position; places int64 [B, T], -1 for the row's begin."""
    counts = F.pad(flags.long().cumsum(dim=1), (1, 0))  # [B, T + 1], of the flags before each position
    return counts[:, 1:] > counts.gather(1, places + 1)


def _carried(values: Tensor, before: Tensor, last: Tensor) -> Tensor:
    """The values at the last real positions, [B, T, ...], or what was before the call, [B, 1, ...]."""
    known = torch.cat((before, values), dim=1)
    return known.gather(1, _as_wide(last + 1, known))


def _as_wide(places: Tensor, values: Tensor) -> Tensor:
    """Places [B, T] as an index of values [B, T, ...]."""
    shape = (*places.shape, *values.shape[2:])
    return places.view(*places.shape, *(1,) * (values.ndim - 2)).expand(shape)
