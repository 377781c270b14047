"""One text to the parts that the source trains on, the target trains on, and nobody trains on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokagnostic.corpus import CorpusConfig, Document, documents_digest, partition
from tokagnostic.errors import CorpusError

TARGET_SHARE = 1 / 3
"""Share of the source's text that the target trains on too."""


@dataclass(frozen=True)
class DividedText:
    """The parts of a text; a document is dealt by its bytes, so equal documents are in the same parts."""

    held_out: Sequence[Document]
    """What no training sees."""
    watched: Sequence[Document]
    """A third of the held-out documents, scored along the way."""
    source: Sequence[Document]
    """All but the held-out documents."""
    target: Sequence[Document]
    """About a third of the source's."""
    facts: dict[str, Any]
    """Size and digest of the text, and sizes of its parts."""


def divide_text(documents: Sequence[Document], config: CorpusConfig, held_out_share: float) -> DividedText:
    """Deal documents into the parts of a demonstration.

    Args:
        documents: the text.
        config: where it is from, for the facts.
        held_out_share: share of the documents that is held out.

    Raises:
        CorpusError: if a part would be empty.
    """
    parts = partition(documents, {"held_out": held_out_share, "rest": 1 - held_out_share})
    held_out, source = parts["held_out"], parts["rest"]
    target = partition(source, {"target": TARGET_SHARE})["target"]
    if not (held_out and source and target):
        raise CorpusError(
            f"{len(documents)} documents, of which {len(held_out)} are held out and {len(target)} are for the target",
            expected="some documents in each part",
            remedy="Give more text, or divide it with --corpus.documents paragraph",
        )
    facts = {
        "data": list(config.data),
        "documents": len(documents),
        "bytes": num_bytes(documents),
        "digest": documents_digest(documents),
        "held_out_documents": len(held_out),
        "held_out_bytes": num_bytes(held_out),
        "source_documents": len(source),
        "source_bytes": num_bytes(source),
        "target_documents": len(target),
        "target_bytes": num_bytes(target),
    }
    return DividedText(held_out, held_out[: -(-len(held_out) // 3)], source, target, facts)


def num_bytes(documents: Sequence[Document]) -> int:
    """Bytes of all documents together."""
    return sum(len(document.data) for document in documents)
