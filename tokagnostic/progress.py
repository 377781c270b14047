"""What is being worked through to a line on stderr: how much, how fast, how long still."""

from __future__ import annotations

import sys
from typing import Any


def progress_bar(
    label: str, unit: str, *, total: int | None = None, done: int = 0, shown: bool = True, delay: float = 0
) -> Any:
    """A context manager with `update(count)`.

    A terminal is redrawn many times a second. A log file, where every state is a line of its own, gets one in ten
    seconds.

    Args:
        label: what the line calls the work.
        unit: what is counted, such as "tok" or "B".
        total: how much there is; None if nobody knows.
        done: how much was done in an earlier sitting.
        shown: False in processes that are not the first.
        delay: seconds that the work may take before a line is worth it.
    """
    from tqdm import tqdm

    interval = 0.1 if sys.stderr.isatty() else 10.0
    return tqdm(
        desc=label,
        total=total,
        initial=done,
        unit=unit,
        unit_scale=True,
        mininterval=interval,
        maxinterval=max(10.0, interval),
        delay=delay,
        disable=not shown,
    )
