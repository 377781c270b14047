"""A large vocabulary to the seconds that its hash cache takes."""

from __future__ import annotations

import numpy as np

from tokagnostic.bench.measuring import Row, bench_row, best_seconds, random_vocabulary
from tokagnostic.hashing import HashCache
from tokagnostic.hashing.polynomial import hash_bytes


def measure_cache(num_ids: int = 150_000, repeats: int = 3) -> list[Row]:
    """Building the hash cache of a large vocabulary against big integers in plain Python."""
    vocabulary = random_vocabulary(np.random.default_rng(0), num_ids)
    tokens = [vocabulary[v] or b"" for v in range(len(vocabulary))]
    ours, rival = best_seconds(
        lambda: HashCache.build(vocabulary), lambda: [hash_bytes(token) for token in tokens], repeats=repeats
    )
    return [
        bench_row(f"hash cache, {num_ids:,} tokens", ours, "s", "big integers in Python", rival, less_is_better=True)
    ]
