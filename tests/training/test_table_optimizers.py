"""The rules for tables against naive ones on dense gradients, on every backend, and the rows they must leave alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_optim import NaiveLazyAdam, NaiveRowwiseRMSProp, naive_noise, naive_rounded
from torch import Tensor, nn

from tokagnostic.errors import InvalidValueError
from tokagnostic.memory.stores import lookup
from tokagnostic.training import rowwise_numba, rowwise_torch, table_optimizers
from tokagnostic.training.table_optimizers import LazyAdam, RowwiseRMSProp, TableOptimizer, make_table_optimizer

LR = 0.03
RULES = {
    "rowwise_rmsprop": (RowwiseRMSProp, NaiveRowwiseRMSProp, {"beta": 0.9}),
    "without_decay": (RowwiseRMSProp, NaiveRowwiseRMSProp, {"beta": 0.0}),
    "lazy_adam": (LazyAdam, NaiveLazyAdam, {"betas": (0.8, 0.9)}),
    "rowwise_adam": (LazyAdam, NaiveLazyAdam, {"betas": (0.8, 0.9), "moment": "row"}),
    "adam_without_mean": (LazyAdam, NaiveLazyAdam, {"betas": (0.0, 0.9), "moment": "row"}),
}
BACKENDS = {"numba": rowwise_numba, "torch": rowwise_torch}

every_rule = pytest.mark.parametrize("rule", RULES)
every_backend = pytest.mark.parametrize("backend", BACKENDS)
lookups = st.lists(st.lists(st.integers(0, 7), max_size=9), min_size=1, max_size=9)
seeds = st.integers(0, 2**31 - 1)


@pytest.fixture
def num_threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def make_table(num_rows: int = 8, dim: int = 3, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    numbers = torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(seed))
    return nn.Parameter(numbers.to(dtype))


def make(rule: str, table: nn.Parameter, **changes) -> TableOptimizer:
    ours, _, arguments = RULES[rule]
    return ours([table], lr=LR, **arguments, **changes)


def sparse(rows: list[int], values: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.sparse_coo_tensor(torch.tensor([rows], dtype=torch.int64), values, shape, check_invariants=True)


def train(optimizer: TableOptimizer, table: nn.Parameter, steps: list[list[int]], seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    for rows in steps:
        values = torch.randn(len(rows), table.shape[1], generator=random).to(table.dtype)
        table.grad = sparse(rows, values, table.shape)
        optimizer.step()


@every_rule
@every_backend
@settings(deadline=None, max_examples=40)
@given(steps=lookups, seed=seeds)
def test_the_update_is_that_of_a_naive_rule_and_other_rows_are_bit_equal(backend, rule, steps, seed) -> None:
    table = make_table()
    _, naive, arguments = RULES[rule]
    reference = naive(table, LR, **arguments)
    random = torch.Generator().manual_seed(seed)
    optimizer = make(rule, table)
    state = optimizer.state[table]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_optimizers, "backend_for", lambda table: BACKENDS[backend])
        for rows in steps:
            values = torch.randn(len(rows), 3, generator=random)
            before = table.detach().clone()
            state_before = {name: tensor.clone() for name, tensor in state.items()}
            table.grad = sparse(rows, values, (8, 3))
            optimizer.step()
            reference.step(rows, values)
            others = [row for row in range(8) if row not in rows]
            assert torch.equal(table[others], before[others])
            assert all(torch.equal(state[name][others], state_before[name][others]) for name in state)
    torch.testing.assert_close(table.detach().double(), reference.table, rtol=1e-4, atol=1e-4)
    assert state["count"].tolist() == reference.counts
    moments = state["moment"].double().view(reference.moments.shape)
    torch.testing.assert_close(moments, reference.moments, rtol=1e-4, atol=1e-12)


@every_rule
@settings(deadline=None, max_examples=25)
@given(batches=st.lists(st.lists(st.integers(0, 7), max_size=9), min_size=1, max_size=4), seed=seeds)
def test_gradients_that_add_up_are_one_joint_batch(rule, batches, seed) -> None:
    """But for the order of the sum: torch merges the occurrences of two sparse gradients from their fronts."""
    tables = [make_table(), make_table()]
    optimizers = [make(rule, table) for table in tables]
    random = torch.Generator().manual_seed(seed)
    for _ in range(2):
        values = [torch.randn(len(rows), 3, generator=random) for rows in batches]
        for rows, weights in zip(batches, values, strict=True):
            (lookup(tables[0], torch.tensor(rows, dtype=torch.int64)) * weights).sum().backward()
        joint = torch.tensor([row for rows in batches for row in rows], dtype=torch.int64)
        (lookup(tables[1], joint) * torch.cat(values)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(*tables, rtol=1e-4, atol=1e-4)
    never = [row for row in range(8) if row not in joint]
    assert torch.equal(tables[0][never], make_table()[never])


@every_rule
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@settings(deadline=None, max_examples=20)
@given(steps=lookups, cut=st.integers(0, 9), seed=seeds)
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(dtype, rule, steps, cut, seed) -> None:
    whole, parted = make_table(dtype=dtype), make_table(dtype=dtype)
    first, second = make(rule, whole, seed=7), make(rule, parted, seed=7)
    for i in range(len(steps)):
        if i == cut:
            saved = copy.deepcopy(second.state_dict())
            second = RULES[rule][0]([parted], lr=1.0, **RULES[rule][2])
            second.load_state_dict(saved)
        for optimizer, table in ((first, whole), (second, parted)):
            train(optimizer, table, steps[i : i + 1], seed + i)
    assert torch.equal(whole, parted)
    assert all(torch.equal(first.state[whole][name], second.state[parted][name]) for name in first.state[whole])


def test_loading_keeps_every_dtype_and_every_count() -> None:
    """Loading casts to the dtype of the parameter, and fp32 holds no count above 2 ** 24 exactly."""
    table = make_table(dtype=torch.bfloat16)
    optimizer = RowwiseRMSProp([table], lr=LR)
    optimizer.state[table]["count"][2] = 2**24 + 1
    optimizer.state[table]["moment"][2] = 1 + 2**-20
    other = RowwiseRMSProp([make_table(dtype=torch.bfloat16)], lr=1.0)
    other.load_state_dict(optimizer.state_dict())
    (state,) = other.state.values()
    assert state["count"].dtype == torch.int32 and int(state["count"][2]) == 2**24 + 1
    assert state["moment"].dtype == torch.float32 and float(state["moment"][2]) == 1 + 2**-20
    assert other.param_groups[0]["lr"] == LR
    optimizer.state[table]["count"][2] = 0
    assert int(state["count"][2]) == 2**24 + 1


@every_rule
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_number_of_threads_does_not_matter(dtype, rule, num_threads) -> None:
    """So large that four threads share the work, with one row that is looked up more often than a thread has lookups."""
    random = torch.Generator().manual_seed(1)
    rows = torch.randint(0, 3_000, (5_000,), generator=random)
    rows[1_000:3_500] = 17
    values = torch.randn(len(rows), 64, generator=random).to(dtype)
    results = []
    for threads in (1, 2, 3, 4):
        num_threads(threads)
        table = make_table(3_000, 64, dtype=dtype)
        optimizer = make(rule, table)
        for _ in range(2):
            table.grad = sparse(rows.tolist(), values, table.shape)
            optimizer.step()
        results.append(table)
    assert all(torch.equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("num_rows", [1, 2, 2**11, 2**11 + 1, 2**22 + 1])
def test_occurrences_are_summed_whatever_the_number_of_digits_of_a_row(num_rows) -> None:
    random = torch.Generator().manual_seed(num_rows)
    rows = torch.randint(0, num_rows, (500,), generator=random)
    rows[0], rows[1], rows[2:40] = num_rows - 1, 0, num_rows // 2
    gradient = sparse(rows.tolist(), torch.randn(500, 2, generator=random), (num_rows, 2))
    expected = gradient.coalesce()
    for backend in BACKENDS.values():
        found, values = backend.sum_by_row(gradient)
        assert torch.equal(found, expected.indices()[0])
        torch.testing.assert_close(values, expected.values())


@every_backend
def test_occurrences_of_a_row_are_summed_in_fp32(backend) -> None:
    """256 + 1 is 256 in bf16."""
    ones = torch.tensor([[256.0]] + [[1.0]] * 8, dtype=torch.bfloat16)
    rows, values = BACKENDS[backend].sum_by_row(sparse([5] * 9, ones, (8, 1)))
    assert rows.tolist() == [5] and values.tolist() == [[264.0]]


class TestWhatMoves:
    @every_rule
    def test_a_row_touched_once_stays_where_it_went_while_another_is_trained(self, rule) -> None:
        """M-02: 8 rows, row 3 once, then 50 steps on row 5."""
        table = make_table()
        fresh = table.detach().clone()
        optimizer = make(rule, table)
        train(optimizer, table, [[3]], 0)
        third = table[3].detach().clone()
        assert not torch.equal(third, fresh[3])
        train(optimizer, table, [[5]] * 50, 1)
        assert torch.equal(table[3], third)
        never = [0, 1, 2, 4, 6, 7]
        assert torch.equal(table[never], fresh[never])
        assert optimizer.state[table]["count"].tolist() == [0, 0, 0, 1, 0, 50, 0, 0]

    @every_rule
    @every_backend
    def test_a_gradient_of_no_rows_and_no_gradient_move_nothing(self, backend, rule, monkeypatch) -> None:
        monkeypatch.setattr(table_optimizers, "backend_for", lambda table: BACKENDS[backend])
        table = make_table()
        optimizer = make(rule, table)
        optimizer.step()
        train(optimizer, table, [[]], 0)
        assert torch.equal(table, make_table()) and not optimizer.state[table]["count"].any()

    @every_rule
    @every_backend
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_a_first_gradient_of_zero_moves_nothing(self, dtype, backend, rule, monkeypatch) -> None:
        monkeypatch.setattr(table_optimizers, "backend_for", lambda table: BACKENDS[backend])
        table = make_table(dtype=dtype)
        optimizer = make(rule, table)
        table.grad = sparse([4], torch.zeros(1, 3, dtype=dtype), (8, 3))
        optimizer.step()
        assert torch.equal(table, make_table(dtype=dtype))

    @every_backend
    def test_a_gradient_that_is_not_finite_spoils_its_own_row_alone(self, backend, monkeypatch) -> None:
        monkeypatch.setattr(table_optimizers, "backend_for", lambda table: BACKENDS[backend])
        table = make_table()
        optimizer = make("rowwise_rmsprop", table)
        table.grad = sparse([1, 2], torch.tensor([[float("nan")] * 3, [1.0] * 3]), (8, 3))
        optimizer.step()
        assert table.isnan().any(dim=1).nonzero().flatten().tolist() == [1]


class TestHalfPrecision:
    @every_backend
    @pytest.mark.parametrize("row", [0, 1, 2_000, 2**21 + 5])
    def test_what_is_added_before_the_cut_is_a_hash_of_seed_row_count_and_column(self, backend, row) -> None:
        """The table moves by the rate exactly (one gradient number, no decay): what is left is the rounding."""
        table = nn.Parameter(torch.ones(row + 1, 4, dtype=torch.bfloat16))
        numbers = [1.0] * 4
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table_optimizers, "backend_for", lambda table: BACKENDS[backend])
            optimizer = RowwiseRMSProp([table], lr=2**-10, beta=0.0, seed=99)
            for count in range(1, 6):
                table.grad = sparse([row], torch.full((1, 4), -1.0, dtype=torch.bfloat16), table.shape)
                optimizer.step()
                noise = [naive_noise(99, row, count, column) for column in range(4)]
                numbers = [naive_rounded(x + 2**-10, n) for x, n in zip(numbers, noise, strict=True)]
                assert table[row].tolist() == numbers
        assert numbers != [1.0] * 4

    @every_backend
    @pytest.mark.parametrize("towards", [-1.0, 1.0])
    def test_small_updates_are_right_on_average(self, backend, towards, monkeypatch) -> None:
        """M-19: a number of 1.0 and 100 updates of 1e-3, which rounding to the nearest loses one by one."""
        monkeypatch.setattr(table_optimizers, "backend_for", lambda table: BACKENDS[backend])
        table = nn.Parameter(torch.ones(4, 4_096, dtype=torch.bfloat16))
        optimizer = RowwiseRMSProp([table], lr=1e-3)
        lossy = torch.ones(1, dtype=torch.bfloat16)
        for _ in range(100):
            table.grad = sparse([2], torch.full((1, 4_096), towards, dtype=torch.bfloat16), table.shape)
            optimizer.step()
            lossy -= towards * 1e-3
        assert lossy.item() == 1.0
        # Each step's error is below 2 ** -8 with a standard deviation below half of that.
        assert float(table[2].detach().float().mean()) == pytest.approx(1 - towards * 0.1, abs=6 * 2**-9 * 10 / 64)

    def test_a_table_in_fp32_loses_no_small_updates(self) -> None:
        """M-19."""
        table = nn.Parameter(torch.ones(4, 2))
        optimizer = RowwiseRMSProp([table], lr=1e-3)
        for _ in range(100):
            table.grad = sparse([2], torch.full((1, 2), 0.5), (4, 2))
            optimizer.step()
        torch.testing.assert_close(table[2].detach(), torch.full((2,), 0.9), atol=1e-5, rtol=0)

    def test_numbers_that_it_holds_and_infinity_stay(self) -> None:
        numbers = torch.tensor([[1.0, -2.5, 0.0, float("inf"), float("-inf"), float("nan")]])
        rounded = rowwise_torch.stochastic_bf16(numbers, torch.tensor([3]), torch.tensor([1]), 0)
        assert torch.equal(rounded[:, :5].float(), numbers[:, :5]) and rounded[0, 5].isnan()
        table = nn.Parameter(numbers.bfloat16())
        table.grad = sparse([0], torch.zeros(1, 6, dtype=torch.bfloat16), (1, 6))
        RowwiseRMSProp([table], lr=0.0).step()
        assert torch.equal(table[:, :5].float(), numbers[:, :5]) and table[0, 5].isnan()

    @every_rule
    def test_its_state_is_not_in_half_precision(self, rule) -> None:
        table = make_table(dtype=torch.bfloat16)
        dtypes = {name: tensor.dtype for name, tensor in make(rule, table).state[table].items()}
        assert dtypes.pop("count") == torch.int32 and set(dtypes.values()) == {torch.float32}


@pytest.mark.parametrize(
    ("rule", "num_bytes"), [("rowwise_rmsprop", 8), ("rowwise_adam", 4 * 7 + 8), ("lazy_adam", 8 * 7 + 4)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_state_of_a_row_has_as_many_bytes_as_stated(rule, num_bytes, dtype) -> None:
    """M-01."""
    table = make_table(num_rows=101, dim=7, dtype=dtype)
    optimizer = make_table_optimizer(rule, [table], LR)
    train(optimizer, table, [[5, 5, 100]], 0)
    assert sum(tensor.nbytes for tensor in optimizer.state[table].values()) == num_bytes * 101


@every_rule
@pytest.mark.parametrize("scale", [1.0, 2.0**16])
def test_a_scaled_loss_makes_the_same_step(rule, scale) -> None:
    """A power of two changes no digit of a gradient."""
    tables = [make_table(), make_table()]
    optimizers = [make(rule, table) for table in tables]
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    rows, weights = torch.tensor([1, 2, 2, 5]), torch.randn(4, 3, generator=torch.Generator().manual_seed(3))
    for _ in range(2):
        scaler.scale((lookup(tables[0], rows) * weights).sum()).backward()
        scaler.step(optimizers[0])
        scaler.update()
        (lookup(tables[1], rows) * weights).sum().backward()
        optimizers[1].step()
        for optimizer in optimizers:
            optimizer.zero_grad()
    assert torch.equal(*tables)


def test_a_scaled_loss_that_overflows_makes_no_step() -> None:
    table = make_table()
    optimizer = RowwiseRMSProp([table], lr=LR)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale((lookup(table, torch.tensor([1, 2])) * torch.tensor([[1.0], [float("inf")]])).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(table, make_table()) and scaler.get_scale() == 2.0


class TestRefusals:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
    @every_rule
    def test_a_table_of_another_dtype(self, dtype, rule) -> None:
        with pytest.raises(InvalidValueError, match=r"expected float32 or bfloat16 \[R, dim\]"):
            make(rule, nn.Parameter(torch.ones(4, 2, dtype=dtype)))

    @every_rule
    @every_backend
    def test_a_dense_gradient(self, backend, rule, monkeypatch) -> None:
        monkeypatch.setattr(table_optimizers, "backend_for", lambda table: BACKENDS[backend])
        table = make_table()
        optimizer = make(rule, table)
        for gradient in (torch.zeros(8, 3), torch.zeros(8, 3).to_sparse(2)):
            table.grad = gradient
            with pytest.raises(InvalidValueError, match="a dense gradient for a table; expected a sparse gradient"):
                optimizer.step()

    @pytest.mark.parametrize("row", [-1, 8, 2**40])
    def test_a_row_that_the_table_does_not_have(self, row) -> None:
        table = make_table()
        table.grad = torch.sparse_coo_tensor(torch.tensor([[1, row]]), torch.ones(2, 3), (8, 3), check_invariants=False)
        with pytest.raises(InvalidValueError, match=f"row {row} in the gradient of a table of 8 rows"):
            RowwiseRMSProp([table], lr=LR).step()
        assert torch.equal(table, make_table())

    @pytest.mark.parametrize(
        "wrong",
        [{"lr": -1.0}, {"lr": float("nan")}, {"beta": 1.0}, {"beta": -0.1}, {"seed": -1}, {"seed": 2**32}],
        ids=str,
    )
    def test_impossible_settings(self, wrong) -> None:
        with pytest.raises(InvalidValueError):
            RowwiseRMSProp([make_table()], **({"lr": LR} | wrong))

    @pytest.mark.parametrize("wrong", [{"betas": (0.9, 1.0)}, {"moment": "column"}], ids=str)
    def test_impossible_settings_of_adam(self, wrong) -> None:
        with pytest.raises(InvalidValueError):
            LazyAdam([make_table()], lr=LR, **wrong)

    def test_a_rule_that_there_is_not(self) -> None:
        with pytest.raises(InvalidValueError, match="table optimizer 'adam'; expected rowwise_rmsprop or"):
            make_table_optimizer("adam", [make_table()], LR)


def test_a_closure_is_called_with_gradients_on() -> None:
    table = make_table()
    optimizer = RowwiseRMSProp([table], lr=LR)

    def closure() -> Tensor:
        loss = lookup(table, torch.tensor([6])).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == pytest.approx(make_table()[6].sum().item())
    assert not torch.equal(table[6], make_table()[6])
