"""A frozen table to the tokens per second of a host that reads it: where it was left, beside where the host computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from tokagnostic.bench.measuring import Row, bench_row, best_seconds, random_vocabulary
from tokagnostic.bench.pretraining import LLAMA, Setting
from tokagnostic.hashing import HashCache
from tokagnostic.host import attach
from tokagnostic.memory.file import load_memory, save_memory
from tokagnostic.training.hosts import fresh_llama

LAYERS = (1,)


def measure_placement(setting: Setting = LLAMA, repeats: int = 10) -> list[Row]:
    """Forward passes of a host that reads a memory file: mapped, and on a machine with a GPU in host memory too.

    Args:
        setting: host, memory and tokens of a pass.
        repeats: of each pass, in turn.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cache = HashCache.build(random_vocabulary(np.random.default_rng(0), setting.num_ids))
    generator = torch.Generator().manual_seed(0)
    # Other tokens each time: rows that were just read would lie in a cache.
    all_ids = torch.randint(0, setting.num_ids, (64, setting.batch_size, setting.block_length), generator=generator)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "memory.safetensors"
        save_memory(setting.memory.build(cache), file)

        def reader(mapped: bool, stays: bool) -> Callable[[], object]:
            memory = load_memory(file, cache, mapped=mapped)
            model: Any = fresh_llama(setting.host, setting.num_ids, setting.block_length, 0)
            attach(model, cache, memory.stay() if stays else memory, LAYERS)
            model.to(device).eval()
            steps = iter(range(10**9))

            @torch.inference_mode()
            def read() -> None:
                model(input_ids=all_ids[next(steps) % len(all_ids)].to(device), use_cache=False)
                if device.type == "cuda":
                    torch.cuda.synchronize()

            return read

        placed = {"mapped from its file": reader(mapped=True, stays=True)}
        if device.type == "cuda":
            placed["in host memory"] = reader(mapped=False, stays=True)
        *seconds, rival = best_seconds(*placed.values(), reader(mapped=False, stays=False), repeats=repeats)
    num_tokens = setting.batch_size * setting.block_length
    where = f"the same in the memory of the {'GPU' if device.type == 'cuda' else 'CPU'}; the bar is 0.97"
    return [
        bench_row(f"reading a frozen table {place}", num_tokens / ours, "tok/s", where, num_tokens / rival)
        for place, ours in zip(placed, seconds, strict=True)
    ]
