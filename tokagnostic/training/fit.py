"""Blocks of token ids to trained parameters: the one training loop, run by Accelerate."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from tokagnostic.errors import TrainingError
from tokagnostic.host import Attachment
from tokagnostic.host.attach import attachment_of
from tokagnostic.progress import progress_bar
from tokagnostic.training.blocks import Text
from tokagnostic.training.checkpoint import Checkpoint, disk_errors, save_checkpoint
from tokagnostic.training.config import FitConfig
from tokagnostic.training.hosts import seeded
from tokagnostic.training.lost_text import saving_before_text_is_lost
from tokagnostic.training.metrics import METRICS_FILE, Clock, MetricsLog
from tokagnostic.training.observing import Observer, in_short
from tokagnostic.training.optim import warmup_cosine
from tokagnostic.training.packing import BlockSampler
from tokagnostic.training.processes import require_same_everywhere, require_text_for_all
from tokagnostic.training.sharding import Sharding
from tokagnostic.training.state import RunState
from tokagnostic.training.stopping import RunStopped, StopRequest
from tokagnostic.training.texts import TextPlace
from tokagnostic.training.tracking import track, tracking
from tokagnostic.training.updating import Updater, make_accelerator, make_optimizers

CHECKPOINTS_FOLDER = "checkpoints"
BLOCKS_PER_UPDATE = "batch_size * accumulation * processes"
"""Name of what decides which text an update takes, as a user can set it."""
REPORTING = ("log_every", "evaluate_every", "save_every", "keep", "trackers")
"""Settings that a resumed run need not share."""
DIVISION = ("batch_size", "accumulation", "table_placement")
"""Settings that a resumed run need not share either: how an update and a table are divided. The product of the first two and
the number of processes has to be the same."""


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
    stream: Text,
    config: FitConfig,
    folder: Path,
    *,
    attachment: Attachment | None = None,
    token_lengths: Tensor | None = None,
    evaluate: Callable[[], float] | None = None,
    resume: bool = False,
    facts: Mapping[str, Any] | None = None,
    on_start: Callable[[], None] | None = None,
    label: str = "train",
) -> FitResult:
    """Train what is trainable: the host by AdamW, a memory's table by the row-wise rule.

    The batch of a step is a pure function of the step, or of the place in the text that a checkpoint keeps, so a resumed
    run sees the text that it would have seen; on the CPU, with the same number of threads, it gives the same bits. The global generator, from which dropout draws, is
    seeded for the run and left as it was.

    Args:
        model: a causal language model of transformers, with the memory attached if there is one.
        stream: the text.
        config: how to train.
        folder: where metrics.jsonl and checkpoints go; made once all that can be refused has been looked at.
        attachment: the memory attached to the model; found in the model if not given.
        token_lengths: bytes per id, int64 [V], to state the training loss in bits per byte too.
        evaluate: bits per byte on held-out text; called with the model in evaluation mode.
        resume: go on from the newest checkpoint in the folder.
        facts: what else a resumed run must share, such as the tokenizer's fingerprint; JSON values.
        on_start: called once before the first update, when all that can be refused has been looked at.
        label: what the progress line calls this run.

    Raises:
        TrainingError: if the loss is not finite, nothing is trainable, the text is shorter than a block or a block than
            the host's context, the folder holds another run, a
            checkpoint does not fit the run, or the disk is full.
        RunStopped: if SIGTERM or SIGINT has come: the step was finished and saved, whatever `save_every` says. A second
            SIGINT does not wait for that.
    """
    attachment = attachment_of(model) if attachment is None else attachment
    accelerator = make_accelerator(config, folder)
    is_main, num_processes = accelerator.is_main_process, accelerator.num_processes
    _check_context(model, config.block_length)
    require_text_for_all(num_processes, stream.counts.tokens, config.block_length)
    sampler = BlockSampler(
        stream, config.block_length, config.batch_size, config.seed, accelerator.process_index, num_processes
    )
    sharding = Sharding(attachment, config.table_placement, accelerator)
    optimizers = make_optimizers(model, attachment, config)
    observer = Observer(accelerator, attachment, sharding, token_lengths)
    blocks_per_step = config.batch_size * config.accumulation * num_processes
    tokens_per_step = blocks_per_step * config.block_length
    with (
        Updater(accelerator, model, optimizers, config.clip_norm, config.clip_table) as updater,
        StopRequest() as request,
        seeded(config.seed + accelerator.process_index),
    ):
        shared = {"text": stream.identity, "fit": lasting(config), BLOCKS_PER_UPDATE: blocks_per_step, **(facts or {})}
        require_same_everywhere(accelerator, shared)
        place = TextPlace(sampler, config.accumulation)
        state = RunState(model, attachment, optimizers, shared, sharding, accelerator, place, observer)
        checkpoints = folder / CHECKPOINTS_FOLDER
        first_step = state.resume(checkpoints) if resume else state.begin(checkpoints)
        require_same_everywhere(accelerator, {"newest checkpoint": first_step})
        if on_start is not None:
            on_start()
        with disk_errors(str(folder), "nothing was trained"):
            folder.mkdir(parents=True, exist_ok=True)
        metrics = MetricsLog(folder / METRICS_FILE, first_step, is_main)
        total, done_before = config.num_steps * tokens_per_step, first_step * tokens_per_step
        progress = progress_bar(label, "tok", total=total, done=done_before, shown=is_main)
        clock = Clock()
        with progress, tracking(accelerator, folder, dataclasses.asdict(config), first_step):
            for step in range(first_step, config.num_steps):
                done, tokens = step + 1, (step + 1) * tokens_per_step
                last = done == config.num_steps
                writes_line = last or done % config.log_every == 0
                factor = warmup_cosine(step, config.num_steps, config.warmup_share)
                with saving_before_text_is_lost(state, checkpoints, step, config.keep, num_processes):
                    batches = place.batches(step)
                    coming = place.coming(done)[0] if updater.reads_ahead and not last else None
                observer.before_update(batches, writes_line)
                loss = updater.update(batches, factor, coming)
                state.refuse_loss(loss, updater.batch_losses, done, checkpoints)
                progress.update(tokens_per_step)
                if writes_line:
                    seconds, num_done = clock.seconds(), done - first_step
                    line = {
                        "step": done,
                        "tokens": tokens,
                        "loss": loss,
                        "learning_rate": config.learning_rate * factor,
                        "tokens_per_second": num_done * tokens_per_step / seconds,
                        "seconds_left": (config.num_steps - done) * seconds / num_done,
                        **observer.line(loss, seconds),
                    }
                    metrics.write(line)
                    track(accelerator, line)
                    progress.set_postfix_str(in_short(line), refresh=False)
                with clock.paused():
                    if evaluate is not None and (last or _is_due(done, config.evaluate_every)):
                        model.eval()
                        line = {"step": done, "tokens": tokens, "held_out_bits_per_byte": evaluate()}
                        model.train()
                        metrics.write(line)
                        track(accelerator, line)
                    stops = not last and _is_asked_to_stop(request, accelerator)
                    saves = stops or (config.save_every > 0 and (last or _is_due(done, config.save_every)))
                    if last or saves:
                        state.refuse_broken(done)
                    if saves:
                        _save(checkpoints, state.checkpoint(done), config.keep, is_main)
                    if stops:
                        raise RunStopped(
                            request.number or signal.SIGTERM,
                            f"after step {done:,} of {config.num_steps:,}, which is saved in {checkpoints}; "
                            "give the same command with --resume to go on",
                        )
        seconds = clock.seconds()
    sharding.end()
    num_new = (config.num_steps - first_step) * tokens_per_step
    return FitResult(config.num_steps, config.num_steps * tokens_per_step, seconds, num_new / seconds, metrics.lines)


def lasting(config: FitConfig) -> dict[str, Any]:
    """The settings that a resumed run must share: all but how often it reports, and how it divides an update."""
    return {name: value for name, value in dataclasses.asdict(config).items() if name not in (*REPORTING, *DIVISION)}


def _check_context(model: Any, block_length: int) -> None:
    """Refuse blocks that the host has no positions for, which some hosts would answer with an index error."""
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if isinstance(context, int) and block_length > context:
        raise TrainingError(
            f"block_length = {block_length} for a host with a context of {context} tokens",
            expected="blocks that fit the context",
            remedy=f"Set block_length to {context} or less",
        )


def _save(folder: Path, checkpoint: Checkpoint, num_kept: int, is_main: bool) -> None:
    if is_main:
        save_checkpoint(folder, checkpoint, num_kept)


def _is_asked_to_stop(request: StopRequest, accelerator: Accelerator) -> bool:
    """Whether a signal has reached any of the processes, which all end after the same step or wait for ever."""
    if accelerator.num_processes == 1:
        return request.number != 0
    asked = torch.tensor([float(request.number != 0)], device=accelerator.device)
    return bool(accelerator.reduce(asked, "sum") > 0)


def _is_due(done: int, every: int) -> bool:
    return every > 0 and done % every == 0
