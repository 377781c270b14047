"""What several processes do together, started and ended from a test; run as a script, it is one of them."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tokagnostic.training.processes import ending_processes

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60
"""Seconds that processes get to finish: those that wait for each other for ever are killed then, and the test fails."""


def environment(rank: int, num_processes: int, port: int) -> dict[str, str]:
    """What `torchrun` tells each process where ACCELERATE_USE_CPU is set; nothing of it where there is only one."""
    values = {**os.environ, "ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if num_processes > 1:
        values |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "LOCAL_RANK": str(rank)}
        values |= {"WORLD_SIZE": str(num_processes), "LOCAL_WORLD_SIZE": str(num_processes)}
    return values


def run_together(command: list[str], num_processes: int) -> tuple[list[int], str]:
    """Run a command in several processes; none of them, nor of their children, is left behind.

    Returns:
        Exit codes of all, below 0 for those that had to be killed, and what they wrote to stderr.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    started = [
        subprocess.Popen(
            command,
            env=environment(rank, num_processes, port),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for rank in range(num_processes)
    ]
    errors, until = [], time.monotonic() + LIMIT
    try:
        for process in started:
            try:
                errors.append(process.communicate(timeout=max(0.1, until - time.monotonic()))[1])
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                errors.append(process.communicate()[1] + f"\nkilled after {LIMIT} s")
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return [process.returncode for process in started], "\n".join(errors)


def call_together(name: str, num_processes: int, folder: Path, /, **arguments: Any) -> list[dict[str, Tensor]]:
    """Call a function of `scenarios.py` in several processes; what it returned in each, by rank."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, __file__, name, str(folder), json.dumps(arguments)]
    codes, errors = run_together(command, num_processes)
    assert codes == [0] * num_processes, errors
    return [load_file(folder / f"rank-{rank}.safetensors") for rank in range(num_processes)]


def _main() -> None:
    name, folder, arguments = sys.argv[1:]
    torch.set_num_threads(1)
    scenario = getattr(importlib.import_module("scenarios"), name)
    found = ending_processes(lambda: scenario(**json.loads(arguments)))
    save_file(found, Path(folder) / f"rank-{os.environ.get('RANK', '0')}.safetensors")


if __name__ == "__main__":
    _main()
