"""A trained attachment to a folder, and back: the reader's weights, where they belong, and the memory they read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tokagnostic.errors import HostError, InvalidValueError, SourceError
from tokagnostic.hashing.cache import HashCache, PrefixPolicy
from tokagnostic.host.attach import Attachment, attach
from tokagnostic.memory.file import load_memory, read_recipe
from tokagnostic.tokens import TokenBytes
from tokagnostic.tokens.encoder import TextEncoder

VERSION = 1
CONFIG_FILE = "attachment.json"
READER_FILE = "reader.safetensors"
MEMORY_FILE = "memory.safetensors"


def save_attachment(attachment: Attachment, folder: str | Path, memory_file: str | Path) -> None:
    """Write a folder from which `load_attachment` makes the same attachment again; each file whole or not at all.

    Args:
        attachment: what to save.
        folder: made if it is not there.
        memory_file: the file that the attachment's memory was saved to or loaded from; it is copied into the folder.

    Raises:
        MemoryFileError: if the memory file cannot be believed.
        InvalidValueError: if it holds a memory of another shape.
        SourceError: if the folder cannot be written.
    """
    folder = Path(folder)
    recipe = read_recipe(memory_file)
    memory = attachment.memory
    if (recipe.config, [list(table.moduli) for table in recipe.tables]) != (memory.config, memory.addresser.moduli):
        raise InvalidValueError(
            f"{memory_file} holds a memory of {recipe.config}",
            expected=f"the attached memory, of {memory.config}",
            remedy="Save the attached memory first, and name that file",
        )
    config = {
        "version": VERSION,
        "layers": list(attachment.layers),
        "gate": attachment.gate,
        "conv_kernel": attachment.conv_kernel,
        "boundary_ids": list(attachment.boundary_ids),
        "max_order": memory.max_order,
        "memory": recipe.identity,
    }
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in attachment.reader.state_dict().items()}
    target = folder / MEMORY_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (target.exists() and target.samefile(memory_file)):
            _write(target, lambda partial: shutil.copyfile(memory_file, partial))
        _write(folder / READER_FILE, lambda partial: save_file(weights, partial))
        text = json.dumps(config, indent=1) + "\n"
        _write(folder / CONFIG_FILE, lambda partial: partial.write_text(text, encoding="utf-8"))
    except (OSError, SafetensorError) as error:
        raise SourceError(
            f"attachment {folder} cannot be written ({' '.join(str(error).split())})",
            expected="a folder on a disk with room for it",
            remedy="Make room or name another folder",
        ) from error


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
    saved = _read(folder)
    recipe = read_recipe(folder / MEMORY_FILE)
    if recipe.identity != saved.identity:
        raise HostError(
            f"attachment {folder} with the memory {recipe.identity}",
            expected=f"the memory {saved.identity}, which its reader was trained with",
            remedy="Put the memory file back that was saved with this reader",
        )
    cache = _cache_of(tokenizer_or_cache, recipe.prefix)
    memory = load_memory(folder / MEMORY_FILE, cache, max_order=saved.max_order)
    attachment = attach(model, cache, memory, saved.layers, saved.gate, saved.conv_kernel, saved.boundary_ids)
    expected = {name: tuple(tensor.shape) for name, tensor in attachment.reader.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in saved.weights.items()}
    if given != expected:
        attachment.remove()
        wrong = sorted(name for name in expected | given if expected.get(name) != given.get(name))
        raise HostError(
            f"{folder / READER_FILE} has {wrong[0]} of shape {given.get(wrong[0])}",
            expected=f"shape {expected.get(wrong[0])}",
            remedy="Load the reader into the host it was trained in",
        )
    attachment.reader.load_state_dict(saved.weights)
    return attachment


@dataclass(frozen=True)
class _Saved:
    """What a folder says, in the types that it must have."""

    layers: tuple[int, ...]
    gate: Any
    conv_kernel: int
    boundary_ids: tuple[int, ...]
    max_order: int
    identity: str
    weights: dict[str, Tensor]


def _read(folder: Path) -> _Saved:
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        version = config["version"]
        if version != VERSION:
            raise ValueError(f"{CONFIG_FILE} is of version {version!r}, this program reads version {VERSION}")
        layers = [_whole(config, "layers", layer) for layer in config["layers"]]
        weights = load_file(folder / READER_FILE)
        boundaries = tuple(_whole(config, "boundary_ids", token_id) for token_id in config.get("boundary_ids", []))
        kernel, max_order = (_whole(config, name, config[name]) for name in ("conv_kernel", "max_order"))
        return _Saved(tuple(layers), config["gate"], kernel, boundaries, max_order, config["memory"], weights)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise SourceError(
            f"attachment {folder} cannot be read ({type(error).__name__}: {' '.join(str(error).split())})",
            expected=f"a folder with {CONFIG_FILE}, {READER_FILE} and {MEMORY_FILE}",
            remedy="Name the folder of a saved attachment, or save it again",
        ) from error


def _whole(config: dict[str, Any], name: str, value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{CONFIG_FILE} has {name} = {config[name]!r}")
    return value


def _cache_of(source: Any, prefix: PrefixPolicy) -> HashCache:
    """The cache of whatever stands for a tokenizer, under a memory's prefix policy; a cache is its own."""
    if isinstance(source, HashCache):
        return source
    token_bytes = source if isinstance(source, TokenBytes) else TextEncoder.of(source).token_bytes
    return HashCache.build(token_bytes, prefix=prefix)


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under its final name, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        write(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
