"""What was counted so far to a folder of sorted runs and one manifest, from which an interrupted count goes on."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokagnostic.corpus import Cursor
from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.evaluation.corpus_overlap.sorted_runs import SortedRun
from tokagnostic.json_files import write_json

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
FORMAT = "tokagnostic corpus overlap 2"
_OWN = re.compile(r"run-(\d{6,})\.i64(?:\.partial)?", re.ASCII)


@dataclass
class WorkFolder:
    """A folder that belongs to one count. Its manifest is replaced in one step and names only runs that are complete."""

    path: Path
    settings: dict[str, Any]
    """JSON values: what was counted and how. A count goes on only under equal settings."""
    runs: list[SortedRun] = field(default_factory=list)
    num_documents: int = 0
    """Documents whose windows are all in the runs."""
    num_bytes: int = 0
    cursor: Cursor | None = None
    """Where the documents after these follow in a corpus; None for other streams."""
    complete: bool = False
    """There are no documents after these."""
    result: dict[str, Any] | None = None
    """What came of all runs, as JSON values; the runs are gone then."""
    lasting: bool = True
    """The folder outlives the process. One that does not has no manifest, and need not reach the disk."""

    @classmethod
    def open(cls, path: str | Path, settings: dict[str, Any]) -> WorkFolder:
        """A folder to count in: a fresh one, or one that goes on where an interrupted count had saved.

        Raises:
            InvalidValueError: if the folder holds something else, or a count under other settings.
            SourceError: if the manifest or a run is damaged.
        """
        folder = cls(Path(path), settings)
        folder.path.mkdir(parents=True, exist_ok=True)
        if (folder.path / MANIFEST).exists():
            found = cls.load(path)
            if found.settings != settings:
                raise InvalidValueError(
                    f"work folder {path} of another count ({_difference(found.settings, settings)})",
                    expected="the settings it was begun with, or a folder of its own",
                    remedy="Name another work folder, or remove this one",
                )
            folder = found
        elif not all(_is_own(entry) for entry in folder.path.iterdir()):
            raise InvalidValueError(
                f"work folder {path} with other files in it",
                expected="a folder that is new or empty, or that an interrupted count left",
                remedy="Name another work folder",
            )
        folder._remove_unnamed()
        return folder

    @classmethod
    def load(cls, path: str | Path) -> WorkFolder:
        """What the manifest of a folder says, which is checked against the runs.

        Raises:
            SourceError: if the manifest is missing or damaged, or a run is.
        """
        path = Path(path)
        try:
            values = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            if values["format"] != FORMAT:
                raise ValueError(f"format {values['format']!r}")
            runs = [(str(name), int(num_records)) for name, num_records in values["runs"]]
            if any(Path(name).name != name for name, _ in runs):
                raise ValueError("a run outside the folder")
            cursor = None if values["cursor"] is None else Cursor(**values["cursor"])
            num_documents, num_bytes = int(values["num_documents"]), int(values["num_bytes"])
            settings, complete = dict(values["settings"]), bool(values["complete"])
            result = None if values["result"] is None else dict(values["result"])
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise SourceError(
                f"{path / MANIFEST} cannot be read ({error})",
                expected="the manifest of a count",
                remedy="Remove the folder and count again",
            ) from error
        found = [SortedRun.of(path / name, num_records) for name, num_records in runs]
        return cls(path, settings, found, num_documents, num_bytes, cursor, complete, result)

    def write_run(self, chunks: Iterable[np.ndarray]) -> SortedRun:
        """Write records to a new file; it is forgotten unless `save` names it."""
        numbers = [int(found[1]) for entry in self.path.iterdir() if (found := _OWN.fullmatch(entry.name))]
        return SortedRun.write(self.path / f"run-{max(numbers, default=0) + 1:06d}.i64", chunks)

    def save(self) -> None:
        """Make the runs last and write the manifest that names them; other runs in the folder are removed."""
        if self.lasting:
            for run in self.runs:
                with run.path.open("rb") as file:
                    os.fsync(file.fileno())
            self._write_manifest()
            logger.info("saved in %s: %d documents, %d bytes", self.path, self.num_documents, self.num_bytes)
        self._remove_unnamed()

    def settle(self, result: dict[str, Any]) -> None:
        """Keep what came of the runs instead of them."""
        self.result, self.runs = result, []
        self.save()

    def _write_manifest(self) -> None:
        values = {
            "format": FORMAT,
            "settings": self.settings,
            "cursor": None if self.cursor is None else asdict(self.cursor),
            "num_documents": self.num_documents,
            "num_bytes": self.num_bytes,
            "complete": self.complete,
            "result": self.result,
            "runs": [[run.path.name, len(run)] for run in self.runs],
        }
        write_json(self.path / MANIFEST, values)

    def remove(self) -> None:
        """Remove the manifest and the runs, and the folder if nothing else is in it."""
        (self.path / MANIFEST).unlink(missing_ok=True)
        self.runs = []
        self._remove_unnamed()
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def _remove_unnamed(self) -> None:
        named = {run.path for run in self.runs}
        for entry in list(self.path.iterdir()):
            if _is_own(entry) and entry not in named:
                entry.unlink()


@contextmanager
def temporary_or(path: str | Path | None, settings: dict[str, Any]) -> Iterator[WorkFolder]:
    """A work folder; one without a name is removed in any case."""
    if path is None:
        temporary = tempfile.mkdtemp(prefix="tokagnostic-")
        try:
            yield WorkFolder(Path(temporary), settings, lasting=False)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    else:
        yield WorkFolder.open(path, settings)


def _is_own(path: Path) -> bool:
    """Whether a file is a run, or what a killed process left of one."""
    return _OWN.fullmatch(path.name) is not None


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    names = [name for name in wanted if found.get(name) != wanted[name]]
    parts = []
    for name in names:
        if isinstance(found.get(name), dict) and isinstance(wanted[name], dict):
            parts.append(f"{name}: {_difference(found[name], wanted[name])}")
        else:
            parts.append(f"{name} {found.get(name)!r} and not {wanted[name]!r}")
    return ", ".join(parts)
