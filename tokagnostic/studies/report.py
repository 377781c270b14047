"""A demonstration's numbers to a folder that people read: JSON, a page of text with tables, and figures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokagnostic.errors import InvalidValueError
from tokagnostic.json_files import write_json
from tokagnostic.plots import plot_controls, plot_learning_curves, plot_overlap, plot_seen_novel

MEANING = {
    "none": "no memory",
    "frozen": "the source's memory, frozen",
    "off": "the same, memory switched off",
    "random": "random rows of the same lengths",
    "permuted": "the same rows, in another order",
    "order1": "the source's memory, single tokens only",
    "native": "a memory trained from scratch",
}
"""What the target reads under each control."""

FIGURES = ("overlap.png", "controls.png", "curves.png", "seen_novel.png")
LEFT_BEHIND = {
    "config.json",
    "report.json",
    "report.md",
    *FIGURES,
    "tokenizers",
    "source",
    "memory.safetensors",
    *MEANING,
}
"""Names of everything that a demonstration leaves in its folder."""
OF_A_DEMO = {"source_host", "target_host", "held_out_share"}
"""Settings by which the config.json of a demonstration is told from that of another run."""


def claim_folder(folder: Path) -> None:
    """Make an empty folder; what an earlier demonstration left in it is deleted.

    Raises:
        InvalidValueError: if it holds anything else; nothing is deleted then.
    """
    expected = "a new or empty folder, or one that holds a demonstration and nothing besides"
    remedy = "Name another folder with --output, or clear this one by hand"
    if folder.exists() and not folder.is_dir():
        raise InvalidValueError(f"{folder}, which is a file", expected=expected, remedy=remedy)
    found = sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []
    foreign = [name for name in found if name not in LEFT_BEHIND and not name.endswith(".partial")]
    if found and not _holds_demo(folder):
        raise InvalidValueError(
            f"{folder}, which holds {found[0]} and no demonstration", expected=expected, remedy=remedy
        )
    if foreign:
        raise InvalidValueError(
            f"{folder}, which holds {foreign[0]}, written by no demonstration", expected=expected, remedy=remedy
        )
    # The config goes last, so that a folder whose deletion was interrupted is still known for what it is.
    for name in sorted(found, key=lambda name: name == "config.json"):
        entry = folder / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    folder.mkdir(parents=True, exist_ok=True)


def _holds_demo(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.keys() >= OF_A_DEMO


def write_report(report: Mapping[str, Any], curves: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path) -> None:
    """Write report.json, report.md and the figures.

    Args:
        report: the numbers.
        curves: run to the lines of its metrics.
        folder: where they go.
    """
    write_json(folder / "report.json", report)
    (folder / "report.md").write_text(report_text(report), encoding="utf-8")
    plot_overlap(report["overlap"], folder / "overlap.png")
    plot_controls(report["bpb"], folder / "controls.png")
    splits = {
        name: known
        for name, parts in _splits(report).items()
        if len(known := {part: value for part, value in parts.items() if value is not None}) == len(parts)
    }
    if splits:  # a very small text may have no seen or no novel window
        plot_seen_novel(splits, folder / "seen_novel.png")
    plot_learning_curves(
        curves,
        folder / "curves.png",
        y="held_out_bits_per_byte",
        y_label="bits per byte of part of the held-out text",
    )


def control_table(report: Mapping[str, Any]) -> str:
    """The controls as a table in Markdown, best last."""
    splits = _splits(report)
    rows = [["control", "the target reads", "bits per byte", "against none", "seen windows", "novel windows"]]
    bits = report["bpb"]
    for name in sorted(bits, key=lambda control: bits[control], reverse=True):
        seen, novel = (number(splits[name][part], ".4f") for part in ("seen", "novel"))
        difference = bits[name] - bits["none"]
        rows.append([name, MEANING[name], f"{bits[name]:.4f}", f"{difference:+.4f}", seen, novel])
    return "\n".join(markdown_table(rows))


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table whose columns are aligned for readers of plain text; the first row is its head."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = [f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in rows]
    return [lines[0], f"|{'|'.join('-' * (width + 2) for width in widths)}|", *lines[1:]]


def report_text(report: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    text, source, tokenizers = report["text"], report["source"], report["tokenizers"]
    overlap, covered = report["overlap"], report["coverage"]
    orders = " | ".join(str(order) for order in overlap["orders"])
    return f"""# One memory, two tokenizers

Text: {", ".join(text["data"])} (Python {report["python"]}), {text["documents"]} documents, {text["bytes"]:,} bytes,
SHA-256 {text["digest"]}. Held out: {text["held_out_documents"]} documents, {text["held_out_bytes"]:,} bytes. The memory
was trained on the other {text["source_bytes"]:,} bytes, the target on {text["target_bytes"]:,} of them. Seed {report["seed"]}.

| | tokenizer | fidelity |
|---|---|---|
| source | {tokenizers["source"]["name"]} | {tokenizers["source"]["fidelity"]} |
| target | {tokenizers["target"]["name"]} | {tokenizers["target"]["fidelity"]} |

The source reached {source["bpb"]["memory"]:.4f} bits per byte of the held-out text with its memory and
{source["bpb"]["off"]:.4f} with it switched off. The memory has {source["memory"]["rows"]:,} rows of
{source["memory"]["dim"]} numbers; its identity is {source["memory"]["identity"]}.

## What the memory is worth to the target

{control_table(report)}

Transfer efficiency, (none - frozen) / (none - native): {number(report["transfer_efficiency"], ".3f")}. The frozen table was
{"unchanged" if report["frozen_table_unchanged"] else "CHANGED"} by the target's training. Every control is a host and a
reader trained alike; `off` is the frozen one with its memory switched off. A seen window is one that occurs, as bytes, in
the memory's training text.

![bits per byte by control](controls.png)
![seen and novel windows](seen_novel.png)
![learning curves](curves.png)

## What the tokenizers share

Share of the target's distinct n-grams in the held-out text that the source's tokenizer makes too, percent:

| order | {orders} |
|---|{"---|" * len(overlap["orders"])}
| any order | {_row(overlap["unique"]["any_order"])} |
| same order | {_row(overlap["unique"]["same_order"])} |
| any order, by occurrence | {_row(overlap["weighted"]["any_order"])} |

![overlap](overlap.png)

Share of the target's windows in the held-out text that the memory was trained on, by occurrence, percent:

| order | {" | ".join(str(order) for order in covered["orders"])} |
|---|{"---|" * len(covered["orders"])}
| by the visits in its file | {_row(covered["weighted"]["covered"])} |
| in truth | {_row(covered["weighted"]["exact"]["seen"])} |

{"The visits of so small a table are saturated: they cannot tell." if covered["saturated"] else ""}

{report["seconds"]:.0f} seconds, {report["peak_memory_mib"]:,} MiB at the peak.
"""


def number(value: float | None, form: str) -> str:
    """A number in a format, or a dash where there is none."""
    return "-" if value is None else f"{value:{form}}"


def _row(shares: Sequence[float | None]) -> str:
    return " | ".join(number(share, ".1f") for share in shares)


def _splits(report: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Control to its bits per byte over seen and over novel windows."""
    scores = {name: control["score"] for name, control in report["controls"].items()}
    scores["off"] = report["controls"]["frozen"]["off"]
    return {name: {part: score[part]["bits_per_byte"] for part in ("seen", "novel")} for name, score in scores.items()}
