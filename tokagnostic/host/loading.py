"""The folder or hub name of a saved attachment to the same attachment in a host."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from torch import nn

from tokagnostic.errors import HostError, SourceError
from tokagnostic.hashing.cache import HashCache
from tokagnostic.host.attach import attach
from tokagnostic.host.attachment import Attachment
from tokagnostic.host.discovery import find_parts
from tokagnostic.host.hub import fetch_folder, is_hub_name
from tokagnostic.host.saving import FILES, AttachmentConfig, read_attachment
from tokagnostic.memory.file import load_memory, read_recipe
from tokagnostic.memory.recipe import MemoryRecipe

logger = logging.getLogger(__name__)


def load_attachment(
    model: nn.Module,
    tokenizer_or_cache: Any,
    source: str | Path,
    memory_file: str | Path | None = None,
    revision: str | None = None,
    *,
    verify: bool | None = None,
) -> Attachment:
    """Attach what `Attachment.save_pretrained` wrote or `push_to_hub` uploaded, the memory frozen and mapped.

    A reader with a weight too few, too many, of another shape, or of other values than those that were saved is refused,
    and so is a memory of another identity. Rows that were damaged since are found with `verify`, which reads them all. A
    refused attachment leaves the host as it was.

    Args:
        model: a host of the same width, without a memory.
        tokenizer_or_cache: the host's tokenizer, as `attach` takes it.
        source: the folder of a saved attachment, or its name on the hub, OWNER/NAME.
        memory_file: where the memory is, if not where the saved attachment says.
        revision: of a hub name: a branch, tag or commit.
        verify: compare the memory's rows with their digest, as `load_memory` takes it.

    Raises:
        SourceError: if a file is missing, cut short, or cannot be read or fetched.
        MemoryFileError: if the memory cannot be believed.
        HostError: if memory or reader are not those that were saved, or the host has no place for them.
    """
    folder, fetched = Path(source), False
    if not folder.is_dir() and isinstance(source, str) and is_hub_name(source):
        folder, fetched = fetch_folder(source, FILES, revision), True
    config, weights = read_attachment(folder)
    _check_host(model, config, folder)
    file = memory_file_of(folder, config, fetched=fetched) if memory_file is None else Path(memory_file)
    recipe = recipe_of(file, config, folder)
    cache = HashCache.of(tokenizer_or_cache, recipe.prefix)
    memory = load_memory(file, cache, max_order=config.max_order, verify=verify)
    if memory.feature_dim != config.feature_dim:
        raise HostError(
            f"attachment {folder} with a reader of {config.feature_dim} features",
            expected=f"the {memory.feature_dim} that its memory gives for windows of up to {config.max_order} tokens",
            remedy="Save the attachment again",
        )
    gate: Any = config.gate
    attachment = attach(
        model, cache, memory, config.layers, gate, config.conv_kernel, config.boundary_ids, packed=config.packed
    )
    for name, parameter in attachment.reader.named_parameters():
        # A reader that was saved in half precision goes on in it: its outputs are those that it had.
        parameter.data = weights[name].to(parameter.device)
    return attachment


def recipe_of(file: Path, config: AttachmentConfig, folder: Path) -> MemoryRecipe:
    """What the memory file of a saved attachment says of itself.

    Raises:
        HostError: if it is another memory than the reader's.
    """
    recipe = read_recipe(file)
    if recipe.identity != config.memory:
        raise HostError(
            f"attachment {folder} with the memory {recipe.identity}",
            expected=f"the memory {config.memory}, which its reader was trained with",
            remedy="Put the memory file back that was saved with this reader, or name it with memory_file",
        )
    return recipe


def _check_host(model: nn.Module, config: AttachmentConfig, folder: Path) -> None:
    """Refuse a host of another width before anything of it is touched, and say so if it is of another class.

    Raises:
        HostError: naming both widths.
    """
    parts = find_parts(model)
    width, decoder = parts.width, type(parts.decoder).__name__
    if width != config.width:
        raise HostError(
            f"a reader in {folder} for hidden states of width {config.width}",
            expected=f"one of the host's width {width}",
            remedy="Load the reader into the host it was trained in",
        )
    if config.host not in ("", decoder):
        logger.warning("The reader in %s was trained in a %s and is read in a %s.", folder, config.host, decoder)


def memory_file_of(folder: Path, config: AttachmentConfig, *, fetched: bool) -> Path:
    """Where the memory of a saved attachment is.

    Raises:
        SourceError: if it is not there; a path that comes from the hub is not followed out of its folder.
    """
    named = Path(config.memory_file)
    file = folder / (named.name if fetched else named)
    if not file.is_file():
        raise SourceError(
            f"attachment {folder} without its memory: there is no file {file}",
            expected=f"the memory {config.memory}, which its reader was trained with",
            remedy="Name the file with memory_file, or put it back",
        )
    return file
