"""Several processes: one run, one folder, one batch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from ranks import run_together
from safetensors.torch import load_file
from setups import FIT, SENTENCES, Setup
from tokenizers import Tokenizer

from tokagnostic.memory.file import save_memory

MAIN = "import sys; from tokagnostic.cli import main; main(sys.argv[1:])"


def run(arguments: list[str], num_processes: int) -> tuple[list[int], str]:
    """Exit codes of all processes, and what they wrote to stderr."""
    return run_together([sys.executable, "-c", MAIN, *arguments], num_processes)


@pytest.fixture
def arguments(byte_tokenizer: Tokenizer, setup: Setup, tmp_path: Path) -> list[str]:
    """A run that reads a frozen memory."""
    byte_tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "text.txt").write_text("\n".join(SENTENCES * 9))
    save_memory(setup.memory, tmp_path / "memory.safetensors")
    shared = ["--tokenizer", str(tmp_path / "tokenizer.json"), "--corpus.data", str(tmp_path / "text.txt")]
    shared += ["--host.width", "16", "--host.num-layers", "2", "--host.num-heads", "2", "--train-host"]
    shared += ["--fit.num-steps", "6", "--fit.block-length", "16", "--fit.save-every", "3", "--fit.log-every", "1"]
    return [*shared, "--memory-file", str(tmp_path / "memory.safetensors")]


@pytest.mark.slow
def test_two_processes_are_one_with_a_batch_of_twice_the_size(arguments: list[str], tmp_path: Path) -> None:
    """And a frozen table is neither changed nor sent around; a second start with --resume finds the run finished."""
    two = ["attach", *arguments, "--fit.batch-size", "2", "--output", str(tmp_path / "two")]
    codes, errors = run(two, 2)
    assert codes == [0, 0], errors
    codes, errors = run(["attach", *arguments, "--fit.batch-size", "4", "--output", str(tmp_path / "one")], 1)
    assert codes == [0], errors
    for file in ("host/model.safetensors", "attachment/reader.safetensors", "attachment/memory.safetensors"):
        one, other = (load_file(tmp_path / name / file) for name in ("one", "two"))
        for name, tensor in one.items():
            torch.testing.assert_close(other[name], tensor, rtol=1e-2, atol=1e-3, msg=name)
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two")]
    assert [result["tokens_seen"] for result in results] == [6 * 4 * FIT.block_length] * 2
    assert len((tmp_path / "two" / "metrics.jsonl").read_text().splitlines()) == 6
    codes, errors = run([*two, "--resume"], 2)
    assert codes == [0, 0] and "is finished" in errors
