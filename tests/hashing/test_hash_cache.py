from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import naive
from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.hashing import HashCache, NgramHasher
from tokagnostic.hashing.polynomial import BASES, CHECK_BASES, PRIME, hash_bytes, hash_lane
from tokagnostic.hashing.windows_numba import window_keys
from tokagnostic.tokens.token_bytes import TokenBytes

TOKENS = [b"a", b" b", None, b"\x00", b"", b" ", "é".encode() * 40]
RULES = ["none", "first", "always"]


def test_a_step_holds_value_and_power_of_every_id():
    cache = HashCache.build(TokenBytes.from_list(TOKENS))
    for token, (value, power) in zip(TOKENS, cache.steps.tolist(), strict=True):
        lanes = [pow(base, len(token or b""), naive.P) for base in naive.LANE_BASES]
        assert value == (naive.key_of(token) if token else 0)
        assert power == (lanes[0] * 2**31 + lanes[1] if token else 0)


@pytest.mark.parametrize("tokens", [[], [None], [b""], [None, b"a"], [b"a", None], [b" "]], ids=repr)
@pytest.mark.parametrize("rule", RULES)
def test_degenerate_vocabularies_are_served(tokens, rule):
    cache = HashCache.build(TokenBytes.from_list(tokens, prefix=rule), num_ids=len(tokens) + 2)
    ids = list(range(len(tokens) + 2))
    assert NgramHasher(cache, 2)(np.array(ids)).tolist() == naive.window_keys(tokens, ids, None, 2, rule)


def test_ids_up_to_the_hosts_are_without_bytes():
    """T-18: embedding rows padded past the vocabulary."""
    cache = HashCache.build(TokenBytes.from_list(TOKENS), num_ids=320)
    assert cache.num_ids == 320
    assert not cache.steps[len(TOKENS) :].any()


def test_a_host_with_fewer_ids_than_the_vocabulary_is_refused():
    with pytest.raises(InvalidValueError, match="7 ids for a host of 6"):
        HashCache.build(TokenBytes.from_list(TOKENS), num_ids=6)


@pytest.mark.parametrize("rule", ["first", "always"])
def test_keep_leaves_the_invented_space_and_strip_takes_it(rule):
    table = TokenBytes.from_list(TOKENS, prefix=rule)
    keys = {
        policy: int(NgramHasher(HashCache.build(table, prefix=policy), 1)(np.array([1]))[0, 0])
        for policy in ("strip", "keep")
    }
    assert keys == {"strip": naive.key_of(b"b"), "keep": naive.key_of(b" b")}


def test_the_check_of_a_window_is_its_hash_under_other_bases() -> None:
    tokens = [b" in", b"ter", None, b"nal", b"a" * 70]
    cache = HashCache.build_check(TokenBytes.from_list(tokens, prefix="always"))
    keys = window_keys(np.array([0, 1, 2, 0, 3, 4]), None, cache, 3)
    windows = {(1, 1): b"inter", (4, 1): b"innal", (5, 2): b"innal" + b"a" * 70, (5, 0): b"a" * 70}
    for (t, n), window in windows.items():
        lane_0, lane_1 = (hash_lane(window, base) for base in CHECK_BASES)
        assert keys[t, n] == lane_0 << 31 | lane_1 != hash_bytes(window)


def test_the_bases_of_the_check_are_primitive_roots_of_their_own() -> None:
    factors = (2, 3, 7, 11, 31, 151, 331)
    assert not set(CHECK_BASES) & set(BASES)
    assert all(pow(base, (PRIME - 1) // factor, PRIME) != 1 for base in CHECK_BASES for factor in factors)


def test_an_unknown_policy_is_refused():
    with pytest.raises(InvalidValueError, match="'drop'"):
        HashCache.build(TokenBytes.from_list(TOKENS), prefix="drop")


@pytest.mark.parametrize("policy", ["strip", "keep"])
@pytest.mark.parametrize("rule", RULES)
def test_a_saved_cache_comes_back(tmp_path, rule, policy):
    cache = HashCache.build(TokenBytes.from_list(TOKENS, prefix=rule), num_ids=9, prefix=policy)
    cache.save(tmp_path / "cache")
    again = HashCache.load(tmp_path / "cache")
    assert (again.fingerprint, again.token_fingerprint) == (cache.fingerprint, cache.token_fingerprint)
    assert (again.prefix, again.policy, again.num_ids) == (cache.prefix, policy, 9)
    ids = np.array([1, 0, 2, 1, 5, 1, 8])
    assert NgramHasher(again, 3)(ids).tolist() == NgramHasher(cache, 3)(ids).tolist()


def test_every_difference_of_keys_is_a_difference_of_fingerprints():
    tables = [
        HashCache.build(TokenBytes.from_list(TOKENS, prefix="first")),
        HashCache.build(TokenBytes.from_list(TOKENS, prefix="always")),
        HashCache.build(TokenBytes.from_list(TOKENS, prefix="first"), prefix="keep"),
        HashCache.build(TokenBytes.from_list(TOKENS, prefix="first"), num_ids=8),
        HashCache.build(TokenBytes.from_list([*TOKENS[:-1], b"z"], prefix="first")),
    ]
    assert len({cache.fingerprint for cache in tables}) == len(tables)


def test_a_damaged_cache_file_is_refused_or_equal(tmp_path):
    """Every byte of a small file is flipped in turn: nothing wrong is ever loaded."""
    cache = HashCache.build(TokenBytes.from_list([b"a", b" b"], prefix="first"))
    path = tmp_path / "cache"
    cache.save(path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x01
        path.write_bytes(damaged)
        try:
            again = HashCache.load(path)
        except SourceError as error:
            assert "\n" not in str(error)
        else:
            assert again.fingerprint == cache.fingerprint
            assert again.steps.tolist() == cache.steps.tolist()
            assert again.start_steps.tolist() == cache.start_steps.tolist()


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 100, -1])
def test_a_truncated_cache_file_is_refused(tmp_path, cut):
    path = tmp_path / "cache"
    HashCache.build(TokenBytes.from_list(TOKENS)).save(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(SourceError, match="cache"):
        HashCache.load(path)


@pytest.mark.parametrize("place", ["missing", "."])
def test_a_cache_that_is_no_file_is_refused(tmp_path, place):
    with pytest.raises(SourceError, match="cannot be read"):
        HashCache.load(tmp_path / place)


SCRIPT = """
import sys
from tokagnostic.hashing import HashCache
from tokagnostic.tokens.token_bytes import TokenBytes
cache = HashCache.build(TokenBytes.from_list([b"a", None, " é".encode(), b"\\x00"], prefix="first"))
cache.save(sys.argv[1])
print(cache.fingerprint, cache.token_fingerprint)
"""


def test_fingerprints_do_not_depend_on_the_process(tmp_path):
    """H-07: the interpreter's salted hash plays no part; files and fingerprints are equal in all processes."""
    root = Path(__file__).resolve().parents[2]
    seen = set()
    for seed in ("0", "1", "random"):
        path = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(path)], env=environment, capture_output=True, text=True, check=True
        )
        seen.add((done.stdout, hashlib.sha256(path.read_bytes()).hexdigest()))
    assert len(seen) == 1


@pytest.mark.parametrize("policy", ["strip", "keep"])
@pytest.mark.parametrize("rule", RULES)
def test_a_padded_cache_is_one_built_for_as_many_ids(rule, policy):
    """T-18: the host's surplus rows may become known after the cache was built."""
    table = TokenBytes.from_list(TOKENS, prefix=rule)
    padded = HashCache.build(table, prefix=policy).padded(320)
    built = HashCache.build(table, num_ids=320, prefix=policy)
    assert (padded.fingerprint, padded.policy) == (built.fingerprint, policy)
    assert built.padded(320) is built
    with pytest.raises(InvalidValueError, match="num_ids = 319"):
        built.padded(319)
