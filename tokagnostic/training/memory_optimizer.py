"""A model with an attached memory to the one optimizer that trainers ask for: AdamW, and the row-wise rule for tables."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tokagnostic.errors import HostError, InvalidValueError
from tokagnostic.host import attachment_of
from tokagnostic.training.clipping import clip_global_norm
from tokagnostic.training.config import TableRule
from tokagnostic.training.optim import dense_groups
from tokagnostic.training.rowwise_torch import occurrences_of
from tokagnostic.training.table_optimizers import make_table_optimizer, restore_table_states


def memory_optimizer(
    model: nn.Module,
    lr: float,
    weight_decay: float = 0.0,
    table_lr_factor: float = 5.0,
    table_optimizer: TableRule = "rowwise_rmsprop",
    clip_norm: float = 0.0,
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
        table_optimizer: rule for the table; see `make_table_optimizer`.
        clip_norm: largest norm of all gradients as one vector, the table's among them; 0 for any. A trainer's own
            clipping (max_grad_norm) does not see the table's gradient: set one of the two.

    Raises:
        HostError: if no memory is attached, or nothing is trainable.
        InvalidValueError: if a rate or factor is not a positive number, a norm is negative, or a rule is unknown.
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
    return MemoryOptimizer(groups, table_optimizer, clip_norm)


class MemoryOptimizer(torch.optim.Optimizer):
    """AdamW for dense groups and a rule of `make_table_optimizer` for those of tables, as one optimizer with one state.

    A table's gradient is taken from the parameter as soon as a backward pass has made it, and kept here until the step:
    clipping and whatever else a trainer does to gradients sees dense ones alone. A number stands in for them, the last
    parameter of the tables' group, whose gradient is 1: a `GradScaler` divides it by the scale of the loss as it divides
    all gradients, which tells the step what to divide the tables' by; it is infinite where theirs are not finite, so that
    the scaler leaves the step out.

    Args:
        groups: as `Attachment.parameter_groups` makes them: `rowwise` tells which are of tables.
        table_optimizer: rule for tables.
        clip_norm: largest norm of all gradients as one vector; 0 for any.

    Raises:
        InvalidValueError: for an unknown rule, or a norm below 0.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        table_optimizer: TableRule = "rowwise_rmsprop",
        clip_norm: float = 0.0,
    ) -> None:
        if not 0 <= clip_norm < math.inf:
            raise InvalidValueError(
                f"clip_norm = {clip_norm!r}", expected="a finite number, at least 0", remedy="Set it to such a number"
            )
        self._clip_norm = clip_norm
        dense = [group for group in groups if not group["rowwise"]]
        rowwise = [group for group in groups if group["rowwise"]]
        self._rules: dict[bool, torch.optim.Optimizer] = {}
        if dense:
            self._rules[False] = torch.optim.AdamW(dense)
        if rowwise:
            self._rules[True] = make_table_optimizer(table_optimizer, rowwise, lr=0.0)
        super().__init__([group for rule in self._rules.values() for group in rule.param_groups], {})
        for rule in self._rules.values():
            self.state.update(rule.state)
        self._taken: dict[Tensor, list[Tensor]] = {}
        self._scale: Tensor | None = None
        for group in self.param_groups:
            if group["rowwise"]:
                for table in group["params"]:
                    table.register_post_accumulate_grad_hook(_taker(weakref.ref(self)))
                if self._scale is None:
                    self._scale = nn.Parameter(torch.ones((), device=group["params"][0].device))
                    group["params"] = [*group["params"], self._scale]

    def take(self, table: Tensor) -> None:
        """Take a table's gradient over, on top of those of earlier backward passes."""
        if table.grad is None or self._scale is None:
            return
        _, values = occurrences_of(table.grad)
        if self._scale.grad is None:
            self._scale.grad = torch.ones_like(self._scale)
        # A sum is finite if all its numbers are, and cheaper than a look at each.
        self._scale.grad += 0 * values.sum().to(self._scale.device)
        self._taken.setdefault(table, []).append(table.grad)
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
        factor = self._factor()
        for table, gradients in self._taken.items():
            table.grad = _joined(gradients, factor)
        if self._clip_norm:
            clip_global_norm([p for group in self.param_groups for p in group["params"]], self._clip_norm)
        for rowwise, rule in self._rules.items():
            rule.param_groups = [group for group in self.param_groups if group["rowwise"] is rowwise]
            rule.state = self.state
            rule.step()
        for table in self._taken:
            table.grad = None
        self._taken.clear()
        return loss

    def _factor(self) -> float:
        """What a scaler has multiplied the gradient of the number by that stands in for tables."""
        if self._scale is None or self._scale.grad is None:
            return 1.0
        factor = float(self._scale.grad)
        self._scale.grad = None
        # Without a scaler a gradient that is not finite spoils its own row alone.
        return factor if math.isfinite(factor) else 1.0

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a saved state, bit for bit."""
        super().load_state_dict(state_dict)
        restore_table_states(self, state_dict)


def _joined(gradients: list[Tensor], factor: float) -> Tensor:
    """Sparse gradients [R, dim] one after the other, so that they are summed in the order of the lookups."""
    values = torch.cat([gradient._values() for gradient in gradients]) * factor
    indices = torch.cat([gradient._indices() for gradient in gradients], dim=1)
    return torch.sparse_coo_tensor(indices, values, gradients[0].shape, check_invariants=False)


def _taker(optimizer: weakref.ref[MemoryOptimizer]) -> Callable[[Tensor], None]:
    def take(table: Tensor) -> None:
        if (owner := optimizer()) is not None:
            owner.take(table)

    return take
