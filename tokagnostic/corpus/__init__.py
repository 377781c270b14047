"""Documents from files, globs, hub datasets and the text that Python carries: bytes in, bytes out, with a cursor."""

from tokagnostic.corpus.config import CorpusConfig
from tokagnostic.corpus.corpus import Corpus, Cursor
from tokagnostic.corpus.document import Document, documents_digest, partition
from tokagnostic.corpus.embedded import embedded_documents, embedded_source
from tokagnostic.corpus.intake import CorpusCounts

__all__ = [
    "Corpus",
    "CorpusConfig",
    "CorpusCounts",
    "Cursor",
    "Document",
    "documents_digest",
    "embedded_documents",
    "embedded_source",
    "partition",
]
