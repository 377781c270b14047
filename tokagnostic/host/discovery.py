"""A model to the parts that a memory is attached to, found by their shape and not by a table of model families."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tokagnostic.errors import HostError
from tokagnostic.host.caches import CACHE_ARGUMENTS


@dataclass(frozen=True, eq=False)
class HostParts:
    """Where a memory meets its host."""

    decoder: nn.Module
    """The module that takes token ids and runs the decoder layers; the model itself, or a part of it."""
    argument_names: tuple[str, ...]
    """Names of the positional arguments of its forward."""
    layers: nn.ModuleList
    """The decoder layers."""
    width: int
    """D: the width of the hidden states."""
    num_ids: int
    """V: embedding rows, hence ids that the host can be given or produce."""


def find_parts(model: nn.Module) -> HostParts:
    """Find decoder, layers, width and vocabulary of a causal language model.

    The layers are the one `nn.ModuleList` whose length is the config's number of hidden layers; the decoder is the nearest
    module above them that is called with token ids. A text decoder that stands beside an encoder of images is called with
    embeddings, so there it is the module that holds both.

    Raises:
        HostError: if the model is of another make; the message says what was found.
    """
    config: Any = getattr(model, "config", None)
    text_config = config.get_text_config() if hasattr(config, "get_text_config") else config
    num_layers = getattr(text_config, "num_hidden_layers", None)
    if not isinstance(num_layers, int):
        raise HostError(
            f"{type(model).__name__} has no config that says num_hidden_layers",
            expected="a causal language model of transformers",
            remedy="Attach to a model loaded with AutoModelForCausalLM",
        )
    path = _layers_path(model, num_layers)
    layers = model.get_submodule(path)
    decoder, names = _decoder_above(model, path, None if text_config is config else config)
    embedding = _input_embeddings(model)
    if not isinstance(embedding, nn.Embedding):
        raise HostError(
            f"the input embeddings of {type(model).__name__} are {type(embedding).__name__}",
            expected="an nn.Embedding with one row per token id",
            remedy="Attach to a model that looks its ids up in one embedding table",
        )
    width = getattr(text_config, "hidden_size", embedding.embedding_dim)
    return HostParts(decoder, names, layers, width, embedding.num_embeddings)  # type: ignore[arg-type]


def device_of(module: nn.Module) -> torch.device:
    """Where a module computes: where its weights are, or where they are brought to for each call.

    Raises:
        HostError: if its weights have no values and nothing brings any.
    """
    for parameter in module.parameters():
        if not parameter.is_meta:
            return parameter.device
    for part in module.modules():
        # Accelerate leaves this at modules whose weights lie on disk or in another memory.
        device = getattr(getattr(part, "_hf_hook", None), "execution_device", None)
        if device is not None:
            return torch.device(device)
    raise HostError(
        f"{type(module).__name__} is on the meta device, where weights have no values",
        expected="a host whose weights were loaded",
        remedy="Load the host first, then attach the memory",
    )


def _input_embeddings(model: Any) -> object:
    try:
        return model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None


def _layers_path(model: nn.Module, num_layers: int) -> str:
    """The path of the decoder layers.

    Raises:
        HostError: if not exactly one list has this length and stands in no other such list.
    """
    lengths: dict[str, int] = {
        name: len(module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList)
    }
    fitting = [name for name, length in lengths.items() if length == num_layers]
    # Every layer may hold a list of the same length, such as its experts.
    outermost = [name for name in fitting if not any(name.startswith(f"{other}.") for other in fitting)]
    if len(outermost) != 1:
        found = ", ".join(f"{name} ({length})" for name, length in lengths.items()) or "none"
        raise HostError(
            f"{len(outermost)} module lists of {type(model).__name__} have the {num_layers} entries of its hidden layers "
            f"(its lists: {found})",
            expected="exactly one nn.ModuleList of that length",
            remedy="Attach to the decoder that holds the text layers, or to a model of another make",
        )
    layers = list(model.get_submodule(outermost[0]).children())
    if len(layers) != num_layers:
        raise HostError(
            f"the module list {outermost[0]} repeats {len(layers)} layers to make {num_layers}",
            expected="layers that are modules of their own",
            remedy="Attach to a model that does not share its layers",
        )
    return outermost[0]


def _decoder_above(model: nn.Module, path: str, whole: object) -> tuple[nn.Module, tuple[str, ...]]:
    """The nearest module above a path whose forward takes token ids, and the names of its positional arguments.

    Args:
        model: the host.
        path: of its layers.
        whole: the config of text and other things, which the module must have; None if there are no others.
    """
    while path:
        path = path.rpartition(".")[0]
        module = model.get_submodule(path)
        names = _argument_names(module)
        if "input_ids" in names and (whole is None or isinstance(getattr(module, "config", None), type(whole))):
            _require_known_cache(module, names)
            return module, names
    raise HostError(
        f"no module of {type(model).__name__} above its layers takes `input_ids`",
        expected="a decoder that is called with token ids",
        remedy="Attach to a causal language model of transformers",
    )


def _require_known_cache(decoder: nn.Module, names: tuple[str, ...]) -> None:
    """Refuse a decoder that takes what it remembers under a name that nobody looks at: it would forget its n-grams."""
    if "use_cache" in names and not set(CACHE_ARGUMENTS) & set(names):
        past = [name for name in names if name.startswith("past")]
        raise HostError(
            f"{type(decoder).__name__} remembers earlier calls in {', '.join(past) or 'no argument of its own'}",
            expected=f"a decoder that takes what it remembers as {' or '.join(CACHE_ARGUMENTS)}",
            remedy="Attach to a host with a cache of transformers",
        )


def _argument_names(module: Any) -> tuple[str, ...]:
    parameters = inspect.signature(module.forward).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD)
