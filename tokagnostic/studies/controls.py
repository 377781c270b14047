"""One target setting to a score for every control: what a memory is worth, and what its gain is not.

Every control but `off` is a host and a reader trained in the same way, for the same steps, on the same text, from the
same fresh parameters; they differ in what the reader reads.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from tokagnostic.corpus import Document
from tokagnostic.evaluation.bits_per_byte import bits_per_byte
from tokagnostic.evaluation.bits_per_byte_report import BitsPerByte
from tokagnostic.evaluation.key_set import KeySet
from tokagnostic.hashing import HashCache
from tokagnostic.host import attach
from tokagnostic.memory import MemoryConfig, NgramMemory
from tokagnostic.memory.controls import load_reading
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.training.config import FitConfig, HostConfig
from tokagnostic.training.fit import FitResult, fit
from tokagnostic.training.hosts import fresh_llama, seeded
from tokagnostic.training.packing import TokenStream

Control = Literal["none", "frozen", "random", "permuted", "order1", "native"]
"""What the reader reads: no memory, the frozen table, noise of the same row lengths, the same rows in another order, the
frozen table's windows of one token only, or a table trained from scratch with the host."""

CONTROLS: tuple[Control, ...] = get_args(Control)


@dataclass(frozen=True)
class TargetSetting:
    """What all controls share."""

    encoder: TextEncoder
    """The target's tokenizer."""
    stream: TokenStream
    """Its training text."""
    held_out: Sequence[Document]
    """The text it is scored on."""
    watched: Sequence[Document]
    """The part of it that is scored along the way."""
    memory_file: Path
    """The memory that came from elsewhere."""
    memory_config: MemoryConfig
    """Of a native memory."""
    host: HostConfig
    layers: tuple[int, ...]
    fit: FitConfig
    seen: KeySet
    """Windows of the text that the memory was trained on."""


@dataclass(frozen=True)
class ControlResult:
    """What one control came to."""

    score: BitsPerByte
    """On the held-out text."""
    off: BitsPerByte | None
    """The same host with its memory switched off; None where it has none."""
    training: FitResult
    table_unchanged: bool | None
    """Whether the table has the digest that it had before training; None without a table or with one that is trained."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, without the metrics."""
        return {
            "score": self.score.to_dict(),
            "off": None if self.off is None else self.off.to_dict(),
            "table_unchanged": self.table_unchanged,
            "tokens_per_second": round(self.training.tokens_per_second, 1),
            "seconds": round(self.training.seconds, 1),
        }


def run_control(control: Control, setting: TargetSetting, folder: Path) -> ControlResult:
    """Train the target under one control and score it.

    Args:
        control: which.
        setting: what all controls share.
        folder: for its metrics.
    """
    cache = HashCache.build(setting.encoder.token_bytes)
    model = fresh_llama(setting.host, len(setting.encoder.token_bytes), setting.fit.block_length, setting.fit.seed)
    memory = _memory_for(control, setting, cache)
    attachment = None
    if memory is not None:
        with seeded(setting.fit.seed):
            attachment = attach(model, cache, memory, setting.layers)
    before = None if memory is None or not memory.frozen else _digest(memory)
    max_order = setting.memory_config.max_order

    def watch() -> float:
        return bits_per_byte(model, setting.encoder, setting.watched, setting.fit.block_length).bits_per_byte

    def score() -> BitsPerByte:
        return bits_per_byte(
            model,
            setting.encoder,
            setting.held_out,
            setting.fit.block_length,
            seen=setting.seen,
            max_order=max_order,
        )

    training = fit(
        model,
        setting.stream,
        setting.fit,
        folder,
        attachment=attachment,
        evaluate=watch if setting.watched else None,
        label=control,
    )
    on, off = score(), None
    if attachment is not None:
        with attachment.disabled():
            off = score()
    unchanged = None if before is None or memory is None else _digest(memory) == before
    return ControlResult(on, off, training, unchanged)


def transfer_efficiency(none: float, frozen: float, native: float) -> float:
    """(none - frozen) / (none - native): how much of a native memory's gain the frozen one brings.

    Args:
        none: bits per byte without a memory.
        frozen: with the frozen memory.
        native: with a native memory.

    Returns:
        1 if the frozen memory is worth as much as the native one, 0 if it is worth nothing; NaN if the native memory
        changes nothing. Meaningful only where the native memory helps, none > native.
    """
    return (none - frozen) / (none - native) if none != native else math.nan


def _memory_for(control: Control, setting: TargetSetting, cache: HashCache) -> NgramMemory | None:
    if control == "none":
        return None
    if control == "native":
        return setting.memory_config.build(cache)
    max_order, seed = setting.memory_config.max_order, setting.fit.seed
    return load_reading(control, setting.memory_file, cache, seed, max_order=max_order)


def _digest(memory: NgramMemory) -> str:
    digest = hashlib.sha256()
    for tensor in memory.store.tensors:
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
