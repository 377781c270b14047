"""Gated values to the values of the last few of them: Engram's short convolution over positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tokagnostic.host.padding import RealPositions

NORM_EPSILON = 1e-6


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Which positions a convolution may mix, and what it was given at those before the call."""

    documents: Tensor
    """Number of each position's document, 0 at padding, int64 [B, P + T]."""
    before: Tensor | None
    """What it was given at the P positions before the call, float [B, P, D]; None if P is 0."""
    padding: RealPositions | None = None
    """Where the call's real positions are, which stand side by side in `documents`; None if all T are as they are."""

    @classmethod
    def of(
        cls,
        input_ids: Tensor,
        starts: Tensor,
        before: Tensor | None = None,
        padding: RealPositions | None = None,
    ) -> Surroundings:
        """Number the documents of P + T positions.

        Args:
            input_ids: masked at padding, int64 [B, P + T].
            starts: True at each document's first position, bool [B, P + T].
            before: float [B, P, D].
            padding: by which the last T were put side by side.
        """
        return cls((1 + starts.long().cumsum(dim=1)).masked_fill(input_ids < 0, 0), before, padding)


class ShortConvolution(nn.Module):
    """`SiLU(Conv1D(RMSNorm(values)))`, depthwise, causal and dilated (arXiv 2601.07372), added to the values.

    The kernel starts at zero, so a fresh convolution adds nothing. No tap reaches into another document, and padding is
    stepped over.

    Args:
        width: D.
        kernel: taps.
        dilation: positions from tap to tap; the paper takes the largest order.
    """

    def __init__(self, width: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.norm = nn.RMSNorm(width, eps=NORM_EPSILON)
        self.weight = nn.Parameter(torch.zeros(kernel, width))

    @property
    def reach(self) -> int:
        """P: positions before its own that the convolution looks at."""
        return (len(self.weight) - 1) * self.dilation

    def forward(self, values: Tensor, around: Surroundings) -> tuple[Tensor, Tensor]:
        """Mix each position's value with those of positions before it.

        Args:
            values: float [B, T, D].
            around: documents and earlier inputs; of the latter at most the last `reach` are looked at.

        Returns:
            mixed: what is to be added to the values, float [B, T, D]; zero at padding.
            inputs: what was mixed, float [B, T, D]: a later call's `before`.
        """
        inputs = self.norm(values)
        length = values.shape[1]
        padding = around.padding
        known = inputs if padding is None else padding.side_by_side(inputs)
        if around.before is not None:
            known = torch.cat((around.before.to(inputs), known), dim=1)
        documents = around.documents[:, -length:] if length else around.documents[:, :0]
        mixed = torch.zeros_like(inputs)
        # The last tap is the position's own; those before it lie further back.
        for tap, weight in enumerate(self.weight.flip(0)):
            back = tap * self.dilation
            mixed = mixed + weight * _shifted(known, back, length) * _same(around.documents, documents, back)
        mixed = F.silu(mixed) * (documents > 0).unsqueeze(-1)
        return mixed if padding is None else padding.in_place(mixed), inputs


def _shifted(known: Tensor, back: int, length: int) -> Tensor:
    """What stood `back` positions before each of the last `length` ones, float [B, length, D]; zero before the first."""
    padded = F.pad(known, (0, 0, back, 0))
    first = known.shape[1] - length
    return padded[:, first : first + length]


def _same(known: Tensor, documents: Tensor, back: int) -> Tensor:
    """Whether the position `back` before each is of the same document, bool [B, T, 1]."""
    first = known.shape[1] - documents.shape[1]
    earlier = F.pad(known, (back, 0))[:, first : first + documents.shape[1]]
    return (earlier == documents).unsqueeze(-1)
