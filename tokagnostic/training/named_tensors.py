"""A model's and its optimizers' tensors by name, and back: whatever of them is trained or frozen at either time."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from tokagnostic.errors import TrainingError

MODEL = "model."
FROZEN = "frozen."
OPTIMIZER = "optimizer."
NUM_SAMPLED = 64
"""Numbers by which a frozen parameter is known again: a table may be larger than the memory."""


def module_tensors(module: nn.Module, also: Collection[str] = ()) -> dict[str, Tensor]:
    """A module's trainable parameters and persistent buffers, each storage once, under `model.<name>`.

    Args:
        module: the host.
        also: names of parameters that are wanted though they are frozen.
    """
    persistent = module.state_dict(keep_vars=True).keys()
    named: dict[str, Tensor] = {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.requires_grad or f"{MODEL}{name}" in also
    }
    named |= {name: buffer for name, buffer in module.named_buffers() if name in persistent}
    return {f"{MODEL}{name}": tensor for name, tensor in named.items()}


def restore_module(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy what `module_tensors` gave back into the module, in place, into frozen parameters too.

    A parameter that is not among it was frozen, and is compared with what `frozen_samples` gave.

    Raises:
        TrainingError: if a name is missing, there or here, a shape or a dtype differs, or a frozen parameter has changed.
    """
    wanted = module_tensors(module, tensors)
    for name, sample in frozen_samples(module, tensors).items():
        trained = MODEL + name.removeprefix(FROZEN)
        if name in tensors or trained not in wanted:
            _require_same(name, matching(tensors, name, sample), sample)
            wanted.pop(trained, None)
    unknown = sorted(name for name in tensors if name.startswith(MODEL) and name not in wanted)
    if unknown:
        raise TrainingError(
            f"the checkpoint has {unknown[0]}, which the run lacks",
            expected="a host and a memory with all parts that were trained",
            remedy="Resume with the parts that the run was started with",
        )
    found = {name: matching(tensors, name, tensor) for name, tensor in wanted.items()}
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(found[name])


def frozen_samples(module: nn.Module, trained: Collection[str]) -> dict[str, Tensor]:
    """Some numbers of each parameter that is not among the trained, evenly spread over it, under `frozen.<name>`.

    Args:
        module: the host.
        trained: names as `module_tensors` gives them.
    """
    return {
        f"{FROZEN}{name}": _sample(parameter.detach())
        for name, parameter in module.named_parameters()
        if f"{MODEL}{name}" not in trained
    }


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
    """An optimizer's state under `optimizer.<parameter name>.<state name>`, so that it is found by name again."""
    return {
        f"{OPTIMIZER}{names[parameter]}.{key}": torch.as_tensor(value)
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str], tensors: Mapping[str, Tensor]
) -> set[str]:
    """Give each parameter the state that was saved under its name; one that had none, for it never had a gradient,
    starts fresh.

    Returns:
        The names of what was taken.
    """
    taken: set[str] = set()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            prefix = f"{OPTIMIZER}{names[parameter]}."
            saved = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            if saved:
                # A step counter stays where the optimizer made it; moments lie beside their parameter.
                optimizer.state[parameter] = {
                    key: value.clone() if value.ndim == 0 else value.to(parameter.device, copy=True)
                    for key, value in saved.items()
                }
                taken |= {prefix + key for key in saved}
    return taken


def matching(tensors: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    """What was saved under a name, which has to be of the same shape and dtype as what it replaces.

    Raises:
        TrainingError: if it is missing or is not.
    """
    found = tensors.get(name)
    if found is None or (found.shape, found.dtype) != (like.shape, like.dtype):
        raise TrainingError(
            f"the checkpoint has {name} of shape {None if found is None else f'{tuple(found.shape)} in {found.dtype}'}",
            expected=f"shape {tuple(like.shape)} in {like.dtype}",
            remedy="Resume with the settings that the run was started with",
        )
    return found


def _require_same(name: str, saved: Tensor, given: Tensor) -> None:
    # By their bytes: NaN equals itself.
    if not torch.equal(_bytes(saved), _bytes(given)):
        raise TrainingError(
            f"{name.removeprefix(FROZEN)} was frozen and has other values than the run was started with",
            expected="the host and the memory that the run was started with",
            remedy="Give these again, or start another run in another folder",
        )


def _sample(parameter: Tensor) -> Tensor:
    flat = parameter.flatten()
    places = torch.linspace(0, max(0, len(flat) - 1), min(NUM_SAMPLED, len(flat)), dtype=torch.float64).long()
    return flat[places.to(flat.device)].cpu()


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)
