"""An update makes nothing of the size of a table: no gradient, no intermediate, no copy of a state."""

from __future__ import annotations

import gc
from typing import get_args

import numpy as np
import psutil
import pytest
import torch
from setups import FIT, HOST, change

from tokagnostic.hashing import HashCache
from tokagnostic.host import Attachment, attach
from tokagnostic.memory import JointConfig
from tokagnostic.tokens import TokenBytes
from tokagnostic.training.allocations import Allocations
from tokagnostic.training.config import FitConfig, TableDtype, TableRule
from tokagnostic.training.hosts import fresh_llama
from tokagnostic.training.packing import Batch
from tokagnostic.training.plan import FORGET_PEAK, STATE_BYTES, VISIT_BYTES, _forget_peak, _peak_resident
from tokagnostic.training.updating import Updater, make_accelerator, make_optimizers

NUM_IDS = 97
SETTINGS = change(FIT, batch_size=1, block_length=16)


def built(num_rows: int, dim: int, dtype: str) -> Attachment:
    """A host with a memory of two heads."""
    cache = HashCache.build(TokenBytes.from_list([b"%d" % i for i in range(NUM_IDS)]))
    memory = JointConfig(max_order=2, num_rows=num_rows // 2, num_heads=2, dim=dim).build(cache)
    for table in memory.parameters():
        table.data = table.data.to(torch.bfloat16 if dtype == "bf16" else torch.float32)
    return attach(fresh_llama(HOST, NUM_IDS, SETTINGS.block_length, seed=0), cache, memory)


def updated(attachment: Attachment, settings: FitConfig, count: int) -> None:
    """Make some updates, each of other tokens."""
    random = np.random.default_rng(0)
    positions = np.arange(settings.block_length)[None]
    optimizers = make_optimizers(attachment.model, attachment, settings)
    accelerator = make_accelerator(settings)
    with Updater(accelerator, attachment.model, optimizers, settings.clip_norm, settings.clip_table) as updater:
        for _ in range(count):
            ids = random.integers(0, NUM_IDS, (1, settings.block_length))
            updater.update([Batch(ids, positions == 0, positions)], 1.0)


@pytest.mark.parametrize("clip_table", [False, True], ids=["norm of the host", "norm of all"])
@pytest.mark.parametrize("dtype", get_args(TableDtype))
@pytest.mark.parametrize("rule", get_args(TableRule))
def test_what_torch_makes_in_updates_grows_by_the_state_alone(
    rule: TableRule, dtype: TableDtype, clip_table: bool
) -> None:
    """M-07: with 400 times the rows, state and visits are larger, and nothing else, from the preparation on."""
    settings, peaks, kept = change(SETTINGS, table_optimizer=rule, clip_table=clip_table), [], []
    for num_rows in (1_000, 400_000):
        attachment = built(num_rows, 4, dtype)
        rows = sum(attachment.memory.addresser.num_rows)
        with Allocations() as allocations:
            updated(attachment, settings, 3)
        peaks.append(allocations.peak)
        kept.append(rows * (STATE_BYTES[rule](4) + VISIT_BYTES))
    grown = (peaks[1] - kept[1]) - (peaks[0] - kept[0])
    assert grown < 400_000, "less than a byte for each row"


@pytest.mark.slow
@pytest.mark.skipif(not FORGET_PEAK.exists(), reason="this system does not measure a peak anew")
@pytest.mark.parametrize("rule", get_args(TableRule))
def test_the_process_holds_no_second_table(rule: TableRule) -> None:
    """M-07: what kernels and libraries take is seen too; a table of 256 MiB."""
    attachment = built(2**21, 32, "fp32")
    (table,) = attachment.memory.parameters()
    settings = change(SETTINGS, table_optimizer=rule)
    updated(built(1_000, 32, "fp32"), settings, 1)  # compiles
    gc.collect()
    assert _forget_peak()
    before = psutil.Process().memory_info().rss
    updated(attachment, settings, 3)
    assert _peak_resident() - before < len(table) * (STATE_BYTES[rule](32) + VISIT_BYTES) + table.nbytes // 4
