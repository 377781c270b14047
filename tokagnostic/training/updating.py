"""Batches to one update of everything that is trained."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import get_int_from_env
from torch import Tensor, nn

from tokagnostic.errors import TrainingError
from tokagnostic.host import Attachment
from tokagnostic.host.attach import attachment_of
from tokagnostic.memory.ahead import ReadAhead
from tokagnostic.memory.visits import Visits
from tokagnostic.training.clipping import clip_global_norm
from tokagnostic.training.config import FitConfig
from tokagnostic.training.exchange import exchange_gradients, trained_tables
from tokagnostic.training.optim import dense_groups
from tokagnostic.training.packing import Batch
from tokagnostic.training.sharding import ShardedStore
from tokagnostic.training.table_optimizers import make_table_optimizer
from tokagnostic.training.tracking import require_trackers

logger = logging.getLogger(__name__)


_REPLACED = ("forward", "_original_forward", "_is_accelerate_prepared", "_ddp_params_and_buffers_to_ignore")
"""What preparing a model, for mixed precision above all, sets on it."""

_SHARDING = ("FSDP", "DEEPSPEED", "MEGATRON_LM")
"""What would take a table apart like any weight, and gather it as a whole for every step."""


def make_accelerator(config: FitConfig, folder: Path | None = None) -> Accelerator:
    """What knows the device, the precision and the other processes, and with the folder of a run its trackers.

    Raises:
        MissingExtraError: if a tracker is not installed.
        TrainingError: if the precision cannot be had here, an earlier run of this process had another, the launch
            asks to shard what is trained, or its processes do not know of each other.
    """
    require_trackers(config.trackers)
    try:
        accelerator = Accelerator(
            mixed_precision=config.precision,
            gradient_accumulation_steps=config.accumulation,
            log_with=None if folder is None else list(config.trackers) or None,
            project_dir=folder,
        )
    except ValueError as error:
        raise TrainingError(
            f"precision = {config.precision!r} cannot be had ({' '.join(str(error).split())})",
            expected="a precision that this machine computes in, the same for all runs of one process",
            remedy="Set precision to `no`, or start another process for another precision",
        ) from error
    if config.precision == "fp16" and accelerator.device.type == "cpu":
        raise TrainingError(
            "precision = 'fp16' on a CPU, which would compute in fp32 all the same",
            expected="no or bf16 on a CPU",
            remedy="Set precision to one of these",
        )
    num_launched = get_int_from_env(["WORLD_SIZE"], 1)
    if num_launched > accelerator.num_processes:
        raise TrainingError(
            f"{num_launched} processes that were launched together and do not know of each other",
            expected=f"a launch as of one run; Accelerate sees {accelerator.num_processes} of them",
            remedy="Set ACCELERATE_USE_CPU=1 where processes train without a GPU, or launch one process",
        )
    kind = accelerator.distributed_type.value
    if kind in _SHARDING:
        raise TrainingError(
            f"a launch with {kind}",
            expected="plain data parallelism, which leaves tables to the exchange of the rows that were looked up",
            remedy="Launch without it (accelerate launch --multi_gpu)",
        )
    return accelerator


def make_optimizers(model: nn.Module, attachment: Attachment | None, config: FitConfig) -> list[torch.optim.Optimizer]:
    """AdamW for all that is dense, and after it the rule that is asked for, for the tables of a memory that is trained.

    Raises:
        TrainingError: if nothing dense can be trained.
    """
    tables = [] if attachment is None else [p for p in attachment.memory.parameters() if p.requires_grad]
    table_ids = {id(table) for table in tables}
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad and id(p) not in table_ids]
    if not named:
        raise TrainingError(
            "a run in which neither host nor reader has a trainable parameter",
            expected="a trainable host or an attached memory",
            remedy="Train the host, or attach a memory",
        )
    rounded = sorted({str(p.dtype).removeprefix("torch.") for _, p in named if p.dtype != torch.float32})
    if rounded:
        logger.warning(
            "parameters are trained in %s, where small updates are rounded away; load the host in float32 and "
            "set precision to compute in less",
            " and ".join(rounded),
        )
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(dense_groups(named, config.weight_decay), lr=config.learning_rate, betas=(0.9, 0.95))
    ]
    if tables:
        rate = config.learning_rate * config.table_rate_factor
        optimizers.append(make_table_optimizer(config.table_optimizer, tables, rate, seed=config.seed % 2**32))
    return optimizers


class Updater:
    """Makes updates. Within it the model is where and as Accelerate wants it; afterwards it computes as before.

    Args:
        accelerator: places and wraps the model.
        model: the host.
        optimizers: those of `make_optimizers`.
        clip_norm: largest norm of the dense gradient; 0 clips nothing.
        clip_table: whether the tables' gradients count in that norm, and are scaled along.

    Attributes:
        batch_losses: of this process' batches in the latest update, float [batches].
    """

    batch_losses: Tensor

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        clip_norm: float,
        clip_table: bool = False,
    ) -> None:
        self._accelerator = accelerator
        self._plain = model
        self._own = {name: vars(model)[name] for name in _REPLACED if name in vars(model)}
        self._clip_norm = clip_norm
        self._clip_table = clip_table
        self._trained = [[p for group in optimizer.param_groups for p in group["params"]] for optimizer in optimizers]
        self._replicated: list[tuple[Tensor, Visits]] = []
        self._shares: list[Tensor] = []
        if accelerator.num_processes > 1:
            attachment = attachment_of(model)
            tables = trained_tables(attachment)
            own = {id(table) for table, _ in tables}
            if attachment is not None and isinstance(attachment.memory.store, ShardedStore):
                self._shares = [table for table, _ in tables]
            else:
                self._replicated = tables
            # What is frozen is equal everywhere: sent around, a mapped table would be read and copied as a whole. Tables
            # that are trained begin equal, and exchange the rows that were looked up, or each process has other rows.
            model._ddp_params_and_buffers_to_ignore = [  # type: ignore[assignment]
                name
                for name, parameter in model.named_parameters()
                if not parameter.requires_grad or id(parameter) in own
            ]
        # Placing an optimizer, Accelerate would copy its state twice, where it is already too; a table's is large.
        placed = [True, *(False for _ in optimizers)]
        self._model, *self._optimizers = accelerator.prepare(model, *optimizers, device_placement=placed)
        for optimizer in optimizers:
            for parameter, values in optimizer.state.items():
                optimizer.state[parameter] = {name: value.to(parameter.device) for name, value in values.items()}
        self._groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self._peak_rates = [group["lr"] for group in self._groups]
        self._attachment = attachment_of(model)
        self._ahead = None if self._attachment is None else ReadAhead(self._attachment.memory, accelerator.device)

    def __enter__(self) -> Updater:
        if self._ahead is not None:
            self._ahead.__enter__()
        return self

    @property
    def reads_ahead(self) -> bool:
        """Whether updates go faster if they are told which batch comes next."""
        return self._ahead is not None and self._ahead.helps

    def __exit__(self, *_: object) -> None:
        if self._ahead is not None:
            self._ahead.__exit__()
        for name in _REPLACED:
            vars(self._plain).pop(name, None)
        vars(self._plain).update(self._own)
        self._plain.eval()
        for _table, visits in self._replicated:
            visits.take_recent(keep=False)

    def update(self, batches: Sequence[Batch], rate_factor: float, coming: Batch | None = None) -> float:
        """Add up the gradients of the batches and step once, unless the loss is infinite or NaN: then nothing is updated.

        Args:
            batches: what the gradients are taken on.
            rate_factor: what the peak rates are multiplied by.
            coming: the first batch of the next update, which a frozen memory may read meanwhile.

        Returns:
            The mean loss of all processes in nats per token, the same in each: where one finds it broken, all do.
        """
        for group, peak in zip(self._groups, self._peak_rates, strict=True):
            group["lr"] = peak * rate_factor
        loss = self._add_gradients(batches, coming)
        if math.isfinite(loss):
            self._step()
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        return loss

    def _add_gradients(self, batches: Sequence[Batch], coming: Batch | None) -> float:
        """Forward and backward; returns the mean loss of all processes."""
        self._model.train()
        losses = []
        for batch, following in zip(batches, [*batches[1:], coming], strict=True):
            if self.reads_ahead and following is not None:
                self._read_ahead(following)
            with self._accelerator.accumulate(self._model):
                # Without use_cache=False transformers would let packed documents attend to each other.
                loss = self._model(**_inputs(batch, self._accelerator.device), use_cache=False).loss
                self._accelerator.backward(loss)
            losses.append(loss.detach())
        self.batch_losses = torch.stack(losses)
        return float(self._accelerator.reduce(self.batch_losses.mean(), "mean"))

    def _step(self) -> None:
        exchange_gradients(self._replicated)
        if self._clip_norm > 0:
            self._clip()
        for optimizer in self._optimizers:
            optimizer.step()

    def _read_ahead(self, batch: Batch) -> None:
        if self._ahead is not None and self._attachment is not None:
            keys = self._attachment.hasher(torch.from_numpy(batch.input_ids), torch.from_numpy(batch.starts))
            self._ahead.start(keys)

    def _clip(self) -> None:
        if self._clip_table:
            self._accelerator.unscale_gradients()
            clip_global_norm(chain.from_iterable(self._trained), self._clip_norm, self._shares)
        else:
            self._accelerator.clip_grad_norm_(self._trained[0], self._clip_norm)


def _inputs(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    """A batch as the host takes it; positions that restart tell it and the memory where documents start."""
    input_ids = torch.from_numpy(batch.input_ids).to(device)
    return {
        "input_ids": input_ids,
        "position_ids": torch.from_numpy(batch.position_ids).to(device),
        "labels": input_ids,
    }
