"""Blocks of token ids to trained parameters: the one training loop, run by Accelerate."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from tqdm import tqdm

from tokagnostic.errors import TrainingError
from tokagnostic.host import Attachment
from tokagnostic.training.checkpoint import (
    Checkpoint,
    load_newest,
    module_tensors,
    optimizer_tensors,
    restore_module,
    restore_optimizer,
    save_checkpoint,
)
from tokagnostic.training.config import FitConfig
from tokagnostic.training.optim import RowwiseRMSProp, dense_groups, warmup_cosine
from tokagnostic.training.packing import Batch, BlockSampler, TokenStream

logger = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
CHECKPOINTS_FOLDER = "checkpoints"


@dataclass(frozen=True)
class FitResult:
    """What a training run came to."""

    num_steps: int
    """Updates done."""
    num_tokens: int
    """Tokens trained on, all processes together."""
    seconds: float
    """Time of the loop in this sitting, evaluation and saving taken out."""
    tokens_per_second: float
    """Tokens of this sitting per second of it."""
    metrics: list[dict[str, Any]]
    """The lines of metrics.jsonl."""


def fit(
    model: nn.Module,
    stream: TokenStream,
    config: FitConfig,
    folder: Path,
    *,
    attachment: Attachment | None = None,
    token_lengths: Tensor | None = None,
    evaluate: Callable[[], float] | None = None,
    resume: bool = False,
    label: str = "train",
) -> FitResult:
    """Train what is trainable: the host by AdamW, a memory's table by the row-wise rule.

    The batch of a step is a pure function of the step, so a resumed run sees the text that it would have seen; on the
    CPU, with the same number of threads, it gives the same bits.

    Args:
        model: a causal language model of transformers, with the memory attached if there is one.
        stream: the text.
        config: how to train.
        folder: where metrics.jsonl and checkpoints go.
        attachment: the memory attached to the model.
        token_lengths: bytes per id, int64 [V], to state the training loss in bits per byte too.
        evaluate: bits per byte on held-out text.
        resume: go on from the newest checkpoint in the folder.
        label: what the progress line calls this run.

    Raises:
        TrainingError: if the loss is not finite, nothing is trainable, or a checkpoint does not fit the run.
    """
    accelerator = Accelerator(mixed_precision=config.precision, gradient_accumulation_steps=config.accumulation)
    sampler = BlockSampler(
        stream,
        config.block_length,
        config.batch_size,
        config.seed,
        accelerator.process_index,
        accelerator.num_processes,
    )
    optimizers = _optimizers(model, attachment, config)
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    state = _RunState(model, attachment, optimizers, names, {"data": stream.digest, "fit": _lasting(config)})
    folder.mkdir(parents=True, exist_ok=True)
    first_step = state.resume(folder / CHECKPOINTS_FOLDER) if resume else 0
    metrics = _Metrics(folder / METRICS_FILE, first_step, accelerator.is_main_process)
    updater = _Updater(accelerator, model, optimizers, config)

    tokens_per_step = config.batch_size * config.accumulation * config.block_length * accelerator.num_processes
    clock = _Clock()
    progress = tqdm(
        initial=first_step * tokens_per_step,
        total=config.num_steps * tokens_per_step,
        desc=label,
        unit="tok",
        unit_scale=True,
        disable=not accelerator.is_main_process,
    )
    with progress:
        for step in range(first_step, config.num_steps):
            factor = warmup_cosine(step, config.num_steps, config.warmup_share)
            batches = [sampler.batch(step * config.accumulation + part) for part in range(config.accumulation)]
            loss = updater.update(batches, factor)
            if not math.isfinite(loss):
                raise TrainingError(
                    f"loss {loss} at step {step + 1}",
                    expected="a finite loss",
                    remedy="Lower learning_rate or table_rate_factor and resume; the last checkpoint is intact",
                )
            progress.update(tokens_per_step)
            done = step + 1
            last = done == config.num_steps
            if last or done % config.log_every == 0:
                line = {
                    "step": done,
                    "tokens": done * tokens_per_step,
                    "loss": loss,
                    "learning_rate": config.learning_rate * factor,
                    "tokens_per_second": (done - first_step) * tokens_per_step / clock.seconds(),
                }
                if token_lengths is not None:
                    line["bits_per_byte"] = loss / math.log(2) / _bytes_per_token(batches, token_lengths)
                if attachment is not None:
                    line["gate"] = {str(reads.layer): reads.gate_mean for reads in attachment.take_reads()}
                metrics.write(line)
                progress.set_postfix(loss=f"{loss:.3f}", refresh=False)
            with clock.paused():
                if evaluate is not None and (last or (config.evaluate_every and done % config.evaluate_every == 0)):
                    metrics.write(
                        {"step": done, "tokens": done * tokens_per_step, "held_out_bits_per_byte": evaluate()}
                    )
                if config.save_every and (last or done % config.save_every == 0) and accelerator.is_main_process:
                    save_checkpoint(folder / CHECKPOINTS_FOLDER, state.checkpoint(done))
    model.eval()
    seconds = clock.seconds()
    num_new = (config.num_steps - first_step) * tokens_per_step
    return FitResult(
        config.num_steps, config.num_steps * tokens_per_step, seconds, num_new / max(seconds, 1e-9), metrics.lines
    )


class _Updater:
    """Batches to one update of everything that is trained."""

    def __init__(
        self, accelerator: Accelerator, model: nn.Module, optimizers: list[torch.optim.Optimizer], config: FitConfig
    ) -> None:
        self.accelerator = accelerator
        self.clip_norm = config.clip_norm
        self.groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self.peak_rates = [group["lr"] for group in self.groups]
        self.dense = [parameter for group in optimizers[0].param_groups for parameter in group["params"]]
        self.model, *self.optimizers = accelerator.prepare(model, *optimizers)

    def update(self, batches: Sequence[Batch], rate_factor: float) -> float:
        """Add up the gradients of the batches and step once; returns the mean loss in nats per token."""
        for group, peak in zip(self.groups, self.peak_rates, strict=True):
            group["lr"] = peak * rate_factor
        self.model.train()
        losses = []
        for batch in batches:
            with self.accelerator.accumulate(self.model):
                # Without use_cache=False transformers would let packed documents attend to each other.
                loss = self.model(**_inputs(batch, self.accelerator.device), use_cache=False).loss
                self.accelerator.backward(loss)
                if self.accelerator.sync_gradients and self.clip_norm > 0:
                    self.accelerator.clip_grad_norm_(self.dense, self.clip_norm)
                for optimizer in self.optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
            losses.append(loss.detach())
        return float(torch.stack(losses).mean())


def _bytes_per_token(batches: Sequence[Batch], token_lengths: Tensor) -> float:
    """Mean bytes of the tokens that the batches predict."""
    targets = torch.cat([torch.from_numpy(batch.input_ids[:, 1:]).flatten() for batch in batches])
    return float(token_lengths[targets].float().mean())


def _optimizers(model: nn.Module, attachment: Attachment | None, config: FitConfig) -> list[torch.optim.Optimizer]:
    """AdamW for all that is dense; the row-wise rule for the tables of a memory that is trained."""
    tables = [] if attachment is None else [p for p in attachment.memory.parameters() if p.requires_grad]
    table_ids = {id(table) for table in tables}
    named = [(name, p) for name, p in model.named_parameters() if id(p) not in table_ids]
    if not any(p.requires_grad for _, p in named):
        raise TrainingError(
            "a run in which neither host nor reader has a trainable parameter",
            expected="a trainable host or an attached memory",
            remedy="Train the host, or attach a memory",
        )
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(dense_groups(named, config.weight_decay), lr=config.learning_rate, betas=(0.9, 0.95))
    ]
    if tables:
        optimizers.append(RowwiseRMSProp(tables, lr=config.learning_rate * config.table_rate_factor))
    return optimizers


def _inputs(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    """A batch as the host takes it; positions that restart tell it and the memory where documents start."""
    input_ids = torch.from_numpy(batch.input_ids).to(device)
    return {
        "input_ids": input_ids,
        "position_ids": torch.from_numpy(batch.position_ids).to(device),
        "labels": input_ids,
    }


def _lasting(config: FitConfig) -> dict[str, Any]:
    """The settings that a resumed run must share: all but how often it reports."""
    reporting = {"log_every", "evaluate_every", "save_every"}
    return {name: value for name, value in dataclasses.asdict(config).items() if name not in reporting}


@dataclass(frozen=True)
class _RunState:
    """Everything that changes in a run, to a checkpoint and back."""

    model: nn.Module
    attachment: Attachment | None
    optimizers: list[torch.optim.Optimizer]
    names: dict[Tensor, str]
    facts: dict[str, Any]

    def checkpoint(self, step: int) -> Checkpoint:
        tensors = module_tensors(self.model) | {"generator": torch.get_rng_state()}
        for optimizer in self.optimizers:
            tensors |= optimizer_tensors(optimizer, self.names)
        if self.attachment is not None:
            tensors |= {f"visits.{i}": visits.counts for i, visits in enumerate(self.attachment.memory.visits)}
        return Checkpoint(step, tensors, self.facts)

    def resume(self, folder: Path) -> int:
        """Take up the newest checkpoint; returns the updates done, 0 where there is none.

        Raises:
            TrainingError: if the run that wrote it had other settings or other text.
        """
        checkpoint = load_newest(folder)
        if checkpoint is None:
            logger.warning("no checkpoint in %s: starting from the beginning", folder)
            return 0
        for name, value in self.facts.items():
            if checkpoint.facts.get(name) != value:
                raise TrainingError(
                    f"a checkpoint in {folder} whose `{name}` is {checkpoint.facts.get(name)}",
                    expected=f"{value}",
                    remedy="Resume with the settings and the text that the run was started with",
                )
        restore_module(self.model, checkpoint.tensors)
        for optimizer in self.optimizers:
            restore_optimizer(optimizer, self.names, checkpoint.tensors)
        if self.attachment is not None:
            for i, visits in enumerate(self.attachment.memory.visits):
                visits.counts = checkpoint.tensors[f"visits.{i}"]
        torch.set_rng_state(checkpoint.tensors["generator"])
        return checkpoint.step


class _Metrics:
    """metrics.jsonl: lines up to where a run resumes are kept, later ones are written anew."""

    def __init__(self, path: Path, first_step: int, writes: bool) -> None:
        self.path = path
        self.writes = writes
        self.lines: list[dict[str, Any]] = []
        if first_step and path.exists():
            kept = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
            self.lines = [line for line in kept if line["step"] <= first_step]
        if writes:
            path.write_text("".join(json.dumps(line) + "\n" for line in self.lines), encoding="utf-8")

    def write(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        if self.writes:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


class _Clock:
    """Seconds of training, without those spent on evaluation and saving."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._out = 0.0
        self._left: float | None = None

    def seconds(self) -> float:
        return time.perf_counter() - self._begin - self._out

    def paused(self) -> _Clock:
        return self

    def __enter__(self) -> None:
        self._left = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        if self._left is not None:
            self._out += time.perf_counter() - self._left
