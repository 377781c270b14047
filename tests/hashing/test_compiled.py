"""What `torch.compile` makes of hashing and addressing: one graph without a break, equal to numba with `==`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.hashing.sequences import PREFIXES, cache_of
from tokagnostic.hashing import NgramHasher
from tokagnostic.hashing.addresses import head_moduli
from tokagnostic.hashing.rows import HeadRows, NgramRows
from tokagnostic.memory import MemoryConfig, memory_kinds

TOKENS = [b" a", b"b", None, b" ", "é".encode(), b"the", b"\x00" * 300]
BACKENDS = ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def ids_and_starts(seed: int, shape: tuple[int, ...] = (2, 63)) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    return (
        torch.from_numpy(random.integers(-1, len(TOKENS), shape)),
        torch.from_numpy(random.random(shape) < 0.1),
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    "with_starts", [pytest.param(False, id="row starts", marks=pytest.mark.slow), pytest.param(True, id="given starts")]
)
def test_the_hasher_compiles_to_one_graph_that_equals_numba(backend, prefix, with_starts):
    hasher = NgramHasher(cache_of(TOKENS, prefix), 3)
    compiled = torch.compile(lambda ids, starts: hasher(ids, starts), backend=backend, fullgraph=True)
    for seed in range(3):
        ids, starts = ids_and_starts(seed)
        flags = starts if with_starts else None
        assert torch.equal(compiled(ids, flags), hasher(ids, flags))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("moduli", [[2, 3, 4093], head_moduli(646_400, 8), [2**31 - 1]], ids=len)
def test_rows_compile_to_one_graph_that_equals_numba(backend, moduli):
    address = NgramRows(NgramHasher(cache_of(TOKENS, "always"), 4), HeadRows(moduli))
    compiled = torch.compile(lambda ids, starts: address(ids, starts), backend=backend, fullgraph=True)
    for seed in range(3):
        ids, starts = ids_and_starts(seed)
        assert torch.equal(compiled(ids, starts), address(ids, starts))


@pytest.mark.parametrize("shape", [(1,), (127,), (1, 1), (3, 5)], ids=str)
def test_other_shapes_compile_too(shape):
    hasher = NgramHasher(cache_of(TOKENS, "first"), 7)
    compiled = torch.compile(lambda ids, starts: hasher(ids, starts), backend="eager", fullgraph=True)
    ids, starts = ids_and_starts(5, shape)
    assert torch.equal(compiled(ids, starts), hasher(ids, starts))


@pytest.mark.parametrize("backend", BACKENDS)
def test_unknown_ids_are_counted_by_every_call_of_a_compiled_graph(backend):
    """H-11, T-18."""
    hasher = NgramHasher(cache_of([b"a", b"b"]), 2)
    compiled = torch.compile(lambda ids: hasher(ids), backend=backend, fullgraph=True)
    for _ in range(3):
        compiled(torch.tensor([[0, 5, 1, 2, -1]]))
    assert hasher.num_unknown_ids == 6


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("num_tables", [1, 2])
@pytest.mark.parametrize("kind", memory_kinds())
def test_a_frozen_memory_compiles_to_one_graph_with_the_same_features(backend, kind, num_tables):
    config = MemoryConfig.from_dict(
        {"kind": kind, "max_order": 3, "num_rows": 100, "num_heads": 3, "dim": 4, "num_tables": num_tables}
    )
    memory = config.build(cache_of(TOKENS, "first")).freeze()
    compiled = torch.compile(memory, backend=backend, fullgraph=True)
    for layer in range(2):
        ids, starts = ids_and_starts(layer)
        assert torch.equal(compiled(ids, starts, layer), memory(ids, starts, layer))
