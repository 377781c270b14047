"""Tables that stay where they are, and keys that are looked up once each: the same bits as a plain read."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tokagnostic.hashing.rows import HeadRows
from tokagnostic.memory import load_memory, save_memory
from tokagnostic.memory.base import NgramMemory, Store
from tokagnostic.memory.elsewhere import read_by_unique_keys
from tokagnostic.memory.gather_numba import FEW
from tokagnostic.memory.quantised import CODE_DTYPES, QuantisedRows
from tokagnostic.memory.stores import TableStore, store_of

CPU = torch.device("cpu")
FORMATS = ("fp32", "bf16", "fp16", *CODE_DTYPES)
ROW_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
every_format = pytest.mark.parametrize("row_format", FORMATS)


def store_with(row_format: str, num_rows: int, dim: int = 6) -> Store:
    rows = torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(0))
    if row_format in CODE_DTYPES:
        return store_of([QuantisedRows.of(rows, CODE_DTYPES[row_format], 3)])
    store = store_of([rows.to(ROW_DTYPES[row_format])])
    assert isinstance(store, TableStore)
    return store.requires_grad_(False)


def by_unique_keys(store: Store, keys: Tensor, heads: HeadRows) -> Tensor:
    """What a store reads for keys of another device, without another device."""
    return read_by_unique_keys(keys, CPU, lambda few: store.read(few, heads))


keys_with_repeats = st.lists(st.sampled_from([-1, 0, 1, 7, 2**62 - 1]) | st.integers(-1, 2**62 - 1), max_size=24)


class TestReadByUniqueKeys:
    @every_format
    @settings(deadline=None)
    @given(keys=keys_with_repeats, max_order=st.integers(1, 3), moduli=st.sampled_from([[2], [13, 101]]))
    def test_equals_a_lookup_of_every_key(self, row_format, keys, max_order, moduli):
        heads, keys = HeadRows(moduli), keys[: len(keys) // max_order * max_order]
        windows = torch.tensor(keys, dtype=torch.int64).view(1, -1, max_order)
        store = store_with(row_format, sum(moduli))
        plain, found = store.read(windows, heads), by_unique_keys(store, windows, heads)
        assert found.dtype == plain.dtype and found.shape == plain.shape
        assert torch.equal(found, plain)

    @every_format
    @pytest.mark.parametrize("num_positions", [FEW - 1, FEW + 1, 3 * FEW], ids=str)
    def test_of_many_keys_with_repeats(self, row_format, num_positions):
        heads, store = HeadRows([4099, 4111]), store_with(row_format, 4099 + 4111)
        windows = torch.randint(-1, 400, (2, num_positions, 3), generator=torch.Generator().manual_seed(1))
        assert torch.equal(by_unique_keys(store, windows, heads), store.read(windows, heads))

    @pytest.mark.parametrize("shape", [(0, 4, 3), (2, 0, 3), (2, 4, 0)], ids=str)
    def test_of_nothing(self, shape):
        heads, store = HeadRows([13, 101]), store_with("fp32", 114)
        windows = torch.empty(shape, dtype=torch.int64)
        plain, found = store.read(windows, heads), by_unique_keys(store, windows, heads)
        assert found.shape == plain.shape == (*shape[:2], shape[2] * 2 * 6)

    @settings(deadline=None)
    @given(keys=keys_with_repeats.filter(len))
    def test_a_key_crosses_once(self, keys):
        seen = []

        def read(few: Tensor) -> Tensor:
            seen.append(few)
            return few.to(torch.float64)

        read_by_unique_keys(torch.tensor(keys).view(1, -1, 1), CPU, read)
        assert [few.flatten().tolist() for few in seen] == [sorted(set(keys))]
        assert seen[0].shape == (len(set(keys)), 1)

    @settings(deadline=None)
    @given(keys=keys_with_repeats.filter(len), seed=st.integers(0, 9))
    def test_the_gradient_of_a_table_is_that_of_the_plain_read(self, keys, seed):
        """Whole numbers, whose sums are exact in any order."""
        heads = HeadRows([13, 101])
        windows = torch.tensor(keys).view(1, -1, 1)
        gradient = torch.randint(-8, 9, (1, len(keys), 12), generator=torch.Generator().manual_seed(seed)).float()
        found = []
        for read in (lambda store: store.read(windows, heads), lambda store: by_unique_keys(store, windows, heads)):
            store = TableStore([torch.randn(114, 6, generator=torch.Generator().manual_seed(0))])
            read(store).backward(gradient)
            assert store.tables[0].grad.is_sparse
            found.append(store.tables[0].grad.coalesce())
        plain, unique = found
        assert torch.equal(plain.indices(), unique.indices()) and torch.equal(plain.values(), unique.values())

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    def test_the_gradient_of_a_narrow_table_loses_nothing_over_equal_keys(self, dtype):
        """A running sum in bfloat16 would stop at 256, where the next number is 258."""
        heads, windows = HeadRows([101]), torch.full((1, 2304, 1), 7)
        store = TableStore([torch.zeros(101, 6, dtype=dtype)])
        by_unique_keys(store, windows, heads).sum().backward()
        assert store.tables[0].grad._values().tolist() == [[2304.0] * 6]


MOVES: dict[str, Callable[[NgramMemory], object]] = {
    "to a device": lambda memory: memory.to("meta"),
    "to a type": lambda memory: memory.to(torch.float64),
    "half": lambda memory: memory.half(),
    "bfloat16": lambda memory: memory.bfloat16(),
    "with its host": lambda memory: torch.nn.Sequential(memory, torch.nn.Linear(1, 1)).to("meta", torch.bfloat16),
    "emptied": lambda memory: memory.to_empty(device="meta"),
}
COPIES: dict[str, Callable[[NgramMemory], NgramMemory]] = {
    "copy": copy.deepcopy,
    "pickle": lambda memory: pickle.loads(pickle.dumps(memory)),
}


class TestStaying:
    @every_format
    @pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "copied"])
    @pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
    def test_tables_remain_where_they_are(self, trained, path, cache, ids, row_format, mapped, move):
        save_memory(trained, path, row_format)
        memory = load_memory(path, cache, mapped=mapped)
        before, places = memory(ids), [tensor.data_ptr() for tensor in memory.store.tensors]
        assert memory.stay() is memory
        move(memory)
        assert [tensor.data_ptr() for tensor in memory.store.tensors] == places
        assert memory.store.device_of(0) == CPU and memory.is_as_in_file
        assert torch.equal(memory(ids), before)

    @every_format
    def test_without_it_they_move(self, trained, path, cache, row_format):
        save_memory(trained, path, row_format)
        memory = load_memory(path, cache)
        memory.to("meta")
        assert {tensor.device.type for tensor in memory.store.tensors} == {"meta"}

    def test_a_trained_table_that_stays_is_trained(self, make_memory, ids):
        """It is the same parameter after a move, its gradient holds the rows looked up, and its visits are counted."""
        memory = make_memory().stay().train()
        table = memory.store.tables[0]
        memory.to("meta")
        memory(ids).sum().backward()
        assert memory.store.tables[0] is table and table.grad.is_sparse
        rows = memory.rows(memory.hasher(ids))
        assert int(memory.visits[0].counts.sum()) == int((rows >= 0).sum()) > 0

    @every_format
    @pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
    @pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "in memory"])
    def test_a_copy_stays_too(self, trained, path, cache, ids, row_format, mapped, copied):
        save_memory(trained, path, row_format)
        memory = load_memory(path, cache, mapped=mapped).stay()
        before = memory(ids)
        other = copied(memory)
        other.to("meta")
        assert other.store.device_of(0) == CPU and torch.equal(other(ids), before)
