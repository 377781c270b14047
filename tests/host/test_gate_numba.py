"""The gate in one pass, against the operations of torch that training takes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tokagnostic.host import MemoryLayer, gate_numba
from tokagnostic.host.layer import LayerRead

GATES = ["sigmoid", "signed_sqrt"]


def read_both(layer: MemoryLayer, hidden: torch.Tensor, features: torch.Tensor) -> tuple[LayerRead, LayerRead]:
    with torch.no_grad():
        found = layer.read(hidden, features)
    expected = layer.read(hidden, features)
    assert expected.delta.requires_grad and not found.delta.requires_grad
    return found, expected


@pytest.mark.parametrize("gate", GATES)
@settings(deadline=None)
@given(
    batch=st.integers(1, 3),
    length=st.integers(0, 4),
    width=st.sampled_from([1, 2, 7, 8, 63, 100]),
    scale=st.sampled_from([0.0, 1e-12, 1e-4, 1.0, 1e4]),
    seed=st.integers(0, 999),
)
def test_it_equals_the_operations_of_torch(
    gate: str, batch: int, length: int, width: int, scale: float, seed: int
) -> None:
    torch.manual_seed(seed)
    layer = MemoryLayer(width, 5, gate)
    for weight in layer.parameters():
        nn.init.normal_(weight)
    # The batch last in memory: neither contiguous nor of one stride.
    hidden = torch.randn(length, width, batch).permute(2, 0, 1)
    features = torch.randn(batch, length, 5) * scale
    features[:, 1:2] = 0
    found, expected = read_both(layer, hidden, features)
    torch.testing.assert_close(found.gate, expected.gate.detach(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found.delta, expected.delta.detach(), atol=1e-6, rtol=1e-5)


def test_features_for_one_row_are_read_by_all_rows() -> None:
    layer, hidden, features = MemoryLayer(8, 5), torch.randn(3, 2, 8), torch.randn(1, 2, 5)
    nn.init.normal_(layer.value.weight)
    found, expected = read_both(layer, hidden, features)
    assert torch.equal(found.delta, expected.delta) and found.delta.shape == hidden.shape


@pytest.mark.parametrize("gate", GATES)
def test_a_score_of_exactly_zero_opens_the_gate_half(gate: str) -> None:
    layer = MemoryLayer(8, 5, gate)
    found, expected = read_both(layer, torch.zeros(1, 2, 8), torch.randn(1, 2, 5))
    assert found.gate.flatten().tolist() == expected.gate.flatten().tolist() == [0.5, 0.5]


def test_it_is_taken_where_it_can_be_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    gated = gate_numba.gated
    monkeypatch.setattr("tokagnostic.host.layer.gated", lambda *given: (calls.append(1), gated(*given))[1])
    layer, hidden, features = MemoryLayer(8, 5), torch.randn(1, 2, 8), torch.randn(1, 2, 5)
    with torch.no_grad():
        layer.read(hidden, features)
        layer.read(hidden.bfloat16(), features.bfloat16())  # the layer's weights decide
        assert len(calls) == 2
        with torch.autocast("cpu", torch.bfloat16):
            layer.read(hidden, features)
        layer.bfloat16().read(hidden, features)
    layer.float().read(hidden, features)
    assert len(calls) == 2
