"""Several demonstrations to mean and spread: what is a difference and what is a seed."""

from __future__ import annotations

import glob
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.studies.report import MEANING

REPORT_FILE = "report.json"


def compare_reports(paths: Sequence[str]) -> dict[str, Any]:
    """Gather the controls of several demonstrations.

    Args:
        paths: folders of demonstrations, their report.json, or globs of either.

    Returns:
        `seeds`, `transfer_efficiency` and `bpb`: each control's values in that order, mean, and spread (largest less
        smallest).

    Raises:
        SourceError: if a path is no demonstration.
        InvalidValueError: if the demonstrations are not of one text and setting.
    """
    files = [found for path in paths for found in (sorted(glob.glob(path)) or [path])]
    reports = [_read(Path(file)) for file in files]
    for name, key in (("text", "digest"), ("source", "tokens_seen")):
        values = {report[name][key] for report in reports}
        if len(values) > 1:
            raise InvalidValueError(
                f"demonstrations that differ in {name} {key}",
                expected="demonstrations that differ in their seed only",
                remedy="Compare such demonstrations",
            )
    bits = {control: _spread([report["bpb"][control] for report in reports]) for control in MEANING}
    return {
        "reports": [str(file) for file in files],
        "seeds": [report["seed"] for report in reports],
        "python": sorted({report["python"] for report in reports}),
        "text_digest": reports[0]["text"]["digest"],
        "transfer_efficiency": _spread([report["transfer_efficiency"] for report in reports]),
        "bpb": bits,
    }


def comparison_table(comparison: dict[str, Any]) -> str:
    """The comparison as a table in Markdown, best last."""
    bits = comparison["bpb"]
    heads = " | ".join(f"seed {seed}" for seed in comparison["seeds"])
    lines = [f"| control | the target reads | {heads} | mean | spread |", f"|{'---|' * (4 + len(comparison['seeds']))}"]
    for name in sorted(bits, key=lambda control: bits[control]["mean"], reverse=True):
        values = " | ".join(f"{value:.4f}" for value in bits[name]["values"])
        lines.append(f"| {name} | {MEANING[name]} | {values} | {bits[name]['mean']:.4f} | {bits[name]['spread']:.4f} |")
    efficiency = comparison["transfer_efficiency"]
    values = ", ".join(f"{value:.3f}" for value in efficiency["values"])
    lines += ["", f"transfer efficiency {values}: mean {efficiency['mean']:.3f}, spread {efficiency['spread']:.3f}"]
    return "\n".join(lines)


def _read(path: Path) -> dict[str, Any]:
    file = path / REPORT_FILE if path.is_dir() else path
    try:
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return {key: report[key] for key in ("bpb", "transfer_efficiency", "seed", "python", "text", "source")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(
            f"{file} cannot be read as a demonstration's report ({type(error).__name__}: {error})",
            expected=f"a folder with a {REPORT_FILE} that `tokagnostic demo` wrote",
            remedy="Run `tokagnostic demo --output FOLDER` first",
        ) from error


def _spread(values: Sequence[float]) -> dict[str, Any]:
    mean = math.fsum(values) / len(values)
    return {"values": list(values), "mean": mean, "spread": max(values) - min(values)}
