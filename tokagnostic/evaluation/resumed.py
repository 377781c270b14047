"""A stream of documents and a place in it to the documents after that place, and the place that was reached."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from tokagnostic.corpus import Corpus, Cursor
from tokagnostic.evaluation.windows import AnyDocument


class ResumedDocuments:
    """Documents in one pass: those of a corpus from a cursor on, those of any other stream after as many as were seen.

    Args:
        documents: the whole stream.
        start: where to go on in a corpus; None is the beginning.
        num_seen: documents to leave out of any other stream.
    """

    def __init__(self, documents: Iterable[AnyDocument], start: Cursor | None, num_seen: int) -> None:
        self._documents = documents
        self._num_seen = num_seen
        self.cursor = start
        """Where the documents after the last delivered follow; None for a stream that has no cursors."""

    def __iter__(self) -> Iterator[AnyDocument]:
        if isinstance(self._documents, Corpus):
            for document, cursor in self._documents.iterate(self.cursor):
                self.cursor = cursor
                yield document
        else:
            yield from itertools.islice(self._documents, self._num_seen, None)
