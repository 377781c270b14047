"""A training step to its seconds, with a large table and with a small one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from tokagnostic.bench.measuring import Row, bench_row, best_seconds, random_vocabulary
from tokagnostic.hashing import HashCache


def measure_step(
    num_rows: int = 2**24, num_fewer_rows: int = 2**16, dim: int = 32, repeats: int = 12, batch_size: int | None = None
) -> list[Row]:
    """A training step of the demonstration's source with a large table against one with a small table.

    Args:
        num_rows: of all heads together; a table of 2 GiB by default.
        num_fewer_rows: of the small table.
        dim: numbers per row of both.
        repeats: of each step, in turn.
        batch_size: blocks per step; by default the demonstration's.
    """
    large, small = best_seconds(
        trainer(num_rows, dim, batch_size), trainer(num_fewer_rows, dim, batch_size), repeats=repeats
    )
    name = f"the same step with {num_fewer_rows:,} rows; the bar is 0.91"
    return [bench_row(f"training step, {num_rows:,} rows x {dim}", large, "s", name, small, less_is_better=True)]


def trainer(num_rows: int, dim: int, batch_size: int | None) -> Callable[[], object]:
    """A function that makes one training step with a table of about this many rows in all; see `measure_step`."""
    import torch

    from tokagnostic.host import attach
    from tokagnostic.studies.demo import DemoConfig
    from tokagnostic.training.hosts import fresh_llama
    from tokagnostic.training.optim import dense_groups
    from tokagnostic.training.table_optimizers import RowwiseRMSProp

    config = DemoConfig() if batch_size is None else DemoConfig(batch_size=batch_size)
    random = np.random.default_rng(0)
    cache = HashCache.build(random_vocabulary(random, config.source_ids))
    per_head = num_rows // config.memory.num_heads
    memory = dataclasses.replace(config.memory, num_rows=per_head, dim=dim).build(cache)
    model = fresh_llama(config.source_host, config.source_ids, config.block_length, 0)
    attach(model, cache, memory, (1,))
    tables = list(memory.parameters())
    host = [(name, p) for name, p in model.named_parameters() if all(p is not table for table in tables)]
    optimizers = [torch.optim.AdamW(dense_groups(host, 0.1), lr=1e-3), RowwiseRMSProp(tables, lr=1e-2)]
    model.train()

    def train() -> None:
        ids = torch.from_numpy(random.integers(0, config.source_ids, (config.batch_size, config.block_length)))
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return train
