"""A run's state to a folder that is either complete or absent, and back: safetensors and JSON, nothing that executes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tokagnostic.errors import TrainingError

NUM_KEPT = 2
"""Checkpoints that stay: the newest, and the one before it in case the newest is damaged."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete state of a run after some updates."""

    step: int
    """Updates done."""
    tensors: dict[str, Tensor]
    """Parameters, buffers, optimizer states, visits, generator state, by name."""
    facts: dict[str, Any]
    """What must agree for the run to go on: JSON values."""


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint under its final name in one rename, then remove the oldest.

    Args:
        folder: where the run's checkpoints lie.
        checkpoint: what to write.

    Raises:
        TrainingError: if it cannot be written; nothing is left under the final name.
    """
    final = folder / f"step-{checkpoint.step:08d}"
    partial = folder / f".partial-{checkpoint.step:08d}-{os.getpid()}"
    try:
        partial.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
        save_file(tensors, partial / "state.safetensors")
        with open(partial / "facts.json", "w", encoding="utf-8") as file:
            json.dump({"step": checkpoint.step, "facts": checkpoint.facts}, file, indent=1)
        for written in partial.iterdir():
            _flush_to_disk(written)
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)
        _flush_to_disk(folder)
    except (OSError, SafetensorError) as error:
        raise TrainingError(
            f"checkpoint {final} could not be written ({error})",
            expected="a folder on a disk with room for it",
            remedy="Make room, or name another output folder; the earlier checkpoints are intact",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    for old in _complete(folder)[:-NUM_KEPT]:
        shutil.rmtree(old)
    return final


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that can be read, or None where there is none.

    Raises:
        TrainingError: if there are checkpoints and none of them can be read.
    """
    damage = ""
    for path in reversed(_complete(folder)):
        try:
            facts = json.loads((path / "facts.json").read_text(encoding="utf-8"))
            return Checkpoint(facts["step"], load_file(path / "state.safetensors"), facts["facts"])
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            damage = damage or f"{path} ({error})"
    if damage:
        raise TrainingError(
            f"no checkpoint in {folder} can be read; the newest is {damage}",
            expected="an undamaged checkpoint",
            remedy="Start the run anew in another output folder",
        )
    return None


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """A module's parameters and persistent buffers, each storage once, under `model.<name>`."""
    persistent = module.state_dict(keep_vars=True).keys()
    named = dict(module.named_parameters()) | {
        name: buffer for name, buffer in module.named_buffers() if name in persistent
    }
    return {f"model.{name}": tensor for name, tensor in named.items()}


def restore_module(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy what `module_tensors` saved back into the module, in place.

    Raises:
        TrainingError: if a name is missing or a shape differs.
    """
    with torch.no_grad():
        for name, tensor in module_tensors(module).items():
            tensor.copy_(_matching(tensors, name, tensor.shape))


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
    """An optimizer's state under `optimizer.<parameter name>.<state name>`, so that it is found by name again."""
    return {
        f"optimizer.{names[parameter]}.{key}": torch.as_tensor(value)
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str], tensors: Mapping[str, Tensor]
) -> None:
    """Give each parameter the state that was saved under its name; one without saved state starts fresh."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            prefix = f"optimizer.{names[parameter]}."
            saved = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            if saved:
                # A step counter stays where the optimizer made it; moments lie beside their parameter.
                optimizer.state[parameter] = {
                    key: value.clone() if value.ndim == 0 else value.to(parameter.device)
                    for key, value in saved.items()
                }


def _matching(tensors: Mapping[str, Tensor], name: str, shape: torch.Size) -> Tensor:
    found = tensors.get(name)
    if found is None or found.shape != shape:
        raise TrainingError(
            f"the checkpoint has {name} of shape {None if found is None else tuple(found.shape)}",
            expected=f"shape {tuple(shape)}",
            remedy="Resume with the config that the run was started with",
        )
    return found


def _complete(folder: Path) -> list[Path]:
    """Checkpoints under their final names, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir())


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
