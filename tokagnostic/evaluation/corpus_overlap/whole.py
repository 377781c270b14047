"""Overlaps measured document by document, and the corpus once more as one document, to one result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tokagnostic.corpus import Corpus
from tokagnostic.evaluation.corpus_overlap.counting import corpus_overlap
from tokagnostic.evaluation.overlap import OverlapSquare
from tokagnostic.tokens.sources import load_tokenizer


def with_whole_corpus(
    square: OverlapSquare,
    corpus: Corpus,
    targets: Sequence[str],
    references: Sequence[str],
    *,
    memory_mib: int = 512,
    folder: str | Path | None = None,
) -> OverlapSquare:
    """Add to every pair its shares over the whole corpus, by a further pass for each.

    Args:
        square: what was measured document by document.
        corpus: the same corpus.
        targets: the specs of the square's targets.
        references: the specs of its references.
        memory_mib: MiB to use beside the tokenizers.
        folder: where the runs are, in a folder of its own for each pair; by default a temporary folder.

    Raises:
        CorpusError: if the corpus cannot be read.
        InvalidValueError: if the memory cannot be used, or the folder holds something else.
        SourceError: if there is no such tokenizer.
    """
    encoders = {spec: load_tokenizer(spec) for spec in (*targets, *references)}
    rows = []
    for t, (target, row) in enumerate(zip(targets, square.pairs, strict=True)):
        pairs = []
        for r, (reference, pair) in enumerate(zip(references, row, strict=True)):
            whole = corpus_overlap(
                corpus,
                encoders[target],
                encoders[reference],
                pair.max_order,
                memory_mib=memory_mib,
                folder=None if folder is None else Path(folder) / f"{t}-{r}",
                show_progress=True,
            )
            pairs.append(replace(pair, corpus=(whole.unique, whole.weighted)))
        rows.append(tuple(pairs))
    return OverlapSquare(tuple(rows))
