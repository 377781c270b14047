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
    """Draw the curves of a run, or of several beside each other."""
    from tokagnostic.options import PlotOptions

    options, as_json = parse_flags(PlotOptions, arguments, "plot")
    if not options.runs:
        raise InvalidValueError("no run", expected="one or more folders with a metrics.jsonl", remedy="Name them")
    if options.output is None and len(options.runs) > 1:
        raise InvalidValueError(
            f"{len(options.runs)} runs without an output",
            expected="a file for their figure",
            remedy="Name it with --output",
        )
    output = str(Path(options.runs[0]) / "curves.png") if options.output is None else options.output
    check_figure(output)
    from tokagnostic.plots import plot_learning_curves, plot_run
    from tokagnostic.training.run import read_metrics

    names = [Path(run).name for run in options.runs]
    if len(set(names)) < len(names) or not all(names):
        names = list(options.runs)
    curves = {name: read_metrics(run) for name, run in zip(names, options.runs, strict=True)}
    if options.field is None and len(curves) == 1:
        plot_run(next(iter(curves.values())), output, smooth=options.smooth)
    else:
        field = options.field or "loss"
        plot_learning_curves(curves, output, y=field, y_label=field.replace("_", " "), smooth=options.smooth)
    write_config_beside(output, options)
    return Answer({"figure": output}, output, as_json)


def bench(arguments: Sequence[str]) -> Answer:
    """Measure speeds against rivals in the same run."""
    from tokagnostic.options import BenchOptions

    options, as_json = parse_flags(BenchOptions, arguments, "bench")
    from tokagnostic.bench import bench_table, run_bench

    rows = run_bench(options.names)
    return Answer(rows, bench_table(rows), as_json)
