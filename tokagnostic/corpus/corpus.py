"""The sources of a corpus to one stream of documents that can stop anywhere and go on there."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from tokagnostic.corpus.config import CorpusConfig
from tokagnostic.corpus.document import Document, documents_digest, place_of
from tokagnostic.corpus.identity import file_identity
from tokagnostic.corpus.intake import CorpusCounts, Intake
from tokagnostic.corpus.readers import JsonLinesReader, Place, Reader, TextReader
from tokagnostic.corpus.tables import EmbeddedReader, HubReader, ParquetReader
from tokagnostic.corpus.unpacking import UNPACKERS, without_packing
from tokagnostic.errors import CorpusError, SourceError

logger = logging.getLogger(__name__)

_JSON_LINES = (".jsonl", ".ndjson", ".json")
_PACKED = (".zip", ".7z", ".rar", ".tar", ".tgz", ".tbz2", ".txz", ".lz4", ".br", ".z")
"""Folders in one file, and packings that nothing here unpacks."""


@dataclass(frozen=True)
class Cursor:
    """Where a corpus goes on. All fields are JSON values: `Cursor(**asdict(cursor)) == cursor`."""

    source: str
    """The file or dataset, as the corpus names it."""
    position: int = 0
    """Byte offset in the unpacked file, or the number of rows before."""
    line: int = 0
    """Lines before `position`, for the names of documents and for errors."""
    part: int = 0
    """Parts of the row at `position` that were already delivered."""
    documents: int = 0
    """Documents delivered since the corpus began, for its limit."""
    bytes: int = 0
    """This and what follows: what the pass had met by then, as `CorpusCounts` has it."""
    empty: int = 0
    empty_bytes: int = 0
    skipped: int = 0
    replaced: int = 0

    @property
    def counts(self) -> CorpusCounts:
        """What the pass had met by then."""
        return CorpusCounts(**{entry.name: getattr(self, entry.name) for entry in fields(CorpusCounts)})


class Corpus:
    """A stream of documents, never held as a whole: memory is bounded by the largest document, and by a few hundred
    rows of a table.

    Iterating starts at the beginning each time. Files of one glob come in the order of their names.

    Args:
        config: sources and what counts as a document.

    Raises:
        SourceError: if a file does not exist, a glob matches nothing, or a source has no known form.
    """

    def __init__(self, config: CorpusConfig) -> None:
        self.config = config
        self.counts = CorpusCounts()
        """What the latest pass met so far, a resumed pass what lies before its cursor too."""
        self._readers = {reader.name: reader for spec in config.data for reader in _readers_of(spec, config)}

    def __iter__(self) -> Iterator[Document]:
        for document, _ in self.iterate():
            yield document

    def iterate(self, start: Cursor | None = None) -> Iterator[tuple[Document, Cursor]]:
        """The documents from a cursor on, each with the cursor from which the documents after it follow.

        Args:
            start: where to go on; None is the beginning.

        Raises:
            SourceError: if a source cannot be opened.
            CorpusError: if a document is broken and the policy is `error`, if the whole corpus holds no document, or
                if the cursor belongs to a source that this corpus does not have.
        """
        names = list(self._readers)
        cursor = start or Cursor(names[0])
        if cursor.source not in names:
            raise CorpusError(
                f"a cursor in {cursor.source}, which is no source of this corpus",
                expected="a cursor of the same corpus",
                remedy="Resume with the sources that the run was started with",
            )
        met = self.counts = cursor.counts
        intake = Intake(self.config.on_bad_document, met)
        place = Place(cursor.position, cursor.line, cursor.part)
        limit, (begin, end) = self.config.limit, self.config.part
        is_all = (begin, end) == (0, 1)
        for name in names[names.index(cursor.source) :]:
            if met.documents == limit:
                return
            for document, after in self._readers[name].read(place, intake):
                if not is_all and not begin <= place_of(document) < end:
                    continue
                met.documents += 1
                met.bytes += len(document.data)
                yield document, Cursor(name, *after, **vars(met))
                if met.documents == limit:
                    return
            place = Place()
        if met.skipped or met.replaced:
            logger.warning("%d bad documents were skipped and %d repaired", met.skipped, met.replaced)
        if met.documents == 0:
            raise CorpusError(
                f"no document in {', '.join(names)} ({met.empty} empty, {met.skipped} skipped)",
                expected="at least one document that is not blank",
                remedy="Check the sources, documents and text_field",
            )

    @property
    def description(self) -> dict[str, Any]:
        """The settings and the sizes of the files as JSON values, by which saved work knows its corpus again."""
        given = {entry.name: getattr(self.config, entry.name) for entry in fields(CorpusConfig)}
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
        sizes = {name: os.path.getsize(name) for name in self._readers if os.path.isfile(name)}
        return {**values, "sizes": sizes}

    def identities(self) -> dict[str, str]:
        """What tells each file from a changed one (`file_identity`), by name; a source that is no file has its name only."""
        return {name: file_identity(name) if os.path.isfile(name) else "no file" for name in self._readers}

    def digest(self) -> str:
        """SHA-256 of all documents, in lower-case hex (`documents_digest`), by one pass over the corpus."""
        return documents_digest(self)


def _readers_of(spec: str, config: CorpusConfig) -> list[Reader]:
    """The readers of one entry of `CorpusConfig.data`.

    Raises:
        SourceError: if it names nothing that can be read.
    """
    if spec == "embedded":
        return [EmbeddedReader(config.documents)]
    if spec.startswith("hf:"):
        return [HubReader(spec, config.documents, config.text_field)]
    return [_reader_of_file(path, config) for path in _paths_of(os.path.expanduser(spec))]


def _paths_of(spec: str) -> list[str]:
    """The files that a path or a glob names; a file whose name looks like a glob is itself."""
    if os.path.isfile(spec):
        return [spec]
    if os.path.isdir(spec):
        raise SourceError(
            f"{spec} is a folder",
            expected="a file, a glob, hf:name[:config[:split]] or `embedded`",
            remedy=f"Give a glob such as '{spec.rstrip('/')}/**/*.txt'",
        )
    if glob.has_magic(spec):
        paths = sorted(path for path in glob.glob(spec, recursive=True) if os.path.isfile(path))
        if paths:
            return paths
        raise SourceError(f"no file matches {spec!r}", expected="a glob with a match", remedy="Check the pattern")
    raise SourceError(
        f"{spec} does not exist",
        expected="a file, a glob, hf:name[:config[:split]] or `embedded`",
        remedy="Check the path",
    )


def _reader_of_file(path: str, config: CorpusConfig) -> Reader:
    lower, inner = path.lower(), without_packing(path)
    if inner.endswith(_PACKED) or (inner != lower and inner.endswith(".parquet")):
        raise SourceError(
            f"{path} is packed in a way that is not read",
            expected=f"text or .jsonl, as it is or packed as {', '.join(UNPACKERS)}, or .parquet as it is",
            remedy="Unpack the file",
        )
    if inner.endswith(".parquet"):
        return ParquetReader(path, config.documents, config.text_field)
    if inner.endswith(_JSON_LINES):
        return JsonLinesReader(path, config.documents, config.text_field)
    return TextReader(path, config.documents)
