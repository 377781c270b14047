"""Documents and a tokenizer to the keys of all their windows, batch by batch, so that a corpus never lies in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tokagnostic.corpus import Document
from tokagnostic.errors import CorpusError
from tokagnostic.hashing import HashCache, NgramHasher
from tokagnostic.hashing.cache import PrefixPolicy
from tokagnostic.tokens.encoder import TextEncoder

BATCH_BYTES = 1 << 20
"""A batch is closed by the document that takes it to this many bytes of text, or to `BATCH_DOCUMENTS`."""
BATCH_DOCUMENTS = 4096

AnyDocument = Document | str | bytes
"""A document of a corpus, or the text of one."""


@dataclass(frozen=True, eq=False)
class WindowBatch:
    """The tokens and window keys of whole documents, one after another."""

    input_ids: np.ndarray
    """Token ids, int64 [T]."""
    bounds: np.ndarray
    """Document d holds the positions bounds[d] .. bounds[d + 1] - 1, int64 [D + 1]."""
    keys: np.ndarray
    """Key of the window of each order that ends at each position, int64 [T, N]; -1 where there is none."""

    @property
    def starts(self) -> np.ndarray:
        """True at the first position of each document, bool [T]."""
        return _starts(self.bounds)


class WindowReader:
    """One tokenizer, ready to turn documents into the keys of their windows, invented spaces taken out.

    Args:
        encoder: the tokenizer.
        max_order: N.
        prefix: policy of its hash cache.

    Raises:
        InvalidValueError: if N is not a whole number of at least 1.
    """

    def __init__(self, encoder: TextEncoder, max_order: int, prefix: PrefixPolicy = "strip") -> None:
        self.encoder = encoder
        self.max_order = max_order
        self._hasher = NgramHasher(HashCache.build(encoder.token_bytes, prefix=prefix), max_order)

    def read(self, documents: Sequence[Document]) -> WindowBatch:
        """Tokenize and hash a batch of documents.

        Raises:
            CorpusError: for a document that is not UTF-8.
        """
        return self.windows_of(self.encoder.encode_batch([document.text for document in documents]))

    def windows_of(self, pieces: Sequence[np.ndarray]) -> WindowBatch:
        """Hash documents that are ids already, int64 [T] each."""
        bounds = np.zeros(len(pieces) + 1, dtype=np.int64)
        np.cumsum([len(piece) for piece in pieces], out=bounds[1:])
        input_ids = np.concatenate([*pieces, np.zeros(0, dtype=np.int64)]).astype(np.int64)
        return WindowBatch(input_ids, bounds, self._hasher(input_ids, _starts(bounds)))


def document_batches(documents: Iterable[AnyDocument]) -> Iterator[list[Document]]:
    """Group documents into batches of bounded size, in order; plain texts are named by their place.

    Raises:
        CorpusError: for a text that has no UTF-8, or if there is no document at all.
    """
    found = False
    for batch in group_documents(documents):
        found = True
        yield batch
    if not found:
        raise CorpusError(
            "no document was given", expected="a text to measure on", remedy="Name a source that is not empty"
        )


def group_documents(documents: Iterable[AnyDocument]) -> Iterator[list[Document]]:
    """The batches of `document_batches`, of which there may be none.

    Raises:
        CorpusError: for a text that has no UTF-8.
    """
    batch: list[Document] = []
    num_bytes = 0
    for index, item in enumerate(documents):
        document = item if isinstance(item, Document) else _document_of(item, index)
        batch.append(document)
        num_bytes += len(document.data)
        if num_bytes >= BATCH_BYTES or len(batch) >= BATCH_DOCUMENTS:
            yield batch
            batch, num_bytes = [], 0
    if batch:
        yield batch


def _document_of(text: str | bytes, index: int) -> Document:
    source = f"document {index}"
    if isinstance(text, bytes):
        return Document(text, source)
    try:
        return Document(text.encode(), source)
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"{source} holds half a surrogate pair at character {error.start}",
            expected="text that can be written as UTF-8",
            remedy="Repair the text, or read it through a Corpus that skips or replaces what is broken",
        ) from None


def _starts(bounds: np.ndarray) -> np.ndarray:
    starts = np.zeros(bounds[-1], dtype=np.bool_)
    # An empty document has no first position: its bound is that of the next document, or the end.
    starts[bounds[:-1][np.diff(bounds) > 0]] = True
    return starts
