"""A trained attachment to a folder, and back: the reader's weights, where they belong, and the memory they read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from tokagnostic.errors import HostError, SourceError
from tokagnostic.hashing.cache import HashCache
from tokagnostic.host.attach import Attachment, attach
from tokagnostic.memory.file import load_memory, read_recipe

CONFIG_FILE = "attachment.json"
READER_FILE = "reader.safetensors"
MEMORY_FILE = "memory.safetensors"


def save_attachment(attachment: Attachment, folder: str | Path, memory_file: str | Path) -> None:
    """Write a folder from which `load_attachment` makes the same attachment again.

    Args:
        attachment: what to save.
        folder: made if it is not there.
        memory_file: the file that the attachment's memory was saved to or loaded from; it is copied into the folder.

    Raises:
        MemoryFileError: if the memory file cannot be believed.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    recipe = read_recipe(memory_file)
    target = folder / MEMORY_FILE
    if not (target.exists() and target.samefile(memory_file)):
        shutil.copyfile(memory_file, target)
    readers = [attachment.reader[str(layer)] for layer in attachment.layers]
    config = {
        "version": 1,
        "layers": list(attachment.layers),
        "gate": readers[0].gate,
        "conv_kernel": 0,
        "max_order": attachment.memory.max_order,
        "memory": recipe.identity,
    }
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in attachment.reader.state_dict().items()}
    save_file(weights, folder / READER_FILE)
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def load_attachment(model: nn.Module, tokenizer_or_cache: Any, folder: str | Path) -> Attachment:
    """Attach what `save_attachment` wrote, the memory frozen and mapped.

    Args:
        model: a host of the same width, without a memory.
        tokenizer_or_cache: the host's tokenizer, as `attach` takes it.
        folder: the saved attachment.

    Raises:
        SourceError: if a file of the folder is missing or cannot be read.
        MemoryFileError: if the memory cannot be believed.
        HostError: if memory or reader are not those that were saved, or the host has no place for them.
    """
    folder = Path(folder)
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        weights = load_file(folder / READER_FILE)
        layers, gate, max_order = config["layers"], config["gate"], config["max_order"]
        identity, version = config["memory"], config["version"]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise SourceError(
            f"attachment {folder} cannot be read ({type(error).__name__}: {error})",
            expected=f"a folder with {CONFIG_FILE}, {READER_FILE} and {MEMORY_FILE}",
            remedy="Name the folder of a saved attachment, or save it again",
        ) from error
    found = read_recipe(folder / MEMORY_FILE).identity
    if version != 1 or found != identity:
        raise HostError(
            f"attachment {folder} of version {version} with memory {found}",
            expected=f"version 1 and memory {identity}, which its reader was trained with",
            remedy="Put the memory file back that was saved with this reader",
        )
    cache = HashCache.of(tokenizer_or_cache)
    memory = load_memory(folder / MEMORY_FILE, cache, max_order=max_order)
    attachment = attach(model, cache, memory, layers, gate)
    expected = {name: tuple(tensor.shape) for name, tensor in attachment.reader.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if given != expected:
        attachment.remove()
        wrong = sorted(name for name in expected | given if expected.get(name) != given.get(name))
        raise HostError(
            f"{folder / READER_FILE} has {wrong[0]} of shape {given.get(wrong[0])}",
            expected=f"shape {expected.get(wrong[0])}",
            remedy="Load the reader into the host it was trained in",
        )
    attachment.reader.load_state_dict(weights)
    return attachment
