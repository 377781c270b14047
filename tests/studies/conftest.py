"""A demonstration of a few steps on a made-up text, run once for all tests that look at what it leaves."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokagnostic.corpus import CorpusConfig
from tokagnostic.memory import JointConfig
from tokagnostic.studies.demo import DemoConfig, demo
from tokagnostic.training.config import HostConfig

SYLLABLES = ("ka", "lo", "mi", "ter", "nal", "in", "po", "su", "ré", "tha")


def made_up_text(num_paragraphs: int) -> str:
    """Paragraphs of words that come back, the same at every call."""
    draw = random.Random(0)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 3))) for _ in range(60)]
    return "\n\n".join(" ".join(draw.choices(words, k=40)) + "." for _ in range(num_paragraphs))


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of 90 paragraphs."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(made_up_text(90), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_config(text_file: Path) -> Callable[..., DemoConfig]:
    """Builds the config of a demonstration of seconds."""

    def build(output: Path, **changes: Any) -> DemoConfig:
        settings = {
            "corpus": CorpusConfig(data=(str(text_file),), documents="paragraph"),
            "held_out_share": 0.15,
            "source_ids": 330,
            "target_ids": 350,
            "source_host": HostConfig(width=32, num_layers=2, num_heads=2),
            "target_host": HostConfig(width=16, num_layers=2, num_heads=2),
            "memory": JointConfig(num_rows=211, num_heads=2, dim=4),
            "source_steps": 4,
            "target_steps": 3,
            "batch_size": 4,
            "block_length": 16,
            "overlap_order": 3,
        }
        return DemoConfig(output=str(output), **{**settings, **changes})

    return build


@pytest.fixture(scope="session")
def finished(tiny_config: Callable[..., DemoConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished demonstration. Do not change it."""
    folder = tmp_path_factory.mktemp("demo") / "run"
    demo(tiny_config(folder))
    return folder
