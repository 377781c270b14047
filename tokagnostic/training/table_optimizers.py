"""A table's sparse gradient to updates of the rows that were looked up, by one of several rules."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from tokagnostic.errors import InvalidValueError
from tokagnostic.training import rowwise_numba, rowwise_torch
from tokagnostic.training.config import TableRule
from tokagnostic.training.rowwise_torch import TABLE_DTYPES


class TableOptimizer(torch.optim.Optimizer, ABC):
    """What the rules for tables share: they update the rows that were looked up and no others, and decay no weights.

    Gradients are sparse, not necessarily coalesced: the occurrences of a row are added up, whether they come from one
    backward pass or from several, and the row is updated once. Each row counts its own updates, so that to a row the
    steps in which nothing looked it up have not been. Tables are fp32, or bf16 with stochastic rounding: an update below
    about 1/256 of a number, which rounding to the nearest would lose each time, is then right on average (Gupta et al.
    2015, arXiv 1502.02551). The bits that round are a hash of seed, row, count and column, so that a resumed run goes on
    with the same ones. State is fp32 and int32 in either case.

    Args:
        params: tables, float32 or bfloat16 [R, dim].
        defaults: of every group.

    Raises:
        InvalidValueError: for a rate below 0, a decay outside [0, 1), or a table of another dtype.
    """

    def __init__(self, params: Iterable[Tensor], defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)
        for group in self.param_groups:
            _check_numbers(group)
            for table in group["params"]:
                if table.dtype not in TABLE_DTYPES or table.ndim != 2:
                    raise InvalidValueError(
                        f"a table of dtype {table.dtype} and shape {list(table.shape)}",
                        expected="float32 or bfloat16 [R, dim]",
                        remedy="Train the table in one of these and export it in another precision",
                    )
                self.state[table] = self._fresh(table, group)

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
                    self._update(table, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a saved state, bit for bit."""
        super().load_state_dict(state_dict)
        restore_table_states(self, state_dict)

    @abstractmethod
    def _fresh(self, table: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        """The state of a table that was never updated."""

    @abstractmethod
    def _update(self, table: Tensor, group: dict[str, Any]) -> None:
        """Apply the rule to one table."""


class RowwiseRMSProp(TableOptimizer):
    """RMSProp with one second moment per row of a table, updating the rows that were looked up and no others.

    For a row that was looked up, with its gradient g (all its lookups summed) of dim numbers:

        count += 1;  moment = beta * moment + (1 - beta) * mean(g ** 2)
        row -= lr * g / (sqrt(moment / (1 - beta ** count)) + eps)

    One moment per row is the idea of row-wise Adagrad (Mudigere et al. 2022, arXiv 2104.05158, section 4.1.4; FBGEMM's
    EXACT_ROWWISE_ADAGRAD, whose moment is the sum, moment += mean(g ** 2)); the decay and its bias correction, here by
    the row's own count of updates, are those of Adam (Kingma and Ba 2015). The state is 8 bytes per row.

    Args:
        params: tables, float32 or bfloat16 [R, dim], whose gradients are sparse.
        lr: step length; every number of a row moves by about this much per update.
        beta: decay of the moment, per update of the row.
        eps: added to the root.
        seed: of the rounding of bfloat16 tables.

    Raises:
        InvalidValueError: for a rate below 0, a decay outside [0, 1), or a table of another dtype.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float, beta: float = 0.99, eps: float = 1e-10, seed: int = 0
    ) -> None:
        super().__init__(params, {"lr": lr, "beta": beta, "eps": eps, "seed": seed})

    def _fresh(self, table: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"moment": _zeros(table, len(table)), "count": _zeros(table, len(table), dtype=torch.int32)}

    def _update(self, table: Tensor, group: dict[str, Any]) -> None:
        state = self.state[table]
        settings = {name: group[name] for name in ("lr", "beta", "eps", "seed")}
        backend_for(table).rmsprop_step(table, table.grad, state["moment"], state["count"], **settings)


class LazyAdam(TableOptimizer):
    """Adam for the rows that were looked up, as if the steps in which a row was not looked up had not been.

    For a row that was looked up, with its gradient g (all its lookups summed) of dim numbers:

        count += 1;  mean = b1 * mean + (1 - b1) * g;  moment = b2 * moment + (1 - b2) * g ** 2
        row -= lr * (mean / (1 - b1 ** count)) / (sqrt(moment / (1 - b2 ** count)) + eps)

    This is Adam (Kingma and Ba 2015, algorithm 1) with each row's own count in place of the step; torch's SparseAdam
    corrects by the count of all steps, which leaves the first updates of a rare row nearly uncorrected. With
    moment="row" mean(g ** 2) stands for g ** 2 and a row has one moment (FBGEMM's PARTIAL_ROWWISE_ADAM). The state is
    8 * dim + 4 bytes per row, or 4 * dim + 8.

    Args:
        params: tables, float32 or bfloat16 [R, dim], whose gradients are sparse.
        lr: step length.
        betas: decays of mean and moment, per update of the row.
        eps: added to the root.
        moment: "full" for one second moment per number, "row" for one per row.
        seed: of the rounding of bfloat16 tables.

    Raises:
        InvalidValueError: for a rate below 0, a decay outside [0, 1), or a table of another dtype.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        moment: Literal["full", "row"] = "full",
        seed: int = 0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "moment": moment, "seed": seed})

    def _fresh(self, table: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {
            "mean": _zeros(table, *table.shape),
            "moment": _zeros(table, *(table.shape if group["moment"] == "full" else table.shape[:1])),
            "count": _zeros(table, len(table), dtype=torch.int32),
        }

    def _update(self, table: Tensor, group: dict[str, Any]) -> None:
        state = [self.state[table][name] for name in ("mean", "moment", "count")]
        settings = {name: group[name] for name in ("lr", "betas", "eps", "seed")}
        backend_for(table).adam_step(table, table.grad, *state, **settings)


def make_table_optimizer(rule: TableRule, params: Iterable[Any], lr: float, seed: int = 0) -> TableOptimizer:
    """The rule of this name for some tables, or groups of them, with its own defaults.

    Args:
        rule: `rowwise_rmsprop` has 8 bytes of state per row, `rowwise_adam` 4 * dim + 8, `lazy_adam` 8 * dim + 4.
        params: tables, or groups of them.
        lr: step length.
        seed: of the rounding of bfloat16 tables.

    Raises:
        InvalidValueError: for an unknown rule, a rate below 0, or a table that is not float32 or bfloat16.
    """
    match rule:
        case "rowwise_rmsprop":
            return RowwiseRMSProp(params, lr, seed=seed)
        case "rowwise_adam":
            return LazyAdam(params, lr, moment="row", seed=seed)
        case "lazy_adam":
            return LazyAdam(params, lr, seed=seed)
    raise InvalidValueError(
        f"table optimizer {rule!r}", expected=" or ".join(get_args(TableRule)), remedy="Name one of these"
    )


def backend_for(table: Tensor) -> ModuleType:
    """The module whose functions update a table where it lies."""
    return rowwise_numba if table.device.type == "cpu" else rowwise_torch


def restore_table_states(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
    """Undo the cast by which torch gives all state that it loads the dtype of its parameter.

    Args:
        optimizer: one that has loaded the state; parameters whose state has no `count` are left alone.
        state_dict: what it has loaded.
    """
    numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        saved = state_dict["state"].get(number, {})
        if "count" in saved:
            optimizer.state[parameter] = {
                name: tensor.to(parameter.device, copy=True) for name, tensor in saved.items()
            }


def _zeros(table: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype, device=table.device)


def _check_numbers(group: dict[str, Any]) -> None:
    decays = [*group.get("betas", ()), *([group["beta"]] if "beta" in group else [])]
    if not 0 <= group["lr"] < math.inf or not all(0 <= decay < 1 for decay in decays):
        raise InvalidValueError(
            f"lr = {group['lr']}, decays = {', '.join(map(str, decays))}",
            expected="lr of at least 0 and decays in [0, 1)",
            remedy="Correct the value",
        )
    if type(group["seed"]) is not int or not 0 <= group["seed"] < 2**32:
        raise InvalidValueError(
            f"seed = {group['seed']!r}", expected="a whole number below 2 ** 32", remedy="Correct the value"
        )
    if group.get("moment", "row") not in ("row", "full"):
        raise InvalidValueError(f"moment = {group['moment']!r}", expected="full or row", remedy="Name one of these")
