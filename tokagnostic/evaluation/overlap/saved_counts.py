"""What was counted of a corpus so far to one JSON file, from which an interrupted measurement goes on."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokagnostic.corpus import Cursor
from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.evaluation.overlap.counts import OverlapCounts
from tokagnostic.json_files import write_json

logger = logging.getLogger(__name__)

FORMAT = "tokagnostic document overlap 1"
SECONDS = 20.0
"""What an interruption may cost."""


@dataclass
class SavedCounts:
    """Counts by target, then by reference, and where the documents after those counted follow."""

    path: Path
    settings: dict[str, Any]
    """JSON values: what was counted and how. A measurement goes on only under equal settings."""
    counts: list[list[OverlapCounts]] | None = None
    cursor: Cursor | None = None
    _saved_at: float = field(default_factory=time.monotonic)

    @classmethod
    def open(cls, path: str | Path, settings: dict[str, Any]) -> SavedCounts:
        """What an interrupted measurement had saved in a file, or nothing where there is no such file.

        Raises:
            InvalidValueError: if it was measured under other settings.
            SourceError: if the file is damaged or something else.
        """
        saved = cls(Path(path), settings)
        if not saved.path.exists():
            return saved
        try:
            values = json.loads(saved.path.read_text(encoding="utf-8"))
            if values["format"] != FORMAT:
                raise ValueError(f"format {values['format']!r}")
            found = dict(values["settings"])
            saved.cursor = Cursor(**values["cursor"])
            saved.counts = [[OverlapCounts.from_dict(pair) for pair in row] for row in values["counts"]]
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise SourceError(
                f"{path} cannot be read ({' '.join(str(error).split())})",
                expected="the counts of an interrupted measurement",
                remedy="Remove the file and count again",
            ) from error
        different = [name for name in settings if found.get(name) != settings[name]]
        if different:
            raise InvalidValueError(
                f"{path} of another measurement ({', '.join(different)} differ)",
                expected="the settings it was begun with, or a folder of its own",
                remedy="Name another work folder, or remove this one",
            )
        return saved

    def save(self, counts: list[list[OverlapCounts]], cursor: Cursor | None) -> None:
        """Write the counts of all documents before a cursor, in one rename."""
        values = {
            "format": FORMAT,
            "settings": self.settings,
            "cursor": None if cursor is None else asdict(cursor),
            "counts": [[pair.to_dict() for pair in row] for row in counts],
        }
        write_json(self.path, values)
        self._saved_at = time.monotonic()
        logger.info("saved in %s: %d documents", self.path, counts[0][0].num_documents)

    def save_when_due(self, counts: list[list[OverlapCounts]], cursor: Cursor | None) -> None:
        """Save if that was `SECONDS` ago."""
        if time.monotonic() - self._saved_at >= SECONDS:
            self.save(counts, cursor)
