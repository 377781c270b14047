"""A run's state to a folder that is either complete or absent, and back: safetensors and JSON, nothing that executes."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tokagnostic.errors import TrainingError

logger = logging.getLogger(__name__)

NUM_KEPT = 2
"""Checkpoints that stay if nothing else is asked for: the newest, and the one before it in case the newest is damaged."""
FILE_ERRORS = (OSError, SafetensorError)
"""What a disk raises, or the library that reads and writes its files."""
STATE_FILE = "state.safetensors"
FACTS_FILE = "facts.json"

_FINAL_NAME = re.compile(r"step-(\d{8,})")
_PARTIAL_NAME = ".partial-"


@dataclass(frozen=True)
class Checkpoint:
    """A complete state of a run after some updates."""

    step: int
    """Updates done."""
    tensors: dict[str, Tensor]
    """Parameters, buffers, optimizer states, visits, generator state, by name."""
    facts: dict[str, Any]
    """What must agree for the run to go on: JSON values."""


def save_checkpoint(folder: Path, checkpoint: Checkpoint, num_kept: int = NUM_KEPT) -> Path:
    """Write a checkpoint under its final name in one rename, then remove the oldest and what a killed run left.

    Args:
        folder: where the run's checkpoints lie.
        checkpoint: what to write.
        num_kept: checkpoints that stay, the newest and those before it, 1 or more.

    Raises:
        TrainingError: if it cannot be written; nothing is left under the final name.
    """
    final = checkpoint_folder(folder, checkpoint.step)
    partial = folder / f"{_PARTIAL_NAME}{checkpoint.step:08d}"
    with disk_errors(f"checkpoint {final}", "the earlier checkpoints are intact"):
        _remove_partial(folder)
        try:
            partial.mkdir(parents=True)
            state = partial / STATE_FILE
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}, state)
            facts = {"step": checkpoint.step, "digest": _digest(state), "facts": checkpoint.facts}
            (partial / FACTS_FILE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
            for written in partial.iterdir():
                _flush_to_disk(written)
            if final.exists():
                shutil.rmtree(final)
            partial.rename(final)
            _flush_to_disk(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        for old in checkpoints_in(folder)[:-num_kept]:
            shutil.rmtree(old)
    return final


def checkpoint_folder(folder: Path, step: int) -> Path:
    """The final name of a checkpoint, be there one or not."""
    return folder / f"step-{step:08d}"


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that can be read, or None where there is none. Damaged ones are named in the log.

    Raises:
        TrainingError: if there are checkpoints and none of them can be read.
    """
    damage = ""
    for path in reversed(checkpoints_in(folder)):
        try:
            return _read(path)
        except (*FILE_ERRORS, ValueError, KeyError, TypeError) as error:
            damage = damage or f"{path} ({error})"
            logger.warning("checkpoint %s cannot be read (%s): taking the one before it", path, error)
    if damage:
        raise TrainingError(
            f"no checkpoint in {folder} can be read; the newest is {damage}",
            expected="an undamaged checkpoint",
            remedy="Start the run anew in another output folder",
        )
    return None


def checkpoints_in(folder: Path) -> list[Path]:
    """Checkpoints under their final names, oldest first."""
    found = {path: _FINAL_NAME.fullmatch(path.name) for path in folder.glob("step-*") if path.is_dir()}
    return sorted((path for path, match in found.items() if match), key=lambda path: int(path.name.split("-")[1]))


@contextmanager
def disk_errors(what: str, consequence: str) -> Iterator[None]:
    """Within it a disk that refuses a write ends in one line.

    Args:
        what: what is being written.
        consequence: what the reader can rely on all the same.

    Raises:
        TrainingError: in place of the disk's own error.
    """
    try:
        yield
    except FILE_ERRORS as error:
        raise TrainingError(
            f"{what} could not be written ({' '.join(str(error).split())})",
            expected="a folder on a disk with room for it",
            remedy=f"Make room and add --resume, or name another output folder; {consequence}",
        ) from error


def _read(path: Path) -> Checkpoint:
    facts = json.loads((path / FACTS_FILE).read_text(encoding="utf-8"))
    step, expected = int(facts["step"]), facts["digest"]
    if _digest(path / STATE_FILE) != expected:
        raise ValueError(f"{STATE_FILE} has another digest than {FACTS_FILE} says")
    return Checkpoint(step, load_file(path / STATE_FILE), dict(facts["facts"]))


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove_partial(folder: Path) -> None:
    for left in folder.glob(f"{_PARTIAL_NAME}*"):
        shutil.rmtree(left)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
