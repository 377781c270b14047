from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.studies.comparison import compare_reports, comparison_table
from tokagnostic.studies.report import MEANING

BITS = {"none": 2.0, "frozen": 1.8, "off": 2.2, "random": 2.01, "permuted": 1.99, "order1": 1.9, "native": 1.7}


@pytest.fixture
def make_demo(tmp_path: Path) -> Callable[..., str]:
    """Writes the two files of a demonstration that a comparison reads."""

    def make(seed: int, shift: float = 0.0, *, digest: str = "abc", **settings: object) -> str:
        folder = tmp_path / f"demo-{seed}"
        folder.mkdir()
        report = {
            "bpb": {control: bits + (shift if control == "frozen" else 0) for control, bits in BITS.items()},
            "transfer_efficiency": (0.2 - shift) / 0.3,
            "seed": seed,
            "python": "3.11.9",
            "text": {"digest": digest},
        }
        config = {"seed": seed, "output": str(folder), "source_steps": 450, **settings}
        (folder / "report.json").write_text(json.dumps(report))
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)

    return make


def test_mean_and_spread_are_over_the_demonstrations(make_demo) -> None:
    comparison = compare_reports([make_demo(0), make_demo(1, 0.01), make_demo(2, 0.05)])
    assert comparison["seeds"] == [0, 1, 2]
    frozen = comparison["bpb"]["frozen"]
    assert frozen["values"] == pytest.approx([1.8, 1.81, 1.85])
    assert frozen["mean"] == pytest.approx(1.82)
    assert frozen["spread"] == pytest.approx(0.05)
    assert comparison["bpb"]["none"]["spread"] == 0
    assert comparison["gain"]["none"]["values"] == pytest.approx([0.2, 0.19, 0.15])
    assert comparison["gain"]["permuted"]["mean"] == pytest.approx(0.17)
    assert set(comparison["bpb"]) == set(MEANING)


def test_folders_files_and_globs_name_the_same(make_demo, tmp_path) -> None:
    folders = [make_demo(0), make_demo(1)]
    by_glob = compare_reports([str(tmp_path / "demo-*")])
    assert by_glob["reports"] == folders
    by_file = compare_reports([f"{folder}/report.json" for folder in folders])
    assert by_file["bpb"] == by_glob["bpb"]


def test_the_table_has_a_row_per_control_and_a_column_per_seed_best_last(make_demo) -> None:
    lines = comparison_table(compare_reports([make_demo(0), make_demo(7, 0.01)])).splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[1:-1]] == [
        "control", "the target reads", "seed 0", "seed 7", "mean", "spread",
    ]  # fmt: skip
    names = [line.split("|")[1].strip() for line in lines[2:9]]
    assert names == ["off", "random", "none", "permuted", "order1", "frozen", "native"]
    assert len({len(line) for line in lines[:9]}) == 1
    assert "Gain of frozen over: none 0.1950 (0.1900 at least)" in "\n".join(lines)


def test_one_demonstration_has_no_spread(make_demo) -> None:
    comparison = compare_reports([make_demo(0)])
    assert all(control["spread"] == 0 for control in comparison["bpb"].values())


def test_an_efficiency_that_is_no_number_is_a_dash(make_demo) -> None:
    folder = Path(make_demo(0))
    report = json.loads((folder / "report.json").read_text()) | {"transfer_efficiency": None}
    (folder / "report.json").write_text(json.dumps(report))
    assert "Transfer efficiency: -; mean -, spread -." in comparison_table(compare_reports([str(folder)]))


class TestRefusals:
    def test_another_text(self, make_demo) -> None:
        with pytest.raises(InvalidValueError, match="differ in text"):
            compare_reports([make_demo(0), make_demo(1, digest="def")])

    def test_another_setting_is_named(self, make_demo) -> None:
        with pytest.raises(InvalidValueError, match="differ in source_steps"):
            compare_reports([make_demo(0), make_demo(1, source_steps=451)])

    def test_one_seed_twice(self, make_demo) -> None:
        folder = make_demo(0)
        with pytest.raises(InvalidValueError, match="seeds 0, 0"):
            compare_reports([folder, folder])

    def test_nothing_to_compare(self) -> None:
        with pytest.raises(InvalidValueError, match="no demonstration"):
            compare_reports([])

    def test_a_folder_without_a_report(self, tmp_path) -> None:
        with pytest.raises(SourceError, match=r"report\.json"):
            compare_reports([str(tmp_path)])

    @pytest.mark.parametrize(
        "report", ["", "[]", "{}", '{"bpb": {"none": 2}}', "null"], ids=["empty", "list", "nothing", "part", "null"]
    )
    def test_a_report_of_something_else(self, report, make_demo) -> None:
        folder = Path(make_demo(0))
        (folder / "report.json").write_text(report)
        with pytest.raises(SourceError, match="cannot be read as a demonstration's report"):
            compare_reports([str(folder)])

    def test_a_report_without_its_config(self, make_demo) -> None:
        folder = Path(make_demo(0))
        (folder / "config.json").unlink()
        with pytest.raises(SourceError, match=r"config\.json"):
            compare_reports([str(folder)])
