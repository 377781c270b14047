"""What happens in a run to lines of metrics.jsonl, in which a resumed run leaves no line twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokagnostic.training.checkpoint import disk_errors

METRICS_FILE = "metrics.jsonl"


class MetricsLog:
    """The lines of a run: those up to where it resumes are kept, later ones are written anew.

    Args:
        path: the file.
        first_step: updates done when this sitting begins.
        writes: whether this process writes the file.
    """

    def __init__(self, path: Path, first_step: int, writes: bool) -> None:
        self.lines: list[dict[str, Any]] = []
        self._path = path
        self._writes = writes
        if first_step and path.exists():
            self.lines = [line for line in _whole_lines(path) if line["step"] <= first_step]
        if writes:
            partial = path.with_name(f".{path.name}.partial")
            with self._guarded():
                partial.write_text("".join(map(_to_line, self.lines)), encoding="utf-8")
                partial.replace(path)

    def write(self, line: dict[str, Any]) -> None:
        """Add a line.

        Raises:
            TrainingError: if the disk refuses it.
        """
        self.lines.append(line)
        if self._writes:
            with self._guarded(), open(self._path, "a", encoding="utf-8") as file:
                file.write(_to_line(line))

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        with disk_errors(str(self._path), "the checkpoints are intact"):
            yield


def _to_line(line: dict[str, Any]) -> str:
    return json.dumps(line, allow_nan=False) + "\n"


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file of metrics, but for one that a killed run has not finished."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return


class Clock:
    """Seconds of training, without those that are taken out for evaluation and saving."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._out = 0.0

    def seconds(self) -> float:
        """Seconds since it was made, but for those taken out."""
        return time.perf_counter() - self._begin - self._out

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within it time is taken out."""
        left = time.perf_counter()
        try:
            yield
        finally:
            self._out += time.perf_counter() - left
