"""What a sequence's later calls need of its earlier ones.

A host that decodes with a cache gets each id once. What was read there must equal what a call with the whole sequence
reads, so the ids have to be remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

FAN = 16
"""Pieces of one size that are left as they are."""


@dataclass(eq=False)
class Pieces:
    """One long tensor in pieces, so that adding a position copies nothing, but for a few before it now and then.

    `FAN` pieces become one as soon as they are of one size, as the digits of a counter to the base FAN carry over: each
    number is copied about log_FAN(T) times in all, and there are fewer than FAN times as many pieces.
    """

    pieces: tuple[Tensor, ...]
    """In order, [B, T_i, ...] each."""
    length: int
    """T: positions of all of them."""

    @classmethod
    def of(cls, whole: Tensor) -> Pieces:
        """One piece, [B, T, ...]."""
        return cls((whole,), whole.shape[1])

    def with_piece(self, piece: Tensor) -> Pieces:
        """These pieces and another one behind them."""
        if piece.shape[1] == 0:
            return self
        pieces = (*self.pieces, piece)
        while len(pieces) >= FAN and pieces[-FAN].shape[1] < FAN * pieces[-1].shape[1]:
            pieces = (*pieces[:-FAN], torch.cat(pieces[-FAN:], dim=1))
        return Pieces(pieces, self.length + piece.shape[1])

    def tail(self, length: int) -> Tensor:
        """The last positions, [B, up to length, ...]."""
        found: list[Tensor] = []
        for piece in reversed(self.pieces):
            found.insert(0, piece[:, max(0, piece.shape[1] - length) :])
            length -= found[0].shape[1]
            if length == 0:
                break
        return found[0] if len(found) == 1 else torch.cat(found, dim=1)

    def at(self, places: Tensor) -> Tensor:
        """What stands at some positions of each row, [B, P, ...] for int64 [B, P]; for places below 0 anything."""
        if self.length == 0:
            return self.pieces[0].new_zeros(*places.shape, *self.pieces[0].shape[2:])
        places = torch.where(places < 0, self.length - 1, places)
        # Only where looking does not wait for a device: no more is joined than what is asked for.
        first = int(places.min()) if places.is_cpu and places.numel() else 0
        found = self.tail(self.length - first)
        index = (places - first).view(*places.shape, *(1,) * (found.ndim - 2))
        return found.gather(1, index.expand(*places.shape, *found.shape[2:]))

    def map(self, change: Callable[[Tensor], Tensor]) -> Pieces:
        """The whole, changed, as one piece."""
        return Pieces.of(change(torch.cat(self.pieces, dim=1)))


@dataclass(eq=False)
class History:
    """The positions that a cache holds, as the memory saw them. Never changed, only replaced.

    Neither it nor its pieces are frozen: some are made per decoded token, and frozen ones take four times as long.
    """

    owner: int
    """Number of the attachment that wrote it."""
    input_ids: Pieces
    """Masked at padding, int64 [B, T]."""
    starts: Pieces
    """True at each document's first position, bool [B, T]."""
    keys: Pieces
    """Of the windows that end at each position, int64 [B, T, N]; at padding those of the last real position before it."""
    waiting: Pieces | None
    """Whether after each position a segment waits for its first bytes, bool [B, T]; None where no space is invented."""
    padded: bool
    """Whether some position may be padding."""
    conv_inputs: Mapping[int, Pieces]
    """What each short convolution was given at each position, float [B, T, D], by layer."""

    @classmethod
    def of(
        cls,
        owner: int,
        input_ids: Tensor,
        starts: Tensor,
        keys: Tensor,
        waiting: Tensor | None,
        *,
        padded: bool = False,
    ) -> History:
        """The history of a sequence's first call; arguments as `extended` takes them."""
        return cls(
            owner,
            Pieces.of(input_ids),
            Pieces.of(starts),
            Pieces.of(keys),
            None if waiting is None else Pieces.of(waiting),
            padded,
            {},
        )

    @property
    def length(self) -> int:
        """T."""
        return self.input_ids.length

    @property
    def batch(self) -> int:
        """B."""
        return self.input_ids.pieces[0].shape[0]

    @property
    def last_keys(self) -> Tensor | None:
        """Keys at the last positions, one or more, int64 [B, up to T, N]; None if there are no positions."""
        return None if self.length == 0 else self.keys.pieces[-1]

    @property
    def last_waiting(self) -> Tensor | None:
        """`waiting` at the last positions, one or more, bool [B, up to T]; None where no space is invented."""
        return None if self.waiting is None or self.length == 0 else self.waiting.pieces[-1]

    def tail(self, length: int) -> tuple[Tensor, Tensor]:
        """The last real ids and starts, [B, up to length], so that hashing them and what follows goes on as from the start.

        The first of them stands for all before it: it counts as a start where a segment waits for its first bytes. No
        window of later positions that is longer than `length` may be asked for. Where there may be padding, rows of
        fewer real ids are masked in front.
        """
        if self.padded:
            places = self.last_real(length)
            ids, starts = self.at(places)
            if self.waiting is not None and length and self.length:
                first = places[:, :1]
                waits = self.waiting.at((first - 1).clamp(min=0)) & (
                    (first > 0) | (self.input_ids.at(torch.zeros_like(first)) < 0)
                )
                starts = torch.cat((starts[:, :1] | waits, starts[:, 1:]), dim=1)
            return ids, starts
        ids, starts = self.input_ids.tail(length), self.starts.tail(length)
        if self.waiting is not None and 0 < ids.shape[1] < self.length:
            starts = starts.clone()
            starts[:, 0] |= self.waiting.tail(length + 1)[:, 0]
        return ids, starts

    def convolved(self, layer: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """The last real ids and starts, [B, up to length], and what a layer's convolution was given there, [B, ..., D]."""
        inputs = self.conv_inputs[layer]
        if not self.padded:
            return self.input_ids.tail(length), self.starts.tail(length), inputs.tail(length)
        places = self.last_real(length)
        return *self.at(places), inputs.at(places)

    def last_real(self, length: int) -> Tensor:
        """Positions of the last real ids of each row, rising, int64 [B, length]; -1 in front where there are fewer."""
        recent = self.input_ids.tail(length) >= 0
        rows = recent.shape[0]
        if recent.is_cpu and recent.shape[1] == length and bool(recent.all()):
            return torch.arange(self.length - length, self.length).expand(rows, length)
        real = self.input_ids.tail(self.length) >= 0
        order = real.long().argsort(dim=1, stable=True)[:, -length:] if length else real[:, :0].long()
        return F.pad(order.masked_fill(~real.gather(1, order), -1), (length - order.shape[1], 0), value=-1)

    def at(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Ids and starts at positions int64 [B, P], likewise [B, P]; masked and no start for one below 0."""
        missing = places < 0
        return self.input_ids.at(places).masked_fill(missing, -1), self.starts.at(places) & ~missing

    def extended(
        self,
        input_ids: Tensor,
        starts: Tensor,
        keys: Tensor,
        waiting: Tensor | None,
        *,
        padded: bool = False,
    ) -> History:
        """This history and the positions of a call behind it, whose convolution inputs are not known yet.

        Args:
            input_ids: of the same rows, int64 [B, T].
            starts: bool [B, T].
            keys: int64 [B, T, N].
            waiting: bool [B, T], or None as it is here.
            padded: whether some of them may be padding.
        """
        return History(
            self.owner,
            self.input_ids.with_piece(input_ids),
            self.starts.with_piece(starts),
            self.keys.with_piece(keys),
            None if self.waiting is None or waiting is None else self.waiting.with_piece(waiting),
            self.padded or padded,
            self.conv_inputs,
        )

    def with_conv_inputs(self, given: Mapping[int, Tensor]) -> History:
        """This history with what the convolutions were given at its last positions, float [B, T, D], by layer."""
        if not given:
            return self
        known = {
            layer: self.conv_inputs[layer].with_piece(inputs) if layer in self.conv_inputs else Pieces.of(inputs)
            for layer, inputs in given.items()
        }
        return replace(self, conv_inputs=known)

    def map(self, change: Callable[[Tensor], Tensor]) -> History:
        """The history whose every tensor [B, T, ...] was changed alike."""
        return replace(
            self,
            input_ids=self.input_ids.map(change),
            starts=self.starts.map(change),
            keys=self.keys.map(change),
            waiting=None if self.waiting is None else self.waiting.map(change),
            conv_inputs={layer: inputs.map(change) for layer, inputs in self.conv_inputs.items()},
        )
