"""What `tokagnostic overlap` prints and writes, for one pair and for many."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tokagnostic.cli import main
from tokagnostic.tokens.encoder import TextEncoder


@pytest.fixture(scope="module")
def place(toy_tokenizers, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("overlap")
    for name in ("byte_level", "metaspace", "unigram"):
        TextEncoder.from_tokenizer(toy_tokenizers[name], name).save(place / name)
    rows = ["The river runs.", "", "An old stone bridge.", "\ud800", " \n", "the river, the river"]
    (place / "text.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return place


def run(capsys, place, *more) -> str:
    main(["overlap", *(str(argument) for argument in more), "--data", str(place / "text.jsonl"), "--max-order", "2"])
    return capsys.readouterr().out


SKIP = ("--on-bad-document", "skip")


class TestOnePair:
    def test_in_json_says_why_windows_are_missed_how_sure_it_is_and_what_was_left_out(self, capsys, place) -> None:
        sides = ("--target", place / "unigram", "--reference", place / "byte_level")
        result = json.loads(run(capsys, place, *sides, "--json", *SKIP, "--resamples", 50, "--seed", 3))
        assert result["intake"] == {
            "documents": 3, "bytes": 55, "empty": 2, "empty_bytes": 2, "skipped": 1, "replaced": 0
        }  # fmt: skip
        assert (result["num_documents"], result["empty_documents"]) == (3, 0)
        assert (result["intervals"]["resamples"], result["intervals"]["seed"]) == (50, 3)
        assert [len(pair) for pair in result["intervals"]["weighted"]["same_order"]] == [2, 2]
        for counting in ("unique", "weighted"):
            for n in range(2):
                causes = sum(shares[n] for shares in result["causes"][counting].values())
                assert result[counting]["any_order"][n] + causes == pytest.approx(100, abs=1e-9)

    def test_in_text_tells_the_same(self, capsys, place) -> None:
        sides = ("--target", place / "unigram", "--reference", place / "byte_level")
        text = run(capsys, place, *sides, *SKIP)
        assert "95 % interval by 1,000 resamples" in text
        assert "cut_points: the reference does not cut at one of its ends" in text
        assert "of the source's documents: 2 empty, 1 skipped" in text

    def test_without_resamples_has_no_intervals_and_says_so(self, capsys, place) -> None:
        sides = ("--target", place / "unigram", "--reference", place / "byte_level")
        result = json.loads(run(capsys, place, *sides, "--json", *SKIP, "--resamples", 0))
        assert result["intervals"] is None and result["no_intervals"] == "no resamples were asked for"

    def test_over_the_whole_corpus_stands_beside_it(self, capsys, place) -> None:
        sides = ("--target", place / "unigram", "--reference", place / "byte_level")
        result = json.loads(run(capsys, place, *sides, "--json", *SKIP, "--scope", "corpus"))
        for counting in ("unique", "weighted"):
            assert len(result["corpus"][counting]["any_order"]) == 2
        # What is found in its own document is found in the corpus.
        own, whole = result["weighted"]["any_order"], result["corpus"]["weighted"]["any_order"]
        assert all(more >= less for less, more in zip(own, whole, strict=True))

    @pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
    def test_is_drawn(self, capsys, place, tmp_path, ending) -> None:
        figure = tmp_path / f"figure.{ending}"
        run(capsys, place, "--target", place / "unigram", "--reference", place / "metaspace", *SKIP, "--figure", figure)
        assert figure.stat().st_size > 5_000
        assert json.loads((tmp_path / "figure.config.json").read_text())["target"] == [str(place / "unigram")]


class TestManyPairs:
    def sides(self, place) -> tuple:
        names = [place / name for name in ("unigram", "byte_level", "metaspace")]
        return "--target", *names[:2], "--reference", *names

    def test_in_json_are_a_square_and_all_pairs(self, capsys, place, tmp_path) -> None:
        files = ("--output", tmp_path / "new" / "square.json", "--csv", tmp_path / "new" / "square.csv")
        result = json.loads(run(capsys, place, *self.sides(place), "--json", *SKIP, *files))
        assert [len(row) for row in result["square"]["unique"]] == [3, 3]
        assert result["square"]["unique"][0][0] == 100.0 and len(result["pairs"]) == 6
        assert result["intake"]["empty"] == 2
        written = json.loads((tmp_path / "new" / "square.json").read_text())
        assert written.pop("config")["reference"] == [
            str(place / name) for name in ("unigram", "byte_level", "metaspace")
        ]
        assert written == result
        with open(tmp_path / "new" / "square.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert {(row["target"], row["reference"]) for row in rows} == {
            (pair["target"], pair["reference"]) for pair in result["pairs"]
        }
        assert (tmp_path / "new" / "square.config.json").is_file()

    def test_are_drawn_as_a_square(self, capsys, place, tmp_path) -> None:
        run(capsys, place, *self.sides(place), *SKIP, "--figure", tmp_path / "square.svg")
        assert (tmp_path / "square.svg").read_text().startswith("<?xml")

    def test_are_counted_the_same_by_two_processes(self, capsys, place) -> None:
        one = run(capsys, place, *self.sides(place), "--json", *SKIP, "--processes", 1)
        assert run(capsys, place, *self.sides(place), "--json", *SKIP, "--processes", 2) == one


def test_a_broken_document_is_one_line_with_its_place(capsys, place) -> None:
    with pytest.raises(SystemExit) as stop:
        run(capsys, place, "--target", place / "unigram", "--reference", place / "metaspace")
    assert stop.value.code == 2
    assert "text.jsonl, line 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--resamples", "100000000"), "resamples of 100000000; expected a whole number from 0 to 100000"),
        (("--seed", "-1"), "a seed of -1"),
        (("--output", "a.json", "--csv", "x/../a.json"), "for two results"),
    ],
    ids=["too many resamples", "negative seed", "two results in one file"],
)
def test_what_cannot_be_done_is_one_line(capsys, place, tmp_path, monkeypatch, flags, said) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        run(capsys, place, "--target", place / "unigram", "--reference", place / "byte_level", *SKIP, *flags)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_tokenizer_twice_on_one_side_is_refused(capsys, place) -> None:
    with pytest.raises(SystemExit) as stop:
        run(capsys, place, "--target", place / "unigram", place / "unigram", "--reference", place / "byte_level")
    assert stop.value.code == 2 and "twice" in capsys.readouterr().err
