"""Token ids on the CPU to the canonical ids of the windows that end at each position, and these to their mixes."""

from __future__ import annotations

import numpy as np
from numba import njit

from tokagnostic.hashing.polynomial import LANE_BITS, NO_WINDOW, PRIME


@njit(cache=True, nogil=True)
def fill_keys(ids, starts, codes, pad_id, min_order, keys):
    """Fill keys [B, T, N]; returns where the first id is that there is no code for, or -1."""
    num_positions, max_order = keys.shape[1], keys.shape[2]
    recent = np.empty(max_order, dtype=np.int64)
    for b in range(len(ids)):
        recent[:] = pad_id
        for t in range(num_positions):
            if ids[b, t] >= len(codes):
                return b * num_positions + t
            code = codes[ids[b, t]] if ids[b, t] >= 0 else np.int64(-1)
            if starts[b, t] or code < 0:
                recent[:] = pad_id
            else:
                for n in range(max_order - 1, 0, -1):
                    recent[n] = recent[n - 1]
            if code < 0:
                keys[b, t] = NO_WINDOW
                continue
            recent[0] = code
            for n in range(max_order):
                keys[b, t, n] = code << LANE_BITS | recent[n]
            for n in range(min_order - 1):
                keys[b, t, n] = NO_WINDOW
    return -1


def mix_keys(keys: np.ndarray, multipliers: np.ndarray, min_order: int) -> np.ndarray:
    """The mix of every window from the keys of all orders.

    Args:
        keys: int64 [..., N]; for order n the newest and the oldest id of a window, or -1.
        multipliers: m_0, m_1, ..., int64 [N or more].
        min_order: smallest order with windows.

    Returns:
        Mixes of orders min_order..N, int64 [..., N - min_order + 1]; -1 where no window exists.
    """
    flat = np.ascontiguousarray(keys, dtype=np.int64).reshape(-1, keys.shape[-1])
    mixes = np.empty((len(flat), keys.shape[-1] - min_order + 1), dtype=np.int64)
    _mix_keys(flat, multipliers, min_order, mixes)
    return mixes.reshape(*keys.shape[:-1], mixes.shape[-1])


@njit(cache=True, nogil=True)
def _mix_keys(keys, multipliers, min_order, mixes):
    for i in range(len(keys)):
        last = keys[i, min_order - 1]
        if last < 0:
            mixes[i] = NO_WINDOW
            continue
        mix = (last >> LANE_BITS) * multipliers[0]
        if min_order == 1:
            mixes[i, 0] = mix
        for n in range(1, keys.shape[1]):
            mix ^= (keys[i, n] & PRIME) * multipliers[n]
            mixes[i, n - min_order + 1] = mix
