"""Token ids to keys and rows, as million tokens per second, against the published hash and against writing the output."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tokagnostic.bench.measuring import Row, bench_row, best_seconds, random_vocabulary
from tokagnostic.hashing import HashCache, NgramHasher
from tokagnostic.hashing.addresses import head_moduli
from tokagnostic.hashing.rows import HeadRows, NgramRows

MAX_ORDER = 3
NUM_HEADS = 8
NUM_ROWS = 646_400
"""Rows asked for per head, as in the published example."""
BATCH = (8, 1024)
"""Sequences and positions of a usual training batch."""
NUM_DECODED = 3
"""Tokens of a small call."""


def measure_hashing(
    num_tokens: int = 1_000_000, num_ids: int = 128_000, repeats: int = 7, small_repeats: int = 500
) -> list[Row]:
    """Keys and rows of orders 1..3 on one thread against the published XOR rule in NumPy, same ids.

    Args:
        num_tokens: of the large call.
        num_ids: size of the vocabulary.
        repeats: of the large call.
        small_repeats: of a training batch and of the small call.
    """
    random = np.random.default_rng(0)
    hasher = NgramHasher(HashCache.build(random_vocabulary(random, num_ids)), MAX_ORDER)
    address = NgramRows(hasher, HeadRows(head_moduli(NUM_ROWS, NUM_HEADS)))
    ours, rival, rival_from_2, limit = _speeds(
        hasher, address, random.integers(0, num_ids, (8, num_tokens // 8)), repeats
    )
    keys, rows = ours
    batch, batch_rival, _, batch_limit = _speeds(hasher, address, random.integers(0, num_ids, BATCH), small_repeats)
    heads = f"{NUM_HEADS} heads"
    same, fewer = (f"published XOR rule, numpy, orders {first}..{MAX_ORDER}, {heads}" for first in (1, 2))
    writing = "allocating and filling the same output with a constant: the limit"
    speeds = [
        (f"keys, orders 1..{MAX_ORDER}", keys, same, rival),
        (f"rows, orders 1..{MAX_ORDER}, {heads}", rows, same, rival),
        ("the same against fewer orders", rows, fewer, rival_from_2),
        ("the same against writing", rows, writing, limit),
        (f"rows, batches of {BATCH[0]} x {BATCH[1]}", batch[1], same, batch_rival),
        ("the same against writing", batch[1], writing, batch_limit),
    ]
    return [
        *(bench_row(name, value, "Mtok/s", rival_name, other) for name, value, rival_name, other in speeds),
        _small_call(address, random.integers(0, num_ids, (1, NUM_DECODED)), small_repeats),
    ]


def _speeds(
    hasher: NgramHasher, address: NgramRows, ids: np.ndarray, repeats: int
) -> tuple[tuple[float, float], float, float, float]:
    """Million tokens per second: our keys and rows, the published rule for all orders and from order 2, writing."""
    seconds = best_seconds(
        lambda: hasher(ids),
        lambda: address(ids),
        _published(ids, 1),
        _published(ids, 2),
        lambda: np.empty((*ids.shape, MAX_ORDER, NUM_HEADS), dtype=np.int64).fill(1),
        repeats=repeats,
    )
    keys, rows, rival, rival_from_2, limit = (ids.size / second / 1e6 for second in seconds)
    return (keys, rows), rival, rival_from_2, limit


def _small_call(address: NgramRows, ids: np.ndarray, repeats: int) -> Row:
    import torch

    tensor = torch.from_numpy(ids)
    ours, rival = best_seconds(lambda: address(tensor), _published(ids, 1), repeats=repeats)
    name = f"rows of a call with {ids.size} tokens"
    return bench_row(name, ours * 1e6, "us", "published XOR rule, numpy, same orders", rival * 1e6, less_is_better=True)


def _published(ids: np.ndarray, first_order: int) -> Callable[[], np.ndarray]:
    multipliers = 2 * np.random.default_rng(0).integers(0, 2**40, MAX_ORDER) + 1
    moduli = [head_moduli(NUM_ROWS, NUM_HEADS)] * (MAX_ORDER - first_order + 1)
    return lambda: published_rows(ids, multipliers, moduli, first_order)


def published_rows(
    ids: np.ndarray, multipliers: np.ndarray, moduli: Sequence[Sequence[int]], first_order: int = 2
) -> np.ndarray:
    """The published Engram's addresses, without its compression of ids: ids times multipliers, XOR-ed, modulo primes.

    Args:
        ids: int64 [B, T].
        multipliers: odd numbers, int64 [N].
        moduli: one prime per order and head.
        first_order: the smallest order; the publication begins with 2.

    Returns:
        Rows, int64 [B, T, number of orders * K].
    """
    pad_id = 2
    shifted = [
        np.pad(ids, ((0, 0), (k, 0)), constant_values=pad_id)[:, : ids.shape[1]] for k in range(len(multipliers))
    ]
    rows = []
    for n, primes in enumerate(moduli, start=first_order):
        mix = shifted[0] * multipliers[0]
        for k in range(1, n):
            mix = np.bitwise_xor(mix, shifted[k] * multipliers[k])
        rows += [mix % prime for prime in primes]
    return np.stack(rows, axis=2)
