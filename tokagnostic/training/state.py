"""Everything that changes in a run to a checkpoint, and a checkpoint back to the run that it was taken from."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from tokagnostic.errors import TrainingError
from tokagnostic.host import Attachment
from tokagnostic.memory.visits import Visits
from tokagnostic.training.checkpoint import Checkpoint, checkpoints_in, load_newest
from tokagnostic.training.named_tensors import (
    MODEL,
    OPTIMIZER,
    frozen_samples,
    matching,
    module_tensors,
    optimizer_tensors,
    restore_module,
    restore_optimizer,
)
from tokagnostic.training.observing import Observer
from tokagnostic.training.processes import every_generator, sums, take_generator
from tokagnostic.training.sharding import Sharding
from tokagnostic.training.texts import TextPlace

logger = logging.getLogger(__name__)


class RunState:
    """A run's trained parameters, buffers, optimizer states, visits and generators.

    Parameters that were never trained are no part of it: they do not change, and a frozen table may be larger than the
    memory. A resumed run must be given the same, of which a few numbers are compared. What was trained once stays a part
    of it, with its optimizer state, when a later sitting freezes it: each sitting goes on from the values that the one
    before had, whatever is frozen or trained in either.

    Args:
        model: the host, with the attached memory if there is one.
        attachment: the attached memory.
        optimizers: what updates them.
        facts: what a resumed run must share; JSON values, tuples allowed.
        sharding: of the memory's tables.
        accelerator: knows the other processes.
        text: where the run stands in its text.
        observer: what has counted since the run began.
    """

    def __init__(
        self,
        model: nn.Module,
        attachment: Attachment | None,
        optimizers: Sequence[torch.optim.Optimizer],
        facts: Mapping[str, Any],
        sharding: Sharding,
        accelerator: Accelerator,
        text: TextPlace | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._model = model
        self._text = text
        self._observer = observer
        self._optimizers = optimizers
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        self._visits: dict[str, Visits] = {}
        if attachment is not None:
            self._visits = {f"visits.{i}": visits for i, visits in enumerate(attachment.memory.visits)}
        self._held = set(module_tensors(model))
        if attachment is not None and not attachment.memory.frozen:
            self._held |= self._visits.keys()
        self._resting: dict[str, Tensor] = {}
        self._sharding = sharding
        self._accelerator = accelerator
        self._facts: dict[str, Any] = json.loads(json.dumps(facts))

    def checkpoint(self, step: int) -> Checkpoint:
        """The state after so many updates: in the first process of the whole run. All processes must call this."""
        tensors = module_tensors(self._model, self._held)
        for optimizer in self._optimizers:
            tensors |= optimizer_tensors(optimizer, self._names)
        tensors |= {name: visits.counts for name, visits in self._visits.items() if name in self._held}
        whole = {name: self._sharding.whole(name, tensor) for name, tensor in tensors.items()}
        tensors = {name: tensor for name, tensor in whole.items() if tensor is not None} | self._resting
        tensors |= frozen_samples(self._model, self._held)
        if self._text is not None:
            tensors |= self._text.tensors(step)
        if self._observer is not None:
            tensors |= self._observer.tensors()
        return Checkpoint(step, tensors | every_generator(self._accelerator), self._facts)

    def begin(self, folder: Path) -> int:
        """Start a run from the beginning; returns the updates done, 0.

        Raises:
            TrainingError: if the folder holds checkpoints, which the run would replace.
        """
        if checkpoints_in(folder):
            raise TrainingError(
                f"{folder} holds the checkpoints of another run",
                expected="a new output folder",
                remedy="Add --resume to go on with that run, or name another folder",
            )
        self._go_to(0, {})
        return 0

    def resume(self, folder: Path) -> int:
        """Take up the newest checkpoint; returns the updates done, 0 where there is none.

        How many processes wrote it does not matter, as long as an update takes as many blocks as before.

        Raises:
            TrainingError: if no checkpoint can be read, or the run that wrote it had other settings or other text.
        """
        checkpoint = load_newest(folder)
        if checkpoint is None:
            logger.warning("no checkpoint in %s: starting from the beginning", folder)
            self._go_to(0, {})
            return 0
        refuse_difference(f"a checkpoint in {folder}", checkpoint.facts, self._facts)
        self._go_to(checkpoint.step, checkpoint.tensors)
        tensors = {name: self._sharding.own(name, tensor) for name, tensor in checkpoint.tensors.items()}
        restore_module(self._model, tensors)
        taken: set[str] = set()
        for optimizer in self._optimizers:
            taken |= restore_optimizer(optimizer, self._names, tensors)
        self._resting = {n: tensor for n, tensor in tensors.items() if n.startswith(OPTIMIZER) and n not in taken}
        for name in tensors.keys() & self._visits.keys():
            self._visits[name].counts = matching(tensors, name, self._visits[name].counts)
        if self._observer is not None:
            self._observer.restore(tensors)
        self._held |= {name for name in tensors if name.startswith(MODEL) or name in self._visits}
        take_generator(self._accelerator, tensors)
        logger.info("resuming after step %d", checkpoint.step)
        return checkpoint.step

    def _go_to(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Find the place in the text, before anything else of a run is touched."""
        if self._text is not None:
            self._text.go_to(step, tensors)

    def refuse_broken(self, step: int) -> None:
        """Make sure that an update has left no parameter infinite or NaN, in whichever process; all of them must call this.

        Raises:
            TrainingError: in every process, naming the parameter and the step.
        """
        name = self._first_broken()
        if name is not None:
            raise TrainingError(
                f"the update of step {step} made {name} infinite or NaN",
                expected="finite parameters",
                remedy=REMEDY_FOR_DIVERGENCE,
            )

    def refuse_loss(self, loss: float, batch_losses: Tensor, step: int, checkpoints: Path) -> None:
        """Stop at a loss that is not finite, before it has updated anything; all processes must call this.

        Args:
            loss: of the update and all processes, the same in each.
            batch_losses: those of this process' batches, float [batches].
            step: updates that there would be with this one.
            checkpoints: where those of the run are.

        Raises:
            TrainingError: if it is infinite or NaN, with the place of its text, the first parameter that is not finite,
                and the checkpoint to fall back to.
        """
        if math.isfinite(loss):
            return
        name = self._first_broken()
        whose = "all trained parameters are finite" if name is None else f"{name} is infinite or NaN"
        place = "" if self._text is None else f" on {self._place_of_broken(self._text, batch_losses, step - 1)}"
        saved = checkpoints_in(checkpoints)
        kept = f"the last checkpoint is {saved[-1]}" if saved else "there is no checkpoint"
        raise TrainingError(
            f"loss {loss} at step {step}{place}; {whose}; nothing was updated, {kept}",
            expected="a finite loss",
            remedy=REMEDY_FOR_DIVERGENCE if name else REMEDY_FOR_TEXT,
        )

    def _place_of_broken(self, text: TextPlace, batch_losses: Tensor, step: int) -> str:
        """The first batch of an update, of whichever process, whose own loss is not finite; else the first of all."""
        every = self._accelerator.gather(batch_losses.unsqueeze(0))  # [W, batches]
        rank, part = [*(~torch.isfinite(every)).nonzero().tolist(), [0, 0]][0]
        return text.describe(step, part, rank)

    def _first_broken(self) -> str | None:
        """The first of the trained parameters and buffers that is not finite in some process; all of them must call this."""
        tensors = module_tensors(self._model)
        broken = [tensor.is_floating_point() and not _is_finite(tensor) for tensor in tensors.values()]
        counts = sums(self._accelerator, *broken)
        return next((name for name, count in zip(tensors, counts, strict=True) if count), None)


def _is_finite(tensor: Tensor) -> bool:
    """Look piece by piece, for torch makes a copy of what it looks at, and a table may have no room beside it."""
    return all(bool(torch.isfinite(piece).all()) for piece in tensor.detach().flatten().split(PIECE_NUMBERS))


PIECE_NUMBERS = 2**22
"""Numbers that are looked at together."""
REMEDY_FOR_DIVERGENCE = "Start again in another folder with a lower learning_rate or table_rate_factor"
REMEDY_FOR_TEXT = "Look at that text, or start again in another folder with precision no or a lower learning_rate"


def refuse_difference(holder: str, saved: Any, given: Any) -> None:
    """Make sure that a run is resumed with what it was started with.

    Args:
        holder: what holds the saved facts, for the message.
        saved: what the run was started with, JSON values.
        given: what it is resumed with, JSON values.

    Raises:
        TrainingError: naming the first fact that differs.
    """
    difference = _first_difference(saved, given)
    if difference is not None:
        name, old, new = difference
        raise TrainingError(
            f"{holder} has {name} = {_short(old)}, but the run is resumed with {_short(new)}",
            expected="the settings and the text that the run was started with",
            remedy="Give these again, or start another run in another folder",
        )


def _first_difference(saved: Any, given: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """Where two JSON values differ first: the path to it, and what stands there in each."""
    if isinstance(saved, dict) and isinstance(given, dict):
        for key in [*saved, *(key for key in given if key not in saved)]:
            found = _first_difference(saved.get(key), given.get(key), f"{name}.{key}" if name else key)
            if found is not None:
                return found
        return None
    return None if saved == given else (name, saved, given)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
