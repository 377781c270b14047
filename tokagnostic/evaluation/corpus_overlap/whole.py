"""Tokenizers and a corpus to the shares of every pair over the corpus as one document, each pair in a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tokagnostic.corpus import Corpus
from tokagnostic.evaluation.corpus_overlap.counting import CorpusOverlap, corpus_overlap
from tokagnostic.evaluation.corpus_overlap.work_folder import WorkFolder
from tokagnostic.evaluation.overlap import OverlapSquare
from tokagnostic.tokens.sources import load_tokenizer


def whole_corpus_overlaps(
    corpus: Corpus,
    targets: Sequence[str],
    references: Sequence[str],
    max_order: int,
    *,
    memory_mib: int = 512,
    folder: str | Path | None = None,
) -> list[list[CorpusOverlap]]:
    """Measure every pair over the whole corpus, by a pass for each.

    Args:
        corpus: the corpus.
        targets: specs of the tokenizers whose n-grams are looked for.
        references: specs of those among whose n-grams they are looked for.
        max_order: N.
        memory_mib: MiB to use beside the tokenizers.
        folder: where the runs are, in a folder of its own for each pair; interrupted work goes on there, and results
            stay until `forget_work`. By default a temporary folder.

    Returns:
        By target, then by reference.

    Raises:
        CorpusError: if the corpus cannot be read.
        InvalidValueError: if the memory cannot be used, or the folder holds something else.
        SourceError: if there is no such tokenizer.
    """
    encoders = {spec: load_tokenizer(spec) for spec in (*targets, *references)}
    return [
        [
            corpus_overlap(
                corpus,
                encoders[target],
                encoders[reference],
                max_order,
                memory_mib=memory_mib,
                folder=None if folder is None else _of_pair(folder, t, r),
                show_progress=True,
            )
            for r, reference in enumerate(references)
        ]
        for t, target in enumerate(targets)
    ]


def with_whole_corpus(square: OverlapSquare, wholes: Sequence[Sequence[CorpusOverlap]]) -> OverlapSquare:
    """Put the shares over the whole corpus beside those measured document by document."""
    return OverlapSquare(
        tuple(
            tuple(replace(pair, corpus=(whole.unique, whole.weighted)) for pair, whole in zip(row, others, strict=True))
            for row, others in zip(square.pairs, wholes, strict=True)
        )
    )


def forget_work(folder: str | Path) -> None:
    """Remove the results of `whole_corpus_overlaps`, and the folder if nothing else is in it."""
    for path in sorted(Path(folder).glob("[0-9]*-[0-9]*")):
        WorkFolder.load(path).remove()
    if not any(Path(folder).iterdir()):
        Path(folder).rmdir()


def _of_pair(folder: str | Path, t: int, r: int) -> Path:
    return Path(folder) / f"{t}-{r}"
