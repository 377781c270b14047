"""Reads of the attached layers to numbers for metrics."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_WAITING = 64
"""Positions that are put aside before they are added up."""


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
    """Sums over the reads of one layer, kept on the device so that counting never waits for it.

    Reads are put aside and added up some at a time, so that counting costs next to nothing where a call is one token.
    """

    def __init__(self) -> None:
        self._num_positions = 0
        self._num_found: Tensor | int = 0
        self._gate_sum: Tensor | float = 0.0
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._num_waiting = 0

    def add(self, keys: Tensor, gate: Tensor) -> None:
        """Count one read: the keys, int64 [B, T, N], -1 for no window, and the gate, float [B, T, 1]."""
        self._waiting.append((keys, gate.detach() if gate.requires_grad else gate))
        self._num_waiting += gate.numel()
        if self._num_waiting >= MOST_WAITING:
            self._add_up()

    def summary(self, layer: int) -> LayerReads:
        """The sums as numbers; here the device is waited for."""
        self._add_up()
        num_found = int(self._num_found)
        mean = float(self._gate_sum) / num_found if num_found else float("nan")
        return LayerReads(layer, self._num_positions, num_found, mean)

    def _add_up(self) -> None:
        waiting, self._waiting, self._num_waiting = self._waiting, [], 0
        if not waiting:
            return
        gates = torch.cat([gate.flatten() for _, gate in waiting])
        found = (torch.cat([keys.flatten(0, 1) for keys, _ in waiting]) >= 0).any(dim=1).to(gates.device)
        self._num_positions += found.numel()
        self._num_found = found.sum() + self._num_found
        self._gate_sum = (gates * found).sum(dtype=torch.float32) + self._gate_sum
