"""The load of a table, against Python sets."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import naive
from tokagnostic.memory import load as load_module
from tokagnostic.memory.addressers import ModuloAddresser
from tokagnostic.memory.load import OrderLoad, measure_load

WORDS = st.binary(min_size=1, max_size=2)
ORDERS = st.lists(st.sets(WORDS, max_size=25), min_size=1, max_size=3)


def naive_load(ngrams: set[bytes], every: set[bytes], moduli: list[int]) -> OrderLoad:
    """From the definition: every n-gram looks at every other one's rows."""
    rows = {ngram: naive.rows_of(naive.key_of(ngram), moduli) for ngram in every}
    heads = range(len(moduli))
    held = [Counter(rows[ngram][k] for ngram in every) for k in heads]
    alike = Counter(tuple(found) for found in rows.values())
    meets = {ngram: [held[k][rows[ngram][k]] > 1 for k in heads] for ngram in ngrams}
    num, others = max(1, len(ngrams)), max(0, len(every) - 1)
    chances = [1 - (1 - 1 / modulus) ** others for modulus in moduli]
    return OrderLoad(
        num_ngrams=len(ngrams),
        rows_hit=tuple(len({rows[ngram][k] for ngram in ngrams}) for k in heads),
        expected_rows_hit=tuple(modulus * (1 - (1 - 1 / modulus) ** len(ngrams)) for modulus in moduli),
        sharing=tuple(sum(meets[ngram][k] for ngram in ngrams) / num for k in heads),
        expected_sharing=tuple(chances),
        in_all_heads=sum(all(meets[ngram]) for ngram in ngrams) / num,
        expected_in_all_heads=math.prod(chances),
        with_the_same=sum(alike[tuple(rows[ngram])] > 1 for ngram in ngrams) / num,
        expected_with_the_same=1 - (1 - 1 / math.prod(moduli)) ** others,
    )


def assert_same(found: OrderLoad, expected: OrderLoad) -> None:
    """Counts `==`, probabilities to the rounding of the plain formula."""
    for name, value in vars(found).items():
        other = getattr(expected, name)
        assert value == (pytest.approx(other, rel=1e-9, abs=1e-12) if name.startswith("expected") else other), name


@settings(max_examples=60, deadline=None)
@given(ORDERS, st.integers(2, 40), st.integers(1, 3), st.integers(0, 1), st.sampled_from([1, 7, 1 << 18]))
def test_equals_the_count_by_sets(orders: list[set[bytes]], rows: int, heads: int, table: int, chunk: int) -> None:
    """All sizes of tables and of what is addressed together; an n-gram may come in several orders."""
    addresser = ModuloAddresser(rows, heads, 2)
    every = set().union(*orders)
    keys = [torch.tensor(sorted(map(naive.key_of, ngrams)), dtype=torch.int64) for ngrams in (*orders, every)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_module, "CHUNK", chunk)
        found = measure_load(keys[:-1], keys[-1], addresser, table)
    moduli = addresser.moduli[table]
    assert found.num_rows == tuple(moduli)
    for load, ngrams in zip((*found.orders, found.all_orders), (*orders, every), strict=True):
        assert_same(load, naive_load(ngrams, every, moduli))


def test_what_is_expected_is_what_random_keys_do() -> None:
    """Within four standard deviations of a mean over 40 draws."""
    addresser, draws = ModuloAddresser(1000, 3), []
    for seed in range(40):
        keys = torch.randint(0, 2**62, (1500,), generator=torch.Generator().manual_seed(seed)).unique()
        draws.append(measure_load([keys], keys, addresser).orders[0])
    for measured, expected in (
        ([load.rows_hit[1] for load in draws], draws[0].expected_rows_hit[1]),
        ([load.sharing[2] for load in draws], draws[0].expected_sharing[2]),
        ([load.in_all_heads for load in draws], draws[0].expected_in_all_heads),
    ):
        values = torch.tensor(measured, dtype=torch.float64)
        assert float(values.mean()) == pytest.approx(expected, abs=4 * float(values.std()) / 40**0.5)
        assert expected > 0 and float(values.std()) > 0
