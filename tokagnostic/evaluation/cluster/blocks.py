"""Blocks of a datatrove pipeline that count overlap: documents of a rank to counts or sorted runs in the job's folder.

Each block passes the documents on, so that several can stand in one pipeline. A rank holds specs and not tokenizers
until it runs, so that a pipeline travels to other machines as text and numbers. The folder must be one that all ranks
and the merge can reach, such as a network file system.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tokagnostic.corpus import CorpusCounts, Document
from tokagnostic.corpus.intake import BadDocumentPolicy, Intake, Origin
from tokagnostic.errors import MissingExtraError
from tokagnostic.evaluation.cluster.rank_results import count_part, first_place, run_folder, write_rank_counts
from tokagnostic.evaluation.corpus_overlap.counter import CorpusCounter, counting_settings
from tokagnostic.evaluation.corpus_overlap.work_folder import WorkFolder
from tokagnostic.evaluation.overlap import OverlapCounter
from tokagnostic.evaluation.overlap.counts import check_order
from tokagnostic.evaluation.overlap.resampling import RESAMPLES
from tokagnostic.evaluation.windows import group_documents
from tokagnostic.tokens.sources import load_tokenizer

try:
    from datatrove.data import Document as TroveDocument
    from datatrove.data import DocumentsPipeline
    from datatrove.pipeline.base import PipelineStep
except ImportError as error:
    raise MissingExtraError("datatrove", extra="cluster", purpose="counting beyond one machine") from error


class CountOverlap(PipelineStep):
    """Counts overlap document by document; each rank leaves one JSON file for `merge_overlap` or `merge_square`.

    Blank documents are left out, as a `Corpus` leaves them out. The resampling draws a rank's documents by their places
    from rank * 2 ** 40 on, so intervals are those of another draw than that of one process over the same documents;
    all else is equal to the last bit.

    Args:
        folder: of the job.
        targets: specs of the tokenizers whose n-grams are looked for, as `load_tokenizer` takes them.
        references: specs of those among whose n-grams they are looked for.
        max_order: N.
        resamples: R; 0 for no intervals.
        seed: of the resampling.
        on_bad_document: what to do with a text that cannot be written as UTF-8.

    Raises:
        InvalidValueError: if N is not a whole number from 1 to 31.
    """

    type = "tokagnostic"
    name = "count overlap"

    def __init__(
        self,
        folder: str | Path,
        targets: Sequence[str],
        references: Sequence[str],
        max_order: int = 7,
        *,
        resamples: int = RESAMPLES,
        seed: int = 0,
        on_bad_document: BadDocumentPolicy = "error",
    ) -> None:
        super().__init__()
        self.folder = str(folder)
        self.targets, self.references = list(targets), list(references)
        self.max_order = check_order(max_order)
        self.resamples, self.seed = resamples, seed
        self.on_bad_document: BadDocumentPolicy = on_bad_document

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> DocumentsPipeline:
        """Count the documents of a rank and pass them on."""
        encoders = {spec: load_tokenizer(spec) for spec in (*self.targets, *self.references)}
        counter = OverlapCounter(
            [encoders[spec] for spec in self.targets],
            [encoders[spec] for spec in self.references],
            self.max_order,
            resamples=self.resamples,
            seed=self.seed,
        )
        counts, place = counter.none(), first_place(rank)
        taken: list[TroveDocument] = []
        for batch in group_documents(_admitted(data, taken, Intake(self.on_bad_document, CorpusCounts()))):
            with self.track_time("batch"):
                counter.add(counts, batch, place)
            place += len(batch)
            self.stat_update("bytes", value=sum(len(document.data) for document in batch), unit="batch")
            yield from taken
            taken.clear()
        yield from taken
        write_rank_counts(self.folder, rank, world_size, counts)


class SortWindows(PipelineStep):
    """Turns the windows of a rank's documents into sorted runs, from which `CountWindows` counts over the corpus.

    A rank that is run again goes on after the documents whose runs it had saved, which must come in the same order.

    Args:
        folder: of the job.
        target: spec of the tokenizer whose n-grams are looked for, as `load_tokenizer` takes it.
        reference: spec of the one among whose n-grams they are looked for.
        max_order: N.
        memory_mib: MiB of records to hold at once.
        on_bad_document: what to do with a text that cannot be written as UTF-8.

    Raises:
        InvalidValueError: if N is not a whole number from 1 to 31.
    """

    type = "tokagnostic"
    name = "sort windows"

    def __init__(
        self,
        folder: str | Path,
        target: str,
        reference: str,
        max_order: int = 7,
        *,
        memory_mib: int = 512,
        on_bad_document: BadDocumentPolicy = "error",
    ) -> None:
        super().__init__()
        self.folder = str(folder)
        self.target, self.reference = target, reference
        self.max_order = check_order(max_order)
        self.memory_mib = memory_mib
        self.on_bad_document: BadDocumentPolicy = on_bad_document

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> DocumentsPipeline:
        """Sort the windows of a rank and pass its documents on."""
        encoders = load_tokenizer(self.target), load_tokenizer(self.reference)
        settings = counting_settings(*encoders, self.max_order) | {"names": [encoder.name for encoder in encoders]}
        work = WorkFolder.open(run_folder(self.folder, rank, world_size), settings)
        counter = CorpusCounter(work, *encoders, self.memory_mib)
        num_known, known = work.num_documents, work.complete
        taken: list[TroveDocument] = []
        for batch in group_documents(_admitted(data, taken, Intake(self.on_bad_document, CorpusCounts()))):
            fresh = [] if known else batch[min(num_known, len(batch)) :]
            num_known = max(num_known - len(batch), 0)
            if fresh:
                with self.track_time("batch"):
                    counter.add(fresh, None)
                self.stat_update("bytes", value=sum(len(document.data) for document in fresh), unit="batch")
            yield from taken
            taken.clear()
        yield from taken
        if not known:
            counter.finish()


class CountWindows(PipelineStep):
    """Merges the runs of all ranks over the rank's own part of the key space; `merge_corpus_overlap` adds up the parts.

    It reads no documents, and its number of tasks need not be that of the ranks that sorted.

    Args:
        folder: of the job.
        memory_mib: MiB of records to hold at once.
    """

    type = "tokagnostic"
    name = "count windows"

    def __init__(self, folder: str | Path, *, memory_mib: int = 512) -> None:
        super().__init__()
        self.folder = str(folder)
        self.memory_mib = memory_mib

    def run(self, data: DocumentsPipeline = None, rank: int = 0, world_size: int = 1) -> DocumentsPipeline:
        """Count a part of the keys; documents, if there are any, are passed on."""
        if data:
            yield from data
        with self.track_time("part"):
            count_part(self.folder, rank, world_size, self.memory_mib)


def _admitted(data: DocumentsPipeline, taken: list[TroveDocument], intake: Intake) -> Iterator[Document]:
    """The texts to count, by the rules of a `Corpus`; every document that was drawn is put into `taken`."""
    for row, document in enumerate(data or ()):
        taken.append(document)
        origin = Origin(document.id, row)
        encoded = intake.mend_text(document.text, origin)
        admitted = None if encoded is None else intake.admit(encoded, origin)
        if admitted is not None:
            yield Document(admitted, document.id)
