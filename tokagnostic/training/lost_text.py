"""A text that cannot be read further to a saved run, and to one line that says how it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokagnostic.errors import SourceError, TrainingError, WorkerError
from tokagnostic.training.checkpoint import checkpoint_folder, save_checkpoint
from tokagnostic.training.state import RunState


@contextmanager
def saving_before_text_is_lost(
    state: RunState, folder: Path, step: int, num_kept: int, num_processes: int
) -> Iterator[None]:
    """Within it, where the text of an update is read, a source that fails costs no update that was done.

    The processes of a run save together, and the others do not know that one of them cannot go on: only a run of one
    process is saved then.

    Args:
        state: of the run.
        folder: where its checkpoints lie.
        step: updates done.
        num_kept: checkpoints that stay.
        num_processes: of the run.

    Raises:
        SourceError: as it came, with how to go on in its remedy.
        WorkerError: likewise, for a process that encodes.
    """
    try:
        yield
    except (SourceError, WorkerError) as error:
        is_saved = num_processes == 1 and _save(state, folder, step, num_kept)
        what = f"step {step:,}, which is saved" if is_saved else "the newest checkpoint"
        remedy = f"{error.remedy}; the same command with --resume goes on from {what} in {folder}"
        raise type(error)(error.given, expected=error.expected, remedy=remedy) from error


def _save(state: RunState, folder: Path, step: int, num_kept: int) -> bool:
    """Save unless there is such a checkpoint; False if it is not known any more where in the text that was, which is so where
    a batch takes more than a shuffle buffer holds.
    """
    if checkpoint_folder(folder, step).exists():
        return True
    state.refuse_broken(step)
    try:
        checkpoint = state.checkpoint(step)
    except (SourceError, WorkerError, TrainingError):
        return False
    save_checkpoint(folder, checkpoint, num_kept)
    return True
