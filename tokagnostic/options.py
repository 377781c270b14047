"""The options of the verbs that have no config of their own elsewhere; a field's docstring is its flag's help."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from tyro.conf import Positional

from tokagnostic.corpus import CorpusConfig
from tokagnostic.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class ExportOptions(CorpusConfig):
    """Write the memory of a finished run as one file that any model with any tokenizer can read; with a text, also say how that
    fills its tables.

    Raises:
        InvalidValueError: if a setting of the text is given without one.
    """

    run: str
    """Folder of a finished run."""
    output: str
    """The file to write, by custom memory.safetensors."""
    row_format: Literal["fp32", "bf16", "fp16", "int8", "fp8_e4m3"] = "fp32"
    """How rows are stored."""
    hot_rows: int | None = None
    """Keep so many rows of each table, those that were written most, and set all others to zero; unset: all."""
    merge_visits: tuple[str, ...] = ()
    """Other runs, or memory files, from the same start: what they counted is added to how often each row was written."""
    visits_base: str | None = None
    """With merge_visits: the run or memory file that all of them started from; unset: fresh tables."""
    data: tuple[str, ...] = ()
    """A text, best that of the training: also report the rows that its n-grams hit and share, measured and expected, per order."""

    def __post_init__(self) -> None:
        if self.data:
            super().__post_init__()
            return
        of_text = [entry.name for entry in fields(CorpusConfig) if entry.name != "data"]
        defaults = CorpusConfig()
        given = next((name for name in of_text if getattr(self, name) != getattr(defaults, name)), None)
        if given is not None:
            raise InvalidValueError(
                f"{given} without data",
                expected="a text whose load is reported",
                remedy="Name one with --data, or leave it out",
            )


@dataclass(frozen=True, kw_only=True)
class EvalOptions(CorpusConfig):
    """Bits per byte of a text under the models of finished runs, with the memory on and off."""

    run: tuple[str, ...]
    """Folders of finished runs; several are shown side by side, and equal hosts scored once without a memory."""
    context: int | None = None
    """Tokens per window; unset: those of a block in the run's training."""
    stride: int | None = None
    """Tokens between the beginnings of two windows; unset: the context."""
    batch_size: int = 16
    """Windows per call of the model."""
    memory_file: str | None = None
    """Read this file in place of the memory of the run, such as an export of it in another row format."""
    output: str | None = None
    """Also write the result, its config and every document's score to this JSON file."""
    figure: str | None = None
    """Also draw the runs to this file (.png or .svg)."""


@dataclass(frozen=True)
class GenerateOptions:
    """Continue a prompt with a finished run's model, with the memory on and off side by side."""

    run: str
    """Folder of a finished run."""
    prompt: str
    """What to continue."""
    num_tokens: int = 60
    """Tokens to add."""
    cache: bool = True
    """Keep what was computed; --no-cache reads the whole sequence again for each token, to the same text."""


@dataclass(frozen=True, kw_only=True)
class OverlapOptions(CorpusConfig):
    """How much of a target tokenizer's n-grams in a text a reference tokenizer makes too, byte for byte."""

    target: tuple[str, ...]
    """Tokenizers that would read a memory: each hf:name, a file, a folder, or a name in tokenizers_cfg."""
    reference: tuple[str, ...]
    """Tokenizers that the memory was trained with; every target is compared with each of them."""
    max_order: int = 7
    """Largest order, in tokens."""
    resamples: int = 1000
    """Resamples of the documents for the intervals; 0 for no intervals."""
    seed: int = 0
    """Of the resampling."""
    processes: int | None = None
    """Processes that count; unset: one per core if the text is large enough for it."""
    scope: Literal["document", "corpus"] = "document"
    """`corpus` counts once more with the whole corpus as one document, by sorted runs on disk."""
    memory_mib: int = 512
    """With scope corpus: MiB to use beside the tokenizers."""
    work_folder: str | None = None
    """Where counts are saved, from which an interrupted measurement goes on; unset: nothing outlives it."""
    output: str | None = None
    """Also write the result and its config to this JSON file."""
    csv: str | None = None
    """Also write all shares to this CSV file, one per line, with windows and intervals."""
    figure: str | None = None
    """Also draw the shares, and of one pair the causes of misses, to this file (.png, .svg or .pdf)."""
    html: str | None = None
    """Also write a page to look at, with a passage cut by both tokenizers, to this file (.html)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory_mib < 1:
            raise InvalidValueError(
                f"memory_mib = {self.memory_mib}", expected="a whole number of at least 1", remedy="Raise it"
            )
        for side, specs in (("target", self.target), ("reference", self.reference)):
            repeated = next((spec for spec in specs if specs.count(spec) > 1), None)
            if repeated is not None:
                raise InvalidValueError(
                    f"the {side} {repeated!r} twice", expected="each tokenizer once on a side", remedy="Name it once"
                )


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


@dataclass(frozen=True, kw_only=True)
class InspectOptions(CorpusConfig):
    """What a tokenizer or a memory file is; of two tokenizers, what they share, with a text to measure it on.

    Raises:
        InvalidValueError: if something else is named, or a setting does not belong to what is named.
    """

    specs: Positional[tuple[str, ...]]
    """One or two tokenizers (hf:name, a file, a folder, a name in tokenizers_cfg), or a memory file (.safetensors)."""
    verify: bool = False
    """For a memory file: also hash every tensor against its digest."""
    html: str | None = None
    """Also write a page to look at to this file (.html); of two tokenizers with a passage cut by both."""

    def __post_init__(self) -> None:
        super().__post_init__()
        memories = [spec for spec in self.specs if spec.endswith(".safetensors")]
        if len(self.specs) not in (1, 2) or (memories and len(self.specs) == 2):
            raise InvalidValueError(
                f"{len(self.specs)} names ({', '.join(self.specs)})" if self.specs else "no name",
                expected="one tokenizer, two tokenizers to compare, or one memory file",
                remedy="Name them; `tokagnostic overlap` measures many pairs at once",
            )
        if self.verify and not memories:
            raise InvalidValueError(
                f"--verify with {', '.join(self.specs)}",
                expected="a memory file, whose name ends in .safetensors",
                remedy="Leave --verify out: a tokenizer's bytes are proven whenever it is read",
            )
        if self.html is not None and memories:
            raise InvalidValueError(
                f"--html with {memories[0]}", expected="one or two tokenizers", remedy="Leave --html out"
            )
        of_text = [entry.name for entry in fields(CorpusConfig) if getattr(self, entry.name) != entry.default]
        if of_text and len(self.specs) == 1:
            raise InvalidValueError(
                f"{of_text[0]} with {self.specs[0]} alone",
                expected="two tokenizers, which are compared on a text",
                remedy="Name another tokenizer, or leave it out",
            )


@dataclass(frozen=True)
class CompareOptions:
    """Finished demonstrations side by side: mean and spread of every control over them."""

    reports: Positional[tuple[str, ...]]
    """Folders of demonstrations, or their report.json; globs in quotes."""
    figure: str | None = None
    """Also draw the controls to this file (.png or .svg)."""


@dataclass(frozen=True)
class PlotOptions:
    """Curves of runs, from their metrics.jsonl: of one run all that it tells of itself, of several one number beside each other."""

    runs: Positional[tuple[str, ...]]
    """Folders that hold a metrics.jsonl."""
    output: str | None = None
    """The figure (.png or .svg); unset: curves.png in the folder of the one run."""
    field: str | None = None
    """What to draw, such as loss, bits_per_byte, held_out_bits_per_byte or tokens_per_second; unset: of one run loss, bits per
    byte, gates, hit rates and rows written, of several the loss."""
    smooth: int = 1
    """Each point is the mean of this many lines."""


@dataclass(frozen=True)
class BenchOptions:
    """Speeds, each as a ratio against a named rival in the same run."""

    names: Positional[tuple[str, ...]] = ()
    """Which measurements to make; none: all."""
