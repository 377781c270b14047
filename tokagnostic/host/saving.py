"""An attachment to a folder: the reader's weights, where they belong, a card, and the memory or where it lies."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tokagnostic.errors import HostError, InvalidValueError, SourceError
from tokagnostic.host.card import model_card
from tokagnostic.host.layer import MemoryLayer
from tokagnostic.memory.file import read_recipe, save_memory
from tokagnostic.memory.recipe import MemoryRecipe, canonical_json
from tokagnostic.memory.same_rows import has_rows_of

if TYPE_CHECKING:
    from tokagnostic.host.attachment import Attachment

VERSION = 1
CONFIG_FILE = "attachment.json"
READER_FILE = "reader.safetensors"
MEMORY_FILE = "memory.safetensors"
CARD_FILE = "README.md"
FILES = (CONFIG_FILE, READER_FILE, MEMORY_FILE, CARD_FILE)
"""All that a saved attachment consists of."""
LARGEST_SIZE = 2**24
"""Of what `attachment.json` says of sizes, far beyond any host's."""
READER_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class AttachmentConfig:
    """What `attachment.json` says, beside its version."""

    layers: tuple[int, ...]
    """Decoder layers that read, rising."""
    gate: str
    """Form of the gate."""
    conv_kernel: int
    """Taps of the short convolution; 0 for none."""
    boundary_ids: tuple[int, ...]
    """Ids at which a document starts."""
    packed: bool
    """Whether calls in training must tell where documents start."""
    max_order: int
    """N that is read."""
    width: int
    """D of the host."""
    feature_dim: int
    """E."""
    memory: str
    """Identity of the memory that the reader was trained with."""
    memory_file: str
    """Its file, from the folder on or absolute."""
    host: str = ""
    """Class of the decoder that the reader was trained in; empty where an older file does not say."""

    @classmethod
    def of(cls, attachment: Attachment, identity: str, memory_file: str) -> AttachmentConfig:
        """What an attachment will be made from again."""
        layer: Any = attachment.reader[str(attachment.layers[0])]
        return cls(
            attachment.layers,
            attachment.gate,
            attachment.conv_kernel,
            attachment.boundary_ids,
            attachment.packed,
            attachment.memory.max_order,
            layer.width,
            attachment.memory.feature_dim,
            identity,
            memory_file,
            attachment.decoder_class,
        )

    def check_weights(self, weights: Mapping[str, Tensor], where: str) -> None:
        """Make sure that these are the weights of the reader described: all of them, no others, with values.

        Raises:
            HostError: naming the first that is not.
        """
        with torch.device("meta"):
            layer = MemoryLayer(self.width, self.feature_dim, self.gate, self.conv_kernel)  # type: ignore[arg-type]
        expected = {
            f"{index}.{name}": tuple(tensor.shape)
            for index in self.layers
            for name, tensor in layer.state_dict().items()
        }
        found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        for name in sorted(expected | found):
            if found.get(name) != expected.get(name):
                raise HostError(
                    f"{where} has {_described(name, found)}",
                    expected=_described(name, expected),
                    remedy="Save and load the reader as it was attached, without parts of it missing, added or wrapped",
                )
            if weights[name].dtype not in READER_DTYPES or weights[name].is_meta:
                raise HostError(
                    f"{where} has {name} as {weights[name].dtype} on {weights[name].device}",
                    expected="numbers in float32, bfloat16 or float16",
                    remedy="Save the reader again from where its values are",
                )

    def digest(self, weights: Mapping[str, Tensor]) -> str:
        """SHA-256 of what decides the outputs, lower-case hex: a reader of other settings or values has another one."""
        settings = {name: value for name, value in asdict(self).items() if name not in ("memory_file", "host")}
        digest = hashlib.sha256(canonical_json(settings))
        for name in sorted(weights):
            numbers = weights[name].contiguous()
            digest.update(f"{name} {numbers.dtype} ".encode())
            digest.update(numbers.view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def write_attachment(
    attachment: Attachment, folder: str | Path, memory_file: str | Path | None, *, copy_memory: bool
) -> None:
    """What `Attachment.save_pretrained` does; each file is written whole or not at all."""
    folder = Path(folder)
    source = _file_with_rows_of(attachment, memory_file)
    if source is None and not copy_memory:
        raise InvalidValueError(
            "copy_memory=False for a memory whose rows are in no file",
            expected="a memory that was loaded frozen, or memory_file to name the file it was saved to",
            remedy="Save the memory with save_memory and name that file, or let it be copied",
        )
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in attachment.reader.state_dict().items()}
    AttachmentConfig.of(attachment, "", "").check_weights(weights, "the reader")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _place_memory(attachment, folder / MEMORY_FILE, source, copy_memory=copy_memory)
        recipe = read_recipe(file)
        config = AttachmentConfig.of(attachment, recipe.identity, MEMORY_FILE if file.parent == folder else str(file))
        _write(folder / READER_FILE, lambda partial: save_file(weights, partial))
        values = {"version": VERSION, **asdict(config), "reader": config.digest(weights)}
        _write_text(folder / CONFIG_FILE, json.dumps(values, indent=1) + "\n")
        _write_text(folder / CARD_FILE, model_card(attachment, config, recipe))
    except (OSError, SafetensorError) as error:
        raise SourceError(
            f"attachment {folder} cannot be written ({' '.join(str(error).split())})",
            expected="a folder on a disk with room for it",
            remedy="Make room or name another folder",
        ) from error


def read_attachment(folder: Path) -> tuple[AttachmentConfig, dict[str, Tensor]]:
    """Read and check what a folder says of a reader, and its weights.

    Raises:
        SourceError: if a file is missing, cut short, or not what its name says.
        HostError: if the weights are not those that belong to the settings.
    """
    try:
        values = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        config = _config_of(values)
        weights = load_file(folder / READER_FILE)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        raise SourceError(
            f"attachment {folder} cannot be read ({type(error).__name__}: {' '.join(str(error).split())})",
            expected=f"a folder with {CONFIG_FILE} and {READER_FILE}",
            remedy="Name the folder of a saved attachment, or save it again",
        ) from error
    config.check_weights(weights, str(folder / READER_FILE))
    if config.digest(weights) != values["reader"]:
        raise HostError(
            f"{folder / READER_FILE} is another reader than {CONFIG_FILE} speaks of",
            expected=f"settings and weights with the digest {values['reader']!r}",
            remedy="Get both files again from where they came; neither can be changed without the other",
        )
    return config, weights


def _file_with_rows_of(attachment: Attachment, memory_file: str | Path | None) -> Path | None:
    """The file that holds the attachment's memory, or None if there is none yet.

    Raises:
        InvalidValueError: if the file named, or the one that the memory came from, holds other rows.
    """
    memory = attachment.memory
    if memory_file is None:
        if memory.origin is None or not memory.is_as_in_file:
            return None
        memory_file = memory.origin.path
    recipe: MemoryRecipe = read_recipe(memory_file)
    if not has_rows_of(recipe, memory):
        raise InvalidValueError(
            f"{memory_file} holds other rows than the attached memory, of {recipe.config}",
            expected=f"a file with the rows of the attached memory, of {memory.config}",
            remedy="Save the attached memory with save_memory, and name that file",
        )
    return Path(memory_file)


def _place_memory(attachment: Attachment, target: Path, source: Path | None, *, copy_memory: bool) -> Path:
    """Bring the memory into the folder, if it shall be there and is not; returns the file that will be read."""
    if source is None:
        memory, layers = attachment.memory, attachment.layers
        save_memory(memory, target, layers=layers if memory.num_tables in (1, len(layers)) else ())
        return target
    if target.exists() and target.samefile(source):
        return target
    if not copy_memory:
        return source.resolve()
    _write(target, lambda partial: shutil.copyfile(source, partial))
    return target


def _config_of(values: Any) -> AttachmentConfig:
    """The settings in the types that they must have.

    Raises:
        ValueError: naming the field that has not.
        KeyError: naming the field that is missing.
        TypeError: if there are no fields.
    """
    if values["version"] != VERSION:
        raise ValueError(f"{CONFIG_FILE} is of version {values['version']!r}, this program reads version {VERSION}")
    config = AttachmentConfig(
        layers=_whole_numbers(values, "layers"),
        gate=values["gate"],
        conv_kernel=values["conv_kernel"],
        boundary_ids=_whole_numbers(values, "boundary_ids"),
        packed=values["packed"],
        max_order=values["max_order"],
        width=values["width"],
        feature_dim=values["feature_dim"],
        memory=values["memory"],
        memory_file=values["memory_file"],
        host=values.get("host", ""),
    )
    for name, kind in (("gate", str), ("packed", bool), ("memory", str), ("memory_file", str), ("host", str)):
        if type(getattr(config, name)) is not kind:
            raise ValueError(f"{CONFIG_FILE} has {name} = {values[name]!r}")
    for name in ("conv_kernel", "max_order", "width", "feature_dim"):
        # More would not fit a tensor, and an order that long no computer.
        if type(getattr(config, name)) is not int or getattr(config, name) > LARGEST_SIZE:
            raise ValueError(f"{CONFIG_FILE} has {name} = {values[name]!r}, not a number up to {LARGEST_SIZE}")
    if type(values["reader"]) is not str:
        raise ValueError(f"{CONFIG_FILE} has reader = {values['reader']!r}")
    return config


def _whole_numbers(values: Any, name: str) -> tuple[int, ...]:
    numbers = values[name]
    if type(numbers) is not list or any(type(number) is not int for number in numbers):
        raise ValueError(f"{CONFIG_FILE} has {name} = {numbers!r}")
    return tuple(numbers)


def _described(name: str, shapes: Mapping[str, tuple[int, ...]]) -> str:
    return f"{name} of shape {shapes[name]}" if name in shapes else f"no {name}"


def _write_text(path: Path, text: str) -> None:
    _write(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under its final name, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        write(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
