from __future__ import annotations

import csv
import json

import pytest

from tests.evaluation.naive_overlap import naive_counts
from tests.evaluation.overlap_tokenizers import TEXT, byte_level, metaspace, trained_byte_level, word_piece
from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.evaluation.overlap import ngram_overlap, overlap_square
from tokagnostic.evaluation.overlap.csv_lines import COLUMNS, write_csv
from tokagnostic.evaluation.overlap.shares import CAUSES
from tokagnostic.tokens.encoder import TextEncoder

N = 3


@pytest.fixture(scope="module")
def encoders() -> list[TextEncoder]:
    made = {"bytes": trained_byte_level(330), "mark": metaspace(340), "pieces": word_piece(), "single": byte_level()}
    return [TextEncoder.from_tokenizer(tokenizer, name) for name, tokenizer in made.items()]


@pytest.fixture(scope="module")
def square(encoders):
    return overlap_square(TEXT, encoders[:2], encoders[1:], N)


class TestSquare:
    def test_holds_every_pair_as_it_is_measured_alone(self, encoders, square) -> None:
        for target, row in zip(encoders[:2], square.pairs, strict=True):
            for reference, pair in zip(encoders[1:], row, strict=True):
                assert pair.to_dict() == ngram_overlap(TEXT, target, reference, N).to_dict()

    def test_encodes_each_document_once_per_tokenizer(self, encoders, monkeypatch) -> None:
        met = []
        original = TextEncoder.encode_batch
        monkeypatch.setattr(TextEncoder, "encode_batch", lambda self, texts: met.append(self) or original(self, texts))
        overlap_square(TEXT, encoders[:3], encoders[:3], N)
        assert sorted(encoder.name for encoder in met) == ["bytes", "mark", "pieces"]

    def test_pools_all_orders_of_a_pair_in_its_cell(self, encoders, square) -> None:
        counts = naive_counts(TEXT, encoders[0], encoders[1], N, unique=False)
        windows = sum(sum(counted) for counted, _, _ in counts)
        found = sum(sum(any_order) for _, any_order, _ in counts)
        values = json.loads(json.dumps(square.to_dict()))
        assert values["square"]["weighted"][0][0] == 100.0 * found / windows
        assert values["square"]["unique"][1][0] == 100.0
        assert (values["targets"], values["references"]) == (["bytes", "mark"], ["mark", "pieces", "single"])
        assert [(pair["target"], pair["reference"]) for pair in values["pairs"]] == [
            (target, reference) for target in ("bytes", "mark") for reference in ("mark", "pieces", "single")
        ]

    def test_is_a_table_of_a_row_per_target(self, square) -> None:
        lines = square.to_text().splitlines()
        assert lines[1].split() == ["target", "mark", "pieces", "single"]
        assert lines[3].split()[:2] == ["mark", "100.0"]

    def test_needs_a_tokenizer_on_both_sides(self, encoders) -> None:
        with pytest.raises(InvalidValueError, match="number of references of 0"):
            overlap_square(TEXT, encoders, [], N)

    def test_names_a_spec_that_is_none(self, encoders) -> None:
        with pytest.raises(SourceError, match="nothere"):
            overlap_square(TEXT, ["nothere"], encoders, N)


class TestCsv:
    def test_has_every_share_once(self, square, tmp_path) -> None:
        write_csv(square, tmp_path / "new" / "shares.csv")
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["shares.csv"]
        with open(tmp_path / "new" / "shares.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        assert tuple(rows[0]) == COLUMNS
        assert len(rows) == 6 * 2 * N * (2 + N + len(CAUSES))
        keys = [tuple(row[name] for name in COLUMNS[:5]) for row in rows]
        assert len(set(keys)) == len(keys)
        by_key = dict(zip(keys, rows, strict=True))
        pair = square.pairs[0][1]
        low, high = pair.intervals.unique[0, 1]
        row = by_key["bytes", "pieces", "unique", "2", "any"]
        assert float(row["percent"]) == pair.unique.any_order[1]
        assert (float(row["low"]), float(row["high"])) == (low, high)
        assert int(row["windows"]) == pair.unique.num_windows[1]
        row = by_key["bytes", "pieces", "weighted", "1", "2"]
        assert float(row["percent"]) == pair.weighted.matrix[0, 1]
        missed = [float(by_key["bytes", "pieces", "unique", "1", f"missed:{cause}"]["percent"]) for cause in CAUSES]
        assert missed == pair.causes_unique[:, 0].tolist()

    def test_leaves_empty_what_there_is_not(self, encoders, tmp_path) -> None:
        write_csv(overlap_square(["a"], encoders[3:], encoders[3:], 2), tmp_path / "shares.csv")
        text = (tmp_path / "shares.csv").read_bytes().decode()
        assert "single,single,unique,1,any,100.0,1,,\n" in text
        assert "single,single,unique,2,any,,0,,\n" in text
