"""Verbs that put results side by side, draw them, and time the program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokagnostic.errors import InvalidValueError
from tokagnostic.flags import parse_flags
from tokagnostic.outputs import check_figure, write_config_beside
from tokagnostic.verbs.answer import Answer


def compare(arguments: Sequence[str]) -> Answer:
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
    return Answer(comparison, comparison_table(comparison), as_json)


def plot(arguments: Sequence[str]) -> Answer:
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
    return Answer({"figure": options.output}, options.output, as_json)


def bench(arguments: Sequence[str]) -> Answer:
    """Measure speeds against rivals in the same run."""
    from tokagnostic.options import BenchOptions

    options, as_json = parse_flags(BenchOptions, arguments, "bench")
    from tokagnostic.bench import bench_table, run_bench

    rows = run_bench(options.names)
    return Answer(rows, bench_table(rows), as_json)
