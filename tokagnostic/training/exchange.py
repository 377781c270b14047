"""Each process's sparse gradient of a table to the one that a single process with all their batches would have."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from tokagnostic.host import Attachment
from tokagnostic.memory.visits import Visits
from tokagnostic.training.table_optimizers import backend_for

_NUM_LEADING = 3
"""Words of 32 bits before a row's gradient: two for the row's number, one for its lookups."""


def trained_tables(attachment: Attachment | None) -> list[tuple[Tensor, Visits]]:
    """The trainable tables of an attached memory, each with its visits, which keep from here on what is to be exchanged."""
    if attachment is None:
        return []
    memory = attachment.memory
    pairs = zip(memory.store.tables, memory.visits, strict=True)
    found = [(table, visits) for table, visits in pairs if isinstance(table, Tensor) and table.requires_grad]
    for _, visits in found:
        visits.take_recent()
    return found


@torch.no_grad()
def exchange_gradients(tables: Iterable[tuple[Tensor, Visits]]) -> None:
    """Give every process the mean gradient of all, and the visits of all.

    Each process sends the rows that it has looked up since its gradients were last cleared, each once, with the sum of
    their gradients and the number of their lookups; nothing of other rows is sent or read. What arrives stands in the order of
    the ranks, so that all processes add it up in the same order and, by the same rule, keep the same table bit for bit.
    The mean is over processes, as data-parallel training takes it for dense gradients.

    Every process must call this with the same tables; one that has looked nothing up takes part with no rows. Per table a
    process receives (W - 1) * U * (12 + 4 * dim) bytes and sends as many, for W processes of which the busiest has
    looked up U different rows: an all-gather, padded to U.

    Args:
        tables: float [R, dim] with sparse gradients or none, equal in all processes; and their visits, which count in each
            process what that process has looked up, and everything that was exchanged before.
    """
    for table, visits in tables:
        gathered = _gathered(_packed(table, visits.take_recent()))
        own = dist.get_rank()
        for rank, (rows, counts, _) in enumerate(gathered):
            if rank != own:
                visits.add(rows, counts)
        rows = torch.cat([rows for rows, _, _ in gathered])
        values = torch.cat([values for _, _, values in gathered]) / len(gathered)
        table.grad = torch.sparse_coo_tensor(
            rows.unsqueeze(0), values.to(table.dtype), table.shape, check_invariants=False
        )


def _packed(table: Tensor, visited: Tensor) -> Tensor:
    """What a process has to tell of a table: row, lookups and gradient of each row, int32 [U, 3 + dim]."""
    packed = torch.empty(0, _NUM_LEADING + table.shape[1], dtype=torch.int32, device=table.device)
    if table.grad is None:
        return packed
    rows, values = backend_for(table).sum_by_row(table.grad)
    # Not the gradient's occurrences: where several backward passes have added to it, some are summed already.
    places = torch.searchsorted(rows, visited)
    packed = packed.new_empty(len(rows), packed.shape[1])
    packed[:, :2] = rows.unsqueeze(1).view(torch.int32)
    packed[:, 2] = torch.bincount(places, minlength=len(rows))
    packed[:, _NUM_LEADING:] = values.view(torch.int32)
    return packed


def _gathered(packed: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Rows, int64 [U], lookups, int64 [U], and gradients, float32 [U, dim], of each process, by rank."""
    world_size = dist.get_world_size()
    sizes = packed.new_empty(world_size, dtype=torch.int64)
    dist.all_gather(list(sizes.split(1)), sizes.new_tensor([len(packed)]))
    lengths = sizes.tolist()
    padded = packed.new_zeros(max(lengths), packed.shape[1])
    padded[: len(packed)] = packed
    received = packed.new_empty(world_size, *padded.shape)
    if len(padded):
        dist.all_gather(list(received.unbind()), padded)
    return [_unpacked(part[:length]) for part, length in zip(received, lengths, strict=True)]


def _unpacked(packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = packed[:, :2].flatten().clone().view(torch.int64)
    return rows, packed[:, 2].long(), packed[:, _NUM_LEADING:].contiguous().view(torch.float32)
