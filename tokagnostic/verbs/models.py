"""Verbs that train, export and run models with a memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokagnostic.flags import parse_flags
from tokagnostic.outputs import check_figure, check_output, write_config_beside, write_result
from tokagnostic.progress import progress_bar
from tokagnostic.training.stopping import stopping_before_training
from tokagnostic.verbs.answer import Answer


def demo(arguments: Sequence[str]) -> Answer:
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
    return Answer(report, text, as_json)


def pretrain(arguments: Sequence[str]) -> Answer:
    """Train a host together with a fresh memory."""
    with stopping_before_training():
        from tokagnostic.training.config import PretrainConfig

        config, as_json = parse_flags(PretrainConfig, arguments, "pretrain")
    return _train(config, as_json)


def attach(arguments: Sequence[str]) -> Answer:
    """Train a reader of a frozen memory file in a host with any tokenizer."""
    with stopping_before_training():
        from tokagnostic.training.config import AttachConfig

        config, as_json = parse_flags(AttachConfig, arguments, "attach")
    return _train(config, as_json)


def _train(config: Any, as_json: bool) -> Answer:
    check_output(config.output, is_folder=True)
    with stopping_before_training():
        from tokagnostic.training.plan import refuse_beyond
        from tokagnostic.training.pretrain import plan
        from tokagnostic.training.pretrain import pretrain as run_pretrain
        from tokagnostic.training.processes import ending_processes

    if config.plan:
        planned = plan(config)
        refuse_beyond(planned, config)
        return Answer(planned.to_dict(), planned.to_text(), as_json)
    facts = ending_processes(lambda: run_pretrain(config))
    text = (
        f"{config.output}: {facts['steps']:,} steps, {facts['tokens_seen']:,} tokens at "
        f"{facts['tokens_per_second']:,.0f} tokens/s, final loss {facts['final_loss']:.4f} nats per token"
    )
    return Answer(facts, text, as_json)


def export(arguments: Sequence[str]) -> Answer:
    """Write a run's memory as one self-describing file."""
    from tokagnostic.corpus import Corpus
    from tokagnostic.options import ExportOptions

    options, as_json = parse_flags(ExportOptions, arguments, "export")
    check_output(options.output)
    from tokagnostic.training.export import export_memory
    from tokagnostic.training.run import load_of_text

    load = load_of_text(options.run, Corpus(options)) if options.data else None
    exported = export_memory(
        options.run,
        options.output,
        options.row_format,
        hot_rows=options.hot_rows,
        merge_visits=options.merge_visits,
        visits_base=options.visits_base,
    )
    write_config_beside(options.output, options)
    report, hot = exported.file, exported.hot
    rounding = (
        f"rows rounded to {options.row_format}: by at most {report.max_rounding:.3g}, "
        f"{100 * report.relative_rounding:.3g} % in the root mean square"
        if report.max_rounding
        else f"rows stored as {options.row_format}, exactly as they were"
    )
    lines = [f"{report.path}: {report.num_bytes:,} bytes, memory {report.identity}", rounding]
    facts: dict[str, Any] = {**dataclasses.asdict(report), "path": str(report.path)}
    if hot is not None:
        facts["hot_rows"] = dataclasses.asdict(hot)
        lines.append(
            f"{hot.kept:,} of {hot.rows:,} rows kept, each written {hot.least_visits:,} times or more: "
            f"{100 * hot.share_of_lookups:.1f} % of the lookups of its training"
        )
    if load is not None:
        facts["load"] = load.to_dict()
        lines += ["", load.to_text()]
    return Answer(facts, "\n".join(lines), as_json)


def evaluate(arguments: Sequence[str]) -> Answer:
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
            memory_file=options.memory_file,
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
    return Answer(result, evaluation_text(runs), as_json)


def generate(arguments: Sequence[str]) -> Answer:
    """Continue a prompt with the memory on and off."""
    from tokagnostic.options import GenerateOptions

    options, as_json = parse_flags(GenerateOptions, arguments, "generate")
    from tokagnostic.training.run import continue_prompt, load_run

    run = load_run(options.run)
    texts = {"memory": continue_prompt(run, options.prompt, options.num_tokens, use_cache=options.cache)}
    with run.attachment.disabled():
        texts["off"] = continue_prompt(run, options.prompt, options.num_tokens, use_cache=options.cache)
    return Answer(texts, f"--- memory on ---\n{texts['memory']}\n\n--- memory off ---\n{texts['off']}", as_json)
