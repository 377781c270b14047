"""The folder of a saved attachment to the values of one that is in a host already, such as after an interruption."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from tokagnostic.errors import HostError
from tokagnostic.host.attachment import Attachment
from tokagnostic.host.loading import memory_file_of, recipe_of
from tokagnostic.host.saving import AttachmentConfig, read_attachment
from tokagnostic.memory.base import NgramMemory
from tokagnostic.memory.file import load_memory
from tokagnostic.memory.same_rows import has_rows_of


def restore_attachment(attachment: Attachment, folder: Path) -> None:
    """Put back what `Attachment.save_pretrained` wrote of this attachment: the reader, and the rows of a trainable memory.

    Parameters keep their identity, so that optimizers and wrappers that know them go on.

    Raises:
        SourceError: if a file is missing or cut short.
        MemoryFileError: if the memory cannot be believed.
        HostError: if what was saved is of other settings, another dtype or another memory; nothing is changed then.
    """
    config, weights = read_attachment(folder)
    _check_reader(attachment, config, weights, folder)
    memory = attachment.memory
    saved = None if memory.frozen else _saved_rows(attachment, config, folder)
    if saved is None and not _is_saved_memory(memory, config, folder):
        raise HostError(
            f"a reader in {folder} of the memory {config.memory}",
            expected="the frozen memory that is attached",
            remedy="Attach the memory that was attached when this was saved",
        )
    with torch.no_grad():
        for name, parameter in attachment.reader.named_parameters():
            parameter.copy_(weights[name])
        if saved is not None:
            for table, rows in zip(memory.store.tensors, saved.store.tensors, strict=True):
                table.copy_(rows)
            memory.visits = saved.visits


def _check_reader(
    attachment: Attachment, config: AttachmentConfig, weights: Mapping[str, Tensor], folder: Path
) -> None:
    """Make sure that a saved reader is one of this attachment.

    Raises:
        HostError: naming the first setting or weight that is another.
    """
    own = AttachmentConfig.of(attachment, config.memory, config.memory_file)
    for name, value in dataclasses.asdict(config).items():
        if value != getattr(own, name):
            raise HostError(
                f"a reader in {folder} with {name} = {value!r}",
                expected=f"{getattr(own, name)!r}, as in the attachment that it is read back into",
                remedy="Attach as it was attached when this was saved",
            )
    for name, parameter in attachment.reader.named_parameters():
        if weights[name].dtype != parameter.dtype:
            raise HostError(
                f"a reader in {folder} with {name} in {weights[name].dtype}",
                expected=f"{parameter.dtype}, as in the attachment that it is read back into",
                remedy="Cast attachment.reader to what it was when this was saved",
            )


def _saved_rows(attachment: Attachment, config: AttachmentConfig, folder: Path) -> NgramMemory:
    """The memory of a saved attachment.

    Raises:
        HostError: if its tables are of other sizes than the attached memory's.
    """
    file, own = memory_file_of(folder, config, fetched=False), attachment.memory.config
    if recipe_of(file, config, folder).config != own:
        raise HostError(
            f"a reader in {folder} of a memory of other sizes than the attached one, of {own}",
            expected="rows of the attached memory",
            remedy="Attach a memory as it was when this was saved",
        )
    return load_memory(file, attachment.hasher.cache, trainable=True, max_order=config.max_order)


def _is_saved_memory(memory: NgramMemory, config: AttachmentConfig, folder: Path) -> bool:
    """Whether a memory is the one that a saved reader was trained with; its file may have been moved since."""
    if memory.origin is not None and memory.is_as_in_file:
        return memory.origin.identity == config.memory
    return has_rows_of(recipe_of(memory_file_of(folder, config, fetched=False), config, folder), memory)
