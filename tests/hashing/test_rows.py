"""Keys and ids to rows: exact remainders on every backend, H-03 among them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import naive
from tests.hashing.sequences import PREFIXES, cache_of, sequences
from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing import NgramHasher, rows_torch
from tokagnostic.hashing.addresses import head_moduli
from tokagnostic.hashing.polynomial import PRIME
from tokagnostic.hashing.rows import HeadRows, NgramRows
from tokagnostic.hashing.rows_numba import LARGEST as LARGEST_MODULUS
from tokagnostic.hashing.rows_numba import LEAST_FAST, WIDTH
from tokagnostic.hashing.windows_numba import BLOCK

LARGEST = 2**63 - 1
"""Of all mixes; keys of windows have one bit less."""
MODULI = (
    st.integers(2, LARGEST_MODULUS) | st.integers(LEAST_FAST - 3, LEAST_FAST + 3) | st.integers(2**31 - 99, 2**31 + 99)
)
"""All that heads may have, and often those where the vector instructions begin and where their 32 bits end."""


@st.composite
def keys_near_multiples(draw: st.DrawFn, modulus: int) -> int:
    """A key whose remainder is 0, 1 or M - 1, or nearly so, for a quotient of any size."""
    quotient = draw(
        st.integers(0, LARGEST // modulus) | st.integers(max(0, LARGEST // modulus - 2), LARGEST // modulus)
    )
    return min(max(quotient * modulus + draw(st.integers(-2, 2)), 0), LARGEST)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(-1, LARGEST), max_size=8), st.lists(MODULI, min_size=1, max_size=2 * WIDTH + 3))
def test_rows_are_the_exact_remainders(keys, moduli):
    expected = [naive.rows_of(key, moduli) for key in keys]
    assert HeadRows(moduli)(np.array(keys, dtype=np.int64)).tolist() == expected


@settings(max_examples=500, deadline=None)
@given(st.data(), MODULI)
def test_rows_are_exact_where_a_quotient_is_nearly_whole(data, modulus):
    """H-03: a double cannot tell 9223372036854775807 from its neighbours, and the rows must all the same."""
    keys = data.draw(st.lists(keys_near_multiples(modulus), min_size=1, max_size=8))
    assert HeadRows([modulus])(np.array(keys))[:, 0].tolist() == [key % modulus for key in keys]


@pytest.mark.parametrize("modulus", [2, 3, 4093, 8191, 8192, 8209, 65_537, 646_411, PRIME, 2**31 + 11, LARGEST_MODULUS])
def test_rows_at_the_edges_are_exact(modulus):
    """H-03: multiples of the modulus and their neighbours, up to the largest mix; a million quotients between."""
    multiples = np.linspace(0, LARGEST // modulus, 100_001).astype(np.int64) * modulus
    edges = np.concatenate([[0, 1, PRIME - 1, PRIME, LARGEST - 1, LARGEST], *(multiples + d for d in range(-5, 6))])
    keys = np.unique(edges[(edges >= 0) & (edges <= LARGEST)])
    rows = HeadRows([modulus])(keys)[:, 0]
    assert (rows == keys % modulus).all()
    assert rows.min() >= 0 and rows.max() < modulus


@pytest.mark.parametrize("modulus", [0, 1, -5, 1e6, True, "1000003", None, LARGEST_MODULUS + 1], ids=repr)
def test_a_modulus_that_is_no_whole_number_from_two_on_is_refused(modulus):
    """H-06: nothing that came through a float or a text becomes a modulus, and none divides by zero."""
    with pytest.raises(InvalidValueError, match="modulus"):
        HeadRows([101, modulus])


def test_no_heads_are_refused():
    with pytest.raises(InvalidValueError, match="no moduli"):
        HeadRows([])


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 63, 3)], ids=str)
def test_rows_add_one_axis(shape):
    assert HeadRows([5, 7])(np.zeros(shape, dtype=np.int64)).shape == (*shape, 2)


@settings(deadline=None, max_examples=200)
@given(sequences(), st.lists(MODULI, min_size=1, max_size=WIDTH + 2), st.integers(1, 3))
def test_rows_of_ids_are_those_of_their_keys(case, moduli, num_rows):
    tokens, ids, starts, order, prefix = case
    turned = [ids[i:] + ids[:i] for i in range(num_rows)]
    keys = [naive.window_keys(tokens, row, starts, order, prefix) for row in turned]
    expected = [[[naive.rows_of(key, moduli) for key in position] for position in row] for row in keys]
    address = NgramRows(NgramHasher(cache_of(tokens, prefix), order), HeadRows(moduli))
    batch = np.array(turned, dtype=np.int64).reshape(num_rows, len(ids))
    flags = None if starts is None else np.array([starts] * num_rows, dtype=bool).reshape(batch.shape)
    assert address(batch, flags).tolist() == expected
    tensor_flags = None if flags is None else torch.from_numpy(flags)
    assert address(torch.from_numpy(batch), tensor_flags).tolist() == expected
    assert address(batch[0], None if flags is None else flags[0]).tolist() == expected[0]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_rows_reach_from_block_to_block(prefix):
    tokens = [b" a", b"b", None, b" ", b"the"]
    ids = np.random.default_rng(2).integers(-1, len(tokens), (3, 2 * BLOCK + 63))
    hasher, heads = NgramHasher(cache_of(tokens, prefix), 4), HeadRows(head_moduli(10_000, 9))
    assert (NgramRows(hasher, heads)(ids) == heads(hasher(ids))).all()


@pytest.mark.parametrize("kind", ["numpy", "tensor"])
def test_an_id_beyond_the_cache_has_no_row_on_the_cpu(kind):
    """H-11, T-18: the error names the id, its position and the size of the cache."""
    ids = np.array([[0, 1], [1, 3]])
    address = NgramRows(NgramHasher(cache_of([b"a", b"b", b"c"]), 2), HeadRows([101]))
    with pytest.raises(InvalidValueError, match=r"token id 3 at position 1.*below 3"):
        address(ids if kind == "numpy" else torch.from_numpy(ids))


def test_ten_thousand_windows_have_the_same_rows_on_every_backend():
    """H-03: no backend lets a negative number reach a remainder; rows are inside the table."""
    random = np.random.default_rng(3)
    keys = random.integers(0, 2**62, 10_000)
    heads = HeadRows(head_moduli(100_000, 8))
    rows = heads(keys)
    assert rows.tolist() == [naive.rows_of(key, heads.moduli) for key in keys.tolist()]
    assert rows.min() >= 0 and rows.max() < sum(heads.moduli)
    keys[::7] = -1
    tensor = torch.from_numpy(keys)
    assert torch.equal(rows_torch.rows_of_keys(tensor, heads.on(tensor.device)), heads(tensor))
