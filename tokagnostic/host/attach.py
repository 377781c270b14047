"""A model and a memory to a model that reads the memory."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from tokagnostic.errors import HostError, InvalidValueError
from tokagnostic.hashing.cache import HashCache, PrefixPolicy
from tokagnostic.host.attachment import Attachment
from tokagnostic.host.calling import PLACE, ReadingDecoder
from tokagnostic.host.discovery import device_of, find_parts
from tokagnostic.host.inside import NAME
from tokagnostic.host.layer import GateForm, MemoryLayer
from tokagnostic.host.refusals import require_causal_model, require_whole_weights
from tokagnostic.memory.base import NgramMemory

if TYPE_CHECKING:
    from tokagnostic.tokens.encoder import TextEncoder
    from tokagnostic.tokens.token_bytes import TokenBytes

logger = logging.getLogger(__name__)


def attach(
    model: nn.Module,
    tokenizer_or_cache: HashCache | TokenBytes | TextEncoder | Any,
    memory: NgramMemory,
    layers: Sequence[int] = (1,),
    gate: GateForm = "sigmoid",
    conv_kernel: int = 0,
    boundary_ids: Sequence[int] = (),
    *,
    packed: bool = False,
) -> Attachment:
    """Let a causal language model read a memory.

    The read is added to the hidden state that enters each of the layers, before its attention. A fresh attachment changes
    no logits. The memory's hasher is bound to the host's tokenizer, for as many ids as the host has embedding rows.

    Inside the host, as `tokagnostic`, stand the reader (one `MemoryLayer` per layer) and the memory, so that trainers and
    device moves see them; the host's own `save_pretrained` leaves them out. A cast of the host (`model.to(torch.bfloat16)`,
    `model.half()`) moves them but does not round them: a trainable table is fp32, or bf16 on purpose, a frozen one keeps the dtype of its
    file. To cast them on purpose, cast `attachment.reader` or the memory itself.

    LoRA through peft goes below, attached to a model that peft has made, or on top; there peft freezes whatever is not its
    own, so call `attachment.reader.requires_grad_(True)` afterwards. `transformers.Trainer` trains host and reader with its
    own optimizer; a trainable table, whose gradients are sparse, wants `tokagnostic.memory_optimizer(model, lr)`, and is
    trained by several processes only in `tokagnostic pretrain`. Trainer's checkpoints hold the reader with `tokagnostic.AttachmentCallback(attachment)`.

    Args:
        model: a causal language model of transformers.
        tokenizer_or_cache: the host's tokenizer, or what was made of it: an encoder, a byte table or a hash cache.
        memory: what is read.
        layers: decoder layers that read, from 0. A memory with one table per layer gives them out from the lowest layer up,
            and has as many tables as there are layers here.
        gate: form of the gate, see `MemoryLayer`.
        conv_kernel: taps of a short convolution behind the gate, see `ShortConvolution`; 0 for none, the paper takes 4.
        boundary_ids: ids at which a document starts, such as the end-of-text id between packed documents. Position ids
            that restart, document numbers (`seq_idx`, `segment_ids`, `document_ids`, `doc_ids`), cumulative lengths
            (`cu_seq_lens_q`) and square masks are heeded without it.
        packed: rows in training hold several documents: a call that does not tell where they start is refused, as it
            would be if a trainer had dropped the column that tells.

    Raises:
        HostError: if the model's parts cannot be found, it is no causal language model, is quantised, sharded or has a
            memory already, or the tokenizer has more ids than it.
        InvalidValueError: for a model or memory that is none, layers that the model does not have or the memory has no tables for, an
            unknown gate or kernel, or a hash cache of another prefix policy than the memory's.
    """
    for what, given, kind in (("model", model, nn.Module), ("memory", memory, NgramMemory)):
        if not isinstance(given, kind):
            raise InvalidValueError(
                f"a {what} of type {type(given).__name__}",
                expected=f"an object of type {kind.__name__}",
                remedy="Load it first, a memory with load_memory",
            )
    require_whole_weights(model)
    parts = find_parts(model)
    if attachment_of(model) is not None or hasattr(model, NAME):
        raise HostError(
            f"{type(model).__name__} has a memory attached already",
            expected="a host without one",
            remedy="Call remove() of the first attachment, or attach one memory at several layers",
        )
    require_causal_model(model, parts.layers)
    chosen = _checked_layers(layers, len(parts.layers))
    if memory.num_tables not in (1, len(chosen)):
        raise InvalidValueError(
            f"{len(chosen)} layers for a memory of {memory.num_tables} tables",
            expected="one table for all layers, or one for each",
            remedy="Name as many layers as the memory has tables",
        )
    cache = _cache_for(tokenizer_or_cache, parts.num_ids, memory.hasher.cache.policy)
    hasher = memory.config.hasher(cache, memory.max_order)
    boundaries = _checked_ids(boundary_ids, parts.num_ids)
    reader = nn.ModuleDict()
    for layer in chosen:
        reader[str(layer)] = MemoryLayer(
            parts.width, memory.feature_dim, gate, conv_kernel, conv_dilation=memory.max_order
        ).to(device_of(parts.layers[layer]))
    return Attachment(model, parts, memory, hasher, reader, chosen, boundaries, packed)


def attachment_of(model: nn.Module) -> Attachment | None:
    """The attachment of a model, be it wrapped, or None."""
    for module in model.modules():
        if isinstance(module, ReadingDecoder):
            attachment: Attachment = module.__dict__[PLACE][0]
            return attachment
    return None


def _checked_layers(layers: Sequence[int], num_layers: int) -> tuple[int, ...]:
    chosen = tuple(layers) if isinstance(layers, Sequence) else ()
    known = all(type(layer) is int and 0 <= layer < num_layers for layer in chosen)
    if not chosen or not known or len(set(chosen)) != len(chosen):
        raise InvalidValueError(
            f"layers {list(chosen) or layers!r}",
            expected=f"one or more different numbers from 0 to {num_layers - 1}, the decoder layers of the host",
            remedy="Name each layer once, counted from 0",
        )
    return tuple(sorted(chosen))


def _checked_ids(ids: Sequence[int], num_ids: int) -> tuple[int, ...]:
    if not isinstance(ids, Sequence) or not all(type(token_id) is int and 0 <= token_id < num_ids for token_id in ids):
        raise InvalidValueError(
            f"boundary_ids {ids!r}",
            expected=f"a list of ids from 0 to {num_ids - 1}",
            remedy="Name ids of the host's tokenizer",
        )
    return tuple(ids)


def _cache_for(tokenizer_or_cache: Any, num_ids: int, prefix: PrefixPolicy) -> HashCache:
    """The hash cache of a host's tokenizer under the memory's policy, with one entry per embedding row."""
    cache = HashCache.of(tokenizer_or_cache, prefix)
    if cache.num_ids > num_ids:
        raise HostError(
            f"a tokenizer of {cache.num_ids} ids for a host of {num_ids} embedding rows",
            expected="at least as many rows as ids",
            remedy="Use the tokenizer that belongs to the host, or resize the host's embeddings",
        )
    if cache.num_ids < num_ids:
        logger.warning(
            "%d of the host's %d embedding rows belong to no token; these ids are without bytes.",
            num_ids - cache.num_ids,
            num_ids,
        )
    return cache.padded(num_ids)
