"""Whole updates of a run to their tokens per second: of hosts with a memory that is trained, beside the same hosts without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokagnostic.bench.measuring import Row, bench_row, best_seconds, random_vocabulary
from tokagnostic.hashing import HashCache
from tokagnostic.memory import JointConfig
from tokagnostic.training.config import HostConfig

NUM_THREADS = 2


@dataclass(frozen=True)
class Setting:
    """A host, its memory, and the tokens of an update."""

    name: str
    host: HostConfig
    num_ids: int
    memory: JointConfig
    batch_size: int
    block_length: int


DEMONSTRATION = Setting(
    "the demonstration's source",
    HostConfig(width=128, num_layers=3),
    num_ids=4_096,
    memory=JointConfig(num_rows=65_536, num_heads=4, dim=16),
    batch_size=16,
    block_length=128,
)
LLAMA = Setting(
    "a Llama of 33 M",
    HostConfig(width=512, num_layers=8, num_heads=8),
    num_ids=16_000,
    memory=JointConfig(num_rows=65_536, num_heads=8, dim=16),
    batch_size=4,
    block_length=128,
)


def measure_pretraining(
    settings: tuple[Setting, ...] = (DEMONSTRATION, LLAMA), repeats: tuple[int, ...] = (20, 6)
) -> list[Row]:
    """Updates from blocks to trained parameters: keys, visits, clipping and the table's own rule are counted in.

    The text is random, so that hardly a window comes twice: a step looks up as many rows as it can.

    Args:
        settings: what is trained.
        repeats: of each update, by setting.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(NUM_THREADS)
    try:
        return [_measure(setting, count) for setting, count in zip(settings, repeats, strict=True)]
    finally:
        torch.set_num_threads(before)


def _measure(setting: Setting, repeats: int) -> Row:
    num_tokens = setting.batch_size * setting.block_length
    with_memory, without = best_seconds(updater(setting, True), updater(setting, False), repeats=repeats)
    name = f"pretraining, {setting.name}, with memory"
    return bench_row(name, num_tokens / with_memory, "tok/s", "without; the bar is 0.8", num_tokens / without)


def updater(setting: Setting, has_memory: bool) -> Callable[[], object]:
    """A function that makes the updates of a run, one each time it is called."""
    from tokagnostic.host import attach
    from tokagnostic.training.config import FitConfig
    from tokagnostic.training.hosts import fresh_llama
    from tokagnostic.training.packing import BlockSampler, TokenStream
    from tokagnostic.training.updating import Updater, make_accelerator, make_optimizers

    random = np.random.default_rng(0)
    config = FitConfig(batch_size=setting.batch_size, block_length=setting.block_length)
    model: Any = fresh_llama(setting.host, setting.num_ids, setting.block_length, 0)
    attachment = None
    if has_memory:
        cache = HashCache.build(random_vocabulary(random, setting.num_ids))
        attachment = attach(model, cache, setting.memory.build(cache), (1,))
    stream = TokenStream.from_ids([random.integers(0, setting.num_ids, 2**16)])
    sampler = BlockSampler(stream, setting.block_length, setting.batch_size, 0)
    optimizers = make_optimizers(model, attachment, config)
    made = Updater(make_accelerator(config), model, optimizers, config.clip_norm)
    steps = iter(range(10**9))

    def update() -> None:
        made.update([sampler.batch(next(steps))], 1.0)

    return update
