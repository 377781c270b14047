"""The reading of a large vocabulary, proof included, against loading it and against decoding its ids one by one."""

from __future__ import annotations

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tokagnostic.bench.measuring import Row, bench_row, best_seconds
from tokagnostic.tokens import TokenBytes
from tokagnostic.tokens.alphabet import byte_symbols

LONGEST_PIECE = 16


def measure_tokens(num_ids: int = 262_144, repeats: int = 3) -> list[Row]:
    """Seconds to the bytes of every id of a byte-level vocabulary as large as today's largest."""
    tokenizer = _byte_level(np.random.default_rng(0), num_ids)
    description = tokenizer.to_str()
    ours, loading, decoding = best_seconds(
        lambda: TokenBytes.from_tokenizer(tokenizer),
        lambda: Tokenizer.from_str(description),
        lambda: [tokenizer.decode([v]).encode() for v in range(num_ids)],
        repeats=repeats,
    )
    name = f"bytes of {num_ids:,} ids, proven"
    decoder = "decoding each id: no proof, and wrong for parts of characters"
    return [
        bench_row(name, 1e3 * ours, "ms", "loading the tokenizer itself", 1e3 * loading, less_is_better=True),
        bench_row(name, 1e3 * ours, "ms", decoder, 1e3 * decoding, less_is_better=True),
    ]


def _byte_level(random: np.random.Generator, num_ids: int) -> Tokenizer:
    """A byte-level BPE whose merges join random pieces of at most 16 bytes."""
    pieces = list(byte_symbols())
    known = set(pieces)
    merges = []
    while len(pieces) < num_ids:
        for i, j in random.integers(0, len(pieces), (num_ids, 2)).tolist():
            joined = pieces[i] + pieces[j]
            if joined not in known and len(joined) <= LONGEST_PIECE and len(known) < num_ids:
                known.add(joined)
                merges.append((pieces[i], pieces[j]))
        pieces += [left + right for left, right in merges[len(pieces) - 256 :]]
    tokenizer = Tokenizer(models.BPE(vocab={piece: v for v, piece in enumerate(pieces)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
