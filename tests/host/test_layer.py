"""The gated residual."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tokagnostic.errors import InvalidValueError
from tokagnostic.host import MemoryLayer

GATES = ["sigmoid", "signed_sqrt"]
WIDTH, FEATURE_DIM = 13, 7


def make_layer(gate: str = "sigmoid") -> MemoryLayer:
    torch.manual_seed(1)
    layer = MemoryLayer(WIDTH, FEATURE_DIM, gate)
    nn.init.normal_(layer.value.weight)
    nn.init.normal_(layer.key_norm.weight)
    nn.init.normal_(layer.query_norm.weight)
    return layer


@pytest.mark.parametrize("gate", GATES)
def test_a_fresh_layer_returns_the_very_same_hidden_state(gate: str) -> None:
    layer = MemoryLayer(WIDTH, FEATURE_DIM, gate)
    hidden = torch.randn(2, 3, WIDTH)
    assert torch.equal(layer(hidden, torch.randn(2, 3, FEATURE_DIM)), hidden)


@pytest.mark.parametrize("gate", GATES)
def test_zero_features_add_exactly_zero(gate: str) -> None:
    read = make_layer(gate).read(torch.randn(2, 3, WIDTH), torch.zeros(2, 3, FEATURE_DIM))
    assert torch.equal(read.delta, torch.zeros(2, 3, WIDTH))


@pytest.mark.parametrize("gate", GATES)
def test_the_gate_is_equation_4_and_its_signed_root(gate: str) -> None:
    layer = make_layer(gate)
    hidden, features = torch.randn(WIDTH), torch.randn(FEATURE_DIM)

    def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean() + 1e-6).sqrt() * weight

    key = rms_norm(layer.key.weight @ features, layer.key_norm.weight)
    score = float((rms_norm(hidden, layer.query_norm.weight) @ key).detach()) / WIDTH**0.5
    if gate == "signed_sqrt":
        score = (1 if score > 0 else -1) * abs(score) ** 0.5
    expected = 1 / (1 + torch.exp(torch.tensor(-score)))
    read = layer.read(hidden[None, None], features[None, None])
    torch.testing.assert_close(read.gate.flatten(), expected[None])
    torch.testing.assert_close(read.delta[0, 0], expected * (layer.value.weight @ features))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scale", [0.0, 1e-8, 1e-4, 1.0])
@pytest.mark.parametrize("gate", GATES)
def test_gradients_are_finite_at_zero_and_near_it(gate: str, scale: float, dtype: torch.dtype) -> None:
    """M-20: zero keys, tiny keys, one masked row, fp32 and bf16."""
    layer = make_layer(gate).to(dtype)
    hidden = torch.randn(2, 3, WIDTH).to(dtype).requires_grad_()
    features = (torch.randn(2, 3, FEATURE_DIM) * scale).to(dtype)
    features[0, 1] = 0
    features.requires_grad_()
    layer(hidden, features).float().square().sum().backward()
    for gradient in (hidden.grad, features.grad, *(weight.grad for weight in layer.parameters())):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("gate", GATES)
def test_gradients_are_finite_where_the_score_is_exactly_zero(gate: str) -> None:
    """M-20: keys of zero from a zero projection, although features are not zero."""
    layer = make_layer(gate)
    nn.init.zeros_(layer.key.weight)
    features = torch.randn(1, 4, FEATURE_DIM, requires_grad=True)
    read = layer.read(torch.zeros(1, 4, WIDTH), features)
    assert read.gate.flatten().tolist() == [0.5] * 4
    layer(torch.zeros(1, 4, WIDTH), features).square().sum().backward()
    for gradient in (features.grad, *(weight.grad for weight in layer.parameters())):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_the_result_takes_the_dtype_of_the_hidden_state_and_the_weights_keep_theirs(dtype: torch.dtype) -> None:
    layer = make_layer()
    read = layer.read(torch.randn(1, 2, WIDTH).to(dtype), torch.randn(1, 2, FEATURE_DIM))
    assert (read.delta.dtype, read.gate.dtype, layer.key.weight.dtype) == (dtype, torch.float32, torch.float32)
    assert tuple(read.gate.shape) == (1, 2, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        {"gate": "root"},
        {"conv_kernel": -1},
        {"conv_dilation": 0},
        {"width": 0},
        {"feature_dim": 2.0},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_a_setting_that_cannot_be_used_is_named(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(arguments))):
        MemoryLayer(**{"width": WIDTH, "feature_dim": FEATURE_DIM, **arguments})
