"""A memory's trained tables to shares of their rows, one in each process, and back to whole tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor

from tokagnostic.errors import TrainingError
from tokagnostic.hashing.rows import HeadRows
from tokagnostic.host import Attachment
from tokagnostic.memory.base import NgramMemory
from tokagnostic.memory.stores import TableStore
from tokagnostic.memory.visits import Visits
from tokagnostic.training.config import TablePlacement

ROWS_AT_ONCE = 2**16
"""Rows of each process that are gathered together."""


@dataclass(frozen=True, eq=False)
class RowShares:
    """Which rows of a table a process owns: row r belongs to process r % W, where it stands at r // W.

    Rows next to each other belong to different processes, so that all own as many to within one, whatever the heads.
    """

    num_rows: int
    """R of the whole table."""
    rank: int
    """Of this process."""
    group: Any
    """Those who share, apart from other exchanges: what is in flight there may overtake."""

    @property
    def num_processes(self) -> int:
        """W."""
        return dist.get_world_size(self.group)

    def own(self, whole: Tensor) -> Tensor:
        """This process's share of something with one entry per row, [R, ...] to [R / W, ...], a copy."""
        return whole[self.rank :: self.num_processes].clone()

    def whole(self, own: Tensor) -> Tensor | None:
        """The opposite of `own`, on the CPU of the first process; None in the others. All of them must call this."""
        world_size = self.num_processes
        found = torch.empty(self.num_rows, *own.shape[1:], dtype=own.dtype) if self.rank == 0 else None
        # Block by block: shares of the whole beside the whole would be the largest thing that a run ever holds.
        for first in range(0, -(-self.num_rows // world_size), ROWS_AT_ONCE):
            part = own[first : first + ROWS_AT_ONCE]
            sent = own.new_zeros(min(ROWS_AT_ONCE, -(-self.num_rows // world_size) - first), *own.shape[1:])
            sent[: len(part)] = part  # of the last block some have a row less
            if found is None:
                dist.gather(sent, group=self.group)
                continue
            shares = [torch.empty_like(sent) for _ in range(world_size)]
            dist.gather(sent, shares, group=self.group)
            for rank, share in enumerate(shares):
                place = found[rank::world_size][first : first + ROWS_AT_ONCE]
                place.copy_(share[: len(place)])
        return found


@dataclass(frozen=True, eq=False)
class Request:
    """What this process asks of the owners of rows, and what it is asked as an owner."""

    shares: RowShares
    order: Tensor
    """Places of the wanted rows, the first owner's first, int64 [U]."""
    num_wanted: list[int]
    """Rows wanted of each process."""
    num_asked: list[int]
    """Rows that each process asks for here."""
    asked: Tensor
    """Where these stand in the own share, int64 [A]."""
    times: Tensor
    """How often each was looked up where it is asked from, int64 [A]."""

    @classmethod
    def make(cls, shares: RowShares, wanted: Tensor, times: Tensor) -> Request:
        """Tell the owners of rows that they are wanted; all processes must do so together.

        Args:
            shares: who owns what.
            wanted: different rows, int64 [U].
            times: how often each is looked up, int64 [U].
        """
        world_size = shares.num_processes
        owners = wanted % world_size
        order = torch.argsort(owners, stable=True)
        sizes = torch.bincount(owners, minlength=world_size)
        asked_sizes = torch.empty_like(sizes)
        dist.all_to_all_single(asked_sizes, sizes, group=shares.group)
        num_wanted, num_asked = sizes.tolist(), asked_sizes.tolist()
        sent = torch.stack([wanted // world_size, times], dim=1)[order]  # [U, 2]
        received = _all_to_all(sent, num_wanted, num_asked, shares.group)
        return cls(shares, order, num_wanted, num_asked, received[:, 0].contiguous(), received[:, 1].contiguous())

    def answer(self, vectors: Tensor) -> Tensor:
        """Send what was asked for, float [A, dim], in exchange for what was wanted, float [U, dim]."""
        received = _all_to_all(vectors, self.num_asked, self.num_wanted, self.shares.group)
        return torch.empty_like(received).index_copy_(0, self.order, received)

    def hand_over(self, gradients: Tensor) -> Tensor:
        """Send the gradients of what was wanted, float [U, dim], for those of what was asked for, float [A, dim]."""
        return _all_to_all(gradients[self.order], self.num_wanted, self.num_asked, self.shares.group)


class _SharedLookup(torch.autograd.Function):
    """Vectors of rows that other processes own; their gradients go to the owners, as a mean over processes."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, request: Request) -> Tensor:
        ctx.request, ctx.share_shape = request, share.shape
        return request.answer(share.index_select(0, request.asked))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        request = ctx.request
        values = request.hand_over(gradients[0].contiguous()) / request.shares.num_processes
        return (
            torch.sparse_coo_tensor(request.asked.unsqueeze(0), values, ctx.share_shape, check_invariants=False),
            None,
        )


class ShardedStore(TableStore):
    """A `TableStore` of whose rows each process owns a share, with its gradient, its optimizer state and its visits.

    A lookup sends the different rows that a process wants to their owners, and their vectors back; backward sends their
    gradients to the owners, who add them up in the order of the ranks, so that nothing else of tables has to be exchanged.
    All processes must look up together, those without a window with nothing. Per lookup of a table a process sends about
    U * (16 + dim * size) bytes for U different rows, `size` those of a number, and receives as many; backward as many
    again, less the 16.

    Args:
        tables: the own share of each table, float [R / W, dim]; they become parameters without a copy.
        shares: who owns what of each.
        visits: of the own rows of each table; they count what all processes look up in training.
    """

    def __init__(self, tables: Sequence[Tensor], shares: Sequence[RowShares], visits: Sequence[Visits]) -> None:
        super().__init__(tables)
        self.shares = list(shares)
        self.visits = list(visits)

    def forward(self, rows: Tensor, table: int = 0) -> Tensor:
        """Look rows of the whole table up, int64 [B, T, N, K].

        Returns:
            Features, in the table's dtype, [B, T, N * K * dim]; zero where the row is -1.
        """
        flat, share = rows.reshape(-1), self.tables[table]
        places = (flat >= 0).nonzero().squeeze(1)
        wanted, where, times = torch.unique(flat[places], return_inverse=True, return_counts=True)
        request = Request.make(self.shares[table], wanted, times)
        if self.training:
            self.visits[table].add(request.asked, request.times)
        vectors: Tensor = _SharedLookup.apply(share, request)
        # Whatever is wanted, the graph holds the lookup: an owner waits for gradients from every process.
        features = vectors.new_zeros(len(flat), self.dim).index_copy(0, places, vectors.index_select(0, where))
        return features.view(*rows.shape, self.dim).flatten(start_dim=-3)

    def read(self, keys: Tensor, heads: HeadRows, table: int = 0) -> Tensor:
        """Address keys, int64 [B, T, N], and look their rows up: as `forward`."""
        features: Tensor = self(heads(keys), table)
        return features


class _CountedByOwners(Visits):
    """The visits of the own rows, which their owner counts when it is asked for them."""

    def count(self, rows: Tensor) -> None:
        """Do nothing: the store, which is asked next, tells the owners."""


class Sharding:
    """The tables of an attached memory while they are spread over processes; of one process none.

    Args:
        attachment: whose memory is spread; it is whole, and the same in all processes.
        placement: where tables are to be.
        accelerator: knows the processes.

    Raises:
        TrainingError: if a table that is to be sharded is not trained.
    """

    def __init__(self, attachment: Attachment | None, placement: TablePlacement, accelerator: Accelerator) -> None:
        self.shares: list[RowShares] = []
        if attachment is None or placement == "replicated":
            return
        memory = attachment.memory
        if memory.frozen:
            raise TrainingError(
                "table_placement = 'sharded' for a frozen memory",
                expected="a table that is trained",
                remedy="Leave table_placement out: the processes of a machine can map one file",
            )
        if accelerator.num_processes == 1:
            return
        group, rank = dist.new_group(), accelerator.process_index
        self._memory = memory
        self._plain, self._plain_visits = cast(TableStore, memory.store), memory.visits
        self.shares = [RowShares(len(table), rank, group) for table in self._plain.tables]
        pairs = list(zip(self.shares, self._plain.tables, memory.visits, strict=True))
        tables = [shares.own(table.detach()) for shares, table, _ in pairs]
        memory.visits = [
            _CountedByOwners(len(own), saved=shares.own(visits.counts))
            for own, (shares, _, visits) in zip(tables, pairs, strict=True)
        ]
        self._sharded = ShardedStore(tables, self.shares, memory.visits)
        memory.store = self._sharded.train(memory.training)
        for table in self._plain.tables:
            table.data = table.data.new_empty(0, table.shape[1])

    def written(self, memory: NgramMemory, table: int, rows: Tensor) -> Tensor:
        """Whether rows of a whole table were written, by whichever process; all processes must call this.

        Args:
            memory: the attached one.
            table: which of its tables.
            rows: int64 [L], none below 0.

        Returns:
            bool [L].
        """
        visits = memory.visits[table]
        if not self.shares:
            return visits.written(rows)
        shares, where = self.shares[table], memory.store.device_of(table)
        wanted, places = torch.unique(rows.to(where), return_inverse=True)
        request = Request.make(shares, wanted, torch.ones_like(wanted))
        answers = request.answer(visits.written(request.asked).to(where, torch.uint8).unsqueeze(1))
        return answers[places, 0] > 0

    def own(self, name: str, whole: Tensor) -> Tensor:
        """This process's share of a tensor of a checkpoint, if it has one entry per row of a table."""
        shares = self._shares_of(name, whole)
        return whole if shares is None else shares.own(whole)

    def whole(self, name: str, own: Tensor) -> Tensor | None:
        """The opposite of `own`: a tensor of a checkpoint in the first process, None in others; all must call this."""
        shares = self._shares_of(name, own)
        return own if shares is None else shares.whole(own.detach())

    def end(self) -> None:
        """Make the memory of the first process whole again, in host memory; the others keep their shares, with which none can read
        alone. All processes must call this.
        """
        if not self.shares:
            return
        memory = self._memory
        tables = [shares.whole(table.detach()) for shares, table in zip(self.shares, self._sharded.tables, strict=True)]
        counts = [
            shares.whole(visits.counts.to(table.device))
            for shares, visits, table in zip(self.shares, memory.visits, self._sharded.tables, strict=True)
        ]
        for i, (table, count) in enumerate(zip(tables, counts, strict=True)):
            if table is not None and count is not None:
                self._plain.tables[i].data = table
                self._plain_visits[i].counts = count
                memory.store, memory.visits = self._plain, self._plain_visits
                memory.origin = None

    def _shares_of(self, name: str, tensor: Tensor) -> RowShares | None:
        """Who owns what of a tensor that a checkpoint has under this name; None if it is no part of a table."""
        for i, shares in enumerate(self.shares):
            table = f"memory.store.tables.{i}"
            state = f"{table}." in name and name.startswith("optimizer.") and tensor.ndim > 0
            if name == f"visits.{i}" or name.endswith(table) or state:
                return shares
        return None


def _all_to_all(sent: Tensor, num_sent: list[int], num_received: list[int], group: Any) -> Tensor:
    """Send parts of a tensor [S, ...], one to each process, for what they send, [sum(num_received), ...]."""
    received = sent.new_empty(sum(num_received), *sent.shape[1:])
    dist.all_to_all_single(received, sent.contiguous(), num_received, num_sent, group=group)
    return received
