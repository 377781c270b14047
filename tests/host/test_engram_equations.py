"""Gate and short convolution against a plain reading of Engram's equations, with numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from tokagnostic.host import MemoryLayer
from tokagnostic.host.short_conv import ShortConvolution, Surroundings

SCORE = 1.2 / math.sqrt(2)
"""h = (3, 4), k = (1, 0): RMSNorm(h) = h / sqrt(12.5), RMSNorm(k) = k / sqrt(0.5), their product 3 / 2.5."""


def layer_of(gate: str) -> MemoryLayer:
    """Keys are the features; values are twice the first feature and the sum of both."""
    layer = MemoryLayer(2, 2, gate)
    with torch.no_grad():
        layer.key.weight.copy_(torch.eye(2))
        layer.value.weight.copy_(torch.tensor([[2.0, 0.0], [1.0, 1.0]]))
    return layer


@pytest.mark.parametrize(
    ("gate", "features", "expected"),
    [
        ("sigmoid", (1.0, 0.0), 0.7002583),
        ("sigmoid", (-1.0, 0.0), 0.2997417),
        ("sigmoid", (0.5, 0.5), 0.8021839),
        ("signed_sqrt", (1.0, 0.0), 0.7152776),
        ("signed_sqrt", (-1.0, 0.0), 0.2847224),
        ("sigmoid", (4.0, -3.0), 0.5),
        ("signed_sqrt", (4.0, -3.0), 0.5),
    ],
)
def test_the_gate_is_worked_out_by_hand(gate: str, features: tuple[float, float], expected: float) -> None:
    """alpha = sigmoid(<RMSNorm(h), RMSNorm(k)> / sqrt(d)) of the paper, and through a signed square root in its code."""
    hidden = torch.tensor([[[3.0, 4.0]]])
    read = layer_of(gate).read(hidden, torch.tensor([[features]]))
    assert read.gate.item() == pytest.approx(expected, abs=2e-6)
    value = (2 * features[0], features[0] + features[1])
    assert read.delta.flatten().tolist() == pytest.approx([expected * v for v in value], abs=1e-5)


def test_the_numbers_by_hand_are_those_of_the_equation() -> None:
    assert 1 / (1 + math.exp(-SCORE)) == pytest.approx(0.7002583, abs=1e-7)
    assert 1 / (1 + math.exp(-math.sqrt(SCORE))) == pytest.approx(0.7152776, abs=1e-7)
    # h = (3, 4), k = (1, 1) / 2: 7 / 2 / sqrt(12.5) / sqrt(0.25) / sqrt(2) = 1.4
    assert 1 / (1 + math.exp(-1.4)) == pytest.approx(0.8021839, abs=1e-7)


def convolved(values: list[list[float]], weight: list[list[float]], dilation: int) -> list[list[float]]:
    """SiLU(sum over taps of weight * RMSNorm(value so far back)), number by number; the last tap is the position's own."""
    normed = [[x / math.sqrt(sum(y * y for y in row) / len(row) + 1e-6) for x in row] for row in values]
    mixed = []
    for t in range(len(values)):
        sums = [0.0] * len(values[0])
        for tap, factors in enumerate(reversed(weight)):
            if t - tap * dilation >= 0:
                sums = [s + w * x for s, w, x in zip(sums, factors, normed[t - tap * dilation], strict=True)]
        mixed.append([s / (1 + math.exp(-s)) for s in sums])
    return mixed


@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_the_convolution_is_its_equation_number_by_number(dilation: int) -> None:
    conv = ShortConvolution(2, 4, dilation)
    weight = [[0.5, -1.0], [0.25, 2.0], [-0.75, 0.0], [1.0, 0.5]]
    values = [[1.0, 1.0], [3.0, -4.0], [0.0, 2.0], [-1.0, 0.5], [2.0, 2.0], [0.1, 0.0], [5.0, 1.0], [1.0, -1.0]]
    with torch.no_grad():
        conv.weight.copy_(torch.tensor(weight))
    found = conv(torch.tensor([values]), Surroundings(torch.ones(1, 8, dtype=torch.long), None))[0][0]
    torch.testing.assert_close(found, torch.tensor(convolved(values, weight, dilation)), atol=1e-6, rtol=1e-5)


def test_two_positions_of_the_convolution_are_worked_out_by_hand() -> None:
    """RMSNorm(1, 1) = (1, 1) and RMSNorm(3, -4) = (0.848528, -1.131371); two taps, one position apart."""
    conv = ShortConvolution(2, 2, 1)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([[0.5, 1.0], [2.0, -1.0]]))
    found = conv(torch.tensor([[[1.0, 1.0], [3.0, -4.0]]]), Surroundings(torch.ones(1, 2, dtype=torch.long), None))[0]
    # SiLU(2), SiLU(-1); SiLU(2 * 0.848528 + 0.5), SiLU(1.131371 + 1)
    assert found.flatten().tolist() == pytest.approx([1.7615942, -0.2689414, 1.9773174, 1.9052645], abs=1e-5)
