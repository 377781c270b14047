"""A run's settings to the memory that it will take at its peak, before anything of the table's size is made."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
from accelerate import Accelerator
from torch import nn

from tokagnostic.errors import TrainingError
from tokagnostic.hashing import HashCache
from tokagnostic.host import Attachment, attach
from tokagnostic.memory.base import MemoryConfig
from tokagnostic.memory.file import read_recipe
from tokagnostic.tokens import TokenBytes
from tokagnostic.training.allocations import Allocations
from tokagnostic.training.config import FitConfig, PretrainConfig, TableRule
from tokagnostic.training.packing import Batch
from tokagnostic.training.updating import Updater, make_accelerator, make_optimizers

MOST_ROWS = 16_384
"""Rows per head, at most, of the memory that trial updates are made with."""
STATE_BYTES: dict[TableRule, Callable[[int], int]] = {
    "rowwise_rmsprop": lambda dim: 8,
    "rowwise_adam": lambda dim: 4 * dim + 8,
    "lazy_adam": lambda dim: 8 * dim + 4,
}
"""State of a row of the table under each rule."""
VISIT_BYTES = 8
"""Count of a row's visits while it is trained."""
ACTIVATIONS = "activations and what an update makes in passing"
PROCESS_STATUS = Path("/proc/self/status")
FORGET_PEAK, FORGET_PEAK_CODE = Path("/proc/self/clear_refs"), "5"
"""Where Linux says what a process holds, and what to write where for it to measure the peak anew."""
CONTROL_GROUP = Path("/sys/fs/cgroup/memory.max")
"""Where Linux says how much a container may take."""


@dataclass(frozen=True)
class MemoryPlan:
    """What each process of a run takes at its peak, on the device where it computes."""

    device: str
    """Where the run computes."""
    parts: dict[str, int]
    """Bytes by what they are for."""
    available: int
    """Bytes that the process can have there, those that it has already among them."""

    @property
    def total(self) -> int:
        """Bytes at the peak."""
        return sum(self.parts.values())

    def to_text(self) -> str:
        """The plan as aligned lines."""
        rows = {**self.parts, "at the peak": self.total, "available": self.available}
        width = max(map(len, rows))
        lines = [f"{name:<{width}}  {num_bytes / 2**20:>12,.1f} MiB" for name, num_bytes in rows.items()]
        return "\n".join([f"each process, on {self.device}:", *lines])

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values, in bytes."""
        return {**dataclasses.asdict(self), "total": self.total}


def table_parts(config: PretrainConfig) -> dict[str, int]:
    """What tables take in a run that trains them, in bytes; none where they are frozen and stay in their file."""
    if config.memory_file is not None and not config.train_table:
        return {}
    memory = _memory_config(config)
    num_rows = sum(memory.addresser().num_rows)
    return {
        "table": num_rows * memory.dim * (2 if config.fit.table_dtype == "bf16" else 4),
        "state of the table's optimizer": num_rows * STATE_BYTES[config.fit.table_optimizer](memory.dim),
        "visits of the table's rows": num_rows * VISIT_BYTES,
    }


def refuse_beyond(plan: MemoryPlan, config: PretrainConfig) -> None:
    """Make sure that a plan fits.

    Raises:
        TrainingError: with what would fit.
    """
    if plan.total > plan.available:
        raise TrainingError(
            f"a run that takes {_gib(plan.total)} at its peak on {plan.device}",
            expected=f"at most {_gib(plan.available)}, which are available there",
            remedy=f"Choose {'; or '.join(choices_that_fit(plan, config)) or 'a smaller host'}",
        )


def choices_that_fit(plan: MemoryPlan, config: PretrainConfig) -> list[str]:
    """Single changes of the settings with which a plan that is too large would fit."""
    tables = sum(table_parts(config).values())
    rest = plan.total - tables
    choices = []
    if tables:
        per_head = _memory_config(config).to_dict()["num_rows"]
        fitting = int(per_head * (plan.available - rest) / tables * 0.99)
        if fitting > 1:
            choices.append(f"num_rows of at most {fitting:,}")
        changes: tuple[dict[str, Any], ...] = ({"table_dtype": "bf16"}, {"table_optimizer": "rowwise_rmsprop"})
        for change in changes:
            other = dataclasses.replace(config, fit=dataclasses.replace(config.fit, **change))
            if rest + sum(table_parts(other).values()) <= plan.available:
                choices.extend(f"{name} {value}" for name, value in change.items())
    blocks = config.fit.batch_size
    per_block = plan.parts.get(ACTIVATIONS, 0) / blocks
    fewer = int(blocks - (plan.total - plan.available) / per_block) if per_block else 0
    if fewer >= 1:
        choices.append(f"batch_size {fewer}, with accumulation for the rest")
    return choices


def plan_updates(model: nn.Module, config: PretrainConfig, num_ids: int) -> dict[str, int]:
    """What updates take beside the tables, in bytes, found by trial.

    Updates are made with one, two, and if there is room half as many blocks of random ids, and with a memory of the run's
    shape but few rows: all but the tables is as large as in the run. What tensors take grows with the blocks in a line;
    what the allocator keeps beside them, which on a CPU is looked at too, in their ratio. The host is changed by it.

    Args:
        model: the host, to which nothing is attached.
        config: the run.
        num_ids: ids of the tokenizer.
    """
    accelerator = make_accelerator(config.fit)
    cache = HashCache.build(TokenBytes.from_list([b"%d" % i for i in range(num_ids)]))
    settings = _memory_config(config).to_dict()
    memory = MemoryConfig.from_dict({**settings, "num_rows": min(settings["num_rows"], MOST_ROWS)}).build(cache)
    if config.memory_file is not None and not config.train_table:
        memory.freeze()
    attachment = attach(model, cache, memory, config.layers, config.gate, config.conv_kernel)
    tables = {id(table) for table in memory.parameters()}
    parameters = [p for p in model.parameters() if id(p) not in tables]
    trained = sum(p.nbytes for p in parameters if p.requires_grad)
    host = sum(p.nbytes for p in parameters)
    parts = {"host and reader": host, "their gradients": trained, "state of AdamW": 2 * trained}
    if accelerator.num_processes > 1:
        parts["buckets in which processes exchange gradients"] = trained
    before = psutil.Process().memory_info().rss
    blocks = config.fit.batch_size
    first = _try_updates(accelerator, attachment, config.fit, num_ids, 1)
    second = _try_updates(accelerator, attachment, config.fit, num_ids, 2)
    per_block = max(0, second.allocated - first.allocated)
    allocated = first.allocated + (blocks - 1) * per_block
    largest = second
    half = blocks // 2
    if half > 2 and before + 2 * (first.allocated + half * per_block) < available_bytes(accelerator.device):
        largest = _try_updates(accelerator, attachment, config.fit, num_ids, half)
    parts[ACTIVATIONS] = max(0, allocated - 3 * trained)
    if largest.resident is not None:
        parts["the program, its libraries, and the text"] = max(
            0, before - host - sum(table.nbytes for table in memory.parameters())
        )
        kept = max(0, largest.resident - largest.allocated) / largest.allocated
        parts["what the allocator keeps beside"] = round(kept * allocated)
    return parts


class _Trial(NamedTuple):
    """What updates took, in bytes."""

    allocated: int
    """By tensors that were made, at once."""
    resident: int | None
    """By the process, at most, beyond what it held before; None where the system does not tell."""


def _try_updates(
    accelerator: Accelerator, attachment: Attachment, config: FitConfig, num_ids: int, num_blocks: int
) -> _Trial:
    """Make two updates, of which the second has states from the first."""
    model = attachment.model
    ids = np.random.default_rng(0).integers(0, num_ids, (num_blocks, config.block_length))
    positions = np.broadcast_to(np.arange(config.block_length), ids.shape).copy()
    batch = Batch(ids, positions == 0, positions)
    can_forget = accelerator.device.type == "cpu" and _forget_peak()
    before = psutil.Process().memory_info().rss
    with Allocations() as allocations:
        optimizers = make_optimizers(model, attachment, config)
        with Updater(accelerator, model, optimizers, config.clip_norm, config.clip_table) as updater:
            for _ in range(2):
                updater.update([batch] * config.accumulation, 0.0)
        model.zero_grad()
    return _Trial(allocations.peak, _peak_resident() - before if can_forget else None)


def _forget_peak() -> bool:
    """Have Linux measure anew what this process holds at most; False where that cannot be.

    Free pages are given back before, lest what an earlier trial has left serves the next one, as it would not the run.
    """
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        FORGET_PEAK.write_text(FORGET_PEAK_CODE, encoding="ascii")
    except (OSError, AttributeError):
        return False
    return True


def _peak_resident() -> int:
    status = PROCESS_STATUS.read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def available_bytes(device: torch.device) -> int:
    """What this process can have on a device, in bytes, with what it has there already."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device))
    here = psutil.Process().memory_info().rss
    free = int(psutil.virtual_memory().available + here)
    try:
        return min(free, int(CONTROL_GROUP.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return free


def _memory_config(config: PretrainConfig) -> MemoryConfig:
    return config.memory if config.memory_file is None else read_recipe(config.memory_file).config


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:,.2f} GiB"
