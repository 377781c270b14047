"""A tiny host with a tiny memory on a tiny repetitive text, small enough for thousands of updates a minute."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from tokagnostic.host import Attachment
from tokagnostic.memory import JointConfig, NgramMemory
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.training.config import FitConfig, HostConfig
from tokagnostic.training.fit import FitResult, fit
from tokagnostic.training.packing import TokenStream

SENTENCES = (
    "The river runs through the old stone town.",
    "In the spring it rises over the lower bridge.",
    "The council built a wall of river stone, and built it again.",
)
HOST = HostConfig(width=16, num_layers=2, num_heads=2)
MEMORY = JointConfig(max_order=2, num_rows=211, num_heads=2, dim=4)
FIT = FitConfig(
    num_steps=8, batch_size=2, block_length=16, learning_rate=1e-2, weight_decay=0.1, log_every=1, save_every=0
)
TABLE = "tokagnostic.memory.store.tables.0"
"""Name of the table among the parameters of the host."""
RUN_FIT = dataclasses.replace(FIT, num_steps=4, save_every=2)
"""For runs from the file of text on."""
LINES = [sentence for _ in range(9) for sentence in SENTENCES]


@dataclass
class Setup:
    """A host with a memory, and what it is trained on."""

    model: Any
    memory: NgramMemory
    attachment: Attachment
    stream: TokenStream
    encoder: TextEncoder

    def fit(self, folder: Path, config: FitConfig = FIT, **arguments: Any) -> FitResult:
        return fit(self.model, self.stream, config, folder, attachment=self.attachment, **arguments)

    def tensors(self) -> dict[str, Tensor]:
        """A copy of every parameter, and of the visits."""
        found = {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}
        return found | {f"visits.{i}": visits.counts.clone() for i, visits in enumerate(self.memory.visits)}


def set_dropout(setup: Setup, share: float) -> None:
    """Make the host draw from the global generator in training."""
    for layer in setup.model.model.layers:
        layer.self_attn.attention_dropout = share


def change(config: Any, **changes: Any) -> Any:
    """A config with other values."""
    return dataclasses.replace(config, **changes)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def steps_of(folder: Path) -> list[int]:
    """The step of every line of a run's metrics."""
    return [line["step"] for line in lines_of(folder)]


def weights_of(folder: Path) -> dict[str, Tensor]:
    """Host, reader, table and visits of a finished run."""
    files = ("host/model.safetensors", "attachment/reader.safetensors", "attachment/memory.safetensors")
    return {f"{file}:{name}": tensor for file in files for name, tensor in load_file(folder / file).items()}


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """The same names, and under each the same bits."""
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []
