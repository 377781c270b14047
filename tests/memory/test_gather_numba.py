"""Keys to features in one pass, against addressing and then looking up."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokagnostic.hashing.rows import HeadRows
from tokagnostic.memory.gather_numba import FEW, can_gather, gather
from tokagnostic.memory.stores import TableStore

MODULI = [[2], [4099, 4111, 4127], [13, 4099], [4099, 4111, 4127, 4129, 4133, 4139, 4153, 4157], [4159] * 9]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@settings(deadline=None)
@given(
    keys=st.lists(st.integers(-1, 2**62 - 1) | st.just(-1), max_size=12),
    max_order=st.integers(1, 3),
    moduli=st.sampled_from(MODULI),
    dim=st.sampled_from([1, 3, 16]),
)
def test_it_equals_addressing_and_looking_up(
    dtype: torch.dtype, keys: list[int], max_order: int, moduli: list[int], dim: int
) -> None:
    heads, keys = HeadRows(moduli), keys[: len(keys) // max_order * max_order]
    # The orders last in memory: not contiguous.
    windows = torch.tensor(keys, dtype=torch.int64).view(max_order, 1, -1).permute(1, 2, 0)
    store = TableStore([torch.randn(sum(moduli), dim).to(dtype)]).requires_grad_(False)
    assert can_gather(store.tables[0], windows)
    found, expected = store.read(windows, heads), store(heads(windows))
    assert found.dtype == expected.dtype and torch.equal(found, expected)


def test_what_cannot_be_read_in_one_pass_is_read_all_the_same() -> None:
    heads = HeadRows([4099])
    few, many = torch.zeros(1, 1, 1, dtype=torch.int64), torch.zeros(1, FEW + 1, 1, dtype=torch.int64)
    store = TableStore([torch.randn(4099, 4)])
    assert not can_gather(store.tables[0], few)
    assert store.read(few, heads).requires_grad
    store.requires_grad_(False)
    assert can_gather(store.tables[0], few) and not can_gather(store.tables[0], many)
    assert torch.equal(store.read(many, heads)[:, :1], store.read(few, heads))
    assert not can_gather(torch.randn(4, 4099).T, few)


def test_a_row_beyond_the_table_is_refused() -> None:
    with pytest.raises(IndexError, match="row 4098 of a table of 4098 rows"):
        gather(torch.zeros(4098, 4), torch.tensor([[[4098]]]), HeadRows([4099]))
