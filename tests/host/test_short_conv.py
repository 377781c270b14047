"""The short convolution, against an independent reading of its equation, and at the borders of documents."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tokagnostic.host.short_conv import ShortConvolution, Surroundings

WIDTH = 5


def make_conv(kernel: int = 4, dilation: int = 3) -> ShortConvolution:
    torch.manual_seed(2)
    conv = ShortConvolution(WIDTH, kernel, dilation)
    nn.init.normal_(conv.weight)
    nn.init.normal_(conv.norm.weight)
    return conv


def around(documents: list[int], before: Tensor | None = None) -> Surroundings:
    return Surroundings(torch.tensor([documents]), before)


@pytest.mark.parametrize(("kernel", "dilation", "length"), [(4, 3, 1), (4, 3, 20), (2, 1, 7), (1, 5, 3), (4, 7, 9)])
def test_one_document_is_a_causal_dilated_depthwise_convolution(kernel: int, dilation: int, length: int) -> None:
    """SiLU(Conv1D(RMSNorm(values))) of arXiv 2601.07372, by torch's own convolution."""
    conv, values = make_conv(kernel, dilation), torch.randn(1, length, WIDTH)
    normed = values / (values.square().mean(-1, keepdim=True) + 1e-6).sqrt() * conv.norm.weight
    padded = nn.functional.pad(normed.transpose(1, 2), (dilation * (kernel - 1), 0))
    mixed = nn.functional.conv1d(padded, conv.weight.T[:, None], groups=WIDTH, dilation=dilation).transpose(1, 2)
    expected = mixed * torch.sigmoid(mixed)
    torch.testing.assert_close(conv(values, around([1] * length))[0], expected)


def test_a_fresh_one_adds_exactly_nothing() -> None:
    assert not ShortConvolution(WIDTH, 4, 3)(torch.randn(1, 9, WIDTH), around([1] * 9))[0].any()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(1, 4), st.integers(1, 3))
def test_packed_documents_are_mixed_as_if_alone(lengths: list[int], kernel: int, dilation: int) -> None:
    conv = make_conv(kernel, dilation)
    values = [torch.randn(1, length, WIDTH) for length in lengths]
    documents = [number for number, length in enumerate(lengths, start=1) for _ in range(length)]
    packed = conv(torch.cat(values, dim=1), around(documents))[0]
    alone = [conv(value, around([1] * value.shape[1]))[0] for value in values]
    torch.testing.assert_close(packed, torch.cat(alone, dim=1))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 14), st.integers(1, 4), st.integers(1, 4))
def test_two_calls_are_one(first: int, kernel: int, dilation: int) -> None:
    conv, values = make_conv(kernel, dilation), torch.randn(2, 15, WIDTH)
    documents = torch.tensor([[1] * 6 + [2] * 9, [0] * 3 + [1] * 12])
    whole, _ = conv(values, Surroundings(documents, None))
    head, inputs = conv(values[:, :first], Surroundings(documents[:, :first], None))
    kept = max(0, first - conv.reach)
    tail, _ = conv(values[:, first:], Surroundings(documents[:, kept:], inputs[:, kept:]))
    torch.testing.assert_close(torch.cat((head, tail), dim=1), whole)


def test_padding_is_neither_mixed_nor_changed() -> None:
    """H-12."""
    conv, values = make_conv(4, 1), torch.randn(1, 8, WIDTH)
    documents = [0, 0, 1, 1, 1, 1, 0, 0]
    mixed = conv(values, around(documents))[0]
    assert not mixed[0, [0, 1, 6, 7]].any()
    torch.testing.assert_close(mixed[:, 2:6], conv(values[:, 2:6], around([1] * 4))[0])
