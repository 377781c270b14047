"""One norm over dense and sparse gradients, against torch's on dense ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_optim import naive_global_norm
from torch import nn

from tokagnostic.training import clipping, rowwise_torch
from tokagnostic.training.clipping import clip_global_norm


@pytest.mark.parametrize("backend", ["numba", "torch"])
@settings(deadline=None, max_examples=50)
@given(
    rows=st.lists(st.integers(0, 7), max_size=20),
    max_norm=st.floats(0.01, 100),
    seed=st.integers(0, 2**31 - 1),
)
def test_norm_and_gradients_are_those_of_a_dense_computation(backend, rows, max_norm, seed) -> None:
    random = torch.Generator().manual_seed(seed)
    table, matrix, without = (
        nn.Parameter(torch.zeros(8, 3)),
        nn.Parameter(torch.zeros(2, 2)),
        nn.Parameter(torch.ones(2)),
    )
    values = torch.randn(len(rows), 3, generator=random)
    table.grad = torch.sparse_coo_tensor(torch.tensor([rows], dtype=torch.int64), values, (8, 3), check_invariants=True)
    matrix.grad = torch.randn(2, 2, generator=random)
    dense = [nn.Parameter(torch.zeros(8, 3)), nn.Parameter(torch.zeros(2, 2))]
    dense[0].grad, dense[1].grad = table.grad.to_dense(), matrix.grad.clone()
    exact = naive_global_norm([table.grad, matrix.grad])
    with pytest.MonkeyPatch.context() as patch:
        if backend == "torch":
            patch.setattr(clipping, "backend_for", lambda table: rowwise_torch)
        norm = clip_global_norm([table, matrix, without], max_norm)
    expected = torch.nn.utils.clip_grad_norm_(dense, max_norm)
    assert float(norm) == pytest.approx(exact, rel=1e-5) == pytest.approx(float(expected), rel=1e-5)
    torch.testing.assert_close(table.grad.to_dense(), dense[0].grad)
    torch.testing.assert_close(matrix.grad, dense[1].grad)
    assert table.grad.is_coalesced() and set(table.grad.indices()[0].tolist()) == set(rows) and without.grad is None


def test_a_gradient_that_is_short_enough_keeps_its_bits() -> None:
    table = nn.Parameter(torch.zeros(8, 1))
    table.grad = torch.sparse_coo_tensor(
        torch.tensor([[1, 2]]), torch.tensor([[0.3], [0.7]]), (8, 1), check_invariants=True
    )
    before = table.grad.to_dense().clone()
    clip_global_norm([table], 10.0)
    assert torch.equal(table.grad.to_dense(), before)


def test_torch_itself_refuses_sparse_gradients() -> None:
    """The day it does not, this file has one function less to test."""
    table = nn.Parameter(torch.zeros(8, 1))
    table.grad = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1, 1), (8, 1), check_invariants=True)
    with pytest.raises(NotImplementedError, match="linalg_vector_norm"):
        torch.nn.utils.clip_grad_norm_([table], 1.0)


def test_no_gradients_have_no_length() -> None:
    assert float(clip_global_norm([nn.Parameter(torch.ones(2))], 1.0)) == 0.0
