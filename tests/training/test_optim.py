"""The row-wise rule against a plain reference, and the rows it must leave alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tokagnostic.errors import InvalidValueError
from tokagnostic.memory.stores import lookup
from tokagnostic.training.optim import RowwiseRMSProp, dense_groups, sum_by_row, warmup_cosine

LR, BETA, EPS = 0.03, 0.9, 1e-10


def make_table(num_rows: int = 8, dim: int = 3, seed: int = 0) -> nn.Parameter:
    return nn.Parameter(torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(seed)))


def sparse(rows: list[int], values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_coo_tensor(torch.tensor([rows], dtype=torch.int64), values, shape, check_invariants=True)


class DenseReference:
    """The rule, row by row, on a dense gradient and a list of the rows that were looked up."""

    def __init__(self, table: Tensor) -> None:
        self.table = table.detach().double().clone()
        self.moment = [0.0] * len(table)
        self.count = [0] * len(table)

    def step(self, rows: list[int], values: Tensor) -> None:
        gradient = torch.zeros_like(self.table)
        for row, value in zip(rows, values.double(), strict=True):
            gradient[row] += value
        for row in set(rows):
            self.count[row] += 1
            self.moment[row] = BETA * self.moment[row] + (1 - BETA) * float((gradient[row] ** 2).mean())
            corrected = self.moment[row] / (1 - BETA ** self.count[row])
            self.table[row] -= LR * gradient[row] / (corrected**0.5 + EPS)


@settings(deadline=None)
@given(steps=st.lists(st.lists(st.integers(0, 7), max_size=9), min_size=1, max_size=12), seed=st.integers(0, 2**31 - 1))
def test_the_update_is_that_of_a_dense_reference_and_other_rows_are_bit_equal(
    steps: list[list[int]], seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    table = make_table()
    reference = DenseReference(table)
    optimizer = RowwiseRMSProp([table], lr=LR, beta=BETA, eps=EPS)
    for rows in steps:
        values = torch.randn(len(rows), 3, generator=random)
        before, state = (
            table.detach().clone(),
            {name: tensor.clone() for name, tensor in optimizer.state[table].items()},
        )
        table.grad = sparse(rows, values, (8, 3))
        optimizer.step()
        reference.step(rows, values)
        others = [row for row in range(8) if row not in rows]
        assert torch.equal(table[others], before[others])
        assert all(torch.equal(optimizer.state[table][name][others], state[name][others]) for name in state)
    torch.testing.assert_close(table.detach().double(), reference.table, rtol=1e-5, atol=1e-5)
    assert optimizer.state[table]["count"].tolist() == reference.count
    torch.testing.assert_close(
        optimizer.state[table]["moment"].double(),
        torch.tensor(reference.moment, dtype=torch.float64),
        rtol=1e-4,
        atol=0,
    )


class TestRowwiseRMSProp:
    def test_a_row_touched_once_stays_where_it_went_while_another_is_trained(self) -> None:
        """M-02: 8 rows, row 3 once, then 50 steps on row 5."""
        table = make_table()
        fresh = table.detach().clone()
        optimizer = RowwiseRMSProp([table], lr=LR)
        table.grad = sparse([3], torch.ones(1, 3), (8, 3))
        optimizer.step()
        third = table[3].detach().clone()
        assert not torch.equal(third, fresh[3])
        for _ in range(50):
            table.grad = sparse([5], torch.ones(1, 3), (8, 3))
            optimizer.step()
        assert torch.equal(table[3], third)
        never = [0, 1, 2, 4, 6, 7]
        assert torch.equal(table[never], fresh[never])
        assert optimizer.state[table]["count"].tolist() == [0, 0, 0, 1, 0, 50, 0, 0]

    def test_small_updates_are_not_rounded_away(self) -> None:
        """M-19: a number of 1.0 and 100 updates of 1e-3, which bf16 would lose one by one."""
        table = nn.Parameter(torch.ones(4, 2))
        optimizer = RowwiseRMSProp([table], lr=1e-3)
        lossy = torch.ones(1, dtype=torch.bfloat16)
        for _ in range(100):
            table.grad = sparse([2], torch.full((1, 2), 0.5), (4, 2))
            optimizer.step()
            lossy -= 1e-3
        assert lossy.item() == 1.0
        torch.testing.assert_close(table[2].detach(), torch.full((2,), 0.9), atol=1e-5, rtol=0)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
    def test_a_table_that_is_not_fp32_is_refused(self, dtype: torch.dtype) -> None:
        """M-19: tables train in fp32."""
        with pytest.raises(InvalidValueError, match=r"expected float32 .* Train the table in float32 and export"):
            RowwiseRMSProp([nn.Parameter(torch.ones(4, 2, dtype=dtype))], lr=1e-3)

    def test_the_state_is_eight_bytes_a_row(self) -> None:
        """M-01."""
        table = make_table(num_rows=101, dim=7)
        optimizer = RowwiseRMSProp([table], lr=LR)
        table.grad = sparse([5, 5, 100], torch.ones(3, 7), (101, 7))
        optimizer.step()
        assert sum(tensor.nbytes for tensor in optimizer.state[table].values()) == 8 * 101

    def test_loading_a_state_keeps_counts_whole(self) -> None:
        table = make_table()
        optimizer = RowwiseRMSProp([table], lr=LR)
        table.grad = sparse([1], torch.ones(1, 3), (8, 3))
        optimizer.step()
        saved = optimizer.state_dict()
        other = RowwiseRMSProp([make_table()], lr=1.0)
        other.load_state_dict(saved)
        (state,) = other.state.values()
        assert state["count"].dtype == torch.int32 and state["count"].tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
        assert torch.equal(state["moment"], optimizer.state[table]["moment"]) and other.param_groups[0]["lr"] == LR

    def test_gradients_of_two_lookups_add_up_before_the_step(self) -> None:
        """Two backward passes, then one step, against one pass over both."""
        rows, weights = torch.tensor([[1, 2, 2, -1], [2, 5, -1, 5]]), torch.randn(2, 4, 3)
        tables = [make_table(), make_table()]
        for row, weight in zip(rows, weights, strict=True):
            (lookup(tables[0], row) * weight).sum().backward()
        (lookup(tables[1], rows) * weights).sum().backward()
        for table in tables:
            RowwiseRMSProp([table], lr=LR).step()
        torch.testing.assert_close(tables[0], tables[1])
        assert torch.equal(tables[0][[0, 3, 4, 6, 7]], make_table()[[0, 3, 4, 6, 7]])

    def test_a_gradient_of_no_rows_and_no_gradient_move_nothing(self) -> None:
        table = make_table()
        optimizer = RowwiseRMSProp([table], lr=LR)
        optimizer.step()
        table.grad = sparse([], torch.zeros(0, 3), (8, 3))
        optimizer.step()
        assert torch.equal(table, make_table()) and not optimizer.state[table]["count"].any()

    def test_a_zero_gradient_moves_nothing(self) -> None:
        table = make_table()
        optimizer = RowwiseRMSProp([table], lr=LR)
        table.grad = sparse([4], torch.zeros(1, 3), (8, 3))
        optimizer.step()
        assert torch.equal(table, make_table())

    def test_a_dense_gradient_is_refused(self) -> None:
        table = make_table()
        optimizer = RowwiseRMSProp([table], lr=LR)
        table.grad = torch.zeros(8, 3)
        with pytest.raises(InvalidValueError, match="a dense gradient for a table; expected a sparse gradient"):
            optimizer.step()

    def test_a_closure_is_called_with_gradients_on(self) -> None:
        table = make_table()
        optimizer = RowwiseRMSProp([table], lr=LR)

        def closure() -> Tensor:
            loss = lookup(table, torch.tensor([6])).sum()
            loss.backward()
            return loss

        assert optimizer.step(closure).item() == pytest.approx(make_table()[6].sum().item())
        assert not torch.equal(table[6], make_table()[6])

    @pytest.mark.parametrize("wrong", [{"lr": -1.0}, {"lr": 1.0, "beta": 1.0}, {"lr": 1.0, "beta": -0.1}], ids=str)
    def test_impossible_settings_are_refused(self, wrong: dict[str, float]) -> None:
        with pytest.raises(InvalidValueError):
            RowwiseRMSProp([make_table()], **wrong)


def test_occurrences_of_a_row_are_summed() -> None:
    rows, values = sum_by_row(sparse([5, 1, 5], torch.tensor([[1.0], [2.0], [4.0]]), (8, 1)))
    assert rows.tolist() == [1, 5] and values.tolist() == [[2.0], [5.0]]


def test_matrices_decay_and_vectors_and_what_is_frozen_do_not() -> None:
    layer, frozen = nn.Linear(3, 2), nn.Linear(3, 2).requires_grad_(False)
    named = [*layer.named_parameters(), *frozen.named_parameters()]
    decaying, other = dense_groups(named, 0.1)
    assert decaying["weight_decay"] == 0.1 and [p.shape for p in decaying["params"]] == [(2, 3)]
    assert other["weight_decay"] == 0.0 and other["params"] == [layer.bias]


class TestSchedule:
    @pytest.mark.parametrize("num_steps", [1, 2, 63, 100])
    @pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
    def test_it_rises_in_a_line_to_one_and_then_only_falls(self, num_steps: int, share: float) -> None:
        factors = [warmup_cosine(step, num_steps, share) for step in range(num_steps)]
        peak = max(1, round(num_steps * share))
        assert factors[:peak] == pytest.approx([(step + 1) / peak for step in range(peak)])
        assert factors[peak - 1] == 1.0
        assert all(before >= after >= 0.05 for before, after in zip(factors[peak - 1 :], factors[peak:], strict=False))

    def test_it_ends_at_the_final_share(self) -> None:
        assert warmup_cosine(100, 100, 0.1) == pytest.approx(0.05)
        assert warmup_cosine(99, 100, 0.1) == pytest.approx(0.05, abs=1e-3)
        assert warmup_cosine(100, 100, 0.1, final_share=0.2) == pytest.approx(0.2)

    def test_half_way_down_it_is_half_way(self) -> None:
        assert warmup_cosine(55, 100, 0.1, final_share=0.0) == pytest.approx(0.5)
