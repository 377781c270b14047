"""The checkpoints of transformers' Trainer to checkpoints that hold the attached memory's reader too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, HubStrategy

from tokagnostic.errors import HostError, TrainingError
from tokagnostic.host import Attachment, attachment_of
from tokagnostic.host.restoring import restore_attachment
from tokagnostic.training.memory_optimizer import MemoryOptimizer
from tokagnostic.training.table_optimizers import TableOptimizer

FOLDER = "tokagnostic"
"""Name of the folder in each checkpoint that `load_attachment` takes."""


class AttachmentCallback(TrainerCallback):
    """Saves an attachment in each checkpoint of a Trainer, and reads it back where the Trainer reads a checkpoint.

    A checkpoint of the host is the plain host, which transformers loads without knowing of any memory; the reader, and the
    rows of a trainable memory, are therefore in a folder beside it: `Trainer(model, args, callbacks=[AttachmentCallback(
    attachment)], ...)`. Trained without it, a resumed run would go on with whatever reader is attached. A memory that came
    from a file and was not trained is not copied but named.

    A run is resumed from `TrainingArguments.resume_from_checkpoint`, if that names a folder, or from its output folder;
    and `load_best_model_at_end` brings the best reader back together with the best host.

    Args:
        attachment: the memory attached to the Trainer's model.
    """

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Make sure that the Trainer trains the attachment's host.

        Raises:
            HostError: if it has another attachment or none.
            TrainingError: if it pushes checkpoints, which it does before a callback can put the attachment into them.
        """
        if args.push_to_hub and args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
            raise TrainingError(
                f"hub_strategy = {args.hub_strategy.value!r} with an attached memory, whose reader would not be pushed",
                expected="end or every_save, which push the host",
                remedy="Set hub_strategy to one of these, and push the attachment with attachment.push_to_hub",
            )
        if attachment_of(kwargs["model"]) is not self._attachment:
            raise HostError(
                f"a callback for another attachment than that of the Trainer's {type(kwargs['model']).__name__}",
                expected="the attachment that is inside the Trainer's model",
                remedy="Attach the memory to that model, and make the callback from this attachment",
            )

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Read back the attachment of the checkpoint that the Trainer goes on from.

        Raises:
            TrainingError: if that checkpoint cannot be found, or holds no attachment, or the Trainer's optimizer cannot
                train the memory's table.
            HostError: if it holds another one.
        """
        _require_sparse(self._attachment, kwargs.get("optimizer"))
        if state.global_step > 0:
            self._restore(_resumed_checkpoint(args, state))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save the attachment in the checkpoint that the Trainer has just written.

        Raises:
            TrainingError: if the checkpoint is not in the output folder, as in a search of hyperparameters.
        """
        if not args.should_save:
            return
        checkpoint = _checkpoint_of(args, state)
        if not checkpoint.is_dir():
            raise TrainingError(
                f"no checkpoint at {checkpoint}",
                expected="checkpoints in the Trainer's output folder",
                remedy="Train without a search of hyperparameters, whose runs have folders of their own",
            )
        known = self._attachment.memory.is_as_in_file
        self._attachment.save_pretrained(checkpoint / FOLDER, copy_memory=not known)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Read back the attachment of the best checkpoint, if the Trainer has loaded the host of it.

        Raises:
            TrainingError: if the checkpoint holds no attachment.
        """
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            self._restore(Path(state.best_model_checkpoint))

    def _restore(self, checkpoint: Path) -> None:
        if not (checkpoint / FOLDER).is_dir():
            raise TrainingError(
                f"checkpoint {checkpoint} without the reader of the attached memory",
                expected=f"the folder {FOLDER} in it, which AttachmentCallback writes",
                remedy="Resume from a checkpoint that has it, and train with the callback from the first step on",
            )
        restore_attachment(self._attachment, checkpoint / FOLDER)


def _require_sparse(attachment: Attachment, optimizer: Any) -> None:
    """Refuse an optimizer that fails at sparse gradients, which torch says in words of its own and much later.

    Raises:
        TrainingError: if one is given and the memory's table is trained.
    """
    plain = getattr(optimizer, "optimizer", optimizer)  # Accelerate wraps it
    if plain is None or attachment.memory.frozen or isinstance(plain, (MemoryOptimizer, TableOptimizer)):
        return
    raise TrainingError(
        f"a Trainer with {type(plain).__name__} and a table whose gradients are sparse",
        expected="an optimizer that updates the rows that were looked up",
        remedy="Pass Trainer optimizers=(memory_optimizer(model, lr), None), or freeze the memory: attachment.memory.freeze()",
    )


def _checkpoint_of(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"


def _resumed_checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    """The checkpoint that a state came from, which the Trainer does not tell: the one that holds the same state.

    Raises:
        TrainingError: if it is where nobody has said.
    """
    named = [Path(args.resume_from_checkpoint)] if isinstance(args.resume_from_checkpoint, str) else []
    for checkpoint in (*named, _checkpoint_of(args, state)):
        file = checkpoint / TRAINER_STATE_NAME
        if file.is_file() and _facts(TrainerState.load_from_json(file)) == _facts(state):
            return checkpoint
    raise TrainingError(
        f"a run resumed at step {state.global_step} from a checkpoint that is not in {args.output_dir}",
        expected="a checkpoint of the output folder, or the one that TrainingArguments name",
        remedy="Set resume_from_checkpoint of the TrainingArguments to the checkpoint's folder",
    )


def _facts(state: TrainerState) -> str:
    """What a Trainer leaves as it was when it goes on; as text, in which NaN equals itself."""
    return json.dumps([state.global_step, state.epoch, state.total_flos, state.log_history])
