"""What a memory knows and what a host thinks to the change of the host's mind: the gated residual."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tokagnostic.errors import InvalidValueError
from tokagnostic.host.gate_numba import can_gate, gated
from tokagnostic.host.short_conv import NORM_EPSILON, ShortConvolution, Surroundings

GateForm = Literal["sigmoid", "signed_sqrt"]
"""How a score becomes a gate: as in Eq. 4 of arXiv 2607.29065, or through a signed square root as in Engram's code."""

LEAST_MAGNITUDE = 1e-6
"""Scores closer to zero than this have the root, and no slope, of this one: the slope of a root is infinite at zero."""


class LayerRead(NamedTuple):
    """What one layer makes of a read."""

    delta: Tensor
    """To be added to the residual stream, in its dtype and on its device, float [B, T, D]."""
    gate: Tensor
    """In [0, 1], in the dtype of the weights, [B, T, 1]."""
    conv_input: Tensor | None
    """What the short convolution was given, float [B, T, D]; None without one."""


MOST_TAPS = 64
"""Of a short convolution: what looks further back is attention's work."""


class Projection(nn.Module):
    """A matrix without a bias, initialised as `nn.Linear` is, which it is not: who adapts or quantises all of a host's
    linear layers leaves the reader alone.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)

    def forward(self, vectors: Tensor) -> Tensor:
        """From float [..., in_features] to [..., out_features]."""
        return F.linear(vectors, self.weight)


class MemoryLayer(nn.Module):
    """Context-gated residual: `hidden + gate * value(features)`, and what a short convolution makes of its last values.

    The gate, `sigmoid(<RMSNorm(hidden), RMSNorm(key(features))> / sqrt(D))` (Eq. 4), lets the host's context decide how
    much of what was read is believed. The value projection starts at zero, so a fresh layer changes nothing, and neither
    projection has a bias, so where nothing was read nothing is ever added. The weights keep their own dtype, fp32 unless
    cast; only the result takes the dtype of the hidden state.

    Args:
        width: D.
        feature_dim: E.
        gate: form of the gate.
        conv_kernel: taps of the short convolution behind the gate, see `ShortConvolution`; 0 for none.
        conv_dilation: positions from tap to tap.

    Raises:
        InvalidValueError: for an unknown gate, a kernel below 0 or above `MOST_TAPS`, or a size below 1.
    """

    def __init__(
        self,
        width: int,
        feature_dim: int,
        gate: GateForm = "sigmoid",
        conv_kernel: int = 0,
        conv_dilation: int = 1,
    ) -> None:
        super().__init__()
        if gate not in get_args(GateForm):
            raise InvalidValueError(
                f"gate {gate!r}", expected=" or ".join(get_args(GateForm)), remedy="Name one of these gate forms"
            )
        if type(conv_kernel) is not int or not 0 <= conv_kernel <= MOST_TAPS:
            raise InvalidValueError(
                f"conv_kernel = {conv_kernel!r}",
                expected=f"0 for none, or up to {MOST_TAPS} taps (the paper takes 4)",
                remedy="Set conv_kernel to such a number",
            )
        for name, size in (("width", width), ("feature_dim", feature_dim), ("conv_dilation", conv_dilation)):
            if type(size) is not int or size < 1:
                raise InvalidValueError(
                    f"{name} = {size!r}", expected="a whole number of at least 1", remedy=f"Set {name} to such a number"
                )
        self.gate: GateForm = gate
        self.width = width
        """D: the width of the hidden states it adds to."""
        self.key = Projection(feature_dim, width)
        self.value = Projection(feature_dim, width)
        self.key_norm = nn.RMSNorm(width, eps=NORM_EPSILON)
        self.query_norm = nn.RMSNorm(width, eps=NORM_EPSILON)
        self.conv = ShortConvolution(width, conv_kernel, conv_dilation) if conv_kernel else None
        nn.init.zeros_(self.value.weight)

    def forward(self, hidden: Tensor, features: Tensor, around: Surroundings | None = None) -> Tensor:
        """Add what the memory knows, float [B, T, E], to the residual stream, float [B, T, D]."""
        return hidden + self.read(hidden, features, around).delta

    def add_nothing(self, hidden: Tensor) -> Tensor:
        """The residual stream as it is, float [B, T, D], with every parameter in its graph: they get a gradient of zero."""
        return hidden + torch.cat([parameter.flatten()[:0] for parameter in self.parameters()]).sum().to(hidden)

    def read(self, hidden: Tensor, features: Tensor, around: Surroundings | None = None) -> LayerRead:
        """What is to be added, and how far the gate was open.

        Args:
            hidden: the residual stream, float [B, T, D], any dtype.
            features: what was read, float [B, T, E]; zero where there was nothing. Without a convolution nothing is
                added there.
            around: what the convolution may look at; by default rows of one document each, from its beginning.
        """
        to_key = self.key
        like = to_key.weight
        context, features = hidden.to(like), features.to(like)
        gate, delta = self._gated(context, to_key(features), self.value(features))
        conv_input = None
        if self.conv is not None:
            if around is None:
                around = Surroundings(torch.ones(hidden.shape[:2], dtype=torch.long, device=delta.device), None)
            mixed, conv_input = self.conv(delta.to(context), around)
            delta = delta + mixed
        return LayerRead(delta.to(hidden), gate, conv_input)

    def _gated(self, context: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The gate, [B, T, 1], and the gated value, [B, T, D]."""
        weights = self.query_norm.weight, self.key_norm.weight
        if can_gate(context, key, value, *weights):
            least_root = LEAST_MAGNITUDE if self.gate == "signed_sqrt" else None
            return gated(context, key, value, *weights, NORM_EPSILON, least_root)
        score = self._score(context.float(), key.float()).to(context)  # [B, T, 1]
        if self.gate == "signed_sqrt":
            score = score.abs().clamp_min(LEAST_MAGNITUDE).sqrt() * score.sign()
        gate = torch.sigmoid(score)
        return gate, gate * value

    def _score(self, context: Tensor, key: Tensor) -> Tensor:
        """Eq. 4's `<RMSNorm(context), RMSNorm(key)> / sqrt(D)`, with both norms taken out of the sum, float32 [B, T, 1]."""
        weight = (self.query_norm.weight * self.key_norm.weight).float()
        # Numbers that meet a tensor are the dear part where a call is one token: D is put where there are fewest.
        scale = (_sum_of_squares(context) * _sum_of_squares(key)).rsqrt()
        score: Tensor = (context * key * weight).sum(dim=-1, keepdim=True) * scale * self.width**0.5
        return score


def _sum_of_squares(vectors: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return norm.square() + NORM_EPSILON * vectors.shape[-1]
