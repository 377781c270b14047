"""A memory inside a host: switched off, fed with given keys, listed, counted, and taken out again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor, nn

from tokagnostic.errors import HostError, InvalidValueError
from tokagnostic.hashing.polynomial import NO_WINDOW
from tokagnostic.host.counting import LayerReads, ReadCounter
from tokagnostic.host.discovery import HostParts
from tokagnostic.host.history import History, find_cache, history_of
from tokagnostic.host.inputs import CallInputs, read_inputs
from tokagnostic.host.inside import NAME, Inside
from tokagnostic.host.layer import GateForm, MemoryLayer
from tokagnostic.host.reading import Reading, ReadingDecoder, ReadingLayer, change_class
from tokagnostic.memory.base import Hasher, NgramMemory


class Attachment:
    """A memory inside a host; made by `attach`.

    Attributes:
        model: the host.
        memory: what is read.
        hasher: the host's ids to keys.
        reader: one `MemoryLayer` per attached layer, by the layer's index.
        layers: the attached layers, rising.
        boundary_ids: ids at which a document starts.
    """

    def __init__(
        self,
        model: nn.Module,
        parts: HostParts,
        memory: NgramMemory,
        hasher: Hasher,
        reader: nn.ModuleDict,
        layers: tuple[int, ...],
        boundary_ids: tuple[int, ...] = (),
    ) -> None:
        self.model = model
        self.memory = memory
        self.hasher = hasher
        self.reader = reader
        self.layers = layers
        self.boundary_ids = boundary_ids
        self._parts = parts
        self._number = next(_NUMBERS)
        self._num_disabled = 0
        self._reads = [ReadCounter() for _ in layers]
        self._former_hasher, memory.hasher = memory.hasher, hasher
        self._inside = Inside(memory, reader).train(model.training)
        memory.to(next(parts.decoder.parameters()).device)
        self._former_ignored = model.__dict__.get("_keys_to_ignore_on_save")
        model._keys_to_ignore_on_save = {  # type: ignore[assignment]
            *(getattr(model, "_keys_to_ignore_on_save", None) or ()),
            *(f"{NAME}.{key}" for key in self._inside.state_dict()),
        }
        model.add_module(NAME, self._inside)
        self._changes = [change_class(parts.decoder, ReadingDecoder, (self, None))]
        for slot, layer in enumerate(layers):
            self._changes.append(change_class(parts.layers[layer], ReadingLayer, (self, slot)))

    @property
    def attached(self) -> bool:
        """Whether it is still inside the host."""
        return bool(self._changes)

    @property
    def gate(self) -> GateForm:
        """Form of the gate."""
        return self._layer(0).gate

    @property
    def conv_kernel(self) -> int:
        """Taps of the short convolution; 0 for none."""
        conv = self._layer(0).conv
        return 0 if conv is None else len(conv.weight)

    @property
    def off(self) -> bool:
        """Whether the memory is switched off."""
        return self._num_disabled > 0

    def remove(self) -> None:
        """Take everything out of the host, which is then as it was before. May be called again.

        Raises:
            HostError: if the classes of the host's modules were changed after attaching; nothing is touched then.
        """
        if not self.attached:
            return
        for change in self._changes:
            if not change.intact:
                raise HostError(
                    f"{change.before.__name__} has become {type(change.module).__name__} since the memory was attached",
                    expected="a host that was not sharded or rewritten in between",
                    remedy="Undo what was done to the host last, then remove the memory",
                )
        for change in self._changes:
            change.revert()
        self._changes = []
        del self.model._modules[NAME]
        if self._former_ignored is None:
            del self.model._keys_to_ignore_on_save
        else:
            self.model._keys_to_ignore_on_save = self._former_ignored
        if self.memory.hasher is self.hasher:
            self.memory.hasher = self._former_hasher

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Within it the host computes as if no memory were attached. May be nested."""
        self._num_disabled += 1
        try:
            yield
        finally:
            self._num_disabled -= 1

    @contextmanager
    def given_keys(self, keys: Tensor) -> Iterator[None]:
        """Within it the host's calls read these keys and hash nothing, such as a window that knows its true history.

        Padding, where the call has a mask [B, T], reads nothing all the same.

        Args:
            keys: int64 [B, T, N]; -1 for no window. Calls must have B rows of T positions.

        Raises:
            InvalidValueError: for keys of another dtype or number of orders.
        """
        if keys.dtype != torch.int64 or keys.ndim != 3 or keys.shape[-1] != self.memory.max_order:
            raise InvalidValueError(
                f"keys of dtype {keys.dtype} and shape {list(keys.shape)}",
                expected=f"int64 [B, T, {self.memory.max_order}]",
                remedy="Make the keys with attachment.hasher",
            )
        token = _GIVEN_KEYS.set({**_GIVEN_KEYS.get(), self: keys})
        try:
            yield
        finally:
            _GIVEN_KEYS.reset(token)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Reader and table, nothing of the host, each once, under the names they have in the host."""
        return self._inside.named_parameters(prefix=NAME)

    def parameter_groups(self, lr: float, table_lr_factor: float = 5.0) -> list[dict[str, Any]]:
        """Groups of trainable parameters for an optimizer, without empty ones.

        `reader` holds the reader's matrices, `reader_norms` its vectors and `table` the memory's own parameters, the two
        latter without weight decay. The table's gradient is sparse and wants an optimizer that leaves rows alone which
        were not looked up: its group, and no other, has `rowwise` True.

        Args:
            lr: learning rate of the reader.
            table_lr_factor: how much larger the table's is; the paper takes 5 with Adam.

        Raises:
            InvalidValueError: if a rate or factor is not a positive number.
        """
        return self._inside.parameter_groups(lr, table_lr_factor)

    def count_parameters(self) -> tuple[int, int]:
        """Trainable parameters of host, reader and table, and all of them."""
        sizes = [(parameter.numel(), parameter.requires_grad) for parameter in self.model.parameters()]
        return sum(size for size, trainable in sizes if trainable), sum(size for size, _ in sizes)

    def take_reads(self) -> list[LayerReads]:
        """What each layer has read since the last time this was called, for metrics."""
        counters, self._reads = self._reads, [ReadCounter() for _ in self.layers]
        return [counter.summary(layer) for layer, counter in zip(self.layers, counters, strict=True)]

    def begin_reading(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Reading:
        """Look up what the attached layers will read in a call of the decoder, each table once.

        Args:
            args: positional arguments of the call.
            kwargs: its named arguments.

        Raises:
            HostError: for a call that the memory cannot serve; nothing has been computed then.
        """
        arguments = {**dict(zip(self._parts.argument_names, args, strict=False)), **kwargs}
        given = _GIVEN_KEYS.get().get(self)
        ids = arguments.get("input_ids")
        cache = find_cache(arguments)
        history = history_of(cache, self._number, len(ids)) if isinstance(ids, Tensor) else None
        inputs = read_inputs(arguments, boundaries=given is None, history=history)
        later = self._history_of_call(inputs, history)
        keys = self._keys(history, later) if given is None else _padded_keys(given, inputs)
        read: dict[int, Tensor] = {}
        for slot in range(len(self.layers)):
            table = self.memory.table_of(slot)
            if table not in read:
                read[table] = self.memory.features_of(keys, slot)
        features = [read[self.memory.table_of(slot)] for slot in range(len(self.layers))]
        return Reading(self, features, (keys >= 0).any(dim=-1), cache, history, later)

    def add_read(self, reading: Reading, slot: int, hidden: Tensor | None) -> Tensor:
        """The hidden state that enters an attached layer, float [B, T, D], with what was read added.

        Raises:
            HostError: if the layer is given anything but one hidden state per position of the call.
        """
        shape = (*reading.has_window.shape, self._parts.width)
        if not isinstance(hidden, Tensor) or hidden.shape != shape:
            found = f"a hidden state of shape {list(hidden.shape)}" if isinstance(hidden, Tensor) else "no hidden state"
            raise HostError(
                f"layer {self.layers[slot]} is given {found} in a call of {reading.has_window.numel()} positions",
                expected=f"a hidden state of shape {list(shape)}",
                remedy="Attach to a host whose layers take hidden_states [B, T, D] first",
            )
        layer = self._layer(slot)
        around = None if layer.conv is None else reading.surroundings(self.layers[slot], layer.conv.reach)
        read = layer.read(hidden, reading.features[slot], around)
        if read.conv_input is not None:
            reading.conv_inputs[self.layers[slot]] = read.conv_input.detach()
        reading.num_read[slot] += reading.has_window.numel()
        self._reads[slot].add(reading.has_window, read.gate)
        return hidden + read.delta

    def _layer(self, slot: int) -> MemoryLayer:
        return cast(MemoryLayer, self.reader[str(self.layers[slot])])

    def _history_of_call(self, inputs: CallInputs, history: History | None) -> History:
        """The positions of a call, as they will stand in its cache."""
        ids, starts = inputs.masked_ids, inputs.starts
        if starts is None:
            starts = torch.zeros_like(ids, dtype=torch.bool)
            if history is None:
                starts[:, :1] = True
        for boundary_id in self.boundary_ids:
            starts = starts | (ids == boundary_id)
        before = None if history is None or history.waiting is None else history.waiting[:, -1]
        return History(self._number, ids, starts, self.hasher.waiting(ids, starts, before))

    def _keys(self, history: History | None, later: History) -> Tensor:
        """Keys of the windows that end at the call's positions, int64 [B, T, N]."""
        if history is None or history.length == 0:
            return self.hasher(later.input_ids, later.starts)
        ids, starts = history.tail(max(1, self.memory.max_order - 1))
        ids, starts = torch.cat((ids, later.input_ids), dim=1), torch.cat((starts, later.starts), dim=1)
        return self.hasher(ids, starts)[:, -later.length :] if later.length else self.hasher(ids, starts)[:, :0]


def _padded_keys(given: Tensor, inputs: CallInputs) -> Tensor:
    """Given keys, less those at padding."""
    if given.shape[:2] != inputs.input_ids.shape:
        raise HostError(
            f"a call with ids of shape {list(inputs.input_ids.shape)} under keys of shape {list(given.shape)}",
            expected="one row of keys for every id",
            remedy="Give the keys of exactly the ids that the host is called with",
        )
    keys = given.to(inputs.input_ids.device)
    return keys if inputs.real is None else keys.masked_fill(~inputs.real.unsqueeze(-1), NO_WINDOW)


_GIVEN_KEYS: ContextVar[Mapping[Attachment, Tensor]] = ContextVar("tokagnostic_keys", default=MappingProxyType({}))
_NUMBERS = count(1)
"""Numbers of attachments, by which a cache knows whose it is."""
