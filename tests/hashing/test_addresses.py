from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import naive
from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing.addresses import MAX_ROWS, head_moduli, head_offsets, is_prime
from tokagnostic.hashing.polynomial import hash_tokens
from tokagnostic.hashing.rows import HeadRows


def synthetic_keys(count: int, length: int = 12, seed: int = 22) -> np.ndarray:
    """Keys of distinct random lower-case strings, int64 [count]."""
    letters = np.random.default_rng(seed).integers(97, 123, (count, length), dtype=np.uint8)
    letters = np.unique(letters, axis=0)
    begins = np.arange(len(letters)) * length
    return hash_tokens(letters.reshape(-1), begins, begins + length)


def test_primes_are_those_of_trial_division():
    assert [number for number in range(5000) if is_prime(number)] == naive.primes_from(0, 669)


@pytest.mark.parametrize("number", [2047, 1_373_653, 25_326_001, 3_215_031_751, 4_294_836_223, 2**31 - 3, 46_341**2])
def test_pseudoprimes_are_found_out(number):
    assert is_prime(number) == all(number % d for d in range(2, math.isqrt(number) + 1))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 100_000), st.integers(1, 9), st.sets(st.integers(2, 300)))
def test_heads_take_the_next_free_primes(num_rows, num_heads, taken):
    moduli = head_moduli(num_rows, num_heads, taken)
    assert moduli == naive.primes_from(num_rows, num_heads, taken)
    assert len(set(moduli)) == num_heads and not taken & set(moduli)
    assert head_offsets(moduli) == [sum(moduli[:k]) for k in range(num_heads)]


@pytest.mark.parametrize("value", [1e6, 0, 1, -5, True, "1000003", None, MAX_ROWS + 1, float("nan")], ids=repr)
def test_a_row_count_that_is_no_whole_number_is_refused(value):
    """H-06: a float from JSON, zero, a bool and a text never become a modulus."""
    with pytest.raises(InvalidValueError, match="num_rows"):
        head_moduli(value, 2)
    if value != 1:
        with pytest.raises(InvalidValueError, match="num_heads"):
            head_moduli(100, value)


def test_every_row_can_be_reached():
    """H-01: no base shares a factor with a prime row count; random strings fill as many rows as chance allows."""
    keys = synthetic_keys(20_000)
    for num_rows in (1_000_000, 2**20):
        modulus = head_moduli(num_rows, 1)[0]
        distinct = len(np.unique(HeadRows([modulus])(keys)))
        assert abs(distinct - modulus * (1 - math.exp(-len(keys) / modulus))) < 60
    small = head_moduli(1000, 1)[0]
    assert len(np.unique(HeadRows([small])(keys))) == small


@pytest.mark.parametrize("windows_per_row", [0.1, 1.0, 3.0, 10.0])
def test_the_load_of_a_head_is_that_of_chance(windows_per_row):
    """H-22: n windows in M rows occupy 1 - exp(-n / M) of them, in every head."""
    moduli = head_moduli(20_000, 4)
    keys = synthetic_keys(int(windows_per_row * 20_000))
    rows = HeadRows(moduli)(keys) - np.array(head_offsets(moduli))
    for k, modulus in enumerate(moduli):
        load = len(np.unique(rows[:, k])) / modulus
        expected = 1 - math.exp(-len(keys) / modulus)
        assert abs(load - expected) < 5 * math.sqrt(expected * (1 - expected) / modulus) + 1e-4


def colliding_in_all(rows: np.ndarray) -> float:
    """Share of windows that share the rows of all heads with another window."""
    _, counts = np.unique(rows, axis=0, return_counts=True)
    return float(counts[counts > 1].sum() / len(rows))


def test_heads_with_their_own_primes_do_not_collide_together():
    """H-22: two windows meet in two heads as rarely as chance has it; heads of one modulus always meet together."""
    keys = synthetic_keys(20_000)
    moduli = head_moduli(20_000, 2)
    single = colliding_in_all(HeadRows(moduli[:1])(keys))
    pair = colliding_in_all(HeadRows(moduli)(keys))
    correlated = colliding_in_all(HeadRows([moduli[0], moduli[0]])(keys))
    assert abs(single - (1 - math.exp(-len(keys) / moduli[0]))) < 0.02
    assert pair < 10 / len(keys)
    assert correlated == single
