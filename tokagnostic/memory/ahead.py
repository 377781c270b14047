"""The keys of a coming call to what it will read, fetched in a thread while the call before it computes.

Keys depend on ids alone, so they are known as soon as the ids are. What was fetched is what the call would have read by
itself, and is used only where its keys are the same: nothing but the time that a read takes can change.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from tokagnostic.memory.base import NgramMemory


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
        # By type: a device that is named without its number is not equal to itself with it.
        places = [memory.store.device_of(table).type for table in range(memory.num_tables)]
        self._memory = memory
        self._device = device
        self._tables = [
            table
            for table, place in enumerate(places)
            if memory.frozen and (place != device.type or (in_file and place == "cpu"))
        ]
        self._coming: deque[tuple[Tensor, Future[dict[int, Tensor]]]] = deque(maxlen=2)
        self._thread: ThreadPoolExecutor | None = None
        self._former: ReadAhead | None = None
        self._stream: Any = None

    @property
    def helps(self) -> bool:
        """Whether there is anything to fetch."""
        return bool(self._tables)

    def __enter__(self) -> ReadAhead:
        if self.helps:
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
            self._coming.append((keys, self._thread.submit(self._fetch, keys)))

    def take(self, keys: Tensor, table: int) -> Tensor | None:
        """What was fetched for a call, as soon as it is there: features [B, T, E], or None if nothing was.

        Raises:
            Exception: whatever went wrong in the thread.
        """
        if table not in self._tables:
            return None
        own = keys.cpu()
        fetched = next((future for started, future in self._coming if torch.equal(started, own)), None)
        if fetched is None:
            return None
        features = fetched.result()[table]
        if self._stream is not None:
            here = torch.cuda.current_stream(self._device)
            here.wait_stream(self._stream)
            features.record_stream(here)
        return features

    def _fetch(self, keys: Tensor) -> dict[int, Tensor]:
        """What the call will read, by table."""
        memory = self._memory
        # On a stream of its own a GPU copies what was fetched while it computes.
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext(), torch.no_grad():
            there = keys.to(self._device)
            return {table: memory.addresser.read(there, memory.store, table) for table in self._tables}
