"""Several processes with a copy of the table each, against one process with the batches of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import scenarios
import torch
from ranks import call_together
from setups import TABLE
from torch import Tensor

SETTINGS = {
    "plain": {},
    "accumulated": {"accumulation": 3},
    "clipped with the table": {"clip_norm": 1e-3, "clip_table": True},
    "lazy Adam": {"table_optimizer": "lazy_adam"},
    "a rank without a window": {"silent": (2, 3)},
    "no window anywhere": {"silent": (0, 1, 2, 3)},
}


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_two_processes_equal_one_with_the_batches_of_both(
    tokenizer_file: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Keys and visits to the last bit; the losses within 1e-6; what was not looked up does not move."""
    both = call_together("updates", 2, tmp_path, tokenizer=str(tokenizer_file), **settings)
    one = scenarios.updates(str(tokenizer_file), **settings)
    assert torch.equal(torch.cat([found["keys"] for found in both]), one["keys"])
    for found in both:
        assert torch.equal(found["after.visits.0"], one["after.visits.0"])
        torch.testing.assert_close(found["losses"], one["losses"], rtol=0, atol=1e-6)
        torch.testing.assert_close(found["after." + TABLE], one["after." + TABLE], rtol=0, atol=1e-4)
    assert_same_everywhere(both)
    untouched = one["after.visits.0"] == 0
    assert untouched.any()
    for found in both:
        assert torch.equal(found["after." + TABLE][untouched], found["before." + TABLE][untouched])
    assert torch.equal(one["after." + TABLE], one["before." + TABLE]) == (len(settings.get("silent", ())) == 4)


def assert_same_everywhere(ranks: list[dict[str, Tensor]]) -> None:
    """All processes have the same parameters and visits, bit for bit."""
    for name in ranks[0]:
        if name.startswith("after."):
            assert all(torch.equal(found[name], ranks[0][name]) for found in ranks), name
