"""Gradients to updates: AdamW's groups for the dense parameters, and one schedule for these and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torch import Tensor


def dense_groups(named_parameters: Iterable[tuple[str, Tensor]], weight_decay: float) -> list[dict[str, Any]]:
    """AdamW's groups: matrices decay; vectors (norms, biases) do not."""
    parameters = [parameter for _, parameter in named_parameters if parameter.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def warmup_cosine(step: int, num_steps: int, warmup_share: float, final_share: float = 0.05) -> float:
    """The schedule: a factor on every learning rate that rises in a line and falls along half a cosine.

    Args:
        step: 0 for the first update.
        num_steps: updates in all.
        warmup_share: share of the updates in which the factor rises to 1.
        final_share: the factor at the end.
    """
    warmup_steps = max(1, round(num_steps * warmup_share))
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, num_steps - warmup_steps)
    return final_share + (1 - final_share) * 0.5 * (1 + math.cos(math.pi * progress))
