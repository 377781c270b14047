"""The command line: one function per verb, each of which imports what it needs."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from tokagnostic import __version__
from tokagnostic.errors import InvalidValueError, SourceError, TokagnosticError

Options = TypeVar("Options")


def demo(arguments: Sequence[str]) -> None:
    """Go the whole way on the text that Python carries; leaves a report in artifacts/demo."""
    from tokagnostic.studies.demo import DemoConfig
    from tokagnostic.studies.demo import demo as run_demo
    from tokagnostic.studies.report import control_table

    config, as_json = _parse(DemoConfig, arguments, "demo")
    report = run_demo(config)
    text = (
        f"{control_table(report)}\n\n"
        f"transfer efficiency {report['transfer_efficiency']:.3f}; {report['seconds']:.0f} s, "
        f"{report['peak_memory_mib']:,} MiB; the report is {Path(config.output) / 'report.md'}"
    )
    _print(report, text, as_json)


def pretrain(arguments: Sequence[str]) -> None:
    """Train a host together with a fresh memory."""
    from tokagnostic.training.config import PretrainConfig
    from tokagnostic.training.pretrain import pretrain as run_pretrain

    config, as_json = _parse(PretrainConfig, arguments, "pretrain")
    _print_run(config.output, run_pretrain(config), as_json)


def attach(arguments: Sequence[str]) -> None:
    """Train a reader of a frozen memory file in a host with any tokenizer."""
    from tokagnostic.training.config import AttachConfig
    from tokagnostic.training.pretrain import pretrain as run_pretrain

    config, as_json = _parse(AttachConfig, arguments, "attach")
    _print_run(config.output, run_pretrain(config), as_json)


def export(arguments: Sequence[str]) -> None:
    """Write a run's memory as one self-describing file."""
    from tokagnostic.options import ExportOptions
    from tokagnostic.training.run import export_memory

    options, as_json = _parse(ExportOptions, arguments, "export")
    report = export_memory(options.run, options.output, options.row_format)
    text = (
        f"{report.path}: {report.num_bytes:,} bytes, memory {report.identity}\n"
        f"rounding: at most {report.max_rounding:.3g}, relative {report.relative_rounding:.3g}"
    )
    _print({**dataclasses.asdict(report), "path": str(report.path)}, text, as_json)


def evaluate(arguments: Sequence[str]) -> None:
    """Bits per byte of a text under a run's model, with the memory on and off."""
    from tokagnostic.evaluation.bits_per_byte import bits_per_byte
    from tokagnostic.options import EvalOptions
    from tokagnostic.training.run import load_run

    options, as_json = _parse(EvalOptions, arguments, "eval")
    run = load_run(options.run)
    documents = list(_corpus(options))
    scores = {}
    with _bytes_bar(2 * sum(len(document.data) for document in documents), "eval") as bar:
        for name in ("memory", "off"):
            with run.attachment.disabled() if name == "off" else _nothing():
                scores[name] = bits_per_byte(
                    run.model,
                    run.encoder,
                    documents,
                    options.context,
                    options.stride,
                    batch_size=options.batch_size,
                    progress=bar.update,
                )
    result = {name: score.to_dict() for name, score in scores.items()}
    each = {name: [dataclasses.asdict(document) for document in score.documents] for name, score in scores.items()}
    _write(options.output, {**result, "documents": each, "config": dataclasses.asdict(options)})
    lines = [f"{name:>6}  {score.bits_per_byte:.4f} bits per byte" for name, score in scores.items()]
    total = scores["memory"].total
    lines.append(f"{total.num_bytes:,} bytes, {total.num_tokens:,} tokens, {len(scores['memory'].documents)} documents")
    if scores["memory"].num_inexact:
        lines.append(
            f"lossy: the ids of {scores['memory'].num_inexact} documents do not join back to their bytes, "
            "so this is no code length of the source"
        )
    _print(result, "\n".join(lines), as_json)


def generate(arguments: Sequence[str]) -> None:
    """Continue a prompt with the memory on and off."""
    from tokagnostic.options import GenerateOptions
    from tokagnostic.training.run import continue_prompt, load_run

    options, as_json = _parse(GenerateOptions, arguments, "generate")
    run = load_run(options.run)
    texts = {"memory": continue_prompt(run, options.prompt, options.num_tokens)}
    with run.attachment.disabled():
        texts["off"] = continue_prompt(run, options.prompt, options.num_tokens)
    _print(texts, "\n\n".join(f"--- {name} ---\n{text}" for name, text in texts.items()), as_json)


def overlap(arguments: Sequence[str]) -> None:
    """Measure the n-grams that two tokenizers share on a text, byte for byte."""
    from tokagnostic.evaluation.overlap import ngram_overlap
    from tokagnostic.options import OverlapOptions
    from tokagnostic.plots import plot_overlap
    from tokagnostic.tokens.sources import load_tokenizer

    options, as_json = _parse(OverlapOptions, arguments, "overlap")
    target, reference = load_tokenizer(options.target), load_tokenizer(options.reference)
    with _bytes_bar(None, "overlap") as bar:
        result = ngram_overlap(_counted(_corpus(options), bar), target, reference, options.max_order)
    _write(options.output, {**result.to_dict(), "config": dataclasses.asdict(options)})
    if options.figure:
        plot_overlap(result.to_dict(), options.figure)
    _print(result.to_dict(), result.to_text(), as_json)


def coverage(arguments: Sequence[str]) -> None:
    """Say how much of a text a memory file has seen, as another tokenizer cuts it."""
    from tokagnostic.evaluation.coverage import coverage as measure
    from tokagnostic.hashing import HashCache
    from tokagnostic.memory.file import load_memory
    from tokagnostic.options import CoverageOptions
    from tokagnostic.tokens.sources import load_tokenizer

    options, as_json = _parse(CoverageOptions, arguments, "coverage")
    encoder = load_tokenizer(options.tokenizer)
    memory = load_memory(options.memory, HashCache.of(encoder))
    with _bytes_bar(None, "coverage") as bar:
        result = measure(_counted(_corpus(options), bar), encoder, memory, max_order=options.max_order)
    _write(options.output, {**result.to_dict(), "config": dataclasses.asdict(options)})
    _print(result.to_dict(), result.to_text(), as_json)


def inspect(arguments: Sequence[str]) -> None:
    """Say what a tokenizer or a memory file is."""
    from tokagnostic.options import InspectOptions
    from tokagnostic.studies.inspection import inspect_memory, inspect_tokenizer

    options, as_json = _parse(InspectOptions, arguments, "inspect")
    is_memory = options.spec.endswith(".safetensors")
    facts = inspect_memory(options.spec, options.verify) if is_memory else inspect_tokenizer(options.spec)
    width = max(len(name) for name in facts)
    _print(facts, "\n".join(f"{name:<{width}}  {_plain(value)}" for name, value in facts.items()), as_json)


def compare(arguments: Sequence[str]) -> None:
    """Put finished demonstrations side by side, with mean and spread."""
    from tokagnostic.options import CompareOptions
    from tokagnostic.plots import plot_controls
    from tokagnostic.studies.comparison import compare_reports, comparison_table

    options, as_json = _parse(CompareOptions, arguments, "compare")
    comparison = compare_reports(options.reports)
    if options.figure:
        plot_controls({name: control["values"] for name, control in comparison["bpb"].items()}, options.figure)
    _print(comparison, comparison_table(comparison), as_json)


def plot(arguments: Sequence[str]) -> None:
    """Draw learning curves of runs."""
    from tokagnostic.options import PlotOptions
    from tokagnostic.plots import plot_learning_curves
    from tokagnostic.training.run import read_metrics

    options, as_json = _parse(PlotOptions, arguments, "plot")
    curves = {Path(run).name: read_metrics(run) for run in options.runs}
    label = options.field.replace("_", " ")
    plot_learning_curves(curves, options.output, y=options.field, y_label=label, smooth=options.smooth)
    _print({"figure": options.output}, options.output, as_json)


def bench(arguments: Sequence[str]) -> None:
    """Measure speeds against rivals in the same run."""
    from tokagnostic.bench import run_bench
    from tokagnostic.options import BenchOptions

    options, as_json = _parse(BenchOptions, arguments, "bench")
    rows = run_bench(options.names)
    lines = [f"{'measurement':<34} {'ours':>12} {'rival':>12} {'ratio':>8}  unit, rival"]
    for row in rows:
        numbers = f"{row['value']:>12.4g} {row['rival_value']:>12.4g} {row['ratio']:>8.2f}"
        lines.append(f"{row['name']:<34} {numbers}  {row['unit']}, {row['rival']}")
    _print(rows, "\n".join(lines), as_json)


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
    verb, *rest = sys.argv[1:] if arguments is None else arguments or ["--help"]
    if verb in ("-h", "--help"):
        print(_help())
        return
    if verb == "--version":
        print(f"tokagnostic {__version__}")
        return
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        if verb not in VERBS:
            raise InvalidValueError(
                f"verb {verb!r}", expected=f"one of {', '.join(VERBS)}", remedy="Run `tokagnostic --help`"
            )
        VERBS[verb](rest)
    except TokagnosticError as error:
        print(f"tokagnostic: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("tokagnostic: interrupted; what was reported as saved is intact", file=sys.stderr)
        sys.exit(130)


def _help() -> str:
    verbs = "\n".join(f"  {name:<9} {(function.__doc__ or '').strip()}" for name, function in VERBS.items())
    return (
        "usage: tokagnostic VERB [OPTIONS]\n\n"
        "N-gram memory for language models that does not depend on the tokenizer.\n\n"
        f"{verbs}\n\n"
        "Every verb has --help, --json for machines, and --config FILE.toml for defaults."
    )


def _parse(config_class: type[Options], arguments: Sequence[str], verb: str) -> tuple[Options, bool]:
    """A verb's config from its flags, over the defaults of a TOML file if one is named; and whether JSON is wanted."""
    import tyro

    json_help = tyro.conf.arg(help="Print the result as JSON.")
    config_help = tyro.conf.arg(help="A TOML file with defaults for these flags.")
    extended: Any = dataclasses.make_dataclass(
        config_class.__name__,
        [
            ("json", Annotated[bool, json_help], dataclasses.field(default=False, kw_only=True)),
            ("config", Annotated[str | None, config_help], dataclasses.field(default=None, kw_only=True)),
        ],
        bases=(config_class,),
        frozen=True,
    )
    extended.__doc__ = config_class.__doc__
    path = _config_path(arguments)
    defaults = {} if path is None else {"default": _from_toml(extended, _read_toml(path), tyro.MISSING)}
    parsed = tyro.cli(
        extended, prog=f"tokagnostic {verb}", args=list(arguments), config=(tyro.conf.FlagCreatePairsOff,), **defaults
    )
    own = {entry.name: getattr(parsed, entry.name) for entry in dataclasses.fields(config_class)}  # type: ignore[arg-type]
    return config_class(**own), parsed.json


def _config_path(arguments: Sequence[str]) -> str | None:
    for i, argument in enumerate(arguments):
        if argument == "--config" and i + 1 < len(arguments):
            return arguments[i + 1]
        if argument.startswith("--config="):
            return argument.removeprefix("--config=")
    return None


def _read_toml(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SourceError(
            f"config {path} cannot be read ({error})", expected="a TOML file", remedy="Check path and syntax"
        ) from error


def _from_toml(config_class: Any, values: dict[str, Any], missing: Any) -> Any:
    """An instance with the values of a TOML table; what a table leaves out keeps its default, or stays to be given."""
    fields = {entry.name: entry for entry in dataclasses.fields(config_class)}
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise InvalidValueError(
            f"unknown setting {unknown[0]!r} in a config file",
            expected=f"settings among {', '.join(sorted(fields))}",
            remedy="Remove the setting or correct its name",
        )
    arguments: dict[str, Any] = {}
    for name, entry in fields.items():
        has_default = entry.default is not dataclasses.MISSING or entry.default_factory is not dataclasses.MISSING
        if name not in values:
            if not has_default:
                arguments[name] = missing
        elif isinstance(values[name], dict) and entry.default_factory is not dataclasses.MISSING:
            arguments[name] = _from_toml(type(entry.default_factory()), values[name], missing)
        else:
            arguments[name] = tuple(values[name]) if isinstance(values[name], list) else values[name]
    return config_class(**arguments)


def _corpus(options: Any) -> Any:
    """The documents that a verb's options name."""
    from tokagnostic.corpus import Corpus, CorpusConfig

    own = {entry.name: getattr(options, entry.name) for entry in dataclasses.fields(CorpusConfig)}
    return Corpus(CorpusConfig(**own))


def _bytes_bar(total: int | None, label: str) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, desc=label, unit="B", unit_scale=True)


def _counted(corpus: Any, bar: Any) -> Any:
    """The documents of a corpus, each told to the progress bar."""
    for document in corpus:
        yield document
        bar.update(len(document.data))


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def _write(path: str | None, result: dict[str, Any]) -> None:
    if path is not None:
        from tokagnostic.training.run import write_json

        write_json(Path(path), result)


def _print_run(folder: str, facts: dict[str, Any], as_json: bool) -> None:
    text = (
        f"{folder}: {facts['steps']:,} steps, {facts['tokens_seen']:,} tokens at {facts['tokens_per_second']:,} a second, "
        f"final loss {facts['final_loss']:.4f}"
    )
    _print(facts, text, as_json)


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _print(result: Any, text: str, as_json: bool) -> None:
    print(json.dumps(result, indent=1) if as_json else text)
