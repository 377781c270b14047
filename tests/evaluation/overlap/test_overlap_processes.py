from __future__ import annotations

import json
import os
import pickle

import pytest

from tests.evaluation.overlap_tokenizers import TEXT, metaspace, trained_byte_level, word_piece
from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.errors import (
    CorpusError,
    InvalidValueError,
    MissingExtraError,
    SourceError,
    TokagnosticError,
    WorkerError,
)
from tokagnostic.evaluation.overlap import count_overlap, overlap_square, saved_counts
from tokagnostic.evaluation.overlap import processes as overlap_processes
from tokagnostic.evaluation.overlap.processes import count_overlap_in_processes
from tokagnostic.evaluation.overlap.saved_counts import SavedCounts
from tokagnostic.tokens.encoder import TextEncoder

DOCUMENTS = [f"{text} {i}" for i in range(7) for text in (*TEXT, "")]


@pytest.fixture(scope="module")
def encoders() -> list[TextEncoder]:
    made = {"bytes": trained_byte_level(330), "mark": metaspace(340), "pieces": word_piece()}
    return [TextEncoder.from_tokenizer(tokenizer, name) for name, tokenizer in made.items()]


@pytest.fixture
def small_batches(monkeypatch) -> None:
    monkeypatch.setattr("tokagnostic.evaluation.windows.BATCH_DOCUMENTS", 3)


def as_values(counts) -> list:
    return [[pair.to_dict() for pair in row] for row in counts]


class TestSeveralProcesses:
    @pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
    def test_count_what_one_counts_to_the_last_bit(self, encoders, small_batches, tmp_path, processes) -> None:
        encoders[0].save(tmp_path / "saved")
        targets, references = [str(tmp_path / "saved"), encoders[1]], [encoders[2], encoders[1]]
        several = count_overlap_in_processes(DOCUMENTS, targets, references, 3, processes=processes)
        one = count_overlap_in_processes(DOCUMENTS, targets, references, 3, processes=1)
        assert as_values(several) == as_values(one)
        plain = count_overlap(DOCUMENTS, [encoders[0], encoders[1]], references, 3)
        for name in ("totals", "share_sums", "resampled"):
            assert [pair[name] for row in as_values(one) for pair in row] == [
                pair[name] for row in as_values(plain) for pair in row
            ]

    @pytest.mark.parametrize(
        ("processes", "stop_after"), [(1, 0), (1, 1), (1, 3), pytest.param(2, 2, marks=pytest.mark.slow)]
    )
    def test_go_on_where_an_interrupted_count_had_saved(
        self, encoders, small_batches, tmp_path, monkeypatch, processes, stop_after
    ) -> None:
        rows = [{"text": text} for text in (*DOCUMENTS, " ", "\n")]
        (tmp_path / "text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        corpus = Corpus(CorpusConfig((str(tmp_path / "text.jsonl"),)))
        settings = {"processes": processes, "file": tmp_path / "counts.json"}
        whole = count_overlap_in_processes(corpus, encoders[:1], encoders[1:2], 3, processes=1)
        met = corpus.counts
        monkeypatch.setattr(saved_counts, "SECONDS", 0.0)
        save, times = SavedCounts.save, []

        def stopping(self: SavedCounts, counts, cursor) -> None:
            if len(times) == stop_after:
                raise KeyboardInterrupt
            save(self, counts, cursor)
            times.append(counts[0][0].num_documents)

        with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:
            patch.setattr(SavedCounts, "save", stopping)
            count_overlap_in_processes(corpus, encoders[:1], encoders[1:2], 3, **settings)
        told = []
        again = count_overlap_in_processes(corpus, encoders[:1], encoders[1:2], 3, **settings, progress=told.append)
        assert as_values(again) == as_values(whole) and corpus.counts == met
        assert sum(told) == met.bytes and (told[0] > 0) == (stop_after > 0)
        finished = count_overlap_in_processes(corpus, encoders[:1], encoders[1:2], 3, **settings)
        assert as_values(finished) == as_values(whole) and corpus.counts == met
        with pytest.raises(InvalidValueError, match="resamples differ"):
            count_overlap_in_processes(corpus, encoders[:1], encoders[1:2], 3, **settings, resamples=7)
        (tmp_path / "counts.json").write_text((tmp_path / "counts.json").read_text()[:-9])
        with pytest.raises(SourceError, match=r"counts\.json cannot be read"):
            count_overlap_in_processes(corpus, encoders[:1], encoders[1:2], 3, **settings)

    def test_pass_on_an_error_of_the_text_as_it_is(self, encoders, small_batches) -> None:
        with pytest.raises(CorpusError, match="document 9 breaks UTF-8"):
            count_overlap_in_processes([*DOCUMENTS[:9], b"\xff"], encoders[:1], encoders[1:2], 2, processes=2)

    def test_that_die_are_an_error(self, encoders, monkeypatch) -> None:
        monkeypatch.setattr(overlap_processes, "_count", dies)
        with pytest.raises(WorkerError, match="one of 2 counting processes died"):
            count_overlap_in_processes(DOCUMENTS, encoders[:1], encoders[1:2], 2, processes=2)

    def test_are_not_started_for_a_small_text(self, encoders, monkeypatch) -> None:
        monkeypatch.setattr(overlap_processes, "ProcessPoolExecutor", lambda *_, **__: pytest.fail("started"))
        square = overlap_square(DOCUMENTS, encoders[:1], encoders[1:2], 2, processes=None)
        assert square.pairs[0][0].num_documents == len(DOCUMENTS)

    @pytest.mark.parametrize("processes", [0, -1, 2.0, True], ids=str)
    def test_of_no_number_are_refused(self, encoders, processes) -> None:
        with pytest.raises(InvalidValueError, match="processes"):
            overlap_square(DOCUMENTS, encoders[:1], encoders[1:2], 2, processes=processes)


@pytest.mark.parametrize(
    "error",
    [CorpusError("given", expected="this", remedy="Do it"), MissingExtraError("torch", extra="x", purpose="Sums")],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes_unchanged(error: TokagnosticError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


def dies(batch: object) -> None:
    os._exit(1)
