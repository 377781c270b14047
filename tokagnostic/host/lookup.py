"""One call of a host to what its attached layers read in it."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tokagnostic.errors import HostError
from tokagnostic.hashing.polynomial import NO_WINDOW
from tokagnostic.host.caches import find_cache, history_of
from tokagnostic.host.history import History
from tokagnostic.host.inputs import BOUNDARY_ARGUMENTS, CallInputs, read_inputs
from tokagnostic.host.padding import RealPositions, hash_real
from tokagnostic.host.reading import Reading
from tokagnostic.host.refusals import require_dense_exchange, require_still_whole, require_unsharded_tables

if TYPE_CHECKING:
    from tokagnostic.host.attachment import Attachment


GIVEN_KEYS: ContextVar[Mapping[Attachment, Tensor]] = ContextVar("tokagnostic_keys", default=MappingProxyType({}))
"""Keys that calls read instead of hashing their ids, int64 [B, T, N], by the attachment whose calls they are."""


def look_up(attachment: Attachment, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Reading:
    """Look up what the attached layers will read in a call of the decoder, each table once.

    Args:
        attachment: whose layers read.
        args: positional arguments of the call.
        kwargs: its named arguments.

    Raises:
        HostError: for a call that the memory cannot serve; nothing has been computed then.
    """
    require_dense_exchange(attachment.model, attachment.memory)
    require_unsharded_tables(attachment.model, attachment.memory)
    arguments = attachment.by_name(args, kwargs)
    given = GIVEN_KEYS.get().get(attachment)
    ids, cache, memory = arguments.get("input_ids"), find_cache(arguments), attachment.memory
    history = history_of(cache, attachment.number, len(ids)) if isinstance(ids, Tensor) else None
    if history is None:
        require_still_whole(attachment.model)
    inputs = read_inputs(arguments, boundaries=given is None, history=history)
    if given is None and inputs.starts is None and attachment.needs_boundaries:
        raise HostError(
            "a call in training that does not tell where its documents start, for a memory attached with packed=True",
            expected=f"position_ids that restart, one of {', '.join(BOUNDARY_ARGUMENTS)}, or a square mask",
            remedy="Keep such a column through the collator, or set attachment.packed = False for rows of one document",
        )
    ids, starts = _positions_of(attachment, inputs, history)
    padding = None if inputs.real is None else RealPositions.of(inputs.real)
    hashed = hash_real(attachment.hasher, ids, starts, padding, history)
    keys = hashed.keys if given is None else _padded_keys(given, inputs)
    kept = ids, hashed.starts, hashed.kept_keys, hashed.waiting
    if history is None:
        whole = History.of(attachment.number, *kept, padded=padding is not None)
    else:
        whole = history.extended(*kept, padded=padding is not None)
    read: dict[int, Tensor] = {}
    features = []
    for slot in range(len(attachment.layers)):
        table = memory.table_of(slot)
        if table not in read:
            read[table] = memory.features_of(keys, slot)
        features.append(read[table])
    return Reading(attachment, features, keys, cache, history, whole, padding)


def _positions_of(attachment: Attachment, inputs: CallInputs, history: History | None) -> tuple[Tensor, Tensor]:
    """A call's ids, masked at padding, and where its documents start, both [B, T]."""
    ids, starts = inputs.masked_ids, inputs.starts
    if starts is None:
        starts = torch.zeros_like(ids, dtype=torch.bool)
        if history is None:
            starts[:, :1] = True
    for boundary_id in attachment.boundary_ids:
        starts = starts | (ids == boundary_id)
    # A copy where it is not one already, for callers may write their next ids over these.
    return ids.clone() if inputs.real is None else ids, starts


def _padded_keys(given: Tensor, inputs: CallInputs) -> Tensor:
    """Given keys, less those at padding."""
    if given.shape[:2] != inputs.input_ids.shape:
        raise HostError(
            f"a call with ids of shape {list(inputs.input_ids.shape)} under keys of shape {list(given.shape)}",
            expected="one row of keys for every id",
            remedy="Give the keys of exactly the ids that the host is called with",
        )
    keys = given.to(inputs.input_ids.device)
    # A copy either way, for callers may write their next keys over these.
    return keys.clone() if inputs.real is None else keys.masked_fill(~inputs.real.unsqueeze(-1), NO_WINDOW)
