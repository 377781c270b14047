"""A demonstration's numbers to a folder that people read: JSON, a page of text with tables, and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokagnostic.plots import plot_controls, plot_learning_curves, plot_overlap, plot_seen_novel
from tokagnostic.training.run import write_json

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
    plot_seen_novel(_splits(report), folder / "seen_novel.png")
    plot_learning_curves(
        curves,
        folder / "curves.png",
        y="held_out_bits_per_byte",
        y_label="bits per byte of part of the held-out text",
    )


def control_table(report: Mapping[str, Any]) -> str:
    """The controls as a table in Markdown, best last."""
    splits = _splits(report)
    lines = [
        "| control | the target reads | bits per byte | against none | seen windows | novel windows |",
        "|---|---|---|---|---|---|",
    ]
    bits = report["bpb"]
    for name in sorted(bits, key=lambda control: bits[control], reverse=True):
        seen, novel = (f"{splits[name][part]:.4f}" for part in ("seen", "novel"))
        difference = bits[name] - bits["none"]
        lines.append(f"| {name} | {MEANING[name]} | {bits[name]:.4f} | {difference:+.4f} | {seen} | {novel} |")
    return "\n".join(lines)


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

Transfer efficiency, (none - frozen) / (none - native): {report["transfer_efficiency"]:.3f}. The frozen table was
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


def _row(shares: Sequence[float | None]) -> str:
    return " | ".join("-" if share is None else f"{share:.1f}" for share in shares)


def _splits(report: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Control to its bits per byte over seen and over novel windows."""
    scores = {name: control["score"] for name, control in report["controls"].items()}
    scores["off"] = report["controls"]["frozen"]["off"]
    return {name: {part: score[part]["bits_per_byte"] for part in ("seen", "novel")} for name, score in scores.items()}
