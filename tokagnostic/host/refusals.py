"""A host, or the training around it, to the reason why a memory cannot be exact there, if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tokagnostic.errors import HostError
from tokagnostic.memory.base import NgramMemory


def require_whole_weights(model: nn.Module) -> None:
    """Refuse a host whose parameters are not its weights, each whole and a number apiece.

    Raises:
        HostError: naming the first part that is quantised or sharded; nothing was touched.
    """
    for found in _quantised_parts(model):
        raise HostError(
            f"{type(model).__name__} is quantised: {found}",
            expected="a host in float32, bfloat16 or float16, as which it is read and trained",
            remedy="Load the host without a quantization_config, then attach the memory",
        )
    for found in _sharded_parts(model):
        raise HostError(
            f"{type(model).__name__} is sharded: {found}",
            expected="a host whose every weight is whole in this process",
            remedy="Load the host whole and attach the memory; in several processes train by DistributedDataParallel",
        )


def require_causal_model(model: nn.Module, layers: nn.ModuleList) -> None:
    """Refuse a model of transformers that does not predict each next token from those before it.

    Raises:
        HostError: saying which; nothing was touched.
    """
    generates = getattr(model, "can_generate", None)
    if generates is not None and not generates():
        raise HostError(
            f"{type(model).__name__} predicts no next token: transformers cannot generate with it",
            expected="a causal language model with its head",
            remedy="Load it with AutoModelForCausalLM and attach to the whole model, not to its decoder",
        )
    causal = {bool(part.is_causal) for part in layers.modules() if isinstance(getattr(part, "is_causal", None), bool)}
    if causal == {False}:
        raise HostError(
            f"{type(model).__name__} looks at tokens to come: no attention of its layers is causal",
            expected="a causal language model, whose every position sees those before it alone",
            remedy="Set is_decoder=True in its config if it was trained so, or attach to a causal model",
        )


def require_still_whole(model: nn.Module) -> None:
    """Refuse a call of a host that was sharded after the memory was attached, in any way but by `fully_shard`.

    That one makes weights whole where they compute; of the tables `require_unsharded_tables` takes care.

    Raises:
        HostError: naming the first part; nothing has been computed then.
    """
    if any(_is_fully_sharded(module) for module in model.modules()):
        return
    for found in _sharded_parts(model):
        raise HostError(
            f"{type(model).__name__} was sharded after the memory was attached: {found}",
            expected="a host whose every weight is whole in this process",
            remedy="Load the host whole, attach the memory, and train by DistributedDataParallel",
        )


def require_dense_exchange(model: nn.Module, memory: NgramMemory) -> None:
    """Refuse a call in data-parallel training that would have to exchange a table's sparse gradient.

    Args:
        model: the host.
        memory: what it reads.

    Raises:
        HostError: if a trainable table is among what is exchanged; nothing has been computed then.
    """
    wrapper = data_parallel_wrapper()
    if wrapper is None or memory.frozen:
        return
    tables = {id(parameter) for parameter in memory.parameters() if parameter.requires_grad}
    exchanged = {
        id(parameter)
        for name, parameter in wrapper.module.named_parameters()
        if name not in wrapper.parameters_to_ignore
    }
    if tables & exchanged:
        raise HostError(
            f"a trainable table under {type(wrapper).__name__}, in {type(model).__name__}",
            expected="dense gradients, which alone it exchanges between processes",
            remedy="Call memory.freeze() before the host is wrapped, or train the table by tokagnostic pretrain",
        )


def require_unsharded_tables(model: nn.Module, memory: NgramMemory) -> None:
    """Refuse a call of a host that `fully_shard` has sharded together with the memory's tables.

    Each call would then gather the tables, however large, for the few rows that it looks up, and backward would fail at
    the sparse gradient of one that is trained.

    Args:
        model: the host.
        memory: what it reads.

    Raises:
        HostError: naming the setting that leaves tables out; nothing has been looked up then.
    """
    if not _is_fully_sharded(model):
        return
    for module in model.modules():
        state_of: Any = getattr(module, "_get_fsdp_state", None)
        # Within a call the parameters look as if they had never been sharded; only this tells.
        groups = [] if state_of is None else state_of()._fsdp_param_groups
        if any(shard._module_info.module is memory.store.tables for group in groups for shard in group.fsdp_params):
            raise HostError(
                f"a memory's table that fully_shard has sharded with {type(model).__name__}",
                expected="a table that is left out of the shards, whole in each process",
                remedy="Call fully_shard with ignored_params=set(attachment.memory.parameters())",
            )


def _is_fully_sharded(module: nn.Module) -> bool:
    """Whether `fully_shard` was called on a module; told by a name, for importing it takes what few hosts need."""
    return any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__)


def data_parallel_wrapper() -> Any:
    """The DistributedDataParallel whose call is being differentiated, or None."""
    # Nothing public tells a module what it is wrapped in; compilers rely on this attribute.
    return DistributedDataParallel._active_ddp_module if torch.is_grad_enabled() else None


def _quantised_parts(model: nn.Module) -> Iterator[str]:
    for name, module in model.named_modules():
        quantizer = vars(module).get("hf_quantizer")
        if quantizer is not None:
            method = getattr(getattr(quantizer, "quantization_config", None), "quant_method", type(quantizer).__name__)
            yield f"{type(module).__name__} was quantised by {getattr(method, 'value', method)}"
        if "quantized" in type(module).__module__.split("."):
            yield f"{name} of {type(module).__module__}"
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            yield f"{name} of {parameter.dtype}"


def _sharded_parts(model: nn.Module) -> Iterator[str]:
    kinds: dict[type, str] = {}
    managed = ""
    for path, module in model.named_modules():
        kinds.setdefault(type(module), path or "all of it")
        if "_is_fsdp_managed_module" in vars(module):  # left by FullyShardedDataParallel at all that stands in it
            managed = managed or path or "all of it"
        for name, parameter in module._parameters.items():
            if type(parameter) is not nn.Parameter and hasattr(parameter, "device_mesh"):
                yield f"{path}.{name} is a {type(parameter).__name__}"
            if hasattr(parameter, "ds_id"):
                yield f"{path}.{name} is a placeholder of DeepSpeed's ZeRO-3"
    for kind, path in kinds.items():
        # By name, for they load much that nobody needs who does not shard.
        for base in kind.__mro__:
            if base.__name__ in ("FullyShardedDataParallel", "FSDPModule"):
                yield f"{path} is a {base.__name__}"
    if managed:
        yield f"{managed} stands in a FullyShardedDataParallel"
