"""The arguments of one call of a host to the ids and document starts that are hashed, or a reason to refuse the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokagnostic.errors import HostError

MASKED = -1
"""The id that breaks every window and reads nothing."""
CACHE_ARGUMENTS = ("cache", "past_key_values", "cache_params", "state", "mems")
"""Names under which hosts take what they remember of earlier calls."""


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


def read_inputs(arguments: Mapping[str, Any], *, boundaries: bool = True) -> CallInputs:
    """Take ids, padding and document starts from the arguments of a call.

    Args:
        arguments: by name.
        boundaries: False if the keys are known, so that a mask of any form and any positions will do.

    Raises:
        HostError: if the ids are missing, belong behind others that a cache holds, or cannot be told from padding or
            divided into documents.
    """
    _refuse_cached(arguments)
    input_ids = arguments.get("input_ids")
    if not isinstance(input_ids, Tensor) or input_ids.ndim != 2:
        found = "without input_ids" if input_ids is None else f"with input_ids of shape {_shape(input_ids)}"
        also = " but with inputs_embeds" if input_ids is None and arguments.get("inputs_embeds") is not None else ""
        raise HostError(
            f"a host with an attached memory was called {found}{also}",
            expected="input_ids [B, T], from which the memory is read",
            remedy="Pass input_ids, or switch the memory off with attachment.disabled()",
        )
    mask, position_ids = arguments.get("attention_mask"), arguments.get("position_ids")
    if mask is not None and (not isinstance(mask, Tensor) or mask.shape != input_ids.shape):
        if boundaries:
            raise HostError(
                f"an attention mask of shape {_shape(mask)} for ids of shape {_shape(input_ids)}",
                expected="a mask [B, T] that is 0 at padding; documents in one row are told by position_ids",
                remedy="Pass such a mask and position_ids that restart at each document",
            )
        mask = None
    real = None if mask is None else (mask != 0).to(input_ids.device)
    if position_ids is None or not boundaries:
        return CallInputs(input_ids, real, None)
    if position_ids.ndim > 2 or position_ids.shape[-1] != input_ids.shape[1]:
        raise HostError(
            f"position_ids of shape {_shape(position_ids)} for ids of shape {_shape(input_ids)}",
            expected="one position per id, [B, T] or [1, T]",
            remedy="Pass positions of that shape",
        )
    positions = position_ids.to(input_ids.device).expand(input_ids.shape)
    return CallInputs(input_ids, real, document_starts(positions, real))


def document_starts(positions: Tensor, real: Tensor | None = None) -> Tensor:
    """Where documents start: at position 0, and where the positions do not rise from one real token to the next.

    Positions of padding are whatever the caller's collator left there. They count for nothing, but that a row which
    counts its leading padding from 0 starts a document at its first real token.

    Args:
        positions: integer [B, T].
        real: False at padding, bool [B, T].

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
    begins = torch.where(previous < 0, positions[:, :1] == 0, restarts)
    return real & ((positions == 0) | begins)


def _refuse_cached(arguments: Mapping[str, Any]) -> None:
    for name in CACHE_ARGUMENTS:
        state = arguments.get(name)
        if state is None:
            continue
        num_cached = state.get_seq_length() if hasattr(state, "get_seq_length") else int(bool(state))
        if num_cached > 0:
            raise HostError(
                f"a host with an attached memory was called to continue a sequence of which `{name}` holds the beginning",
                expected="the whole sequence: decoding with a cache is not available yet",
                remedy="Call generate(..., use_cache=False), or pass all ids and no cache",
            )


def _shape(value: object) -> object:
    return list(value.shape) if isinstance(value, Tensor) else type(value).__name__
