"""Token ids on the CPU to the keys of all windows that end at each position, in one pass; whole rows or a stream.

The key of the window of order n at position t is the key of order n - 1 at t - 1 extended by token t (Eq. 8):
`lane' = lane * B(|T_t|) + C(T_t) mod P`. The output is therefore its own state: a kernel needs no history but the keys
of the position before, and a stream carries those N numbers from call to call.

Kernels go through the ids block by block. Within a block the keys of each order lie side by side, so that order n is
made from order n - 1 by vector instructions, and whatever is made of them, keys or rows, finds them in the first cache.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing.cache import HashCache
from tokagnostic.hashing.polynomial import NO_WINDOW, PRIME, mod_prime
from tokagnostic.tokens.token_bytes import PrefixRule

BLOCK = 256
"""Positions that a kernel works on at a time."""
NEVER, FIRST, ALWAYS = range(3)
RULES: dict[PrefixRule, int] = {"none": NEVER, "first": FIRST, "always": ALWAYS}
"""How kernels are told where segments start."""


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
    ids, flags = kernel_inputs(input_ids, starts)
    keys = np.empty((*ids.shape, max_order), dtype=np.int64)
    state = fresh_state(len(ids), max_order)
    bad = fill_keys(ids, flags, cache.steps, cache.start_steps, RULES[cache.prefix], *state, keys)
    if bad >= 0:
        raise unknown_id(ids, bad, cache)
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
        self._last_keys, self._at_segment_start = fresh_state(1, max_order)
        self._begun = False

    def push(self, input_ids: np.ndarray, starts: np.ndarray | None = None) -> np.ndarray:
        """Hash the next piece of the sequence.

        Args:
            input_ids: token ids, integer [T].
            starts: True at the first position of each document, bool [T]; by default the first position ever pushed.

        Returns:
            Keys, int64 [T, N].

        Raises:
            InvalidValueError: for an id that the cache does not have; the stream stays as it was.
        """
        ids, flags = kernel_inputs(input_ids, starts)
        if starts is None:
            flags[:, :1] = not self._begun
        keys = np.empty((*ids.shape, self.max_order), dtype=np.int64)
        cache = self.cache
        bad = fill_keys(
            ids,
            flags,
            cache.steps,
            cache.start_steps,
            RULES[cache.prefix],
            self._last_keys,
            self._at_segment_start,
            keys,
        )
        if bad >= 0:
            raise unknown_id(ids, bad, cache)
        self._begun = self._begun or ids.size > 0
        return keys.reshape(*np.shape(input_ids), self.max_order)


def kernel_inputs(input_ids: np.ndarray, starts: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Ids, int64 [B, T], and document starts, bool [B, T], as kernels take them.

    Raises:
        InvalidValueError: if the ids are no integers, or the starts have another shape.
    """
    input_ids = np.asarray(input_ids)
    if not np.issubdtype(input_ids.dtype, np.integer):
        raise InvalidValueError(
            f"token ids of dtype {input_ids.dtype}",
            expected="integers",
            remedy="Pass the ids as the tokenizer gives them",
        )
    shape = (1, *input_ids.shape) if input_ids.ndim < 2 else input_ids.shape
    ids = np.ascontiguousarray(input_ids, dtype=np.int64).reshape(shape)
    if starts is None:
        flags = np.zeros(shape, dtype=np.bool_)
        flags[:, :1] = True
        return ids, flags
    if np.shape(starts) != input_ids.shape:
        raise InvalidValueError(
            f"starts of shape {list(np.shape(starts))} for ids of shape {list(input_ids.shape)}",
            expected="one flag per id",
            remedy="Pass starts of the shape of the ids",
        )
    return ids, np.ascontiguousarray(starts, dtype=np.bool_).reshape(shape)


def fresh_state(num_sequences: int, max_order: int) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel knows before the first id: no keys, int64 [B, N], and that no segment has been opened, bool [B]."""
    last_keys = np.empty((num_sequences, max_order), dtype=np.int64)
    last_keys.fill(NO_WINDOW)  # in a call with few ids, np.full would take as long as the hashing
    return last_keys, np.zeros(num_sequences, dtype=np.bool_)


def unknown_id(ids: np.ndarray, place: int, cache: HashCache) -> InvalidValueError:
    """The error for an id that the cache does not have.

    Args:
        ids: int64 [B, T].
        place: where it is among all ids.
        cache: the tokenizer's hash cache.
    """
    return InvalidValueError(
        f"token id {ids.reshape(-1)[place]} at position {place % ids.shape[1]}",
        expected=f"ids below {cache.num_ids}, the size of the hash cache",
        remedy="Build the cache with num_ids = the host's embedding rows, or check which tokenizer made the ids",
    )


@njit(cache=True, nogil=True)
def fill_keys(ids, starts, steps, start_steps, rule, last_keys, at_segment_start, keys):
    """Fill keys [B, T, N]; returns where the first id is that the cache does not have, or -1."""
    num_positions = ids.shape[1]
    max_order = keys.shape[2]
    scratch = block_scratch(max_order)
    orders = scratch[0]
    for b in range(len(ids)):
        orders[:, 0] = last_keys[b]
        at_start = at_segment_start[b]
        for begin in range(0, num_positions, BLOCK):
            end = min(begin + BLOCK, num_positions)
            bad, at_start = block_keys(
                ids[b, begin:end], starts[b, begin:end], steps, start_steps, rule, at_start, scratch
            )
            if bad >= 0:
                return b * num_positions + begin + bad
            for n in range(max_order):
                for i in range(end - begin):
                    keys[b, begin + i, n] = orders[n, i + 1]
                orders[n, 0] = orders[n, end - begin]
        last_keys[b] = orders[:, 0]
        at_segment_start[b] = at_start
    return -1


@njit(cache=True, nogil=True)
def block_scratch(max_order):
    """Room for one block: keys by order after those of the position before, int64 [N, BLOCK + 1]; C and B [BLOCK]."""
    return (
        np.empty((max_order, BLOCK + 1), dtype=np.int64),
        np.empty(BLOCK, dtype=np.int64),
        np.empty(BLOCK, dtype=np.int64),
    )


@njit(cache=True, nogil=True)
def block_keys(ids, starts, steps, start_steps, rule, at_segment_start, scratch):
    """Fill a block's keys; returns where an id is that the cache does not have, or -1, and the new segment state."""
    orders, values, powers = scratch
    num_ids = len(steps)
    for i in range(len(ids)):
        token = ids[i]
        if token >= num_ids:
            return i, at_segment_start
        value = np.int64(0)
        power = np.int64(0)
        if token >= 0:
            value = steps[token, 0]
            power = steps[token, 1]
        values[i] = value
        powers[i] = power
        orders[0, i + 1] = value if power != 0 else NO_WINDOW
    if rule != NEVER:
        at_segment_start = _open_segments(ids, starts, start_steps, rule, at_segment_start, scratch)
    for n in range(1, len(orders)):
        _extend(orders[n - 1], starts, values, powers, orders[n, 1:])
    return -1, at_segment_start


@njit(cache=True, nogil=True)
def _open_segments(ids, starts, start_steps, rule, at_segment_start, scratch):
    """Put the steps of a segment start where one is; returns the new segment state."""
    orders, values, powers = scratch
    for i in range(len(ids)):
        at_segment_start = at_segment_start or starts[i]
        if powers[i] == 0:
            at_segment_start = at_segment_start or rule == ALWAYS
        elif at_segment_start:
            # The token has bytes, so the segment has begun, even if they are all taken away here.
            values[i] = start_steps[ids[i], 0]
            powers[i] = start_steps[ids[i], 1]
            orders[0, i + 1] = values[i] if powers[i] != 0 else NO_WINDOW
            at_segment_start = False
    return at_segment_start


@njit(cache=True, nogil=True)
def _extend(shorter, starts, values, powers, longer):
    """Keys of one order more, by Eq. 8. What is computed where there is no window is not used: no branch, hence vectors."""
    for i in range(len(starts)):
        key = shorter[i]
        lane_0 = mod_prime((key >> 31) * (powers[i] >> 31) + (values[i] >> 31))
        lane_1 = mod_prime((key & PRIME) * (powers[i] & PRIME) + (values[i] & PRIME))
        missing = starts[i] or key < 0 or powers[i] == 0
        longer[i] = NO_WINDOW if missing else lane_0 << 31 | lane_1
