"""The arguments of one call of a host to the ids and document starts that are hashed, or a reason to refuse the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tokagnostic.errors import HostError
from tokagnostic.host.history import History
from tokagnostic.host.padding import previous_real

UNSEEN = -1e4
"""What is added to the score of a position that is not to be seen, or less; biases by distance are far above it."""
MASKED = -1
"""The id that breaks every window and reads nothing."""
SEGMENT_ARGUMENTS = ("seq_idx", "segment_ids", "document_ids", "doc_ids")
"""Names under which a call may number the documents of its rows, integer [B, T] or [1, T]; hosts know the first."""
LENGTHS_ARGUMENT = "cu_seq_lens_q"
"""Name under which it may give their cumulative lengths, from 0 to T, integer [documents + 1]."""
BOUNDARY_ARGUMENTS = (*SEGMENT_ARGUMENTS, LENGTHS_ARGUMENT)
"""What tells where documents start, beside positions that restart and square masks."""
OUR_ARGUMENTS = SEGMENT_ARGUMENTS[1:]
"""Those that no host knows: they are read and go no further."""


class CallInputs(NamedTuple):
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
    position_ids = _text_positions(arguments.get("position_ids"))
    begun = num_before > 0
    if begun and position_ids is None:
        _refuse_numbers_behind_others(arguments, num_before)
    for name in SEGMENT_ARGUMENTS:
        if arguments.get(name) is not None:
            starts = _with(starts, _changes(name, arguments[name], input_ids, real, begun=begun))
    if arguments.get(LENGTHS_ARGUMENT) is not None:
        starts = _with(starts, _starts_after(arguments[LENGTHS_ARGUMENT], input_ids, begun=begun))
    if position_ids is None:
        return CallInputs(input_ids, real, starts)
    positions = _per_id("position_ids", position_ids, input_ids)
    # One position's start does not depend on what stands before it.
    before = None if history is None or input_ids.shape[1] == 1 else history.input_ids.tail(num_before)
    return CallInputs(input_ids, real, _with(starts, document_starts(positions, real, before)))


def _text_positions(position_ids: Any) -> Any:
    """Positions in the text, where a call may give those in images beside them.

    Hosts that see images turn by time, height and width [3, B, T], in which patches share a time and nothing restarts
    for a document; [4, B, T] has the positions in the text before these.
    """
    if not isinstance(position_ids, Tensor) or position_ids.ndim != 3:
        return position_ids
    return {3: None, 4: position_ids[0]}.get(len(position_ids), position_ids)


def _with(starts: Tensor | None, others: Tensor) -> Tensor:
    return others if starts is None else starts | others


def _refuse_numbers_behind_others(arguments: Mapping[str, Any], num_before: int) -> None:
    """Numbers and lengths speak of one call; whether its first position continues a document, only positions tell."""
    given = next((name for name in BOUNDARY_ARGUMENTS if arguments.get(name) is not None), None)
    if given is not None:
        raise HostError(
            f"{given} in a call behind {num_before} cached positions",
            expected="position_ids beside it, which tell whether the call begins with a new document",
            remedy="Pass position_ids too",
        )


def _changes(name: str, numbers: Tensor, input_ids: Tensor, real: Tensor | None, *, begun: bool) -> Tensor:
    """Where document numbers change from one real position to the next, and at a row's beginning, bool [B, T]."""
    numbers = _per_id(name, numbers, input_ids)
    previous = previous_real(torch.ones_like(numbers, dtype=torch.bool) if real is None else real)
    changes = torch.where(previous < 0, not begun, numbers != numbers.gather(1, previous.clamp(min=0)))
    return changes if real is None else real & changes


def _per_id(name: str, numbers: Any, input_ids: Tensor) -> Tensor:
    """Numbers [T], [1, T] or [B, T] as integer [B, T]."""
    if isinstance(numbers, Tensor) and numbers.shape == input_ids.shape:
        return numbers.to(input_ids.device)
    length = input_ids.shape[1]
    if not isinstance(numbers, Tensor) or numbers.shape not in ((length,), (1, length)):
        raise HostError(
            f"{name} of shape {_shape(numbers)} for ids of shape {_shape(input_ids)}",
            expected="one number per id, [B, T] or [1, T]",
            remedy=f"Pass {name} of that shape",
        )
    return numbers.to(input_ids.device).expand(input_ids.shape)


def _starts_after(lengths: Any, input_ids: Tensor, *, begun: bool) -> Tensor:
    """Where cumulative lengths say that documents start, bool [1, T]; a document may be empty."""
    bounds = lengths.tolist() if isinstance(lengths, Tensor) and lengths.ndim == 1 else []
    length = input_ids.shape[1]
    if len(input_ids) != 1 or [*bounds[:1], *bounds[-1:]] != [0, length] or bounds != sorted(bounds):
        raise HostError(
            f"{LENGTHS_ARGUMENT} {bounds} for ids of shape {_shape(input_ids)}",
            expected="one row of ids, and numbers that rise from 0 to its length",
            remedy="Pass the documents joined to one row",
        )
    starts = torch.zeros_like(input_ids, dtype=torch.bool)
    starts[0, [bound for bound in bounds if bound < length and (bound > 0 or not begun)]] = True
    return starts


def _read_mask(mask: Any, input_ids: Tensor, num_before: int, *, required: bool) -> tuple[Tensor | None, Tensor | None]:
    """Which of the call's positions are real, bool [B, T], and where the mask divides them into documents, likewise."""
    batch, length = input_ids.shape
    if isinstance(mask, Mapping):
        # Hosts that alternate kinds of attention are given one mask for each; the one without a window says most.
        mask = mask.get("full_attention", next(iter(mask.values()), None))
    if mask is None:
        return None, None
    if isinstance(mask, Tensor) and mask.ndim == 2 and len(mask) == batch and mask.shape[1] >= num_before + length:
        # Hosts look no further than their own positions either, where a mask is as long as a static cache.
        mask = mask[:, num_before : num_before + length]
        # Only where looking does not wait for a device; what follows is spared where nothing is padding.
        if mask.is_cpu and bool(mask if mask.numel() == 1 else mask.all()):
            return None, None
        return (mask != 0).to(input_ids.device), None
    if _is_square(mask, batch, length):
        return _read_square_mask(mask.to(input_ids.device).expand(batch, -1, -1, -1), num_before)
    if not required:
        return None, None
    raise HostError(
        f"an attention mask of shape {_shape(mask)} for ids of shape {_shape(input_ids)} behind {num_before} others",
        expected="a mask [B, at least the positions up to here] that is 0 at padding, or one [B, 1, T, positions] of who sees whom",
        remedy="Pass such a mask; documents in one row are told by position_ids that restart",
    )


def _is_square(mask: Any, batch: int, length: int) -> bool:
    """Whether a mask says who sees whom; one of whole numbers does not tell which of them is "seen"."""
    if not isinstance(mask, Tensor) or mask.ndim != 4 or not (mask.dtype == torch.bool or mask.is_floating_point()):
        return False
    return len(mask) in (1, batch) and mask.shape[2] == length


def _read_square_mask(mask: Tensor, num_before: int) -> tuple[Tensor | None, Tensor | None]:
    """Real positions see themselves; a document starts at one that sees none before it.

    Args:
        mask: bool [B, 1, T, S], True where a position is seen, or float, what is added to the score.
        num_before: which of the S is the first of the T.
    """
    seen = (mask if mask.dtype == torch.bool else mask > UNSEEN)[:, 0]  # [B, T, S]
    if seen.shape[2] < num_before + seen.shape[1]:
        return None, None
    real = seen[:, :, num_before:].diagonal(dim1=1, dim2=2)
    return real, real & ~seen.tril(num_before - 1).any(dim=2)


def document_starts(positions: Tensor, real: Tensor | None = None, before: Tensor | None = None) -> Tensor:
    """Where documents start: at position 0, and where the positions do not rise from one real token to the next.

    Positions of padding are whatever the caller's collator left there. They count for nothing, but that a row which
    counts its leading padding from 0 starts a document at its first real token.

    Args:
        positions: integer [B, T].
        real: False at padding, bool [B, T].
        before: ids of earlier calls, below 0 at padding, integer [B, P]; by default none.

    Returns:
        Starts, bool [B, T]; never at padding.
    """
    at_zero = positions.logical_not()  # half the time of a comparison with a number, where there is one position
    if positions.shape[1] <= 1:
        return at_zero if real is None else real & at_zero
    if real is None:
        real = torch.ones_like(at_zero)
    previous = previous_real(real)
    restarts = positions <= positions.gather(1, previous.clamp(min=0))
    at_row_start = at_zero[:, :1]
    if before is not None:
        at_row_start = at_row_start & (before < 0).all(dim=1, keepdim=True)
    return real & (at_zero | torch.where(previous < 0, at_row_start, restarts))


def _shape(value: object) -> object:
    return list(value.shape) if isinstance(value, Tensor) else type(value).__name__
