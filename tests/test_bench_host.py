"""What the measurements of hosts report, on sizes of milliseconds; how fast anything is, is not asserted."""

from __future__ import annotations

from tokagnostic.bench_host import measure_host
from tokagnostic.memory import JointConfig
from tokagnostic.training.config import HostConfig


def test_rows_have_exactly_the_promised_columns() -> None:
    rows = measure_host(
        host=HostConfig(width=16, num_layers=2, num_heads=2),
        num_ids=50,
        memory=JointConfig(max_order=2, num_rows=101, num_heads=1, dim=2),
        num_tokens=2,
        batch=(1, 8),
        repeats=1,
    )
    assert len(rows) == 4
    for row in rows:
        assert list(row) == ["name", "value", "unit", "rival", "rival_value", "ratio"]
        assert all(isinstance(row[name], str) and row[name] for name in ("name", "unit", "rival"))
        assert all(0 < row[name] < float("inf") for name in ("value", "rival_value", "ratio"))
