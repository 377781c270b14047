from __future__ import annotations

import json

import pytest

from tests.evaluation.overlap_tokenizers import TEXT, byte_level, metaspace
from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.evaluation.cluster.rank_results import (
    count_part,
    first_place,
    merge_corpus_overlap,
    merge_overlap,
    merge_square,
    run_folder,
    write_rank_counts,
)
from tokagnostic.evaluation.corpus_overlap import counter as corpus_counter
from tokagnostic.evaluation.corpus_overlap import string_counts
from tokagnostic.evaluation.corpus_overlap.counter import CorpusCounter, counting_settings
from tokagnostic.evaluation.corpus_overlap.counting import corpus_overlap
from tokagnostic.evaluation.corpus_overlap.work_folder import WorkFolder
from tokagnostic.evaluation.overlap import count_overlap
from tokagnostic.evaluation.windows import group_documents
from tokagnostic.tokens.encoder import TextEncoder

TEXTS = [f"{text} {i}" for i in range(3) for text in TEXT]
SHARDS = [TEXTS[:5], [], TEXTS[5:]]


@pytest.fixture(scope="module")
def pair() -> tuple[TextEncoder, TextEncoder]:
    pairs = byte_level([(b"i", b"n"), (b" ", b" "), (b"in", b"t"), (b"e", b"r")])
    return TextEncoder.from_tokenizer(metaspace(340), "a"), TextEncoder.from_tokenizer(pairs, "b")


def counted(folder, targets, references, shards=SHARDS) -> None:
    for rank, texts in enumerate(shards):
        if texts:
            counts = count_overlap(texts, targets, references, 3, first_document=first_place(rank), resamples=20)
        else:
            counts = count_overlap(["x"], targets, references, 3, resamples=20)
            for row in counts:
                for c, one in enumerate(row):
                    row[c] = type(one).none(one.target.fresh(), one.reference.fresh(), 3, resamples=20, seed=0)
        write_rank_counts(folder, rank, len(shards), counts)


def sorted_runs_of(folder, pair, max_order=3, shards=SHARDS) -> None:
    for rank, texts in enumerate(shards):
        settings = counting_settings(*pair, max_order) | {"names": ["a", "b"]}
        counter = CorpusCounter(WorkFolder.open(run_folder(folder, rank, len(shards)), settings), *pair, 1)
        for batch in group_documents(texts):
            counter.add(batch, None)
        counter.finish()


class TestCountsPerDocument:
    def test_of_all_ranks_are_those_of_one_process(self, tmp_path, pair) -> None:
        counted(tmp_path, pair[:1], pair[1:])
        merged = merge_overlap(tmp_path).to_dict()
        alone = count_overlap(TEXTS, pair[:1], pair[1:], 3, resamples=20)[0][0].finish().to_dict()
        drawn_otherwise = merged.pop("intervals"), alone.pop("intervals")
        assert merged == alone
        assert all(interval["resamples"] == 20 for interval in drawn_otherwise)

    def test_of_several_pairs_make_a_square(self, tmp_path, pair) -> None:
        counted(tmp_path, pair, pair)
        merged = merge_square(tmp_path).to_dict()
        assert merged["square"]["unique"][0][0] == merged["square"]["unique"][1][1] == 100.0
        assert merged["square"]["unique"][0][1] < 100.0
        with pytest.raises(InvalidValueError, match="merge_square"):
            merge_overlap(tmp_path)

    def test_that_a_rank_wrote_twice_count_once(self, tmp_path, pair) -> None:
        counted(tmp_path, pair[:1], pair[1:])
        once = merge_overlap(tmp_path).to_dict()
        counted(tmp_path, pair[:1], pair[1:])
        assert merge_overlap(tmp_path).to_dict() == once

    def test_are_refused_while_a_rank_is_missing(self, tmp_path, pair) -> None:
        counted(tmp_path, pair[:1], pair[1:])
        (tmp_path / "overlap-00001-of-00003.json").unlink()
        with pytest.raises(SourceError, match="rank 00001"):
            merge_overlap(tmp_path)

    def test_are_refused_if_they_are_of_two_jobs(self, tmp_path, pair) -> None:
        counted(tmp_path, pair[:1], pair[1:])
        counted(tmp_path, pair[:1], pair[1:], SHARDS[:1])
        with pytest.raises(SourceError, match="2 jobs"):
            merge_overlap(tmp_path)

    def test_are_refused_in_an_empty_folder(self, tmp_path) -> None:
        with pytest.raises(SourceError, match="0 jobs"):
            merge_overlap(tmp_path)

    @pytest.mark.parametrize("change", ["no JSON", "format", "tokenizer", "values"])
    def test_are_refused_if_damaged(self, tmp_path, pair, change) -> None:
        counted(tmp_path, pair[:1], pair[1:])
        file = tmp_path / "overlap-00002-of-00003.json"
        values = json.loads(file.read_text())
        if change == "format":
            values["format"] = "x"
        elif change == "tokenizer":
            values["pairs"][0][0]["target"]["fingerprint"] = "0" * 64
        elif change == "values":
            values["pairs"][0][0]["totals"] = [1, 2]
        file.write_text("{" if change == "no JSON" else json.dumps(values))
        with pytest.raises((SourceError, InvalidValueError)):
            merge_overlap(tmp_path)


class TestTheWholeCorpus:
    @pytest.mark.parametrize("num_parts", [1, 2, 5])
    @pytest.mark.parametrize("fan_in", [2, 100])
    def test_of_all_ranks_is_that_of_one_process(self, tmp_path, pair, monkeypatch, num_parts, fan_in) -> None:
        monkeypatch.setattr(corpus_counter, "BYTES_PER_MIB", 16 * 200)
        monkeypatch.setattr("tokagnostic.evaluation.windows.BATCH_DOCUMENTS", 1)
        sorted_runs_of(tmp_path, pair)
        assert len(list(tmp_path.glob("*/run-*"))) > 4
        monkeypatch.setattr(string_counts, "max_runs", lambda capacity: fan_in)
        for part in reversed(range(num_parts)):
            count_part(tmp_path, part, num_parts, memory_mib=1)
        assert merge_corpus_overlap(tmp_path).to_dict() == corpus_overlap(TEXTS, *pair, 3).to_dict()

    def test_is_refused_while_a_part_is_missing(self, tmp_path, pair) -> None:
        sorted_runs_of(tmp_path, pair)
        count_part(tmp_path, 1, 2)
        with pytest.raises(SourceError, match="rank 00000"):
            merge_corpus_overlap(tmp_path)

    def test_is_refused_if_its_parts_are_of_different_runs(self, tmp_path, pair) -> None:
        sorted_runs_of(tmp_path, pair)
        count_part(tmp_path, 0, 2)
        work = WorkFolder.load(run_folder(tmp_path, 0, 3))
        work.num_documents += 1
        work.save()
        count_part(tmp_path, 1, 2)
        with pytest.raises(SourceError, match="several counts"):
            merge_corpus_overlap(tmp_path)

    def test_is_refused_while_a_rank_is_unfinished(self, tmp_path, pair) -> None:
        sorted_runs_of(tmp_path, pair)
        work = WorkFolder.load(run_folder(tmp_path, 1, 3))
        work.complete = False
        work.save()
        with pytest.raises(SourceError, match="not finished"):
            count_part(tmp_path, 0, 1)

    def test_is_refused_if_the_ranks_counted_under_other_settings(self, tmp_path, pair) -> None:
        sorted_runs_of(tmp_path, pair)
        work = WorkFolder.load(run_folder(tmp_path, 1, 3))
        work.settings["max_order"] = 4
        work.save()
        with pytest.raises(InvalidValueError, match="other settings"):
            count_part(tmp_path, 0, 1)

    @pytest.mark.parametrize("change", [{"format": "x"}, {"counts": {"totals": [1]}}, {"counts": None}], ids=str)
    def test_is_refused_if_a_part_is_damaged(self, tmp_path, pair, change) -> None:
        sorted_runs_of(tmp_path, pair)
        file = count_part(tmp_path, 0, 1)
        file.write_text(json.dumps(json.loads(file.read_text()) | change))
        with pytest.raises((SourceError, InvalidValueError)):
            merge_corpus_overlap(tmp_path)

    def test_is_refused_if_the_ranks_names_are_no_ranks(self, tmp_path) -> None:
        (tmp_path / "corpus-x-of-y.json").write_text("{}")
        with pytest.raises(SourceError):
            merge_corpus_overlap(tmp_path)
