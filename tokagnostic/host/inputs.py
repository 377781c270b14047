"""The arguments of one call of a host to the ids and document starts that are hashed, or a reason to refuse the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokagnostic.errors import HostError
from tokagnostic.host.history import History

MASKED = -1
"""The id that breaks every window and reads nothing."""


@dataclass(frozen=True, eq=False)
class CallInputs:
    """What a call says about its tokens."""

    input_ids: Tensor
    """As given, integer [B, T]."""
    real: Tensor | None
    """False at padding, bool [B, T]; None if the call has no mask."""
    starts: Tensor | None
    """True at each document's first position, bool [B, T]; None if that is position 0 of every row."""

    @property
    def masked_ids(self) -> Tensor:
        """The ids with padding masked, integer [B, T]."""
        return self.input_ids if self.real is None else self.input_ids.masked_fill(~self.real, MASKED)


def read_inputs(arguments: Mapping[str, Any], *, boundaries: bool = True, history: History | None = None) -> CallInputs:
    """Take ids, padding and document starts from the arguments of a call.

    Args:
        arguments: by name.
        boundaries: False if the keys are known, so that a mask of any form and any positions will do.
        history: what the call's cache holds; None if nothing.

    Raises:
        HostError: if the ids are missing, or cannot be told from padding or divided into documents.
    """
    input_ids = arguments.get("input_ids")
    if not isinstance(input_ids, Tensor) or input_ids.ndim != 2:
        found = "without input_ids" if input_ids is None else f"with input_ids of shape {_shape(input_ids)}"
        also = " but with inputs_embeds" if input_ids is None and arguments.get("inputs_embeds") is not None else ""
        raise HostError(
            f"a host with an attached memory was called {found}{also}",
            expected="input_ids [B, T], from which the memory is read",
            remedy="Pass input_ids, or switch the memory off with attachment.disabled()",
        )
    num_before = 0 if history is None else history.length
    real, starts = _read_mask(arguments.get("attention_mask"), input_ids, num_before, required=boundaries)
    if not boundaries:
        return CallInputs(input_ids, real, starts)
    starts = _read_segments(arguments, input_ids, starts, begun=num_before > 0)
    position_ids = arguments.get("position_ids")
    if position_ids is None:
        return CallInputs(input_ids, real, starts)
    if position_ids.ndim > 2 or position_ids.shape[-1] != input_ids.shape[1]:
        raise HostError(
            f"position_ids of shape {_shape(position_ids)} for ids of shape {_shape(input_ids)}",
            expected="one position per id, [B, T] or [1, T]",
            remedy="Pass positions of that shape",
        )
    positions = position_ids.to(input_ids.device).expand(input_ids.shape)
    begun = None if history is None else (history.input_ids >= 0).any(dim=1)
    by_position = document_starts(positions, real, begun)
    return CallInputs(input_ids, real, by_position if starts is None else by_position | starts)


def _read_segments(
    arguments: Mapping[str, Any], input_ids: Tensor, starts: Tensor | None, *, begun: bool
) -> Tensor | None:
    """Add the starts that segment ids or cumulative lengths tell, as collators name them for padding-free rows."""
    segments, lengths = arguments.get("seq_idx"), arguments.get("cu_seq_lens_q")
    if segments is None and lengths is None:
        return starts
    found = torch.zeros_like(input_ids, dtype=torch.bool) if starts is None else starts.clone()
    found[:, :1] |= not begun
    if segments is not None:
        if segments.shape[-1] != input_ids.shape[1]:
            raise HostError(
                f"seq_idx of shape {_shape(segments)} for ids of shape {_shape(input_ids)}",
                expected="one segment number per id, [B, T] or [1, T]",
                remedy="Pass segment numbers of that shape",
            )
        segments = segments.to(input_ids.device).expand(input_ids.shape)
        found[:, 1:] |= segments[:, 1:] != segments[:, :-1]
    if lengths is not None:
        if len(input_ids) != 1 or int(lengths[-1]) != input_ids.shape[1]:
            raise HostError(
                f"cu_seq_lens_q that ends with {int(lengths[-1])} for ids of shape {_shape(input_ids)}",
                expected="one row of ids, whose length is the last of the cumulative lengths",
                remedy="Pass the documents joined to one row",
            )
        found[0, lengths[:-1].long().to(input_ids.device)] = True
    return found


def _read_mask(mask: Any, input_ids: Tensor, num_before: int, *, required: bool) -> tuple[Tensor | None, Tensor | None]:
    """Which of the call's positions are real, bool [B, T], and where the mask divides them into documents, likewise."""
    batch, length = input_ids.shape
    if isinstance(mask, Mapping):
        # Hosts that alternate kinds of attention are given one mask for each; the one without a window says most.
        mask = mask.get("full_attention", next(iter(mask.values()), None))
    if mask is None:
        return None, None
    if isinstance(mask, Tensor) and mask.shape == (batch, num_before + length):
        return (mask[:, num_before:] != 0).to(input_ids.device), None
    if isinstance(mask, Tensor) and mask.ndim == 4 and len(mask) == batch and mask.shape[2] == length:
        return _read_square_mask(mask.to(input_ids.device), num_before)
    if not required:
        return None, None
    raise HostError(
        f"an attention mask of shape {_shape(mask)} for ids of shape {_shape(input_ids)} behind {num_before} others",
        expected="a mask [B, positions up to here] that is 0 at padding, or one [B, 1, T, positions] of who sees whom",
        remedy="Pass such a mask; documents in one row are told by position_ids that restart",
    )


def _read_square_mask(mask: Tensor, num_before: int) -> tuple[Tensor | None, Tensor | None]:
    """Real positions see themselves; a document starts at one that sees none before it.

    Args:
        mask: bool [B, 1, T, S], True where a position is seen, or float, 0 there.
        num_before: which of the S is the first of the T.
    """
    seen = (mask if mask.dtype == torch.bool else mask == 0)[:, 0]  # [B, T, S]
    if seen.shape[2] < num_before + seen.shape[1]:
        return None, None
    real = seen[:, :, num_before:].diagonal(dim1=1, dim2=2)
    return real, real & ~seen.tril(num_before - 1).any(dim=2)


def document_starts(positions: Tensor, real: Tensor | None = None, begun: Tensor | None = None) -> Tensor:
    """Where documents start: at position 0, and where the positions do not rise from one real token to the next.

    Positions of padding are whatever the caller's collator left there. They count for nothing, but that a row which
    counts its leading padding from 0 starts a document at its first real token.

    Args:
        positions: integer [B, T].
        real: False at padding, bool [B, T].
        begun: True for rows that had a real token in an earlier call, bool [B]; by default none has.

    Returns:
        Starts, bool [B, T]; never at padding.
    """
    if real is None:
        real = torch.ones_like(positions, dtype=torch.bool)
    if positions.shape[1] == 0:
        return real
    order = torch.arange(positions.shape[1], device=positions.device)
    last_real = torch.where(real, order, -1).cummax(dim=1).values
    previous = torch.nn.functional.pad(last_real[:, :-1], (1, 0), value=-1)  # last real position before each, or -1
    restarts = positions <= positions.gather(1, previous.clamp(min=0))
    at_row_start = positions[:, :1] == 0
    if begun is not None:
        at_row_start = at_row_start & ~begun.unsqueeze(1)
    begins = torch.where(previous < 0, at_row_start, restarts)
    return real & ((positions == 0) | begins)


def _shape(value: object) -> object:
    return list(value.shape) if isinstance(value, Tensor) else type(value).__name__
