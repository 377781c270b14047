"""Token ids on the CPU to the keys of all windows that end at each position, in one pass; whole rows or a stream.

The key of the window of order n at position t is the key of order n - 1 at t - 1 extended by token t (Eq. 8):
`lane' = lane * B(|T_t|) + C(T_t) mod P`. The output is therefore its own state: a kernel needs no history but the keys
of the position before, and a stream carries those N numbers from call to call.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing.cache import HashCache
from tokagnostic.hashing.polynomial import NO_WINDOW, PRIME, mod_prime


def window_keys(input_ids: np.ndarray, starts: np.ndarray | None, cache: HashCache, max_order: int) -> np.ndarray:
    """Hash every window of 1..N tokens that ends at each position.

    Args:
        input_ids: token ids, integer [T] or [B, T]; an id below 0 is masked and breaks windows.
        starts: True at the first position of each document, bool, same shape; by default position 0 of every row.
        cache: the tokenizer's hash cache.
        max_order: N.

    Returns:
        Keys, int64 [..., N]; -1 where no window exists.

    Raises:
        InvalidValueError: for an id that the cache does not have, ids that are no integers, or starts of another shape.
    """
    rows = np.atleast_2d(_integers(input_ids))
    keys = np.empty((*rows.shape, max_order), dtype=np.int64)
    if starts is None:
        flags = np.zeros(rows.shape, dtype=np.bool_)
        flags[:, :1] = True
    else:
        flags = np.atleast_2d(_flags(starts, input_ids))
    for b in range(len(rows)):
        WindowStream(cache, max_order)._push(rows[b], flags[b], keys[b])
    return keys.reshape(*np.shape(input_ids), max_order)


class WindowStream:
    """Hashes one sequence that arrives in pieces: the keys of the pieces, joined, are the keys of the whole.

    Args:
        cache: the tokenizer's hash cache.
        max_order: N.
    """

    def __init__(self, cache: HashCache, max_order: int) -> None:
        self.cache = cache
        self.max_order = max_order
        self._last_keys = np.full(max_order, NO_WINDOW, dtype=np.int64)
        self._at_segment_start = np.zeros(1, dtype=np.bool_)
        self._begun = False

    def push(self, input_ids: np.ndarray, starts: np.ndarray | None = None) -> np.ndarray:
        """Hash the next piece of the sequence.

        Args:
            input_ids: token ids, integer [T].
            starts: True at the first position of each document, bool [T]; by default the first position ever pushed.

        Returns:
            Keys, int64 [T, N].

        Raises:
            InvalidValueError: for an id that the cache does not have.
        """
        ids = _integers(input_ids)
        if starts is None:
            flags = np.zeros(len(ids), dtype=np.bool_)
            flags[:1] = not self._begun
        else:
            flags = _flags(starts, input_ids)
        keys = np.empty((len(ids), self.max_order), dtype=np.int64)
        self._push(ids, flags, keys)
        return keys

    def _push(self, ids: np.ndarray, starts: np.ndarray, keys: np.ndarray) -> None:
        """Fill `keys` [T, N] and move on."""
        cache = self.cache
        bad = _window_keys(
            ids,
            starts,
            cache.steps,
            cache.start_steps,
            cache.prefix == "always",
            self._last_keys,
            self._at_segment_start,
            keys,
        )
        if bad >= 0:
            raise InvalidValueError(
                f"token id {ids[bad]} at position {bad}",
                expected=f"ids below {cache.num_ids}, the size of the hash cache",
                remedy="Build the cache with num_ids = the host's embedding rows, or check which tokenizer made the ids",
            )
        self._begun = self._begun or len(ids) > 0


def _integers(input_ids: np.ndarray) -> np.ndarray:
    """The ids as the kernel takes them."""
    if not np.issubdtype(np.asarray(input_ids).dtype, np.integer):
        raise InvalidValueError(
            f"token ids of dtype {np.asarray(input_ids).dtype}",
            expected="integers",
            remedy="Pass the ids as the tokenizer gives them",
        )
    return np.ascontiguousarray(input_ids, dtype=np.int64)


def _flags(starts: np.ndarray, input_ids: np.ndarray) -> np.ndarray:
    """The document starts as the kernel takes them."""
    if np.shape(starts) != np.shape(input_ids):
        raise InvalidValueError(
            f"starts of shape {list(np.shape(starts))} for ids of shape {list(np.shape(input_ids))}",
            expected="one flag per id",
            remedy="Pass starts of the shape of the ids",
        )
    return np.ascontiguousarray(starts, dtype=np.bool_)


@njit(cache=True, nogil=True)
def _window_keys(ids, starts, steps, start_steps, always, last_keys, at_segment_start, keys):
    """Fill keys [T, N]; returns the first position whose id the cache does not have, or -1."""
    num_ids = len(steps)
    max_order = keys.shape[1]
    segment_start = at_segment_start[0]
    for t in range(len(ids)):
        token = ids[t]
        if token >= num_ids:
            return t
        start = starts[t]
        segment_start = segment_start or start
        value = np.int64(0)
        power = np.int64(0)
        if token >= 0:
            value = steps[token, 0]
            power = steps[token, 1]
        if power == 0:
            segment_start = segment_start or always
        elif segment_start:
            # The token has bytes, so the segment has begun, even if they are all taken away here.
            value = start_steps[token, 0]
            power = start_steps[token, 1]
            segment_start = False
        if power == 0:
            for n in range(max_order):
                keys[t, n] = NO_WINDOW
            continue
        _extend_all(last_keys if t == 0 else keys[t - 1], keys[t], start, value, power)
    at_segment_start[0] = segment_start
    if len(ids):
        last_keys[:] = keys[-1]
    return -1


@njit(cache=True, inline="always")
def _extend_all(last_keys, keys, start, value, power):
    """Fill keys [N] of a position whose token has bytes, from those of the position before."""
    keys[0] = value
    value_0 = value >> 31
    value_1 = value & PRIME
    power_0 = power >> 31
    power_1 = power & PRIME
    for n in range(1, len(keys)):
        shorter = last_keys[n - 1]
        if start or shorter < 0:
            keys[n] = NO_WINDOW
        else:
            lane_0 = mod_prime((shorter >> 31) * power_0 + value_0)
            lane_1 = mod_prime((shorter & PRIME) * power_1 + value_1)
            keys[n] = lane_0 << 31 | lane_1
