"""What a training run consists of, checked when stated."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tokagnostic.corpus import CorpusConfig
from tokagnostic.errors import InvalidValueError
from tokagnostic.host.layer import GateForm
from tokagnostic.memory.base import require_whole
from tokagnostic.memory.controls import Reading
from tokagnostic.memory.kinds import JointConfig

Precision = Literal["no", "bf16", "fp16"]
TableRule = Literal["rowwise_rmsprop", "rowwise_adam", "lazy_adam"]
TableDtype = Literal["fp32", "bf16"]
Tracker = Literal["tensorboard", "trackio"]
TablePlacement = Literal["replicated", "sharded"]

_LEAST_WHOLE = {
    "num_steps": 1,
    "batch_size": 1,
    "block_length": 2,
    "accumulation": 1,
    "seed": 0,
    "log_every": 1,
    "evaluate_every": 0,
    "save_every": 0,
    "keep": 1,
}
_LARGEST = {
    "learning_rate": math.inf,
    "table_rate_factor": math.inf,
    "warmup_share": 1,
    "weight_decay": math.inf,
    "clip_norm": math.inf,
}


@dataclass(frozen=True)
class FitConfig:
    """How parameters are trained.

    Raises:
        InvalidValueError: if a number is out of its range.
    """

    num_steps: int = 1_000
    """Updates in all."""
    batch_size: int = 16
    """Blocks per update and process, before accumulation."""
    block_length: int = 256
    """Tokens per block, the context in training."""
    accumulation: int = 1
    """Batches whose gradients are added up before an update."""
    learning_rate: float = 2e-3
    """Peak rate of AdamW for host and reader."""
    table_rate_factor: float = 15.0
    """Peak rate of the memory's table, as a multiple of learning_rate; it belongs to the rule, and 15 to row-wise RMSProp."""
    table_optimizer: TableRule = "rowwise_rmsprop"
    """Rule for the memory's table: row-wise RMSProp with 8 bytes of state per row, or Adam of the rows that are looked up
    with 4 (rowwise_adam: one second moment per row) or 8 bytes per number (lazy_adam)."""
    table_dtype: TableDtype = "fp32"
    """Precision of the table in training; bf16 halves its memory and rounds updates up or down by chance."""
    table_placement: TablePlacement = "replicated"
    """Where several processes have a table that is trained: whole in each, the rows that were looked up exchanged after backward; or
    sharded, a share of the rows in each with its gradient and state, for tables that are too large for one device."""
    warmup_share: float = 0.05
    """Share of the updates in which the rates rise, before they fall along a cosine."""
    weight_decay: float = 0.1
    """AdamW's, on matrices only; a memory's table has none."""
    clip_norm: float = 1.0
    """Largest norm of the gradient of host and reader together, 0 for any; the table's updates have their own scale."""
    clip_table: bool = False
    """Count the table's gradient in that norm and scale it along, as if it were dense."""
    precision: Precision = "no"
    """Mixed precision of Accelerate; parameters and tables stay in fp32."""
    seed: int = 0
    """Seed of fresh parameters and of the order of the text."""
    log_every: int = 10
    """Updates between two lines of metrics.jsonl."""
    evaluate_every: int = 0
    """Updates between two evaluations on held-out text; 0: only at the end."""
    save_every: int = 500
    """Updates between two checkpoints; 0: none, but for the one that a run leaves when a signal stops it."""
    keep: int = 2
    """Checkpoints that stay, the newest and those before it; with 1 there is nothing to fall back to."""
    trackers: tuple[Tracker, ...] = ()
    """Also tell these of the run, through Accelerate: tensorboard (files in the run's folder) or trackio (a database on this
    machine, shown by `trackio show`). Each is an extra of its name."""

    def __post_init__(self) -> None:
        for name, smallest in _LEAST_WHOLE.items():
            require_whole(name, getattr(self, name), smallest)
        for name, largest in _LARGEST.items():
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value <= largest or value == math.inf:
                bound = "at least 0" if largest == math.inf else f"0 to {largest}"
                raise InvalidValueError(
                    f"{name} = {value!r}", expected=f"a finite number, {bound}", remedy=f"Set {name} to such a number"
                )
        _require_choice("precision", self.precision, Precision)
        _require_choice("table_optimizer", self.table_optimizer, TableRule)
        _require_choice("table_dtype", self.table_dtype, TableDtype)
        _require_choice("table_placement", self.table_placement, TablePlacement)
        for tracker in self.trackers:
            _require_choice("trackers", tracker, Tracker)
        if self.table_placement == "sharded" and self.precision == "fp16":
            raise InvalidValueError(
                "table_placement = 'sharded' with precision = 'fp16'",
                expected="a precision without scaled losses, whose scale processes with different rows could not agree on",
                remedy="Set precision to bf16 or no, or table_placement to replicated",
            )


@dataclass(frozen=True)
class TextConfig:
    """How the text of a run is read.

    Raises:
        InvalidValueError: if a number is out of its range.
    """

    shuffle_buffer: int = 0
    """0: encode the whole text before training, in 4 bytes of memory per token, and shuffle all of it; else read it while
    training, and shuffle so many documents with each other."""
    weights: tuple[float, ...] = ()
    """A number for each entry of the corpus' data, in order: its share of the tokens. Each is then read by itself, all of
    it once per epoch of its own; unset: one text, in the order given."""
    processes: int = 0
    """Processes that encode, each on one core; 0: this one, on the threads of the tokenizer's library, which is about as
    fast on few cores."""

    def __post_init__(self) -> None:
        require_whole("shuffle_buffer", self.shuffle_buffer, 0)
        require_whole("processes", self.processes, 0)
        if not all(type(weight) in (int, float) and 0 < weight < math.inf for weight in self.weights):
            raise InvalidValueError(
                f"weights {self.weights!r}",
                expected="finite numbers above 0",
                remedy="Leave a source out of the data, or raise its weight",
            )


@dataclass(frozen=True)
class HostConfig:
    """The host: a model that transformers loads, or a fresh Llama of the given sizes."""

    path: str | None = None
    """A causal language model: a folder, a .gguf file, package:name, or a hub name; unset: a fresh Llama."""
    width: int = 128
    """D of a fresh Llama."""
    num_layers: int = 3
    """Decoder layers of a fresh Llama."""
    num_heads: int = 4
    """Attention heads of a fresh Llama."""


@dataclass(frozen=True)
class PretrainConfig:
    """A run: text, tokenizer, host and memory.

    Raises:
        InvalidValueError: if settings contradict each other.
    """

    tokenizer: str
    """The host's tokenizer: hf:name, a file, a folder, package:name, a name in tokenizers_cfg, or for a fresh host bpe:IDS,
    a byte-level BPE of that many ids that is trained on the corpus first."""
    output: str
    """Folder of the run: config, metrics, checkpoints, and in the end host, reader and memory."""
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    host: HostConfig = field(default_factory=HostConfig)
    memory: JointConfig = field(default_factory=JointConfig)
    """A fresh memory, trained with the host; not used when memory_file is set."""
    memory_file: str | None = None
    """A memory file, read frozen: only the reader and the host are trained."""
    reading: Reading = "frozen"
    """With memory_file: read it as it is, or for comparison noise, its rows in another order, or single tokens only."""
    train_table: bool = False
    """With memory_file: go on training the table (a warm start)."""
    memory_stays: bool = False
    """With memory_file: leave its rows in the file while the host is on a GPU, and fetch what each batch looks up, one batch
    ahead; for tables larger than the device."""
    train_host: bool = True
    """Train the host's own parameters too."""
    layers: tuple[int, ...] = (1,)
    """Decoder layers that read the memory, from 0."""
    gate: GateForm = "sigmoid"
    """Form of the gate."""
    conv_kernel: int = 0
    """Taps of a short convolution behind the gate; 0: none (the paper takes 4)."""
    text: TextConfig = field(default_factory=TextConfig)
    fit: FitConfig = field(default_factory=FitConfig)
    plan: bool = False
    """Print what memory the run will take at its peak, and stop; with exit code 2 if that is more than there is."""
    resume: bool = False
    """Go on from the newest checkpoint in the output folder."""

    def __post_init__(self) -> None:
        if self.trained_ids is not None and not (self.trained_ids > 256 and self.host.path is None):
            raise InvalidValueError(
                f"tokenizer {self.tokenizer!r}" + (f" for the host {self.host.path!r}" if self.host.path else ""),
                expected="bpe:IDS with more than 256 ids, and a fresh host",
                remedy="Raise the number, or name the tokenizer that the host was trained with",
            )
        _require_choice("gate", self.gate, GateForm)
        _require_choice("reading", self.reading, Reading)
        require_whole("conv_kernel", self.conv_kernel, 0)
        if self.reading != "frozen" and (self.memory_file is None or self.train_table):
            raise InvalidValueError(
                f"reading {self.reading!r} {'with train_table' if self.train_table else 'without memory_file'}",
                expected="a memory file whose reading is to be compared, its table frozen",
                remedy="Name a memory_file and leave train_table out, or leave reading out",
            )
        if self.memory_stays and (self.memory_file is None or self.train_table):
            raise InvalidValueError(
                f"memory_stays {'with train_table' if self.train_table else 'without memory_file'}",
                expected="a memory file whose table is frozen, for only that can stay in its file",
                remedy="Name a memory_file and leave train_table out, or leave memory_stays out",
            )
        if self.train_table and self.memory_file is None:
            raise InvalidValueError(
                "train_table without memory_file",
                expected="a memory file whose table is to be trained on",
                remedy="Name a memory_file, or leave train_table out: a fresh memory is always trained",
            )

    @property
    def trained_ids(self) -> int | None:
        """Ids of a tokenizer that is trained on the corpus; None where the tokenizer is there already."""
        scheme, _, num_ids = self.tokenizer.partition(":")
        return int(num_ids) if scheme == "bpe" and num_ids.isdecimal() else None


@dataclass(frozen=True)
class AttachConfig(PretrainConfig):
    """A run that reads a frozen memory file: its reader is trained, and the host's own parameters if asked.

    Raises:
        InvalidValueError: if no memory file is named.
    """

    train_host: bool = False
    """Train the host's own parameters too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory_file is None:
            raise InvalidValueError("no memory file", expected="the file to read", remedy="Name one with --memory-file")


def _require_choice(name: str, value: object, choices: Any) -> None:
    if value not in get_args(choices):
        raise InvalidValueError(
            f"{name} = {value!r}", expected=" or ".join(get_args(choices)), remedy="Name one of these"
        )
