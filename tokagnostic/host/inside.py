"""Reader and memory to one module that stands inside the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from tokagnostic.errors import InvalidValueError
from tokagnostic.memory.base import NgramMemory

NAME = "tokagnostic"
"""Name of everything that an attachment registers inside its host."""


class Inside(nn.Module):
    """What an attachment registers in its host. It goes where the host goes, but a cast of the host rounds nothing."""

    def __init__(self, memory: NgramMemory, reader: nn.ModuleDict) -> None:
        super().__init__()
        self.memory = memory
        self.reader = reader

    def parameter_groups(self, lr: float, table_lr_factor: float) -> list[dict[str, Any]]:
        """The groups that `Attachment.parameter_groups` describes."""
        for name, number in (("lr", lr), ("table_lr_factor", table_lr_factor)):
            if not 0 < number < float("inf"):
                raise InvalidValueError(
                    f"{name} = {number!r}", expected="a positive number", remedy=f"Set {name} to such a number"
                )
        matrices = [weight for weight in self.reader.parameters() if weight.ndim > 1]
        vectors = [weight for weight in self.reader.parameters() if weight.ndim <= 1]
        groups: list[dict[str, Any]] = [
            {"name": "reader", "params": matrices, "lr": lr, "rowwise": False},
            {"name": "reader_norms", "params": vectors, "lr": lr, "weight_decay": 0.0, "rowwise": False},
            {
                "name": "table",
                "params": list(self.memory.parameters()),
                "lr": lr * table_lr_factor,
                "weight_decay": 0.0,
                "rowwise": True,
            },
        ]
        for group in groups:
            group["params"] = [parameter for parameter in group["params"] if parameter.requires_grad]
        return [group for group in groups if group["params"]]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Inside:
        def move(tensor: Tensor) -> Tensor:
            # An empty tensor shows what would become of a whole table without making a second one.
            target = fn(tensor.detach().new_empty(0))
            return fn(tensor) if target.dtype == tensor.dtype else tensor.to(target.device)

        super()._apply(move, recurse)
        return self
