"""A memory inside a host: switched off, fed with given keys, listed, counted, and taken out again."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from uuid import uuid4

import torch
from torch import Tensor, nn

from tokagnostic.errors import HostError, InvalidValueError
from tokagnostic.host.calling import ReadingDecoder, ReadingLayer, change_class
from tokagnostic.host.counting import LayerReads, ReadCounter
from tokagnostic.host.discovery import HostParts, device_of
from tokagnostic.host.hub import push_folder
from tokagnostic.host.inside import NAME, Inside
from tokagnostic.host.layer import GateForm, MemoryLayer
from tokagnostic.host.lookup import GIVEN_KEYS
from tokagnostic.host.outside import AttachedHost
from tokagnostic.host.saving import FILES, write_attachment
from tokagnostic.host.switching import is_off, switched_off
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
        packed: whether a call in training must tell where documents start; may be set.
        number: tells attachments of all processes apart, in caches above all; copies keep it.
        argument_names: of the decoder's positional arguments.
        decoder_class: name of the decoder's class.
        reads: counters of what each attached layer has read; `take_reads` tells and resets them.
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
        packed: bool = False,
    ) -> None:
        self.model = model
        self.memory = memory
        self.hasher = hasher
        self.reader = reader
        self.layers = layers
        self.boundary_ids = boundary_ids
        self.argument_names = parts.argument_names
        self.decoder_class = type(parts.decoder).__name__
        self.packed = packed
        self.number = uuid4().int
        self.reads = [ReadCounter() for _ in layers]
        self._former_hasher, memory.hasher = memory.hasher, hasher
        self._inside = Inside(memory, reader).train(model.training)
        memory.to(device_of(parts.decoder))
        self._former_ignored = model.__dict__.get("_keys_to_ignore_on_save")
        model._keys_to_ignore_on_save = {  # type: ignore[assignment]
            *(getattr(model, "_keys_to_ignore_on_save", None) or ()),
            *(f"{NAME}.{key}" for key in self._inside.state_dict()),
        }
        model.add_module(NAME, self._inside)
        self._changes = [change_class(parts.decoder, ReadingDecoder, (self, None))]
        for slot, layer in enumerate(layers):
            self._changes.append(change_class(parts.layers[layer], ReadingLayer, (self, slot)))
        if model is not parts.decoder:
            self._changes.append(change_class(model, AttachedHost, (self, None)))

    @property
    def attached(self) -> bool:
        """Whether it is still inside the host."""
        return bool(self._changes)

    @property
    def gate(self) -> GateForm:
        """Form of the gate."""
        return self.layer(0).gate

    @property
    def conv_kernel(self) -> int:
        """Taps of the short convolution; 0 for none."""
        conv = self.layer(0).conv
        return 0 if conv is None else len(conv.weight)

    @property
    def off(self) -> bool:
        """Whether the memory is switched off in this thread or task."""
        return is_off(self)

    def by_name(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call of the host's decoder, by name."""
        return {**dict(zip(self.argument_names, args, strict=False)), **kwargs}

    @property
    def needs_boundaries(self) -> bool:
        """Whether a call must tell where documents start: in training on packed rows that no id divides."""
        return self.packed and self._inside.training and not self.boundary_ids

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

    def disabled(self) -> AbstractContextManager[None]:
        """Within it the host computes as if no memory were attached. May be nested.

        That holds for calls of this thread or asynchronous task; a thread that is started within it begins with the memory
        on, unless it is run in a copy of the context (`contextvars.copy_context().run`). It ends when the block is left.
        What a checkpoint around the host computes again in backward is off only if backward stands within it too.
        """
        return switched_off(self)

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
        token = GIVEN_KEYS.set({**GIVEN_KEYS.get(), self: keys})
        try:
            yield
        finally:
            GIVEN_KEYS.reset(token)

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

    def print_trainable_parameters(self) -> None:
        """Write one line on stdout: parameters that are trained, all of them, and the share in percent."""
        trainable, total = self.count_parameters()
        share = 100 * trainable / total
        sys.stdout.write(f"trainable params: {trainable:,} || all params: {total:,} || trainable%: {share:.4f}\n")

    def save_pretrained(
        self, folder: str | Path, memory_file: str | Path | None = None, *, copy_memory: bool = True
    ) -> None:
        """Write a folder from which `load_attachment` makes the same attachment again, bit for bit.

        It holds the reader's weights, the settings they belong to, a model card, and the memory: the file that it was
        loaded from, or else its rows, saved anew. The host is not in it. What is written does not depend on wrappers
        around the host, such as a compiled one, data-parallel training or LoRA.

        Args:
            folder: made if it is not there; files of an earlier save are replaced, each whole or not at all.
            memory_file: a file that the memory was saved to, if it shall be that one.
            copy_memory: False to leave the memory where it is, and to remember the path and the identity.

        Raises:
            InvalidValueError: if the file holds other rows, or there is none to be left where it is.
            MemoryFileError: if the file cannot be believed or written.
            HostError: if the reader's weights are not those that were attached, for something has wrapped them.
            SourceError: if the folder cannot be written.
        """
        write_attachment(self, folder, memory_file, copy_memory=copy_memory)

    def push_to_hub(self, name: str, memory_file: str | Path | None = None, *, private: bool = False) -> str:
        """Upload what `save_pretrained` writes, the memory with it; `load_attachment` takes the name.

        Args:
            name: of the repository, OWNER/NAME; made if it is not there.
            memory_file: as `save_pretrained` takes it.
            private: whether a repository that has to be made is seen by its owner alone.

        Returns:
            The address of what was uploaded.

        Raises:
            SourceError: if the hub cannot be reached or does not let you write there; besides, as `save_pretrained`.
        """
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder, memory_file)
            return push_folder(Path(folder), name, FILES, private=private)

    def take_reads(self) -> list[LayerReads]:
        """What each layer has read since the last time this was called, for metrics."""
        counters, self.reads = self.reads, [ReadCounter() for _ in self.layers]
        return [counter.summary(layer) for layer, counter in zip(self.layers, counters, strict=True)]

    def layer(self, slot: int) -> MemoryLayer:
        """The reader of one of the attached layers, counted from 0."""
        return cast(MemoryLayer, self.reader[str(self.layers[slot])])
