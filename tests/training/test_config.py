"""Settings that cannot be used are refused where they are stated."""

from __future__ import annotations

from typing import Any

import pytest

from tokagnostic.errors import InvalidValueError
from tokagnostic.training.config import AttachConfig, FitConfig, HostConfig, PretrainConfig
from tokagnostic.training.hosts import fresh_llama


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_steps": 0},
        {"num_steps": 2.5},
        {"batch_size": True},
        {"block_length": 1},
        {"accumulation": 0},
        {"seed": -1},
        {"log_every": 0},
        {"save_every": -1},
        {"learning_rate": float("inf")},
        {"learning_rate": float("nan")},
        {"table_rate_factor": -1.0},
        {"warmup_share": 1.5},
        {"weight_decay": "0.1"},
        {"clip_norm": False},
        {"precision": "fp8"},
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_one_line_that_names_it(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidValueError, match=f"^{name} = ") as caught:
        FitConfig(**wrong)
    assert "\n" not in str(caught.value)


def test_whole_numbers_do_for_rates() -> None:
    assert FitConfig(learning_rate=1, weight_decay=0, clip_norm=0, warmup_share=1).learning_rate == 1


def test_attach_without_a_memory_file_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"no memory file; .* --memory-file"):
        AttachConfig(tokenizer="t", output="o")


def test_a_warm_start_without_a_memory_file_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="train_table without memory_file"):
        PretrainConfig(tokenizer="t", output="o", train_table=True)


@pytest.mark.parametrize(
    "wrong",
    [{"memory_file": None}, {"memory_file": "m", "train_table": True}, {"memory_file": "m", "reading": "noise"}],
    ids=["no file", "trained", "unknown"],
)
def test_a_reading_for_comparison_needs_a_frozen_file(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match="reading"):
        PretrainConfig(**{"tokenizer": "t", "output": "o", "reading": "random", **wrong})


@pytest.mark.parametrize("wrong", [{"tokenizer": "bpe:256"}, {"host": HostConfig(path="model")}], ids=["ids", "host"])
def test_a_tokenizer_is_trained_for_fresh_hosts_with_room_for_bytes(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match="tokenizer 'bpe:"):
        PretrainConfig(**{"tokenizer": "bpe:300", "output": "o", **wrong})


def test_an_unknown_gate_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="expected sigmoid or signed_sqrt"):
        PretrainConfig(tokenizer="t", output="o", gate="open")


def test_attach_trains_the_reader_alone_unless_asked() -> None:
    assert not AttachConfig(tokenizer="t", output="o", memory_file="m").train_host
    assert PretrainConfig(tokenizer="t", output="o").train_host


@pytest.mark.parametrize("sizes", [{"width": 18, "num_heads": 2}, {"num_layers": 0}, {"width": 30}], ids=str)
def test_a_host_whose_heads_do_not_fit_is_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(InvalidValueError, match="a host of width"):
        fresh_llama(HostConfig(**sizes), 10, 16, 0)
