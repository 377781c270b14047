"""Gradients to updates: AdamW for the dense parameters, a row-wise rule for tables, one schedule for both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from tokagnostic.errors import InvalidValueError


class RowwiseRMSProp(torch.optim.Optimizer):
    """RMSProp with one second moment per row of a table, updating the rows that were looked up and no others.

    For a row that was looked up, with its gradient g (all its lookups summed) of dim numbers:

        count += 1;  moment = beta * moment + (1 - beta) * mean(g ** 2)
        row -= lr * g / (sqrt(moment / (1 - beta ** count)) + eps)

    One moment per row is the idea of row-wise Adagrad (Mudigere et al. 2022, arXiv 2104.05158, section 4.1.4); the decay
    and its bias correction, here by the row's own count of updates, are those of Adam (Kingma and Ba 2015). There is no
    weight decay: a row that was not looked up does not move. The state is 8 bytes per row. Tables are fp32: in half
    precision an update below about 1/256 of a number is rounded away.

    Args:
        params: tables, float32 [R, dim], whose gradients are sparse.
        lr: step length; every number of a row moves by about this much per update.
        beta: decay of the moment, per update of the row.
        eps: added to the root.

    Raises:
        InvalidValueError: for a rate below 0, a decay outside [0, 1), or a table that is not fp32.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, beta: float = 0.99, eps: float = 1e-10) -> None:
        if lr < 0 or not 0 <= beta < 1:
            raise InvalidValueError(
                f"lr = {lr}, beta = {beta}", expected="lr of at least 0 and beta in [0, 1)", remedy="Correct the value"
            )
        super().__init__(params, {"lr": lr, "beta": beta, "eps": eps})
        self.register_load_state_dict_post_hook(_keep_counts_whole)
        for group in self.param_groups:
            for table in group["params"]:
                if table.dtype != torch.float32 or table.ndim != 2:
                    raise InvalidValueError(
                        f"a table of dtype {table.dtype} and shape {list(table.shape)}",
                        expected="float32 [R, dim]: small updates are rounded away in half precision",
                        remedy="Train the table in float32 and export it in half precision",
                    )
                self.state[table] = {
                    "moment": torch.zeros(len(table), dtype=torch.float32, device=table.device),
                    "count": torch.zeros(len(table), dtype=torch.int32, device=table.device),
                }

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the rows that have gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._update(table, group["lr"], group["beta"], group["eps"])
        return loss

    def _update(self, table: Tensor, lr: float, beta: float, eps: float) -> None:
        rows, gradient = sum_by_row(table.grad)
        moments, counts = self.state[table]["moment"], self.state[table]["count"]
        count = counts[rows] + 1
        moment = moments[rows] * beta + gradient.square().mean(dim=1) * (1 - beta)
        counts[rows], moments[rows] = count, moment
        root = (moment / (1 - beta**count)).sqrt() + eps
        table.index_add_(0, rows, gradient / root.unsqueeze(1), alpha=-lr)


def _keep_counts_whole(optimizer: torch.optim.Optimizer) -> None:
    """Undo the cast by which loading gives all state the dtype of its parameter."""
    for state in optimizer.state.values():
        state["count"] = state["count"].to(torch.int32)


def sum_by_row(gradient: Tensor | None) -> tuple[Tensor, Tensor]:
    """A table's sparse gradient with the occurrences of each row added up.

    Args:
        gradient: sparse [R, dim], not necessarily coalesced.

    Returns:
        Distinct rows, int64 [U], and their gradients, float [U, dim].

    Raises:
        InvalidValueError: for a dense gradient, which would make every row count as looked up.
    """
    if gradient is None or not gradient.is_sparse:
        raise InvalidValueError(
            "a dense gradient for a table",
            expected="a sparse gradient, as memory lookups make it",
            remedy="Give this parameter to another optimizer",
        )
    occurrences, values = gradient._indices()[0], gradient._values()
    rows, where = torch.unique(occurrences, return_inverse=True)
    return rows, values.new_zeros(len(rows), values.shape[1]).index_add_(0, where, values)


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
