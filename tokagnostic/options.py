"""The options of the verbs that have no config of their own elsewhere; a field's docstring is its flag's help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tyro.conf import Positional

from tokagnostic.corpus import CorpusConfig


@dataclass(frozen=True)
class ExportOptions:
    """Write the memory of a finished run as one file that any model with any tokenizer can read."""

    run: str
    """Folder of a finished run."""
    output: str
    """The file to write, by custom memory.safetensors."""
    row_format: Literal["fp32", "bf16", "fp16"] = "fp32"
    """How rows are stored."""


@dataclass(frozen=True, kw_only=True)
class EvalOptions(CorpusConfig):
    """Bits per byte of a text under a finished run's model, with the memory on and off."""

    run: str
    """Folder of a finished run."""
    context: int | None = None
    """Tokens per window; unset: those of a block in the run's training."""
    stride: int | None = None
    """Tokens between the beginnings of two windows; unset: the context."""
    batch_size: int = 16
    """Windows per call of the model."""
    output: str | None = None
    """Also write the result, its config and every document's score to this JSON file."""


@dataclass(frozen=True)
class GenerateOptions:
    """Continue a prompt with a finished run's model, with the memory on and off side by side."""

    run: str
    """Folder of a finished run."""
    prompt: str
    """What to continue."""
    num_tokens: int = 60
    """Tokens to add."""


@dataclass(frozen=True, kw_only=True)
class OverlapOptions(CorpusConfig):
    """How much of a target tokenizer's n-grams in a text a reference tokenizer makes too, byte for byte."""

    target: str
    """The tokenizer that would read a memory: hf:name, a tokenizer.json, a folder, or a name in tokenizers_cfg."""
    reference: str
    """The tokenizer that the memory was trained with."""
    max_order: int = 7
    """Largest order, in tokens."""
    output: str | None = None
    """Also write the result and its config to this JSON file."""
    figure: str | None = None
    """Also draw the heat map to this file (.png or .svg)."""


@dataclass(frozen=True, kw_only=True)
class CoverageOptions(CorpusConfig):
    """How much of a text, as a tokenizer cuts it, a memory file has seen in its training."""

    memory: str
    """The memory file."""
    tokenizer: str
    """The tokenizer that would read it."""
    max_order: int | None = None
    """Largest order, in tokens; unset: that of the memory."""
    output: str | None = None
    """Also write the result and its config to this JSON file."""


@dataclass(frozen=True)
class InspectOptions:
    """What a tokenizer or a memory file is."""

    spec: Positional[str]
    """A tokenizer (hf:name, a tokenizer.json, a folder, a name in tokenizers_cfg) or a memory file (.safetensors)."""
    verify: bool = False
    """For a memory file: also hash every tensor against its digest."""


@dataclass(frozen=True)
class CompareOptions:
    """Finished demonstrations side by side: mean and spread of every control over them."""

    reports: Positional[tuple[str, ...]]
    """Folders of demonstrations, or their report.json; globs in quotes."""
    figure: str | None = None
    """Also draw the controls to this file (.png or .svg)."""


@dataclass(frozen=True)
class PlotOptions:
    """Learning curves of runs, from their metrics.jsonl."""

    runs: Positional[tuple[str, ...]]
    """Folders that hold a metrics.jsonl."""
    output: str
    """The figure (.png or .svg)."""
    field: str = "loss"
    """What to draw, such as loss, bits_per_byte, held_out_bits_per_byte or tokens_per_second."""
    smooth: int = 1
    """Each point is the mean of this many lines."""


@dataclass(frozen=True)
class BenchOptions:
    """Speeds, each as a ratio against a named rival in the same run."""

    names: Positional[tuple[str, ...]] = ()
    """Which measurements to make; none: all."""
