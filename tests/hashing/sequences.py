"""Vocabularies and ids that the backends are compared on."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from tokagnostic.hashing import HashCache, windows_torch
from tokagnostic.tokens.token_bytes import TokenBytes

PIECES = [b"a", b" ", b" a", b"  ", b"\x00", b"\x00\x00", b"\xff", b"\xc3", "é".encode(), b"the", b"x" * 300, b"", None]
PREFIXES = ["none", "first", "always"]


@st.composite
def sequences(draw: st.DrawFn):
    """A vocabulary, ids with masked ones among them, document starts (or none said), an order and a prefix rule."""
    tokens = draw(st.lists(st.sampled_from(PIECES) | st.binary(max_size=5), min_size=1, max_size=8))
    ids = draw(st.lists(st.integers(-2, len(tokens) - 1), max_size=20))
    starts = draw(st.none() | st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
    return tokens, ids, starts, draw(st.integers(1, 7)), draw(st.sampled_from(PREFIXES))


def cache_of(tokens, prefix="none", **settings) -> HashCache:
    return HashCache.build(TokenBytes.from_list(tokens, prefix=prefix), **settings)


def tensors_of(cache: HashCache, ids, starts) -> tuple:
    """What the kernels for tensors take first."""
    return (
        torch.tensor(ids, dtype=torch.int64),
        None if starts is None else torch.tensor(starts, dtype=torch.bool),
        torch.from_numpy(cache.steps),
        torch.from_numpy(cache.start_steps),
        torch.zeros(1, dtype=torch.int64),
    )


def by_torch(cache: HashCache, ids: list, starts: list | None, order: int) -> list:
    return windows_torch.window_keys(*tensors_of(cache, ids, starts), cache.prefix, order).tolist()
