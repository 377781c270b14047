"""One document and what is done with many: a digest of them all, and parts drawn by the bytes of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tokagnostic.errors import CorpusError, InvalidValueError

_DRAWS = 1 << 64
_PLACE_SALT = b"place\0"


@dataclass(frozen=True)
class Document:
    """A text as the bytes of its source, a byte order mark and all line ends included."""

    data: bytes
    """The bytes, UTF-8 where a corpus delivered them."""
    source: str
    """Where it comes from: `path`, `path:line`, `path:row`, and `#part` after a row that was split."""

    @property
    def text(self) -> str:
        """The text; encoding it gives `data` back.

        Raises:
            CorpusError: if the bytes are not UTF-8.
        """
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"document {self.source} breaks UTF-8 at its byte {error.start}",
                expected="UTF-8 text",
                remedy="Read it through a Corpus with on_bad_document set to skip or replace",
            ) from None


def documents_digest(documents: Iterable[Document]) -> str:
    """SHA-256, in lower-case hex, of the documents in order: of each its length (uint64, little-endian), then its bytes."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(len(document.data).to_bytes(8, "little"))
        digest.update(document.data)
    return digest.hexdigest()


def place_of(document: Document) -> float:
    """A document's place among all that there could be, from 0 to below 1: drawn by its bytes, as `partition` draws."""
    return int(_draw(_PLACE_SALT, document) >> 11) / 2**53


def partition(documents: Iterable[Document], shares: Mapping[str, float], seed: int = 0) -> dict[str, list[Document]]:
    """Deal documents into named parts, each by a hash of its own bytes.

    The same bytes fall into the same part on each run and on each machine, whatever else the corpus holds and in
    whatever order, so a duplicate never stands on both sides. The names take part in the draw: a part that is dealt
    again under other names is dealt independently of the first time.

    Args:
        documents: what to deal; each part keeps their order.
        shares: the expected share of each part, in the order of the draw. Where they sum to less than 1, the
            remaining documents are left out.
        seed: another seed, another draw.

    Raises:
        InvalidValueError: if a share is outside 0 to 1, or all sum to more than 1.
    """
    total = sum(shares.values())
    if not shares or not all(0 <= share <= 1 for share in shares.values()) or total > 1 + 1e-9:
        raise InvalidValueError(
            f"shares {dict(shares)}",
            expected="one or more shares between 0 and 1 that sum to at most 1",
            remedy="Lower the shares",
        )
    salt = "\0".join((str(seed), *shares)).encode() + b"\0"
    edges, reached = [], 0.0
    for share in shares.values():
        reached += share
        edges.append(_DRAWS if reached > 1 - 1e-9 else int(reached * _DRAWS))
    parts: dict[str, list[Document]] = {name: [] for name in shares}
    for document in documents:
        draw = _draw(salt, document)
        name = next((name for name, edge in zip(shares, edges, strict=True) if draw < edge), None)
        if name is not None:
            parts[name].append(document)
    return parts


def _draw(salt: bytes, document: Document) -> int:
    """A number below `_DRAWS` by the bytes of a document."""
    return int.from_bytes(hashlib.sha256(salt + document.data).digest()[:8], "big")
