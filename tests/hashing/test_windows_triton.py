"""The kernel for GPUs, run by Triton's interpreter on the CPU: equal to numba and to big integers with `==`."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import naive
from tests.hashing.sequences import PREFIXES, cache_of, sequences, tensors_of
from tokagnostic.hashing import NgramHasher, hasher, rows
from tokagnostic.hashing.addresses import head_moduli
from tokagnostic.hashing.rows import HeadRows, NgramRows
from tokagnostic.hashing.windows_numba import window_keys

pytest.importorskip("triton", reason="the extra `triton` is not installed")
kernels = importlib.import_module("tokagnostic.hashing.windows_triton")


@settings(deadline=None, max_examples=60)
@given(sequences(), st.lists(st.integers(2, 2**31 + 100), min_size=1, max_size=9), st.integers(1, 3))
def test_keys_and_rows_equal_big_integers(case, moduli, num_rows):
    tokens, ids, starts, order, prefix = case
    cache = cache_of(tokens, prefix)
    batch = [ids[i:] + ids[:i] for i in range(num_rows)]
    flags = None if starts is None else [starts] * num_rows
    expected = [naive.window_keys(tokens, row, starts, order, prefix) for row in batch]
    arguments = (*tensors_of(cache, batch, flags), cache.prefix, order)
    keys, addresses = kernels.window_rows(*arguments, HeadRows(moduli).on(torch.device("cpu")))
    assert keys.tolist() == kernels.window_keys(*arguments).tolist() == expected
    assert addresses.tolist() == [
        [[naive.rows_of(key, moduli) for key in position] for position in row] for row in expected
    ]
    assert int(arguments[4]) == 0


@pytest.mark.parametrize("order", [1, 2, 3, 7])
@pytest.mark.parametrize("num_heads", [1, 3, 8, 11])
@pytest.mark.parametrize("shape", [(1,), (127,), (257,), (3, 101), (300, 1)], ids=str)
def test_every_order_and_number_of_heads_equals_numba(order, num_heads, shape):
    """Odd sizes, so that programs begin and end within a row, and rows within a program."""
    random = np.random.default_rng(order * num_heads)
    cache = cache_of([b" a", b"b", None, b" ", "é".encode(), b"the"], "first")
    ids, starts = random.integers(-1, 6, shape), random.random(shape) < 0.1
    heads = HeadRows(head_moduli(1000, num_heads))
    keys, addresses = kernels.window_rows(
        *tensors_of(cache, ids, starts), cache.prefix, order, heads.on(torch.device("cpu"))
    )
    expected = window_keys(ids, starts, cache, order)
    assert (keys.numpy() == expected).all()
    assert (addresses.numpy() == heads(expected)).all()


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("num_passed", [0, 1, 126, 127, 128, 129, 300])
def test_a_segment_opens_however_many_ids_without_bytes_are_passed_over(prefix, num_passed):
    """The start is up to three programs away from the first id with bytes."""
    tokens = [b" a", None]
    ids, starts = [0, *[1] * num_passed, 0, 0], [False, True, *[False] * (num_passed + 1)]
    cache = cache_of(tokens, prefix)
    keys = kernels.window_keys(*tensors_of(cache, ids, starts), cache.prefix, 2)
    assert keys.tolist() == naive.window_keys(tokens, ids, starts, 2, prefix)


def test_ten_thousand_windows_are_bit_equal():
    """H-03: multiples of a modulus and long tokens, where a wrong sign or a lost bit would show."""
    random = np.random.default_rng(3)
    cache = cache_of([random.bytes(int(length)) for length in random.integers(1, 512, 500)])
    ids = random.integers(0, 500, 3400)
    heads = HeadRows([2, 3, 65_537, 2**31 - 1])
    keys, addresses = kernels.window_rows(*tensors_of(cache, ids, None), "none", 3, heads.on(torch.device("cpu")))
    expected = window_keys(ids, None, cache, 3)
    assert (keys.numpy() == expected).all() and (addresses.numpy() == heads(expected)).all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16], ids=str)
def test_unknown_ids_break_windows_and_are_counted(dtype):
    """H-11, T-18: what a device does with an id that nobody knows; a masked one is not unknown."""
    tokens, ids = [b"a", b"b"], [[0, 5, 1, 0, -1], [2, 0, 1, -100, 7]]
    arguments = tensors_of(cache_of(tokens), ids, None)
    keys = kernels.window_keys(arguments[0].to(dtype), *arguments[1:], "none", 3)
    assert keys.tolist() == [naive.window_keys(tokens, row, None, 3) for row in ids]
    assert int(arguments[4]) == 3


def test_ids_that_are_not_contiguous_are_read_where_they_are():
    cache = cache_of([b"a", b"b", b"c"])
    ids, starts = torch.tensor([[0, 1], [2, 0], [1, 1]]).T, torch.tensor([[True, True], [False, True], [True, False]]).T
    _, _, *arrays = tensors_of(cache, [], None)
    keys = kernels.window_keys(ids, starts, *arrays, "none", 2)
    assert (keys.numpy() == window_keys(ids.numpy(), starts.numpy(), cache, 2)).all()


def test_no_ids_are_no_launch():
    heads = HeadRows([5, 7]).on(torch.device("cpu"))
    cache = cache_of([b"a"])
    keys, addresses = kernels.window_rows(*tensors_of(cache, [[], []], None), "none", 3, heads)
    assert (keys.shape, addresses.shape) == ((2, 0, 3), (2, 0, 3, 2))


def test_what_a_gpu_is_given_goes_through_this_kernel(monkeypatch):
    """There is no GPU here: the places that choose are told that the CPU is one, and ids come from another device."""
    monkeypatch.setattr(hasher, "has_triton", lambda device: True)
    monkeypatch.setattr(rows, "has_triton", lambda device: True)
    calls = []
    monkeypatch.setattr(kernels, "_launch", lambda *arguments: calls.append(arguments))
    ids = torch.zeros(2, 5, dtype=torch.int64, device="meta")
    hash_ids = NgramHasher(cache_of([b"a"]), 3)
    assert hash_ids(ids).shape == (2, 5, 3)
    assert NgramRows(hash_ids, HeadRows([5, 7]))(ids).shape == (2, 5, 3, 2)
    assert len(calls) == 2 and calls[0][3] is not None


@pytest.mark.parametrize(
    ("device", "installed", "expected"), [("cuda", True, True), ("cuda", False, False), ("cpu", True, False)]
)
def test_only_a_gpu_where_the_package_is_installed_gets_this_kernel(monkeypatch, device, installed, expected):
    monkeypatch.setattr(hasher, "find_spec", lambda name: object() if installed and name == "triton" else None)
    assert hasher.has_triton.__wrapped__(torch.device(device)) is expected


PROGRAM = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from tokagnostic.hashing import windows_triton

for prefix, with_starts, num_heads in (("none", False, 0), ("always", False, 3), ("first", True, 8)):
    types = {name: "*i64" for name in ("ids", "steps", "start_steps", "keys", "num_unknown")}
    types |= {name: "i64" for name in ("num_all", "num_positions", "num_ids")}
    types |= {"starts": "*i1"} if with_starts else {}
    types |= {"heads": "*i64", "rows": "*i64"} if num_heads else {}
    constants = {"MAX_ORDER": 3, "NUM_HEADS": num_heads, "HEADS": 8 if num_heads else 1, "PREFIX": prefix, "BLOCK": 128}
    names = windows_triton._windows.arg_names
    constants |= {name: None for name in names if name not in types and name not in constants}
    signature = {name: types.get(name, "constexpr") for name in names}
    code = compile(ASTSource(windows_triton._windows, signature, constants), target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    assert ("mul.hi.u64" in code) == (num_heads > 0)
print("compiled")
"""


@pytest.mark.slow
def test_the_kernel_compiles_for_a_gpu_that_is_not_here(tmp_path):
    """The interpreter accepts more than the compiler: every variant is compiled for compute capability 9.0."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "compiled\n", done.stderr
