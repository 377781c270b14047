"""Verbs that measure tokenizers, texts and memory files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokagnostic.flags import parse_flags
from tokagnostic.outputs import (
    check_distinct,
    check_figure,
    check_output,
    check_page,
    write_config_beside,
    write_result,
)
from tokagnostic.progress import progress_bar
from tokagnostic.verbs.answer import Answer

if TYPE_CHECKING:
    from tokagnostic.corpus import Document
    from tokagnostic.evaluation.overlap import Overlap
    from tokagnostic.options import InspectOptions, OverlapOptions


def overlap(arguments: Sequence[str]) -> Answer:
    """Measure the n-grams that tokenizers share on a text, byte for byte, and say why they miss the others."""
    from tokagnostic.corpus import Corpus
    from tokagnostic.options import OverlapOptions

    options, as_json = parse_flags(OverlapOptions, arguments, "overlap")
    check_output(options.output)
    check_output(options.csv)
    check_output(options.work_folder, is_folder=True)
    check_figure(options.figure)
    check_page(options.html)
    check_distinct(options.output, options.csv, options.figure, options.html)
    corpus = Corpus(options)
    from tokagnostic.evaluation.corpus_overlap.whole import forget_work, whole_corpus_overlaps, with_whole_corpus
    from tokagnostic.evaluation.overlap import overlap_square
    from tokagnostic.evaluation.overlap.csv_lines import write_csv
    from tokagnostic.plots import plot_overlap, plot_overlap_square

    sides = options.target, options.reference
    file = None if options.work_folder is None else Path(options.work_folder) / "documents.json"
    wholes = None
    if options.scope == "corpus":
        wholes = whole_corpus_overlaps(
            corpus, *sides, options.max_order, memory_mib=options.memory_mib, folder=options.work_folder
        )
    with progress_bar("overlap", "B", delay=1) as bar:
        square = overlap_square(
            corpus,
            *sides,
            options.max_order,
            processes=options.processes,
            resamples=options.resamples,
            seed=options.seed,
            file=file,
            progress=bar.update,
        )
    intake = dataclasses.asdict(corpus.counts)
    if wholes is not None:
        square = with_whole_corpus(square, wholes)
    single = len(options.target) == len(options.reference) == 1
    result = {**(square.pairs[0][0] if single else square).to_dict(), "intake": intake}
    write_result(options.output, result, options)
    if options.csv:
        write_csv(square, options.csv)
        write_config_beside(options.csv, options)
    if options.figure:
        (plot_overlap if single else plot_overlap_square)(result, options.figure)
        write_config_beside(options.figure, options)
    if options.html:
        _write_overlap_page(options, [pair for row in square.pairs for pair in row])
    if file is not None:
        file.unlink()
        forget_work(file.parent)
    left_out = ", ".join(f"{intake[name]:,} {name}" for name in ("empty", "skipped", "replaced") if intake[name])
    note = f"\nof the source's documents: {left_out}" if left_out else ""
    return Answer(result, (square.pairs[0][0] if single else square).to_text() + note, as_json)


def _write_overlap_page(options: OverlapOptions, pairs: Sequence[Overlap]) -> None:
    from tokagnostic.corpus import Corpus
    from tokagnostic.pages import overlap_page, write_page
    from tokagnostic.studies.passage import choose_document, passage
    from tokagnostic.tokens.sources import load_tokenizer

    document = choose_document(Corpus(options))
    encoders = {spec: load_tokenizer(spec) for spec in (*options.target, *options.reference)}
    passages = [
        passage(document, encoders[target], encoders[reference], options.max_order)
        for target in options.target
        for reference in options.reference
    ]
    write_page(options.html or "", overlap_page([pair.to_dict() for pair in pairs], passages))
    write_config_beside(options.html or "", options)


def coverage(arguments: Sequence[str]) -> Answer:
    """Say how much of a text a memory file has seen, as another tokenizer cuts it."""
    from tokagnostic.corpus import Corpus
    from tokagnostic.options import CoverageOptions

    options, as_json = parse_flags(CoverageOptions, arguments, "coverage")
    check_output(options.output)
    corpus = Corpus(options)
    from tokagnostic.evaluation.coverage import coverage as measure
    from tokagnostic.hashing import HashCache
    from tokagnostic.memory.file import load_memory
    from tokagnostic.tokens.sources import load_tokenizer

    encoder = load_tokenizer(options.tokenizer)
    memory = load_memory(options.memory, HashCache.of(encoder))
    with progress_bar("coverage", "B", delay=1) as bar:
        result = measure(_counted(corpus, bar), encoder, memory, max_order=options.max_order)
    write_result(options.output, result.to_dict(), options)
    return Answer(result.to_dict(), result.to_text(), as_json)


def inspect(arguments: Sequence[str]) -> Answer:
    """Say what a tokenizer or a memory file is, or what two tokenizers share."""
    from tokagnostic.options import InspectOptions

    options, as_json = parse_flags(InspectOptions, arguments, "inspect")
    check_page(options.html)
    if len(options.specs) == 2:
        return Answer(*_compared(options), as_json)
    from tokagnostic.studies.inspection import inspect_memory, inspect_tokenizer
    from tokagnostic.studies.inspection_text import facts_text, tokenizer_text

    [spec] = options.specs
    if spec.endswith(".safetensors"):
        facts = inspect_memory(spec, options.verify)
        return Answer(facts, facts_text(facts), as_json)
    facts = inspect_tokenizer(spec)
    if options.html:
        from tokagnostic.pages import tokenizer_page, write_page

        write_page(options.html, tokenizer_page([facts]))
    return Answer(facts, tokenizer_text(facts), as_json)


def _compared(options: InspectOptions) -> tuple[dict[str, Any], str]:
    from tokagnostic.corpus import Corpus
    from tokagnostic.studies.inspection import as_encoder
    from tokagnostic.studies.inspection_text import comparison_text
    from tokagnostic.studies.tokenizer_comparison import compare_tokenizers

    corpus = Corpus(options)
    first, second = map(as_encoder, options.specs)
    with progress_bar("inspect", "B", delay=1) as bar:
        comparison = compare_tokenizers(first, second, _counted(corpus, bar))
    if options.html:
        from tokagnostic.pages import tokenizer_page, write_page
        from tokagnostic.studies.inspection import inspect_tokenizer
        from tokagnostic.studies.passage import choose_document, passage

        shown = passage(choose_document(Corpus(options)), first, second)
        write_page(options.html, tokenizer_page(list(map(inspect_tokenizer, (first, second))), comparison, shown))
    return comparison, comparison_text(comparison)


def _counted(documents: Iterable[Document], bar: Any) -> Iterator[Document]:
    """The documents, each told to the progress bar."""
    for document in documents:
        yield document
        bar.update(len(document.data))
