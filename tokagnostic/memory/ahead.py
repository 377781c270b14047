"""The keys of a coming call to what it will read, fetched in a thread while the call before it computes.

Keys depend on ids alone, so they are known as soon as the ids are. What was fetched is what the call would have read by
itself, and is used only where its keys are the same: nothing but the time that a read takes can change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tokagnostic.memory.paging_numba import request_rows
from tokagnostic.memory.quantised import QuantisedRows

if TYPE_CHECKING:
    from tokagnostic.memory.base import NgramMemory

CPU = torch.device("cpu")


class ReadAhead:
    """Within it a frozen memory gives what was fetched before; afterwards no thread of it is left.

    Only tables that are read across devices, or from a file, are fetched: others are read faster than they are handed
    over. Beside what a call reads, what the next will read lies in memory.

    Args:
        memory: what is read; of one that is trained nothing is fetched.
        device: where the calls are made.
    """

    def __init__(self, memory: NgramMemory, device: torch.device) -> None:
        in_file = memory.origin is not None and memory.origin.mapped
        tables = range(memory.num_tables if memory.frozen else 0)
        self._memory = memory
        self._device = device
        self._tables = [
            table
            for table in tables
            if memory.store.device_of(table) != device or (in_file and memory.store.device_of(table) == CPU)
        ]
        self._in_file = in_file
        self._coming: deque[Future[_Fetched]] = deque(maxlen=2)
        self._thread: ThreadPoolExecutor | None = None
        self._former: ReadAhead | None = None
        self._stream: Any = None

    def __enter__(self) -> ReadAhead:
        if self._tables:
            self._thread = ThreadPoolExecutor(1, "tokagnostic-ahead")
            self._stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None
            self._former, self._memory.ahead = self._memory.ahead, self
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._memory.ahead = self._former
            self._thread.shutdown(cancel_futures=True)
            self._thread = None
            self._coming.clear()

    def start(self, keys: Tensor) -> None:
        """Begin to fetch what a call will read, and do not wait.

        Args:
            keys: those of the call, int64 [B, T, N], on the CPU; not written to afterwards.
        """
        if self._thread is not None:
            self._coming.append(self._thread.submit(self._fetch, keys))

    def take(self, keys: Tensor, table: int) -> Tensor | None:
        """What was fetched for a call, as soon as it is there: features [B, T, E], or None if nothing was.

        Raises:
            Exception: whatever went wrong in the thread.
        """
        if table not in self._tables:
            return None
        while self._coming:
            fetched = self._coming[0].result()
            if self._stream is not None:
                torch.cuda.current_stream(self._device).wait_stream(self._stream)
            if torch.equal(fetched.keys, keys):
                features = fetched.features[table]
                if self._stream is not None:
                    features.record_stream(torch.cuda.current_stream(self._device))
                return features
            self._coming.popleft()
        return None

    def _fetch(self, keys: Tensor) -> _Fetched:
        memory, heads = self._memory, self._memory.addresser.heads
        if self._in_file:
            distinct = torch.unique(keys)
            for table in self._tables:
                rows = torch.unique(heads[table](distinct[distinct >= 0]))
                for tensor in _tensors_of(memory, table):
                    request_rows(tensor, rows)
        # On a stream of its own a GPU copies what was fetched while it computes.
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext(), torch.no_grad():
            there = keys.to(self._device)
            return _Fetched(there, {table: memory.store.read(there, heads[table], table) for table in self._tables})


@dataclass(frozen=True, eq=False)
class _Fetched:
    """What a call will read, and the keys that it must have for that."""

    keys: Tensor
    """Where the calls are made, int64 [B, T, N]."""
    features: dict[int, Tensor]
    """By table, float [B, T, E]."""


def _tensors_of(memory: NgramMemory, table: int) -> Iterable[Tensor]:
    rows = list(memory.store.tables)[table]
    return (rows.codes, rows.scales) if isinstance(rows, QuantisedRows) else (rows,)
