from __future__ import annotations

import copy
import json
from itertools import pairwise
from pathlib import Path

import pytest

from tokagnostic.studies.report import MEANING, control_table, markdown_table, number, report_text, write_report


@pytest.fixture
def report(finished: Path) -> dict:
    return json.loads((finished / "report.json").read_text())


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_the_table_orders_all_controls_best_last(report) -> None:
    """E-14: all columns."""
    lines = control_table(report).splitlines()
    assert cells(lines[0]) == [
        "control", "the target reads", "bits per byte", "against none", "seen windows", "novel windows",
    ]  # fmt: skip
    rows = [cells(line) for line in lines[2:]]
    assert {row[0] for row in rows} == set(MEANING)
    bits = [float(row[2]) for row in rows]
    assert bits == sorted(bits, reverse=True)
    assert {row[0]: row[3] for row in rows}["none"] == "+0.0000"
    assert all(row[2] == f"{report['bpb'][row[0]]:.4f}" for row in rows)


def test_a_group_without_a_token_is_a_dash_and_no_crash(report, tmp_path) -> None:
    changed = copy.deepcopy(report)
    for control in changed["controls"].values():
        control["score"]["novel"]["bits_per_byte"] = None
    changed["controls"]["frozen"]["off"]["novel"]["bits_per_byte"] = None
    changed["transfer_efficiency"] = None
    write_report(changed, {"source": [{"tokens": 1, "held_out_bits_per_byte": 2.0}]}, tmp_path)
    assert cells(control_table(changed).splitlines()[2])[-1] == "-"
    assert "(none - native): -." in (tmp_path / "report.md").read_text()
    assert not (tmp_path / "seen_novel.png").exists()


def test_the_page_tells_text_tokenizers_memory_and_every_table(report) -> None:
    page = report_text(report)
    for fact in (
        report["text"]["digest"],
        report["tokenizers"]["source"]["name"],
        report["tokenizers"]["target"]["fidelity"],
        report["source"]["memory"]["identity"],
        f"{report['source']['bpb']['memory']:.4f}",
        f"Seed {report['seed']}",
        "(controls.png)",
        "(seen_novel.png)",
        "(curves.png)",
        "(overlap.png)",
        "unchanged",
    ):
        assert fact in page, fact


def test_the_page_says_so_when_a_frozen_table_moved(report) -> None:
    assert "CHANGED" in report_text({**report, "frozen_table_unchanged": False})


@pytest.mark.parametrize("saturated", [True, False])
def test_the_page_says_whether_the_visits_can_tell_anything(report, saturated) -> None:
    page = report_text({**report, "coverage": {**report["coverage"], "saturated": saturated}})
    assert ("saturated" in page) == saturated


def test_every_table_of_the_page_is_one_in_markdown(report) -> None:
    lines = report_text(report).splitlines()
    for above, line in pairwise(lines):
        if above.startswith("|") and line.startswith("|"):
            assert line.count("|") == above.count("|"), line


def test_a_markdown_table_is_aligned_for_plain_readers_too() -> None:
    assert markdown_table([["a", "long"], ["bcd", "x"]]) == ["| a   | long |", "|-----|------|", "| bcd | x    |"]


@pytest.mark.parametrize(("value", "text"), [(1.23456, "1.23"), (None, "-")])
def test_a_missing_number_is_a_dash(value, text) -> None:
    assert number(value, ".2f") == text
