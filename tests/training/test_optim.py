"""The groups of dense parameters, and the schedule."""

from __future__ import annotations

import pytest
from torch import nn

from tokagnostic.training.optim import dense_groups, warmup_cosine


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
