"""Speeds, each as a ratio against a named rival that is measured in the same run.

Every number is the best of several repetitions, taken in turn with the rival's, so that a machine whose speed wanders
treats both alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing import HashCache, NgramHasher
from tokagnostic.hashing.addresses import head_moduli, rows_of_keys
from tokagnostic.hashing.polynomial import hash_bytes
from tokagnostic.tokens import TokenBytes

NUM_HEADS = 8

Row = dict[str, Any]


def run_bench(names: Sequence[str] = ()) -> list[Row]:
    """Make measurements.

    Args:
        names: which; none means all.

    Returns:
        For each: name, value, unit, rival, rival_value and ratio, above 1 where we are better.

    Raises:
        InvalidValueError: for an unknown name.
    """
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        raise InvalidValueError(
            f"measurement {unknown[0]!r}", expected=f"one of {', '.join(MEASUREMENTS)}", remedy="Name one of these"
        )
    return [row for name in names or MEASUREMENTS for row in MEASUREMENTS[name]()]


def bench_table(rows: Sequence[Row]) -> str:
    """Measurements as aligned lines."""
    width = max(len(row["name"]) for row in rows)
    lines = [f"{'measurement':<{width}}  {'ours':>10}  {'rival':>10}  {'unit':<7}  {'ratio':>7}  rival"]
    for row in rows:
        numbers = f"{row['value']:>10.4g}  {row['rival_value']:>10.4g}  {row['unit']:<7}  {row['ratio']:>7.2f}"
        lines.append(f"{row['name']:<{width}}  {numbers}  {row['rival']}")
    return "\n".join([*lines, "A ratio above 1 means that ours is better."])


def hashing(num_tokens: int = 1_000_000, num_ids: int = 128_000, repeats: int = 7) -> list[Row]:
    """Keys and rows of orders 1..3 on one thread against the published XOR rule in NumPy, orders 2..3, same ids."""
    random = np.random.default_rng(0)
    ids = random.integers(0, num_ids, (8, num_tokens // 8))
    num_tokens = ids.size
    hasher = NgramHasher(HashCache.build(_random_vocabulary(random, num_ids)), 3)
    moduli = head_moduli(646_400, NUM_HEADS)
    multipliers = 2 * random.integers(0, 2**62 // num_ids, 3) + 1
    rival_moduli = [head_moduli(646_400, NUM_HEADS), head_moduli(700_000, NUM_HEADS)]
    empty = np.empty((num_tokens * 3, NUM_HEADS), dtype=np.int64)
    keys, rows, rival, write = _best_seconds(
        lambda: hasher(ids),
        lambda: rows_of_keys(hasher(ids), moduli),
        lambda: published_rows(ids, multipliers, rival_moduli),
        lambda: empty.fill(1),
        repeats=repeats,
    )
    name = "published XOR rule, numpy, orders 2..3, 8 heads"
    return [
        _row("keys, orders 1..3", num_tokens / keys / 1e6, "Mtok/s", name, num_tokens / rival / 1e6),
        _row("rows, orders 1..3, 8 heads", num_tokens / rows / 1e6, "Mtok/s", name, num_tokens / rival / 1e6),
        _row(
            "rows against writing them",
            num_tokens / rows / 1e6,
            "Mtok/s",
            "filling the same output with a constant: the limit",
            num_tokens / write / 1e6,
        ),
    ]


def published_rows(ids: np.ndarray, multipliers: np.ndarray, moduli: Sequence[Sequence[int]]) -> np.ndarray:
    """The published Engram's addresses, without its compression of ids: ids times multipliers, XOR-ed, modulo primes.

    Args:
        ids: int64 [B, T].
        multipliers: odd numbers, int64 [N].
        moduli: one prime per order 2..N and head.

    Returns:
        Rows, int64 [B, T, (N - 1) * K].
    """
    pad_id = 2
    shifted = [
        np.pad(ids, ((0, 0), (k, 0)), constant_values=pad_id)[:, : ids.shape[1]] for k in range(len(multipliers))
    ]
    rows = []
    for n, primes in enumerate(moduli, start=2):
        mix = shifted[0] * multipliers[0]
        for k in range(1, n):
            mix = np.bitwise_xor(mix, shifted[k] * multipliers[k])
        rows += [mix % prime for prime in primes]
    return np.stack(rows, axis=2)


def cache(num_ids: int = 150_000, repeats: int = 3) -> list[Row]:
    """Building the hash cache of a large vocabulary against big integers in plain Python."""
    vocabulary = _random_vocabulary(np.random.default_rng(0), num_ids)
    tokens = [vocabulary[v] or b"" for v in range(len(vocabulary))]
    ours, rival = _best_seconds(
        lambda: HashCache.build(vocabulary), lambda: [hash_bytes(token) for token in tokens], repeats=repeats
    )
    return [_row(f"hash cache, {num_ids:,} tokens", ours, "s", "big integers in Python", rival, less_is_better=True)]


def step(
    num_rows: int = 2**20, num_fewer_rows: int = 2**16, repeats: int = 12, batch_size: int | None = None
) -> list[Row]:
    """A training step of the demonstration's source with a large table against one with a small table."""
    large, small = _best_seconds(_trainer(num_rows, batch_size), _trainer(num_fewer_rows, batch_size), repeats=repeats)
    name = f"the same step with {num_fewer_rows:,} rows; the bar is 0.91"
    return [_row(f"training step, {num_rows:,} rows", large, "s", name, small, less_is_better=True)]


def _trainer(num_rows: int, batch_size: int | None) -> Callable[[], object]:
    """A function that makes one training step with a table of about this many rows in all.

    Args:
        num_rows: of all heads together.
        batch_size: blocks per step; by default the demonstration's.
    """
    import dataclasses

    import torch

    from tokagnostic.host import attach
    from tokagnostic.studies.demo import DemoConfig
    from tokagnostic.training.hosts import fresh_llama
    from tokagnostic.training.optim import RowwiseRMSProp, dense_groups

    config = DemoConfig() if batch_size is None else DemoConfig(batch_size=batch_size)
    random = np.random.default_rng(0)
    cache = HashCache.build(_random_vocabulary(random, config.source_ids))
    per_head = num_rows // config.memory.num_heads
    memory = dataclasses.replace(config.memory, num_rows=per_head).build(cache)
    model = fresh_llama(config.source_host, config.source_ids, config.block_length, 0)
    attach(model, cache, memory, (1,))
    tables = list(memory.parameters())
    host = [(name, p) for name, p in model.named_parameters() if all(p is not table for table in tables)]
    optimizers = [torch.optim.AdamW(dense_groups(host, 0.1), lr=1e-3), RowwiseRMSProp(tables, lr=1e-2)]
    model.train()

    def train() -> None:
        ids = torch.from_numpy(random.integers(0, config.source_ids, (config.batch_size, config.block_length)))
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return train


MEASUREMENTS: dict[str, Callable[[], list[Row]]] = {"hashing": hashing, "cache": cache, "step": step}


def _random_vocabulary(random: np.random.Generator, num_ids: int) -> TokenBytes:
    """Tokens of 1 to 12 random bytes."""
    lengths = random.integers(1, 13, num_ids)
    data = random.integers(0, 256, int(lengths.sum()), dtype=np.uint8)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    return TokenBytes(data, offsets, np.ones(num_ids, dtype=np.uint8))


def _best_seconds(*functions: Callable[[], object], repeats: int = 7) -> list[float]:
    """The least time of each function over several rounds, after one that compiles and warms up."""
    best = [float("inf")] * len(functions)
    for repeat in range(repeats + 1):
        for i, function in enumerate(functions):
            begin = time.perf_counter()
            function()
            if repeat:
                best[i] = min(best[i], time.perf_counter() - begin)
    return best


def _row(name: str, value: float, unit: str, rival: str, rival_value: float, *, less_is_better: bool = False) -> Row:
    ratio = rival_value / value if less_is_better else value / rival_value
    return {"name": name, "value": value, "unit": unit, "rival": rival, "rival_value": rival_value, "ratio": ratio}
