"""What the measurements report, on sizes of milliseconds; how fast anything is, is not asserted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokagnostic import bench
from tokagnostic.bench.cache import measure_cache
from tokagnostic.bench.hashing import measure_hashing, published_rows
from tokagnostic.bench.host import measure_host
from tokagnostic.bench.measuring import bench_row
from tokagnostic.bench.overlap import counts_by_sets, measure_overlap, spelled
from tokagnostic.bench.placement import measure_placement
from tokagnostic.bench.pretraining import Setting, measure_pretraining
from tokagnostic.bench.table_optimizer import measure_table_optimizer
from tokagnostic.bench.tokens import measure_tokens
from tokagnostic.bench.training_step import measure_step
from tokagnostic.errors import InvalidValueError
from tokagnostic.memory import JointConfig
from tokagnostic.training.config import HostConfig

COLUMNS = ["name", "value", "unit", "rival", "rival_value", "ratio"]
TINY = Setting(
    "tiny",
    HostConfig(width=16, num_layers=2, num_heads=2),
    num_ids=50,
    memory=JointConfig(max_order=2, num_rows=101, num_heads=1, dim=2),
    batch_size=1,
    block_length=8,
)
SMALL = {
    "hashing": lambda: measure_hashing(num_tokens=80, num_ids=50, repeats=1, small_repeats=1),
    "tokens": lambda: measure_tokens(num_ids=300, repeats=1),
    "cache": lambda: measure_cache(num_ids=40, repeats=1),
    "overlap": lambda: measure_overlap(max_order=2, limit=3, num_ids=(300, 400), repeats=1),
    "host": lambda: measure_host(
        host=HostConfig(width=16, num_layers=2, num_heads=2),
        num_ids=50,
        memory=JointConfig(max_order=2, num_rows=101, num_heads=1, dim=2),
        num_tokens=2,
        batch=(1, 8),
        repeats=1,
    ),
    "step": lambda: measure_step(num_rows=4_096, num_fewer_rows=1_024, repeats=1, batch_size=1),
    "pretraining": lambda: measure_pretraining((TINY,), (1,)),
    "placement": lambda: measure_placement(TINY, repeats=1),
    "table": lambda: measure_table_optimizer(num_rows=50, dim=4, num_lookups=20, repeats=1, dense_repeats=1),
}


def test_every_measurement_has_a_small_twin_here() -> None:
    assert set(SMALL) == set(bench.MEASUREMENTS)


@pytest.mark.parametrize("measure", SMALL.values(), ids=SMALL.keys())
def test_rows_have_exactly_the_promised_columns(measure) -> None:
    for row in measure():
        assert list(row) == COLUMNS
        assert all(isinstance(row[name], str) and row[name] for name in ("name", "unit", "rival"))
        assert all(0 < row[name] < float("inf") for name in ("value", "rival_value", "ratio"))


@given(st.floats(0.001, 1000), st.floats(0.001, 1000))
def test_a_ratio_above_one_means_better(ours, rival) -> None:
    speed = bench_row("speed", ours, "Mtok/s", "other", rival)
    seconds = bench_row("time", ours, "s", "other", rival, less_is_better=True)
    assert (speed["ratio"] > 1) == (ours > rival)
    assert (seconds["ratio"] > 1) == (ours < rival)


def test_names_choose_in_their_order_and_none_means_all(monkeypatch) -> None:
    monkeypatch.setattr(bench, "MEASUREMENTS", {name: lambda name=name: [{"name": name}] for name in "abc"})
    assert [row["name"] for row in bench.run_bench(["c", "a"])] == ["c", "a"]
    assert [row["name"] for row in bench.run_bench()] == ["a", "b", "c"]


def test_an_unknown_name_is_refused_before_anything_is_measured(monkeypatch) -> None:
    monkeypatch.setattr(bench, "MEASUREMENTS", {"cache": lambda: pytest.fail("measured")})
    with pytest.raises(InvalidValueError, match="measurement 'speed'; expected one of cache"):
        bench.run_bench(["cache", "speed"])


def test_the_rival_is_the_published_rule() -> None:
    """Engram's addresses: ids times odd multipliers, XOR-ed over the window, modulo a prime per order and head."""
    ids = np.array([[5, 7, 11, 13]])
    multipliers = np.array([3, 17, 29])
    rows = published_rows(ids, multipliers, [[101, 103], [107, 109]])
    assert rows.shape == (1, 4, 4)
    second, third = (13 * 3) ^ (11 * 17), (13 * 3) ^ (11 * 17) ^ (7 * 29)
    assert rows[0, 3].tolist() == [second % 101, second % 103, third % 107, third % 109]
    first = (5 * 3) ^ (2 * 17)  # a pad id stands before the beginning
    assert rows[0, 0, :2].tolist() == [first % 101, first % 103]


def test_the_table_is_aligned_and_says_how_to_read_it() -> None:
    rows = [
        bench_row("keys, orders 1..3", 1.5, "Mtok/s", "x", 0.5),
        bench_row("cache", 0.25, "s", "y", 1, less_is_better=True),
    ]
    lines = bench.bench_table(rows).splitlines()
    assert lines[1].split()[-5:] == ["1.5", "0.5", "Mtok/s", "3.00", "x"]
    assert lines[2].split()[-5:] == ["0.25", "1", "s", "4.00", "y"]
    assert lines[0].index("ratio") + len("ratio") == lines[1].index("3.00") + len("3.00")
    assert "better" in lines[3]


def test_the_sets_of_bytes_count_what_the_overlap_counts(toy_tokenizers) -> None:
    from tokagnostic.evaluation.overlap import count_overlap
    from tokagnostic.tokens.encoder import TextEncoder

    texts = ["The river runs \u65e5 and runs", "", "in the town, in the river"]
    for target, reference in (("metaspace", "unigram"), ("unigram", "byte_level"), ("wordpiece", "metaspace")):
        encoders = [TextEncoder.from_tokenizer(toy_tokenizers[name]) for name in (target, reference)]
        pieces = [spelled(encoder.token_bytes, encoder.encode_batch(texts)) for encoder in encoders]
        totals = count_overlap(texts, encoders[:1], encoders[1:], 4)[0][0].totals
        assert counts_by_sets(*pieces, 4).tolist() == totals[..., :6].tolist()


def test_the_rival_may_begin_with_single_tokens() -> None:
    """The same orders as ours: the published rule for order 1 is the product alone."""
    ids, multipliers = np.array([[5, 7, 11, 13]]), np.array([3, 17, 29])
    both = published_rows(ids, multipliers, [[97], [101], [107]], first_order=1)
    assert both[0, :, 0].tolist() == [id * 3 % 97 for id in (5, 7, 11, 13)]
    assert (both[..., 1:] == published_rows(ids, multipliers, [[101], [107]])).all()
