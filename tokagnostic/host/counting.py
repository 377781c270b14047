"""Reads of the attached layers to numbers for metrics."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LayerReads:
    """What one attached layer has read since the last look."""

    layer: int
    """Index of the decoder layer, from 0."""
    num_positions: int
    """Positions at which it read."""
    num_found: int
    """Those of them with at least one window."""
    gate_mean: float
    """How far the gate was open there, on average, from 0 to 1; NaN if there were none."""


class ReadCounter:
    """Sums over the reads of one layer, kept on the device so that counting never waits for it."""

    def __init__(self) -> None:
        self.num_positions = 0
        self.num_found: Tensor | int = 0
        self.gate_sum: Tensor | float = 0.0

    def add(self, has_window: Tensor, gate: Tensor) -> None:
        """Count one read: where there was a window, bool [B, T], and the gate, float [B, T, 1]."""
        found = has_window.to(gate.device)
        self.num_positions += found.numel()
        self.num_found = found.sum() + self.num_found
        self.gate_sum = (gate.detach().float().squeeze(-1) * found).sum() + self.gate_sum

    def summary(self, layer: int) -> LayerReads:
        """The sums as numbers; here the device is waited for."""
        num_found = int(self.num_found)
        mean = float(self.gate_sum) / num_found if num_found else float("nan")
        return LayerReads(layer, self.num_positions, num_found, mean)
