"""Several demonstrations to mean and spread: what is a difference and what is a seed."""

from __future__ import annotations

import glob
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.studies.report import MEANING, markdown_table, number

REPORT_FILE = "report.json"
CONFIG_FILE = "config.json"
BEATEN = ("none", "random", "permuted", "order1")
"""Controls that a frozen memory has to beat before anything is claimed of it."""
FREE_SETTINGS = ("seed", "output")
"""Settings in which compared demonstrations may differ."""


def compare_reports(paths: Sequence[str]) -> dict[str, Any]:
    """Gather the controls of several demonstrations.

    Args:
        paths: folders of demonstrations, their report.json with the config.json beside it, or globs of either.

    Returns:
        `seeds`; in their order values, mean and spread (largest less smallest) of each control under `bpb`, of
        `transfer_efficiency`, and under `gain` of what each control but native and off has more than `frozen`.

    Raises:
        SourceError: if a path is no demonstration.
        InvalidValueError: if there is none, two have one seed, or they differ in their text or a setting.
    """
    files = [found for path in paths for found in (sorted(glob.glob(path)) or [path])]
    if not files:
        raise InvalidValueError(
            "no demonstration",
            expected="one or more folders of demonstrations",
            remedy="Name them, or a glob in quotes",
        )
    runs = [_read(Path(file)) for file in files]
    _check_alike(runs)
    bits = {control: [run.report["bpb"][control] for run in runs] for control in MEANING}
    return {
        "reports": files,
        "seeds": [run.report["seed"] for run in runs],
        "python": sorted({run.report["python"] for run in runs}),
        "text_digest": runs[0].report["text"]["digest"],
        "transfer_efficiency": _spread([run.report["transfer_efficiency"] for run in runs]),
        "bpb": {control: _spread(values) for control, values in bits.items()},
        "gain": {
            control: _spread([value - frozen for value, frozen in zip(bits[control], bits["frozen"], strict=True)])
            for control in BEATEN
        },
    }


def comparison_table(comparison: dict[str, Any]) -> str:
    """The comparison as a table in Markdown, best last, and what the frozen memory gains on its controls."""
    bits = comparison["bpb"]
    heads = [f"seed {seed}" for seed in comparison["seeds"]]
    rows = [["control", "the target reads", *heads, "mean", "spread"]]
    for name in sorted(bits, key=lambda control: bits[control]["mean"], reverse=True):
        rows.append([name, MEANING[name], *_cells(bits[name], ".4f")])
    lines = markdown_table(rows)
    efficiency = ", ".join(number(value, ".3f") for value in comparison["transfer_efficiency"]["values"])
    mean, spread = (number(comparison["transfer_efficiency"][key], ".3f") for key in ("mean", "spread"))
    gains = "; ".join(
        f"{name} {gain['mean']:.4f} ({min(gain['values']):.4f} at least)" for name, gain in comparison["gain"].items()
    )
    return "\n".join(
        [
            *lines,
            "",
            "Bits per byte of the held-out text; spread is the largest value less the smallest.",
            f"Gain of frozen over: {gains}.",
            f"Transfer efficiency: {efficiency}; mean {mean}, spread {spread}.",
        ]
    )


@dataclass(frozen=True)
class _Run:
    folder: Path
    report: dict[str, Any]
    settings: dict[str, Any]


def _read(path: Path) -> _Run:
    file = path / REPORT_FILE if path.is_dir() else path
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
        settings = json.loads((file.parent / CONFIG_FILE).read_text(encoding="utf-8"))
        facts = {key: report[key] for key in ("transfer_efficiency", "seed", "python")}
        facts |= {"bpb": {control: float(report["bpb"][control]) for control in MEANING}}
        facts |= {"text": {"digest": report["text"]["digest"]}}
        for name in FREE_SETTINGS:
            settings.pop(name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(
            f"{file} cannot be read as a demonstration's report ({type(error).__name__}: {error})",
            expected=f"a folder with {REPORT_FILE} and {CONFIG_FILE} as `tokagnostic demo` leaves them",
            remedy="Run `tokagnostic demo --output FOLDER` first",
        ) from error
    return _Run(file.parent, facts, settings)


def _check_alike(runs: Sequence[_Run]) -> None:
    first = runs[0]
    for other in runs[1:]:
        names = first.settings | other.settings
        differing = [name for name in names if first.settings.get(name) != other.settings.get(name)]
        if first.report["text"] != other.report["text"]:
            differing.insert(0, "text")
        if differing:
            raise InvalidValueError(
                f"{first.folder} and {other.folder} differ in {', '.join(differing)}",
                expected="demonstrations that differ in their seed only",
                remedy="Compare such demonstrations",
            )
    seeds = [run.report["seed"] for run in runs]
    if len(set(seeds)) < len(seeds):
        raise InvalidValueError(
            f"demonstrations of the seeds {', '.join(map(str, seeds))}",
            expected="each seed once, for one seed gives one result",
            remedy="Name each demonstration once",
        )


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return {"values": list(values), "mean": None, "spread": None}
    return {"values": known, "mean": math.fsum(known) / len(known), "spread": max(known) - min(known)}


def _cells(spread: dict[str, Any], form: str) -> list[str]:
    return [number(value, form) for value in (*spread["values"], spread["mean"], spread["spread"])]
