"""The published Engram's addresses: golden values, a released model's constants, and every backend against the oracle."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import naive_xor
from tests.hashing.sequences import cache_of, sequences
from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing import HashCache, xor_torch
from tokagnostic.hashing.addresses import head_moduli
from tokagnostic.hashing.rows import HeadRows
from tokagnostic.hashing.xor import XorHasher, mix_keys, multipliers_of

PATH = Path(__file__).parent / "golden" / "xor.json"
GOLDEN = json.loads(PATH.read_text())
every_case = pytest.mark.parametrize(
    "case", GOLDEN["cases"], ids=lambda case: f"layer-{case['layer']}-orders-{case['orders']}"
)


def hasher_of(tokens, max_order: int, pad_id: int | None = None, min_order: int = 2) -> XorHasher:
    num_ids = len(tokens) + 1
    return XorHasher(cache_of(tokens), max_order, num_ids, num_ids - 1 if pad_id is None else pad_id, min_order)


def codes_of(tokens, ids) -> list[int | None]:
    canonical = naive_xor.canonical_ids(tokens)
    return [canonical[i] if i >= 0 and tokens[i] else None for i in ids]


def default_starts(ids) -> list[bool]:
    return [position == 0 for position in range(len(ids))]


def test_the_values_are_those_that_were_published():
    original = Path(__file__).resolve().parents[2] / ".." / "shared" / "golden" / "xor.json"
    if not original.exists():
        pytest.skip("the shared folder is not here")
    assert PATH.read_bytes() == original.read_bytes()


def test_a_released_model_has_these_multipliers():
    public = GOLDEN["public"]
    expected = public["layer_1_multipliers"]
    assert multipliers_of(1, 4, public["num_ids"]) == expected
    assert naive_xor.multipliers_of(1, 4, public["num_ids"]) == expected


def test_a_released_model_has_these_numbers_of_rows():
    """Orders 2..4 with 8 heads at two layers: no prime is used twice anywhere."""
    primes = head_moduli(16_000_000, 2 * 3 * 8)
    assert [sum(primes[:24]), sum(primes[24:])] == GOLDEN["public"]["table_rows"]


@every_case
def test_the_oracle_has_the_golden_rows(case):
    table, orders = case["layers"].index(case["layer"]), case["orders"]
    moduli = naive_xor.moduli_of(case["num_rows"], len(case["layers"]), len(orders), case["num_heads"])[table]
    multipliers = naive_xor.multipliers_of(case["layer"], max(orders), case["num_ids"], case["seed"])
    assert (multipliers, moduli) == (case["multipliers"], case["moduli"])
    starts = default_starts(case["ids"])
    assert naive_xor.rows(case["ids"], starts, orders, multipliers, moduli, case["pad_id"]) == case["rows"]


@cache
def distinct_texts(num_ids: int) -> HashCache:
    """As many ids as canonical ones: no two are of one text."""
    return cache_of([b"w%d" % token_id for token_id in range(num_ids)])


@every_case
def test_golden_ids_have_their_rows(case):
    orders, ids = case["orders"], np.array(case["ids"])
    hasher = XorHasher(distinct_texts(case["num_ids"]), max(orders), case["num_ids"], case["pad_id"], min(orders))
    multipliers = tuple(multipliers_of(case["layer"], max(orders), case["num_ids"], case["seed"]))
    mixes = mix_keys(hasher(ids), multipliers, min(orders))
    rows = [HeadRows(heads)(mixes[:, n]) - HeadRows(heads).offsets for n, heads in enumerate(case["moduli"])]
    assert np.stack(rows, axis=1).tolist() == case["rows"]


@settings(max_examples=80, deadline=None)
@given(sequences(), st.integers(1, 2), st.integers(0, 20))
def test_every_backend_collects_what_the_oracle_does(sequence, min_order, pad_id):
    tokens, ids, starts, order, _ = sequence
    order = max(order, min_order)
    hasher = hasher_of(tokens, order, min(pad_id, len(tokens)), min_order)
    codes, flags = codes_of(tokens, ids), default_starts(ids) if starts is None else starts
    expected = []
    for t in range(len(ids)):
        windows = [naive_xor.window(codes, flags, t, n, hasher.pad_id) for n in range(1, order + 1)]
        expected.append(
            [
                -1 if n < min_order or found is None else found[0] * 2**31 + found[-1]
                for n, found in enumerate(windows, 1)
            ]
        )
    given_starts = None if starts is None else np.array(starts, dtype=bool)
    assert hasher(np.array(ids, dtype=np.int64), given_starts).tolist() == expected
    tensor, flag_tensor = (
        torch.tensor(ids, dtype=torch.int64),
        None if starts is None else torch.from_numpy(given_starts),
    )
    by_torch = xor_torch.window_keys(
        tensor, flag_tensor, *hasher.on(torch.device("cpu")), hasher.pad_id, min_order, order
    )
    assert by_torch.tolist() == expected


@settings(max_examples=80, deadline=None)
@given(sequences(), st.integers(1, 2), st.integers(0, 40))
def test_every_backend_mixes_as_the_oracle_does(sequence, min_order, layer):
    tokens, ids, starts, order, _ = sequence
    order = max(order, min_order)
    hasher = hasher_of(tokens, order, min_order=min_order)
    multipliers = naive_xor.multipliers_of(layer, order, hasher.num_ids)
    flags = default_starts(ids) if starts is None else starts
    expected = []
    for t in range(len(ids)):
        windows = [
            naive_xor.window(codes_of(tokens, ids), flags, t, n, hasher.pad_id) for n in range(min_order, order + 1)
        ]
        expected.append([-1 if found is None else naive_xor.mix(found, multipliers) for found in windows])
    keys = hasher(np.array(ids, dtype=np.int64), None if starts is None else np.array(starts, dtype=bool))
    assert mix_keys(keys, tuple(multipliers), min_order).tolist() == expected
    assert xor_torch.mix_keys(torch.from_numpy(keys), multipliers, min_order).tolist() == expected
    assert all(mix < 2**63 for mixes in expected for mix in mixes)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 50), st.integers(1, 8), st.integers(1, 2**24), st.integers(0, 2**32))
def test_multipliers_are_those_of_the_oracle_and_no_product_overflows(layer, order, num_ids, seed):
    multipliers = multipliers_of(layer, order, num_ids, seed)
    assert multipliers == naive_xor.multipliers_of(layer, order, num_ids, seed)
    assert all(multiplier % 2 == 1 and multiplier * (num_ids - 1) < 2**63 for multiplier in multipliers)


def test_a_window_that_has_no_oldest_ids_is_filled_with_the_pad_id():
    hasher = hasher_of([b"a", b"b", None], 3)
    assert hasher(np.array([0, 1, 2, 0, -100, 1, 1])).tolist() == [
        [-1, 3, 3],
        [-1, 1 << 31, (1 << 31) + 3],
        [-1, -1, -1],
        [-1, 3, 3],
        [-1, -1, -1],
        [-1, (1 << 31) + 3, (1 << 31) + 3],
        [-1, (1 << 31) + 1, (1 << 31) + 3],
    ]


def test_an_id_that_the_cache_does_not_have_is_refused_on_the_cpu_and_counted_elsewhere():
    hasher = hasher_of([b"a", b"b"], 2)
    with pytest.raises(InvalidValueError, match="token id 7 at position 1"):
        hasher(np.array([[0, 7]]))
    keys = xor_torch.window_keys(torch.tensor([0, 7, 0]), None, *hasher.on(torch.device("cpu")), 2, 2, 2)
    assert keys.tolist() == [[-1, 2], [-1, -1], [-1, 2]]
    assert hasher.num_unknown_ids == 1


def test_surplus_ids_of_a_host_break_windows_and_change_no_key():
    tokens = [b"a", b"b", b"A"]
    plain = hasher_of(tokens, 3)
    padded = XorHasher(plain.cache.padded(9), 3, plain.num_ids, plain.pad_id)
    ids = np.array([0, 1, 2, 1])
    assert padded(ids).tolist() == plain(ids).tolist()
    assert padded(np.array([0, 8, 2])).tolist()[1:] == [[-1] * 3, plain(ids[2:3]).tolist()[0]]


def test_more_canonical_ids_than_the_multipliers_are_drawn_for_are_refused():
    with pytest.raises(InvalidValueError, match="a tokenizer of 3 canonical ids for addresses made for 2"):
        XorHasher(cache_of([b"a", b"b", b"c"]), 2, 2, 1)
