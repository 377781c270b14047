"""What a run writes of itself to the trackers of others, through Accelerate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.tracking import get_available_trackers

from tokagnostic.errors import MissingExtraError
from tokagnostic.training.config import Tracker


def require_trackers(names: Sequence[Tracker]) -> None:
    """Refuse a tracker that is not installed, which Accelerate would pass over.

    Raises:
        MissingExtraError: naming the first, and what to install.
    """
    found = {str(tracker) for tracker in get_available_trackers()}
    for name in names:
        if name not in found:
            raise MissingExtraError(name, extra=name, purpose=f"fit.trackers {name}")


@contextmanager
def tracking(accelerator: Accelerator, folder: Path, config: Mapping[str, Any], first_step: int) -> Iterator[None]:
    """Within it `track` reaches the trackers that the accelerator was made with; afterwards they are closed.

    TensorBoard's files are in `<folder>/tokagnostic`. trackio keeps runs in its own folder on this machine, under the name of
    the run's folder, and a run that is resumed goes on there.

    Args:
        accelerator: made with the names of trackers.
        folder: of the run.
        config: its settings.
        first_step: updates done; what an earlier sitting has written after them is not shown.
    """
    settings = {
        "tensorboard": {"purge_step": first_step + 1},
        "trackio": {"name": folder.resolve().name, "resume": "allow" if first_step else "never"},
    }
    if accelerator.log_with:
        # What all trackers take: numbers and text.
        plain = {name: value if isinstance(value, int | float) else str(value) for name, value in config.items()}
        accelerator.init_trackers("tokagnostic", plain, settings)
    try:
        yield
    finally:
        # Not end_training(), which would take leave of the other processes too.
        for tracker in accelerator.trackers:
            tracker.finish()
        accelerator.trackers = []


def track(accelerator: Accelerator, line: Mapping[str, Any]) -> None:
    """Give a line of metrics to the trackers: each number under its name, those of a group under `group/name`."""
    if accelerator.log_with:
        accelerator.log(dict(_numbers(line)), step=line["step"])


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif value is not None and name != "step":
            yield prefix + name, value
