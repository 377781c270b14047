"""A memory to its hot rows: those that were written most often, and zeros in the place of all others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tokagnostic.errors import InvalidValueError
from tokagnostic.memory.base import NgramMemory, require_whole


@dataclass(frozen=True)
class HotRows:
    """What was kept of a memory."""

    kept: int
    """Rows that are as they were, of all tables."""
    rows: int
    """Rows of all tables."""
    least_visits: int
    """How often the coldest of the kept rows was written."""
    share_of_lookups: float
    """Share of the lookups of the memory's training that would have found a kept row."""


def keep_hot_rows(memory: NgramMemory, num_rows: int) -> HotRows:
    """Set all but the hottest rows of each table to zero, in place, and their visits too.

    The shape of a table and the way to its rows stay as they were, so that any reader of the memory reads what is left: a
    row that was cut adds nothing. A row that was never written holds the noise that it began with, and is cut whatever
    the number.

    Args:
        memory: its rows in memory, and not in a file.
        num_rows: rows to keep in each table; of two with as many visits the one with the lower number.

    Raises:
        InvalidValueError: if the number is below 1, or no row has been written.
    """
    require_whole("hot_rows", num_rows, 1)
    if not any(bool(visits.counts.any()) for visits in memory.visits):
        raise InvalidValueError(
            f"hot_rows = {num_rows} for a memory of which no row was ever written",
            expected="counts of how often each row was written, by which to choose",
            remedy="Leave hot_rows out, or export a memory that was trained",
        )
    kept = [hottest(visits.counts, num_rows) for visits in memory.visits]
    found = [visits.counts[hot] for visits, hot in zip(memory.visits, kept, strict=True)]
    result = HotRows(
        kept=sum(int(hot.sum()) for hot in kept),
        rows=sum(len(hot) for hot in kept),
        least_visits=min(int(counts.min()) for counts in found if len(counts)),
        share_of_lookups=sum(int(counts.sum()) for counts in found)
        / sum(int(visits.counts.sum()) for visits in memory.visits),
    )
    per_table = len(memory.store.tensors) // len(kept)
    for i, tensor in enumerate(memory.store.tensors):
        cold = ~kept[i // per_table].to(tensor.device)
        # Zero is zero in every type that rows are stored in, and not every type can be filled.
        tensor.detach().view(torch.uint8).masked_fill_(cold.unsqueeze(1), 0)
    for visits, hot in zip(memory.visits, kept, strict=True):
        visits.counts *= hot
    return result


def hottest(counts: Tensor, num_rows: int) -> Tensor:
    """Which rows have the most visits, bool [R], for visits int64 [R]; none that has no visit."""
    # A stable order, so that equal memories are cut alike.
    order = torch.sort(counts, descending=True, stable=True).indices[:num_rows]
    hot = torch.zeros(len(counts), dtype=torch.bool, device=counts.device)
    hot[order] = True
    return hot & (counts > 0)
