"""The command line: one function per verb, each of which imports what it needs."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokagnostic import __version__
from tokagnostic.errors import InvalidValueError, TokagnosticError
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

if TYPE_CHECKING:
    from tokagnostic.corpus import Document
    from tokagnostic.evaluation.overlap import Overlap
    from tokagnostic.options import InspectOptions, OverlapOptions


def demo(arguments: Sequence[str]) -> None:
    """Go the whole way on the text that Python carries; leaves a report in artifacts/demo."""
    from tokagnostic.studies.demo import DemoConfig
    from tokagnostic.studies.demo import demo as run_demo
    from tokagnostic.studies.report import control_table, number

    config, as_json = parse_flags(DemoConfig, arguments, "demo")
    check_output(config.output, is_folder=True)
    report = run_demo(config)
    text = (
        f"{control_table(report)}\n\n"
        f"transfer efficiency {number(report['transfer_efficiency'], '.3f')}; {report['seconds']:.0f} s, "
        f"{report['peak_memory_mib']:,} MiB at the peak; the report is {Path(config.output) / 'report.md'}"
    )
    _print(report, text, as_json)


def pretrain(arguments: Sequence[str]) -> None:
    """Train a host together with a fresh memory."""
    from tokagnostic.training.config import PretrainConfig

    config, as_json = parse_flags(PretrainConfig, arguments, "pretrain")
    _train(config, as_json)


def attach(arguments: Sequence[str]) -> None:
    """Train a reader of a frozen memory file in a host with any tokenizer."""
    from tokagnostic.training.config import AttachConfig

    config, as_json = parse_flags(AttachConfig, arguments, "attach")
    _train(config, as_json)


def _train(config: Any, as_json: bool) -> None:
    check_output(config.output, is_folder=True)
    from tokagnostic.training.pretrain import pretrain as run_pretrain

    facts = run_pretrain(config)
    text = (
        f"{config.output}: {facts['steps']:,} steps, {facts['tokens_seen']:,} tokens at "
        f"{facts['tokens_per_second']:,.0f} tokens/s, final loss {facts['final_loss']:.4f} nats per token"
    )
    _print(facts, text, as_json)


def export(arguments: Sequence[str]) -> None:
    """Write a run's memory as one self-describing file."""
    from tokagnostic.options import ExportOptions

    options, as_json = parse_flags(ExportOptions, arguments, "export")
    check_output(options.output)
    from tokagnostic.training.run import export_memory

    report = export_memory(options.run, options.output, options.row_format)
    write_config_beside(options.output, options)
    rounding = (
        f"rows rounded to {options.row_format}: by at most {report.max_rounding:.3g}, "
        f"{100 * report.relative_rounding:.3g} % in the root mean square"
        if report.max_rounding
        else f"rows stored as {options.row_format}, exactly as they were"
    )
    text = f"{report.path}: {report.num_bytes:,} bytes, memory {report.identity}\n{rounding}"
    _print({**dataclasses.asdict(report), "path": str(report.path)}, text, as_json)


def evaluate(arguments: Sequence[str]) -> None:
    """Bits per byte of a text under the models of runs, with the memory on and off."""
    from tokagnostic.corpus import Corpus
    from tokagnostic.options import EvalOptions

    options, as_json = parse_flags(EvalOptions, arguments, "eval")
    check_output(options.output)
    check_figure(options.figure)
    documents = list(Corpus(options))
    from tokagnostic.plots import plot_controls
    from tokagnostic.studies.evaluation import evaluate_runs, evaluation_text, without_memory

    num_bytes = 2 * len(options.run) * sum(len(document.data) for document in documents)
    with progress_bar("eval", "B", total=num_bytes, delay=1) as bar:
        runs = evaluate_runs(
            options.run,
            documents,
            options.context,
            options.stride,
            batch_size=options.batch_size,
            progress=bar.update,
        )
    results = {run: {name: score.to_dict() for name, score in scores.items()} for run, scores in runs.items()}
    each = {
        run: {name: [dataclasses.asdict(document) for document in score.documents] for name, score in scores.items()}
        for run, scores in runs.items()
    }
    single = len(runs) == 1
    result = next(iter(results.values())) if single else {"runs": results}
    write_result(options.output, {**result, "documents": next(iter(each.values())) if single else each}, options)
    if options.figure:
        bits: dict[str, float] = {run: scores["memory"].bits_per_byte for run, scores in runs.items()}
        plain = without_memory(runs)
        plot_controls(bits if plain is None else {"none": plain, **bits}, options.figure)
        write_config_beside(options.figure, options)
    _print(result, evaluation_text(runs), as_json)


def generate(arguments: Sequence[str]) -> None:
    """Continue a prompt with the memory on and off."""
    from tokagnostic.options import GenerateOptions

    options, as_json = parse_flags(GenerateOptions, arguments, "generate")
    from tokagnostic.training.run import continue_prompt, load_run

    run = load_run(options.run)
    texts = {"memory": continue_prompt(run, options.prompt, options.num_tokens, use_cache=options.cache)}
    with run.attachment.disabled():
        texts["off"] = continue_prompt(run, options.prompt, options.num_tokens, use_cache=options.cache)
    _print(texts, f"--- memory on ---\n{texts['memory']}\n\n--- memory off ---\n{texts['off']}", as_json)


def overlap(arguments: Sequence[str]) -> None:
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
    if options.work_folder is not None and file is not None:
        file.unlink()
        forget_work(options.work_folder)
    left_out = ", ".join(f"{intake[name]:,} {name}" for name in ("empty", "skipped", "replaced") if intake[name])
    note = f"\nof the source's documents: {left_out}" if left_out else ""
    _print(result, (square.pairs[0][0] if single else square).to_text() + note, as_json)


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


def coverage(arguments: Sequence[str]) -> None:
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
    _print(result.to_dict(), result.to_text(), as_json)


def inspect(arguments: Sequence[str]) -> None:
    """Say what a tokenizer or a memory file is, or what two tokenizers share."""
    from tokagnostic.options import InspectOptions

    options, as_json = parse_flags(InspectOptions, arguments, "inspect")
    check_page(options.html)
    if len(options.specs) == 2:
        _print(*_compared(options), as_json)
        return
    from tokagnostic.studies.inspection import inspect_memory, inspect_tokenizer
    from tokagnostic.studies.inspection_text import facts_text, tokenizer_text

    [spec] = options.specs
    if spec.endswith(".safetensors"):
        facts = inspect_memory(spec, options.verify)
        _print(facts, facts_text(facts), as_json)
    else:
        facts = inspect_tokenizer(spec)
        if options.html:
            from tokagnostic.pages import tokenizer_page, write_page

            write_page(options.html, tokenizer_page([facts]))
        _print(facts, tokenizer_text(facts), as_json)


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


def compare(arguments: Sequence[str]) -> None:
    """Put finished demonstrations side by side, with mean and spread."""
    from tokagnostic.options import CompareOptions

    options, as_json = parse_flags(CompareOptions, arguments, "compare")
    check_figure(options.figure)
    from tokagnostic.plots import plot_controls
    from tokagnostic.studies.comparison import compare_reports, comparison_table

    comparison = compare_reports(options.reports)
    if options.figure:
        plot_controls({name: control["values"] for name, control in comparison["bpb"].items()}, options.figure)
        write_config_beside(options.figure, options)
    _print(comparison, comparison_table(comparison), as_json)


def plot(arguments: Sequence[str]) -> None:
    """Draw learning curves of runs."""
    from tokagnostic.options import PlotOptions

    options, as_json = parse_flags(PlotOptions, arguments, "plot")
    check_figure(options.output)
    from tokagnostic.plots import plot_learning_curves
    from tokagnostic.training.run import read_metrics

    if not options.runs:
        raise InvalidValueError("no run", expected="one or more folders with a metrics.jsonl", remedy="Name them")
    names = [Path(run).name for run in options.runs]
    if len(set(names)) < len(names) or not all(names):
        names = list(options.runs)
    curves = {name: read_metrics(run) for name, run in zip(names, options.runs, strict=True)}
    label = options.field.replace("_", " ")
    plot_learning_curves(curves, options.output, y=options.field, y_label=label, smooth=options.smooth)
    write_config_beside(options.output, options)
    _print({"figure": options.output}, options.output, as_json)


def bench(arguments: Sequence[str]) -> None:
    """Measure speeds against rivals in the same run."""
    from tokagnostic.options import BenchOptions

    options, as_json = parse_flags(BenchOptions, arguments, "bench")
    from tokagnostic.bench import bench_table, run_bench

    rows = run_bench(options.names)
    _print(rows, bench_table(rows), as_json)


VERBS: dict[str, Callable[[Sequence[str]], None]] = {
    "demo": demo,
    "pretrain": pretrain,
    "export": export,
    "attach": attach,
    "eval": evaluate,
    "generate": generate,
    "overlap": overlap,
    "coverage": coverage,
    "inspect": inspect,
    "compare": compare,
    "plot": plot,
    "bench": bench,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a verb; a user's mistake is one line and exit code 2, a bug is a traceback."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        _run(given)
        # What a reader of the pipe does not want any more is noticed here and not at exit.
        sys.stdout.flush()
    except TokagnosticError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        print("tokagnostic: interrupted; what was reported as saved is intact", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno is None:
            raise
        place = f"{error.filename}: " if error.filename is not None else ""
        _fail(
            f"{place}{error.strerror}; expected a place that can be read and written. "
            "Check the path, its permissions and the space left."
        )


def _run(given: Sequence[str]) -> None:
    verb, *rest = given or ["--help"]
    if verb in ("-h", "--help"):
        print(_help())
    elif verb == "--version":
        print(f"tokagnostic {__version__}")
    elif verb in VERBS:
        VERBS[verb](rest)
    else:
        raise InvalidValueError(
            f"verb {verb!r}", expected=f"one of {', '.join(VERBS)}", remedy="Run `tokagnostic --help`"
        )


def _fail(message: str) -> None:
    print(f"tokagnostic: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


def _help() -> str:
    verbs = "\n".join(f"  {name:<9} {(function.__doc__ or '').strip()}" for name, function in VERBS.items())
    return (
        "usage: tokagnostic VERB [OPTIONS]\n\n"
        "N-gram memory for language models that does not depend on the tokenizer.\n\n"
        f"{verbs}\n\n"
        "Every verb has --help, --json for machines, and --config FILE.toml for defaults."
    )


def _counted(documents: Iterable[Document], bar: Any) -> Iterator[Document]:
    """The documents, each told to the progress bar."""
    for document in documents:
        yield document
        bar.update(len(document.data))


def _print(result: Any, text: str, as_json: bool) -> None:
    print(json.dumps(result, indent=1, allow_nan=False) if as_json else text)
