"""A model with an attached memory to the one optimizer that trainers ask for: AdamW, and the row-wise rule for tables."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tokagnostic.errors import HostError
from tokagnostic.host import attachment_of
from tokagnostic.training.optim import RowwiseRMSProp, dense_groups


def memory_optimizer(
    model: nn.Module, lr: float, weight_decay: float = 0.0, table_lr_factor: float = 5.0
) -> MemoryOptimizer:
    """An optimizer of all that is trainable in a model with an attached memory, for trainers that take only one.

    `transformers.Trainer(model, args, optimizers=(memory_optimizer(model, lr=1e-4), None), ...)` trains host, reader and
    table, with its schedule, accumulation and clipping as they are. With a frozen memory any optimizer will do, and
    nothing needs to be given. A table's gradient is sparse: an AdamW of the trainer's own refuses it ("does not support
    sparse gradients"), and its norm of all gradients even before that ("Could not run 'aten::linalg_vector_norm'").

    Args:
        model: a host with an attached memory, be it wrapped.
        lr: rate of host and reader.
        weight_decay: of matrices; vectors and tables never decay.
        table_lr_factor: how much larger the table's rate is.

    Raises:
        HostError: if no memory is attached, or nothing is trainable.
        InvalidValueError: if a rate or factor is not a positive number.
    """
    attachment = attachment_of(model)
    if attachment is None:
        raise HostError(
            f"{type(model).__name__} without a memory",
            expected="a host with an attached memory",
            remedy="Attach one first, or use an optimizer of torch",
        )
    own = attachment.parameter_groups(lr, table_lr_factor)
    ours = {id(parameter) for _, parameter in attachment.named_parameters()}
    host = dense_groups([(name, p) for name, p in model.named_parameters() if id(p) not in ours], weight_decay)
    groups = [{"lr": lr, "rowwise": False, **group} for group in host if group["params"]]
    groups += [{"weight_decay": weight_decay, **group} for group in own]
    if not groups:
        raise HostError(
            f"{type(model).__name__} in which nothing is trainable",
            expected="a trainable host, reader or table",
            remedy="Call requires_grad_(True) of what shall be trained; wrappers such as LoRA's switch it off",
        )
    return MemoryOptimizer(groups)


class MemoryOptimizer(torch.optim.Optimizer):
    """AdamW for dense groups and `RowwiseRMSProp` for those of tables, as one optimizer with one state.

    A table's gradient is taken from the parameter as soon as a backward pass has made it, and kept here until the step:
    clipping and whatever else a trainer does to gradients sees dense ones alone. Losses that are scaled up for fp16 are
    not supported, since nothing would scale these gradients down.

    Args:
        groups: as `Attachment.parameter_groups` makes them: `rowwise` tells which are of tables.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        dense = [group for group in groups if not group["rowwise"]]
        rowwise = [group for group in groups if group["rowwise"]]
        self._rules: dict[bool, torch.optim.Optimizer] = {}
        if dense:
            self._rules[False] = torch.optim.AdamW(dense)
        if rowwise:
            self._rules[True] = RowwiseRMSProp(rowwise, lr=0.0)  # type: ignore[arg-type]
        super().__init__([group for rule in self._rules.values() for group in rule.param_groups], {})
        for rule in self._rules.values():
            self.state.update(rule.state)
        self.register_load_state_dict_post_hook(_keep_counts_whole)
        self._taken: dict[Tensor, Tensor] = {}
        for group in rowwise:
            for table in group["params"]:
                table.register_post_accumulate_grad_hook(_taker(weakref.ref(self)))

    def take(self, table: Tensor) -> None:
        """Take a table's gradient over, on top of those of earlier backward passes."""
        if table.grad is not None:
            before = self._taken.get(table)
            self._taken[table] = table.grad if before is None else before + table.grad
            table.grad = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        self._taken.clear()
        super().zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update what has gradients: all of the dense parameters, and the rows that were looked up."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for table, gradient in self._taken.items():
            table.grad = gradient
        for rowwise, rule in self._rules.items():
            rule.param_groups = [group for group in self.param_groups if group["rowwise"] is rowwise]
            rule.state = self.state
            rule.step()
        for table in self._taken:
            table.grad = None
        self._taken.clear()
        return loss


def _taker(optimizer: weakref.ref[MemoryOptimizer]) -> Callable[[Tensor], None]:
    def take(table: Tensor) -> None:
        if (owner := optimizer()) is not None:
            owner.take(table)

    return take


def _keep_counts_whole(optimizer: torch.optim.Optimizer) -> None:
    """Undo the cast by which loading gives all state the dtype of its parameter."""
    for state in optimizer.state.values():
        if "count" in state:
            state["count"] = state["count"].to(torch.int32)
