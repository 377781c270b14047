"""What the processes of one run must agree on, and what they tell each other beside gradients."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor

from tokagnostic.errors import TokagnosticError, TrainingError

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


def require_same_everywhere(accelerator: Accelerator, facts: Mapping[str, Any]) -> None:
    """Make sure that all processes do the same run: on several machines each reads files of its own.

    Args:
        accelerator: knows the other processes, all of which must call this.
        facts: what must be equal, by name; JSON values.

    Raises:
        TrainingError: in every process, naming the first process that differs, and in what.
    """
    digests = [hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest() for value in facts.values()]
    own = torch.tensor([list(digest) for digest in digests], dtype=torch.uint8, device=accelerator.device)
    every = accelerator.gather(own.unsqueeze(0))  # [W, facts, 32]
    differs = (every != every[0]).any(dim=2)
    if bool(differs.any()):
        rank, fact = differs.nonzero()[0].tolist()
        raise TrainingError(
            f"process {rank} has another {list(facts)[fact]} than process 0",
            expected="the same run in all processes",
            remedy="Start every process with the same command, and every machine with the same files",
        )


def require_text_for_all(num_processes: int, num_tokens: int, block_length: int) -> None:
    """Make sure that no process can only repeat what another reads, where it is known what there is: not of a text that streams.

    Raises:
        TrainingError: if the text has fewer blocks than there are processes.
    """
    num_blocks = num_tokens // block_length
    if num_tokens and num_processes > max(1, num_blocks):
        raise TrainingError(
            f"{num_processes} processes for a text of {num_blocks} blocks of {block_length} tokens",
            expected="at least one block for each process",
            remedy="Start fewer processes, give more text, or set a shorter block_length",
        )


def sums(accelerator: Accelerator, *numbers: float) -> list[float]:
    """Each number added up over all processes, in float64; all of them must call this."""
    own = torch.tensor(numbers, dtype=torch.float64, device=accelerator.device)
    total: list[float] = accelerator.reduce(own, "sum").tolist()
    return total


def every_generator(accelerator: Accelerator) -> dict[str, Tensor]:
    """The states of the global generators of all processes, uint8 [...] each, as `take_generator` takes them."""
    device = accelerator.device
    states = {"generator": torch.get_rng_state()}
    if device.type == "cuda":
        states["generator.cuda"] = torch.cuda.get_rng_state(device)
    return {
        f"{name}.{rank}": gathered
        for name, state in states.items()
        for rank, gathered in enumerate(accelerator.gather(state.unsqueeze(0).to(device)).cpu())
    }


def take_generator(accelerator: Accelerator, tensors: Mapping[str, Tensor]) -> None:
    """Let this process draw on where the one of its rank was; one that there was not draws from its own beginning.

    Args:
        accelerator: knows the rank and the device.
        tensors: what `every_generator` gave, among others.
    """
    rank, device = accelerator.process_index, accelerator.device
    num_saved = sum(name.startswith("generator.") and "cuda" not in name for name in tensors)
    if num_saved != accelerator.num_processes and accelerator.is_main_process:
        logger.warning(
            "a run of %d processes goes on in %d: text and order are kept, the draws of dropout are not",
            num_saved,
            accelerator.num_processes,
        )
    if f"generator.{rank}" in tensors:
        torch.set_rng_state(tensors[f"generator.{rank}"])
    if device.type == "cuda" and f"generator.cuda.{rank}" in tensors:
        torch.cuda.set_rng_state(tensors[f"generator.cuda.{rank}"], device)


def ending_processes(run: Callable[[], Result]) -> Result:
    """Do the last thing that a program does with other processes, if there are any, and take leave of them.

    Threads that exchange numbers and are still there when an interpreter ends may abort it. They end with the last that
    holds their group: after an error these are the frames that it came through, which are let go of.
    """
    try:
        return run()
    except TokagnosticError as error:
        error.__context__ = None
        raise error.with_traceback(None) from None
    finally:
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
            gc.collect()
