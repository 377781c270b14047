"""A run to the numbers that are watched: rates, gates, what of the table was written and what of it is read again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import Tensor

from tokagnostic.host import Attachment
from tokagnostic.memory.load import expected_share
from tokagnostic.training.distinct import DistinctKeys
from tokagnostic.training.packing import Batch
from tokagnostic.training.processes import sums
from tokagnostic.training.sharding import Sharding

_DISTINCT = "watched.distinct"


class Observer:
    """Looks at batches and counters, never at what is computed: a run that is watched has the bits of one that is not.

    Bytes and different n-grams are counted in every update, at the cost of hashing its ids once more on the CPU. All else is
    looked at where a line is written. What several processes see is added up, so that their lines are those of one process
    with all their batches.

    Args:
        accelerator: knows the other processes; all of them must make and call one.
        attachment: the attached memory, if there is one, its visits as they were before the run.
        sharding: of its tables.
        token_lengths: bytes per id, int64 [V]; None if they are not known.
    """

    def __init__(
        self, accelerator: Accelerator, attachment: Attachment | None, sharding: Sharding, token_lengths: Tensor | None
    ) -> None:
        self._accelerator = accelerator
        self._attachment = attachment
        self._sharding = sharding
        self._lengths = token_lengths
        self._num_bytes = 0
        self._lookups: dict[str, tuple[int, int]] = {}
        self._batches: Sequence[Batch] = ()
        self._trains_table = attachment is not None and not attachment.memory.frozen
        # Of a table that was written before the run nobody knows how many n-grams it has seen.
        fresh = self._trains_table and self._share_written() == 0
        self._distinct = DistinctKeys() if fresh else None

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint has to keep; all processes must call this."""
        if self._distinct is None:
            return {}
        self._join()
        return {_DISTINCT: self._distinct.state}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `tensors` gave, among other tensors of a checkpoint."""
        if self._distinct is not None:
            self._distinct = DistinctKeys() if _DISTINCT in tensors else None
        if self._distinct is not None:
            self._distinct.join(tensors[_DISTINCT])

    def before_update(self, batches: Sequence[Batch], writes_line: bool) -> None:
        """Look at what comes, before it has written anything.

        Args:
            batches: of the update.
            writes_line: whether a line will be written after it; the same in all processes.
        """
        self._batches = batches
        if self._lengths is not None:
            self._num_bytes += sum(self._bytes_of(batch.input_ids) for batch in batches)
        if self._attachment is None:
            return
        self._attachment.take_reads()
        if self._distinct is None and not writes_line:
            return
        keys = [self._keys(batch) for batch in batches]
        if writes_line:
            self._lookups = self._count_lookups(keys)
        if self._distinct is not None:
            for each in keys:
                self._distinct.add(each.numpy())

    def line(self, loss: float, seconds: float) -> dict[str, Any]:
        """The numbers of the update that was looked at last, as JSON values; all processes must call this.

        Args:
            loss: of the update, in nats per token.
            seconds: of this sitting so far.
        """
        found: dict[str, Any] = {}
        if self._lengths is not None:
            (num_bytes,) = sums(self._accelerator, self._num_bytes)
            found = {"bytes_per_second": num_bytes / seconds, **self._bits_per_byte(loss, self._lengths)}
        if self._attachment is not None:
            found |= {"gate": self._gates(self._attachment), "hit_rate": self._hit_rates()}
        if self._trains_table:
            found["rows_written"] = self._share_written()
        if self._distinct is not None:
            self._join()
            found |= {
                "distinct_ngrams": len(self._distinct),
                "rows_written_expected": self._expected_share(len(self._distinct)),
            }
        return found

    @property
    def _attached(self) -> Attachment:
        return cast(Attachment, self._attachment)

    def _bytes_of(self, ids: Any) -> int:
        return 0 if self._lengths is None else int(self._lengths[torch.from_numpy(ids)].sum())

    def _bits_per_byte(self, loss: float, lengths: Tensor) -> dict[str, float]:
        """The loss in bits per byte of the tokens that the batches of all processes predict, where these have bytes."""
        targets = [batch.input_ids[:, 1:] for batch in self._batches]
        num_targets, num_bytes = sums(
            self._accelerator, sum(part.size for part in targets), sum(map(self._bytes_of, targets))
        )
        return {"bits_per_byte": loss / math.log(2) * num_targets / num_bytes} if num_bytes else {}

    def _gates(self, attachment: Attachment) -> dict[str, float | None]:
        """How far each layer's gate was open in the update, on average; None where it found nothing to read."""
        reads = attachment.take_reads()
        opened = [each.gate_mean * each.num_found if each.num_found else 0.0 for each in reads]
        totals = sums(self._accelerator, *opened, *(each.num_found for each in reads))
        pairs = zip(totals[: len(reads)], totals[len(reads) :], strict=True)
        return {str(each.layer): _ratio(*pair) for each, pair in zip(reads, pairs, strict=True)}

    def _hit_rates(self) -> dict[str, float | None]:
        """Of the update's lookups of each order, the share that reads a row which an earlier update has written, or for a
        frozen memory its training; None where there were none. A lookup is a window, a head, and a table that layers read.
        """
        totals = sums(self._accelerator, *(number for pair in self._lookups.values() for number in pair))
        return {order: _ratio(*totals[2 * i : 2 * i + 2]) for i, order in enumerate(self._lookups)}

    def _count_lookups(self, batches: Sequence[Tensor]) -> dict[str, tuple[int, int]]:
        """For each order the lookups of written rows, and all of them, for the keys of batches, int64 [B, T, N] each."""
        memory, attachment = self._attached.memory, self._attached
        tables = sorted({memory.table_of(slot) for slot in range(len(attachment.layers))})
        hits, lookups = (torch.zeros(memory.max_order, dtype=torch.int64) for _ in range(2))
        for keys in batches:
            for table in tables:
                rows = memory.addresser(keys, table)  # [B, T, N, K]
                real = rows >= 0
                written = torch.zeros_like(real)
                written[real] = self._sharding.written(memory, table, rows[real]).to(real.device)
                hits += written.sum(dim=(0, 1, 3))
                lookups += real.sum(dim=(0, 1, 3))
        return {str(n + 1): (int(hits[n]), int(lookups[n])) for n in range(memory.max_order)}

    def _keys(self, batch: Batch) -> Tensor:
        """The keys that the host will look up, int64 [B, T, N]."""
        ids, starts = torch.from_numpy(batch.input_ids), torch.from_numpy(batch.starts)
        for boundary_id in self._attached.boundary_ids:
            starts = starts | (ids == boundary_id)
        return self._attached.hasher(ids, starts)

    def _share_written(self) -> float:
        """Share of the rows of all tables that were written."""
        num_written = sum(visits.num_written() for visits in self._attached.memory.visits)
        if self._sharding.shares:
            num_written = int(sums(self._accelerator, num_written)[0])
        return num_written / sum(self._attached.memory.addresser.num_rows)

    def _expected_share(self, num_keys: int) -> float:
        """The same, if rows were drawn by lot for so many different keys."""
        tables = self._attached.memory.addresser.moduli
        expected = math.fsum(rows * expected_share(rows, num_keys) for moduli in tables for rows in moduli)
        return expected / sum(self._attached.memory.addresser.num_rows)

    def _join(self) -> None:
        """Let each process know what all have seen."""
        if self._distinct is not None and self._accelerator.num_processes > 1:
            own = self._distinct.state.unsqueeze(0).to(self._accelerator.device)
            self._distinct.join(self._accelerator.gather(own))


def in_short(line: Mapping[str, Any]) -> str:
    """What a progress line has room for: loss, kB of text per second, gate by layer, hit rate by order, rows written."""
    parts = [f"loss {line['loss']:.3f}"]
    if "bytes_per_second" in line:
        parts.append(f"{line['bytes_per_second'] / 1e3:,.0f} kB/s")
    for name, title in (("gate", "gate"), ("hit_rate", "hits")):
        values = [value for value in line.get(name, {}).values() if value is not None]
        if values:
            parts.append(f"{title} {'/'.join(f'{value:.2f}' for value in values)}")
    if "rows_written" in line:
        parts.append(f"{100 * line['rows_written']:.1f} % of rows")
    return ", ".join(parts)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
