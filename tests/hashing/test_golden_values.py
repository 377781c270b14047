from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests import naive
from tests.hashing.sequences import by_torch
from tokagnostic.hashing import HashCache, NgramHasher
from tokagnostic.hashing.addresses import head_moduli, head_offsets
from tokagnostic.hashing.polynomial import LAW, hash_bytes, hash_lane, hash_tokens, power_table
from tokagnostic.hashing.rows import HeadRows
from tokagnostic.tokens.token_bytes import TokenBytes

PATH = Path(__file__).parent / "golden" / "polynomial.json"
GOLDEN = json.loads(PATH.read_text())


def readable(case: dict) -> str:
    return case["bytes"][:16] + (f"-{len(case['bytes']) // 2}-bytes" if len(case["bytes"]) > 16 else "")


def window_case(case: dict) -> str:
    return f"{len(case['tokens'])}-tokens-{case.get('prefix', 'default')}"


def test_the_values_are_those_that_were_published():
    original = Path(__file__).resolve().parents[2] / ".." / "shared" / "golden" / "polynomial.json"
    if not original.exists():
        pytest.skip("the shared folder is not here")
    assert PATH.read_bytes() == original.read_bytes()


@pytest.mark.parametrize("field", ["prime", "bases", "byte_value", "key"])
def test_the_law_is_the_published_one(field):
    assert LAW[field] == GOLDEN[field]


@pytest.mark.parametrize("case", GOLDEN["strings"], ids=readable)
def test_a_string_has_its_key(case):
    data = bytes.fromhex(case["bytes"])
    assert hash_bytes(data) == naive.key_of(data) == case["key"]
    assert [hash_lane(data, base) for base in GOLDEN["bases"]] == case["lanes"]
    assert power_table(len(data))[len(data)].tolist() == case["powers"]
    begins, ends = np.array([0]), np.array([len(data)])
    assert hash_tokens(np.frombuffer(data, dtype=np.uint8), begins, ends).tolist() == [case["key"]]


@pytest.mark.parametrize("case", GOLDEN["windows"], ids=window_case)
def test_windows_have_their_keys_on_every_backend(case):
    tokens = [None if token is None else bytes.fromhex(token) for token in case["tokens"]]
    prefix, starts, order = case.get("prefix", "none"), case.get("starts"), case["max_order"]
    ids = np.arange(len(tokens))
    flags = None if starts is None else np.array(starts)
    cache = HashCache.build(TokenBytes.from_list(tokens, prefix=prefix))
    assert naive.window_keys(tokens, ids.tolist(), starts, order, prefix) == case["keys"]
    assert NgramHasher(cache, order)(ids, flags).tolist() == case["keys"]
    assert by_torch(cache, ids.tolist(), starts, order) == case["keys"]


@pytest.mark.parametrize("num_rows", GOLDEN["moduli"], ids=str)
def test_heads_have_their_primes(num_rows):
    assert head_moduli(int(num_rows), 8) == GOLDEN["moduli"][num_rows]


def test_keys_have_their_rows():
    for case in GOLDEN["rows"]:
        moduli = head_moduli(case["num_rows"], len(case["rows"]))
        key = hash_bytes(bytes.fromhex(case["bytes"]))
        rows = HeadRows(moduli)(np.array([key]))[0] - np.array(head_offsets(moduli))
        assert rows.tolist() == case["rows"]
