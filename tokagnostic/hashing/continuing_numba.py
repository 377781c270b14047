"""Token ids on the CPU, behind positions whose keys are known, to their own keys: what a decoded token takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import carray, njit

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing.cache import HashCache
from tokagnostic.hashing.memory_numba import bytes_at, integers_at
from tokagnostic.hashing.windows_numba import RULES, fill_keys, unknown_id

if TYPE_CHECKING:
    from torch import Tensor


def continue_keys(
    input_ids: Tensor,
    starts: Tensor,
    last_keys: Tensor,
    last_waiting: Tensor | None,
    cache: HashCache,
    max_order: int,
) -> Tensor:
    """Hash on behind positions whose keys are known: in calls with few ids, by far the quickest.

    Args:
        input_ids: token ids, int64 [B, T], on the CPU like all here; an id below 0 is masked and breaks windows.
        starts: True at the first position of each document, bool [B, T].
        last_keys: at the positions before, one or more, int64 [B, P, N].
        last_waiting: whether a segment waits for its first bytes after each of them, bool [B, P]; None if none does.
        cache: the tokenizer's hash cache.
        max_order: N.

    Returns:
        Keys, int64 [B, T, N]; -1 where no window exists.

    Raises:
        InvalidValueError: for an id that the cache does not have, or arrays of other shapes.
    """
    batch, length = input_ids.shape
    num_before = last_keys.shape[1]
    fits = input_ids.shape == starts.shape and last_keys.shape == (batch, num_before, max_order)
    if not fits or (last_waiting is not None and last_waiting.shape != (batch, num_before)):
        raise InvalidValueError(
            f"ids of shape {list(input_ids.shape)} with starts {list(starts.shape)} behind keys {list(last_keys.shape)}",
            expected=f"as many rows of each, and {max_order} orders",
            remedy="Continue what was hashed with the same hasher, in the same batch",
        )
    # Bound to names, lest a contiguous copy be gone before it is read.
    ids, flags, before = input_ids.contiguous(), starts.contiguous(), last_keys.contiguous()
    waiting = None if last_waiting is None else last_waiting.contiguous()
    keys = ids.new_empty((batch, length, max_order))
    bad = _continue_keys(
        ids.data_ptr(),
        flags.data_ptr(),
        before.data_ptr(),
        0 if waiting is None else waiting.data_ptr(),
        batch,
        length,
        num_before,
        max_order,
        cache.steps,
        cache.start_steps,
        RULES[cache.prefix],
        keys.data_ptr(),
    )
    if bad >= 0:
        raise unknown_id(ids.numpy(), bad, cache)
    return keys


@njit(cache=True, nogil=True)
def _continue_keys(ids, starts, before, waiting, batch, length, num_before, max_order, steps, start_steps, rule, keys):
    """Fill keys [B, T, N] as `fill_keys` does; tensors come as addresses, `waiting` as 0 if there is none."""
    last_keys = carray(integers_at(before), (batch, num_before, max_order))[:, num_before - 1].copy()
    at_segment_start = np.zeros(batch, dtype=np.bool_)
    if waiting != 0:
        at_segment_start[:] = carray(bytes_at(waiting), (batch, num_before))[:, num_before - 1] != 0
    return fill_keys(
        carray(integers_at(ids), (batch, length)),
        carray(bytes_at(starts), (batch, length)) != 0,
        steps,
        start_steps,
        rule,
        last_keys,
        at_segment_start,
        carray(integers_at(keys), (batch, length, max_order)),
    )
