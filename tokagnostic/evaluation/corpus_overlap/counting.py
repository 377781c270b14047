"""A whole corpus and two tokenizers to the share of one's n-grams that the other makes anywhere in it, in bounded memory.

The corpus counts as one document without windows across its documents: a target n-gram is found if the reference makes
the same bytes anywhere in it. Every distinct n-gram counts once for `unique`, and as often as it occurs for `weighted`.

Windows become records of 16 bytes. A buffer of them is sorted and combined when it is full, and written as a sorted run
when that no longer helps; at the end all runs are merged, and all that belongs to one byte string is met together.

A record names its byte string by 103 bits of two independent hashes and not by the bytes. The counts are exact unless
two different byte strings of the corpus share all 103, which for n distinct n-grams happens at all with a chance of
about n ** 2 / 2 ** 104 (`window_records` states the bound). Strings that share the key of 62 bits and differ in the
check of 41 are told apart and counted as key collisions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokagnostic.corpus import Corpus
from tokagnostic.errors import CorpusError, InvalidValueError
from tokagnostic.evaluation.corpus_overlap.counter import CorpusCounter, counting_settings
from tokagnostic.evaluation.corpus_overlap.string_counts import StringCounts, count_runs
from tokagnostic.evaluation.corpus_overlap.work_folder import WorkFolder, temporary_or
from tokagnostic.evaluation.overlap.counts import check_order
from tokagnostic.evaluation.overlap.shares import Shares
from tokagnostic.evaluation.resumed import ResumedDocuments
from tokagnostic.evaluation.windows import AnyDocument, document_batches, group_documents
from tokagnostic.progress import progress_bar
from tokagnostic.tokens.encoder import TextEncoder


@dataclass(frozen=True, eq=False)
class CorpusOverlap:
    """Byte-equivalent n-gram overlap of a target tokenizer with a reference over a corpus taken as one document."""

    target: str
    reference: str
    max_order: int
    num_documents: int
    num_bytes: int
    """Of the source text."""
    unique: Shares
    weighted: Shares
    num_strings: int
    """Distinct byte strings that either side makes with 1..N tokens."""
    key_collisions: int
    """Distinct byte strings whose key an earlier one had; a second hash told them apart."""

    @classmethod
    def of(cls, counts: StringCounts, names: tuple[str, str], num_documents: int, num_bytes: int) -> CorpusOverlap:
        """The shares of what was counted.

        Raises:
            CorpusError: if the target makes no window.
        """
        unique, weighted = counts.shares()
        if unique.num_windows.sum() == 0:
            raise CorpusError(
                f"{num_documents} documents of which {names[0]} makes no window",
                expected="a text that is not empty",
                remedy="Name a source with text in it",
            )
        return cls(
            *names,
            len(unique.num_windows),
            num_documents,
            num_bytes,
            unique,
            weighted,
            counts.num_strings,
            counts.key_collisions,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, shares in percent."""
        return {
            "target": self.target,
            "reference": self.reference,
            "orders": list(range(1, self.max_order + 1)),
            "num_documents": self.num_documents,
            "num_bytes": self.num_bytes,
            "unique": self.unique.to_dict(),
            "weighted": self.weighted.to_dict(),
            "num_strings": self.num_strings,
            "key_collisions": self.key_collisions,
        }


def corpus_overlap(
    documents: Iterable[AnyDocument],
    target: Any,
    reference: Any,
    max_order: int = 7,
    *,
    memory_mib: int = 512,
    folder: str | Path | None = None,
    show_progress: bool = False,
) -> CorpusOverlap:
    """Count which of a target tokenizer's n-grams a reference tokenizer makes anywhere in the same corpus.

    Args:
        documents: the corpus, in one pass.
        target: the tokenizer whose n-grams are looked for, as `TextEncoder.of` takes it.
        reference: the tokenizer among whose n-grams they are looked for.
        max_order: N; orders 1..N of both sides.
        memory_mib: MiB to use beside the tokenizers. It holds from 128 on and for documents of up to a megabyte; a
            longer one takes some 60 bytes per byte while its tokens are counted.
        folder: where the runs are written, at most 16 bytes per window of both sides. An interrupted count goes on in
            it: a `Corpus` at its cursor, any other stream by leaving out as many documents as were counted, so it must
            be the same stream. At the end it holds the result alone, which the same count finds there. By default a
            temporary folder, removed in any case.
        show_progress: report on stderr what was counted and what was merged, and how fast.

    Raises:
        CorpusError: if there is no document, if none of them has a window, or if one is not UTF-8.
        InvalidValueError: if N or the memory cannot be used, or the folder holds something else.
        SourceError: if what the folder holds is damaged.
    """
    check_order(max_order)
    if type(memory_mib) is not int or memory_mib < 1:
        raise InvalidValueError(
            f"memory_mib = {memory_mib!r}", expected="a whole number of at least 1", remedy="Set it to such a number"
        )
    encoders = TextEncoder.of(target), TextEncoder.of(reference)
    settings = counting_settings(*encoders, max_order) | {
        "corpus": documents.description if isinstance(documents, Corpus) else None
    }
    with temporary_or(folder, settings) as work:
        if work.result is None:
            counter = CorpusCounter(work, *encoders, memory_mib)
            if not work.complete:
                _count(documents, counter, work, show_progress)
            capacity = counter.release()
            with progress_bar("merge", "records", total=sum(map(len, work.runs)), shown=show_progress, delay=1) as bar:
                work.settle(count_runs(work, max_order, capacity, progress=bar.update).to_dict())
        counts = StringCounts.from_dict(work.result, max_order)
        names = encoders[0].name or "target", encoders[1].name or "reference"
        return CorpusOverlap.of(counts, names, work.num_documents, work.num_bytes)


def _count(documents: Iterable[AnyDocument], counter: CorpusCounter, work: WorkFolder, show_progress: bool) -> None:
    """Count the documents that the work folder does not have, to the end."""
    source = ResumedDocuments(documents, work.cursor, work.num_documents)
    # Nothing may follow what an interrupted count had saved.
    batches = group_documents(source) if work.num_documents else document_batches(source)
    with progress_bar("corpus", "B", done=work.num_bytes, shown=show_progress, delay=1) as bar:
        for batch in batches:
            counter.add(batch, source.cursor)
            bar.update(sum(len(document.data) for document in batch))
    counter.finish()
