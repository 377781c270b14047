from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import naive
from tokagnostic.errors import InvalidValueError
from tokagnostic.memory.addressers import ModuloAddresser
from tokagnostic.memory.stores import TableStore, fresh_tables, lookup
from tokagnostic.memory.visits import SATURATED, Visits, window_visits


class TestModuloAddresser:
    def test_tables_never_share_a_prime(self):
        """H-22: heads that shared a modulus would collide together."""
        addresser = ModuloAddresser(100, 4, 3)
        moduli = [modulus for table in addresser.moduli for modulus in table]
        assert moduli == naive.primes_from(100, 12)
        assert addresser.num_rows == [sum(table) for table in addresser.moduli]

    @pytest.mark.parametrize("table", [0, 1])
    def test_every_backend_addresses_alike(self, table, monkeypatch):
        """H-03: rows are exact remainders inside the table, also for the largest key."""
        addresser = ModuloAddresser(1000, 3, 2)
        keys = torch.from_numpy(np.random.default_rng(0).integers(0, 2**62, (3, 21, 2)))
        keys[0, 0], keys[1, 5], keys[2, 20, 1] = -1, 2**62 - 1, 0
        rows = addresser(keys, table)
        assert rows.tolist() == [
            [[naive.rows_of(key, addresser.moduli[table]) for key in position] for position in row]
            for row in keys.tolist()
        ]
        assert rows.max() < addresser.num_rows[table]
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert torch.equal(addresser(keys, table), rows)

    def test_a_row_count_below_two_is_refused(self):
        with pytest.raises(InvalidValueError, match="num_rows = 1"):
            _ = ModuloAddresser(1, 2).moduli


class TestTableStore:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_features_are_the_rows_in_order_in_the_tables_type(self, dtype):
        """M-26: the stored type is kept; only what was looked up is cast, by whoever reads it."""
        table = torch.arange(14).view(7, 2).to(dtype)
        features = TableStore([table])(torch.tensor([[[[3, 0], [-1, 6]]]]))
        assert features.dtype == dtype
        assert features.tolist() == [[[6, 7, 0, 1, 0, 0, 12, 13]]]

    def test_a_given_table_is_not_copied(self):
        table = torch.zeros(5, 3)
        assert TableStore([table]).tables[0].data_ptr() == table.data_ptr()

    def test_fresh_rows_have_the_asked_spread(self):
        first, second = fresh_tables([5003, 101], 8, 0.5, 3)
        assert (first.shape, second.shape) == ((5003, 8), (101, 8))
        assert abs(float(first.std()) - 0.5) < 0.01 and abs(float(first.mean())) < 0.01
        assert not any(table.any() for table in fresh_tables([7], 3, 0, 0))

    def test_the_gradient_is_that_of_a_plain_gather(self):
        """M-02: and it mentions no row that was not looked up."""
        rows = torch.tensor([[[[1, 4, 1], [-1, 0, 4]]]])
        sparse, dense = (
            torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).requires_grad_() for _ in range(2)
        )
        weights = torch.arange(12.0).view(1, 1, 2, 3, 2)
        (lookup(sparse, rows) * weights).sum().backward()
        gathered = dense[rows.clamp(min=0)] * (rows >= 0).unsqueeze(-1)
        (gathered * weights).sum().backward()
        assert torch.equal(sparse.grad.to_dense(), dense.grad)
        assert sparse.grad.coalesce().indices().tolist() == [[0, 1, 4]]

    @pytest.mark.parametrize("shape", [(0,), (2, 0, 3), (1,), (2, 63, 3)], ids=str)
    def test_any_shape_is_looked_up(self, shape):
        table = torch.ones(4, 5, requires_grad=True)
        vectors = lookup(table, torch.full(shape, -1))
        assert vectors.shape == (*shape, 5) and not vectors.any()
        vectors.sum().backward()
        assert table.grad.coalesce().indices().numel() == 0


class TestVisits:
    @given(st.lists(st.lists(st.integers(-1, 9), max_size=12), max_size=6), st.integers(0, 5))
    def test_rows_written_are_counted_as_they_come(self, calls: list[list[int]], first_look: int) -> None:
        visits, seen = Visits(10), set()
        for i, rows in enumerate(calls):
            if i >= first_look:
                assert visits.num_written() == len(seen)
            assert visits.written(torch.arange(10)).nonzero().flatten().tolist() == sorted(seen)
            visits.count(torch.tensor(rows, dtype=torch.int64))
            seen |= set(rows) - {-1}
        assert visits.num_written() == len(seen)
        visits.counts = torch.tensor([0, 2])
        assert visits.num_written() == 1

    def test_of_a_file_only_the_rows_that_are_asked_for_are_read(self) -> None:
        saved = torch.tensor([7, 0, SATURATED]).to(torch.uint32)
        visits = Visits(3, saved=saved)
        assert visits.written(torch.tensor([2, 1, 0, 2])).tolist() == [True, False, True, True]
        assert visits._counts is None

    def test_a_copy_counts_on(self) -> None:
        visits = Visits(3, saved=torch.tensor([7, 0, 0]).to(torch.uint32))
        visits.take_recent()
        copied = copy.deepcopy(visits)
        copied.count(torch.tensor([1, 1]))
        assert copied.counts.tolist() == [7, 2, 0] and visits.counts.tolist() == [7, 0, 0]
        assert copied.take_recent().tolist() == []

    def test_each_occurrence_counts_once_and_no_window_counts_nothing(self):
        visits = Visits(5)
        visits.count(torch.tensor([[0, 3, 3], [-1, 3, -1]]))
        visits.count(torch.tensor([], dtype=torch.int64))
        assert visits.counts.tolist() == [1, 0, 0, 3, 0]
        assert visits.noise_floor() == 4 / 5

    def test_saved_counts_are_taken_up_and_counted_on(self):
        visits = Visits(2, saved=torch.tensor([7, SATURATED]).to(torch.uint32))
        visits.count(torch.tensor([0, 1]))
        assert visits.counts.tolist() == [8, SATURATED + 1]
        assert visits.counts.dtype == torch.int64

    def test_a_file_holds_at_most_the_largest_unsigned_number(self):
        visits = Visits(3)
        visits.counts[:] = torch.tensor([0, SATURATED, 2**40])
        assert visits.saturated().tolist() == [0, SATURATED, SATURATED]
        assert visits.saturated().dtype == torch.uint32

    @settings(deadline=None, max_examples=100)
    @given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.integers(2, 20))
    def test_the_sketch_never_says_less_than_the_truth(self, seen, num_rows):
        addresser = ModuloAddresser(num_rows, 3)
        rows = addresser(torch.tensor([naive.key_of(b"window %d" % window) for window in range(31)]))
        visits = Visits(addresser.num_rows[0])
        visits.count(rows[torch.tensor(seen)])
        truth = torch.bincount(torch.tensor(seen), minlength=31)
        assert (window_visits(visits.counts, rows) >= truth).all()

    def test_the_sketch_of_a_large_table_is_the_truth(self):
        addresser = ModuloAddresser(10_000, 4)
        rows = addresser(torch.tensor([naive.key_of(b"window %d" % window) for window in range(50)]))
        visits = Visits(addresser.num_rows[0])
        visits.count(rows[:20])
        visits.count(rows[:7])
        assert window_visits(visits.counts, rows).tolist() == [2] * 7 + [1] * 13 + [0] * 30
        assert window_visits(visits.counts, torch.tensor([[-1, -1, -1, -1]])).tolist() == [0]
