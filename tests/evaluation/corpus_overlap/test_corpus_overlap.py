from __future__ import annotations

import json
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluation.naive_overlap import naive_corpus_overlap
from tests.evaluation.overlap_tokenizers import TEXT, byte_level, metaspace, trained_byte_level, word_piece
from tokagnostic.corpus import Corpus, CorpusConfig, Document
from tokagnostic.errors import CorpusError, InvalidValueError, SourceError
from tokagnostic.evaluation.corpus_overlap import counter as corpus_counter
from tokagnostic.evaluation.corpus_overlap import sorted_runs
from tokagnostic.evaluation.corpus_overlap.counter import CorpusCounter, counting_settings
from tokagnostic.evaluation.corpus_overlap.counting import CorpusOverlap, corpus_overlap
from tokagnostic.evaluation.corpus_overlap.work_folder import MANIFEST, WorkFolder
from tokagnostic.evaluation.overlap import ngram_overlap
from tokagnostic.hashing import HashCache
from tokagnostic.hashing.windows_numba import WindowStream
from tokagnostic.tokens.encoder import TextEncoder

FAMILIES = ["byte-level", "metaspace", "pairs", "word-piece"]


@pytest.fixture(scope="module")
def encoders() -> dict[str, TextEncoder]:
    made = {
        "byte-level": trained_byte_level(330),
        "metaspace": metaspace(340),
        "pairs": byte_level([(b"i", b"n"), (b" ", b" "), (b"in", b"t"), (b"e", b"r")]),
        "word-piece": word_piece(),
    }
    return {name: TextEncoder.from_tokenizer(tokenizer, name) for name, tokenizer in made.items()}


@pytest.fixture
def tiny(monkeypatch) -> None:
    """Room for some hundred records, a batch per document, and merges of few runs."""
    monkeypatch.setattr(corpus_counter, "BYTES_PER_MIB", 16 * 200)
    monkeypatch.setattr(sorted_runs, "MIN_BLOCK", 16)
    monkeypatch.setattr("tokagnostic.evaluation.windows.BATCH_DOCUMENTS", 1)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def assert_equals_naive(result: CorpusOverlap, texts: list[str], target: TextEncoder, reference: TextEncoder) -> None:
    for unique, shares in ((True, result.unique), (False, result.weighted)):
        assert shares.to_dict() == naive_corpus_overlap(texts, target, reference, result.max_order, unique=unique)


class TestCounts:
    @pytest.mark.parametrize("reference", FAMILIES)
    @pytest.mark.parametrize("target", FAMILIES)
    def test_equal_those_of_python_sets(self, encoders, target, reference) -> None:
        result = corpus_overlap(TEXT, encoders[target], encoders[reference], max_order=5)
        assert_equals_naive(result, TEXT, encoders[target], encoders[reference])
        assert result.key_collisions == 0

    @pytest.mark.slow
    @given(st.lists(st.text(max_size=40) | st.sampled_from(TEXT), min_size=1, max_size=8), st.integers(1, 9))
    @settings(max_examples=60, deadline=None)
    def test_equal_those_of_python_sets_for_any_text_however_small_the_memory(self, encoders, texts, max_order) -> None:
        texts = [*texts, "a"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(corpus_counter, "BYTES_PER_MIB", 16 * 60)
            patch.setattr(sorted_runs, "MIN_BLOCK", 4)
            patch.setattr("tokagnostic.evaluation.windows.BATCH_DOCUMENTS", 2)
            result = corpus_overlap(texts, encoders["metaspace"], encoders["byte-level"], max_order, memory_mib=1)
        assert_equals_naive(result, texts, encoders["metaspace"], encoders["byte-level"])

    @pytest.mark.slow
    @pytest.mark.usefixtures("tiny")
    def test_hold_when_runs_are_merged_on_several_levels(self, encoders, monkeypatch) -> None:
        written: list[int] = []
        write = WorkFolder.write_run

        def noted(folder: WorkFolder, chunks):
            run = write(folder, chunks)
            written.append(len(run))
            return run

        monkeypatch.setattr(WorkFolder, "write_run", noted)
        texts = [f"{text} {i}" for i in range(30) for text in TEXT]
        result = corpus_overlap(texts, encoders["metaspace"], encoders["byte-level"], 4, memory_mib=1)
        assert_equals_naive(result, texts, encoders["metaspace"], encoders["byte-level"])
        # The buffer holds 100 records and 3 runs are merged at once: longer ones come from merging what was merged.
        assert max(written) > 300

    def test_hold_when_every_window_has_the_same_key(self, encoders, monkeypatch) -> None:
        """E-13: equal keys are not equal bytes; the check tells them apart, and they are counted."""
        push = WindowStream.push
        pair = encoders["metaspace"], encoders["byte-level"]
        fingerprints = {HashCache.build(encoder.token_bytes).fingerprint for encoder in pair}

        def clashing(stream: WindowStream, ids, starts):
            keys = push(stream, ids, starts)
            return np.minimum(keys, 7) if stream.cache.fingerprint in fingerprints else keys

        monkeypatch.setattr(WindowStream, "push", clashing)
        result = corpus_overlap(TEXT, encoders["metaspace"], encoders["byte-level"], 4)
        assert_equals_naive(result, TEXT, encoders["metaspace"], encoders["byte-level"])
        assert result.key_collisions > 0

    def test_of_one_document_are_those_of_that_document(self, encoders) -> None:
        pair = encoders["pairs"], encoders["metaspace"]
        whole, alone = corpus_overlap(TEXT[:1], *pair), ngram_overlap(TEXT[:1], *pair)
        assert whole.unique.to_dict() == alone.unique.to_dict()
        assert whole.weighted.to_dict() == alone.weighted.to_dict()

    def test_find_what_the_reference_makes_in_another_document_and_never_across_two(self) -> None:
        pairs = TextEncoder.from_tokenizer(byte_level([(b"a", b"b")]))
        single = TextEncoder.from_tokenizer(byte_level())
        assert corpus_overlap(["ab", "b"], single, pairs, 1).unique.any_order.tolist() == [50.0]
        assert corpus_overlap(["ab", "b", "a"], single, pairs, 1).unique.any_order.tolist() == [100.0]
        assert corpus_overlap(["a", "b"], single, single, 2).unique.num_windows.tolist() == [2, 0]

    @pytest.mark.parametrize("batch_documents", [1, 2, 3])
    @pytest.mark.parametrize("piece", [1, 3, 1 << 14])
    def test_do_not_depend_on_batches_and_pieces(self, encoders, monkeypatch, batch_documents, piece) -> None:
        whole = corpus_overlap(TEXT, encoders["metaspace"], encoders["byte-level"])
        monkeypatch.setattr("tokagnostic.evaluation.windows.BATCH_DOCUMENTS", batch_documents)
        monkeypatch.setattr(corpus_counter, "PIECE", piece)
        assert corpus_overlap(TEXT, encoders["metaspace"], encoders["byte-level"]).to_dict() == whole.to_dict()

    def test_hold_for_a_sign_that_is_repeated_and_for_empty_documents(self, encoders) -> None:
        texts = ["", "a" * 5000, "", "\0" * 63]
        result = corpus_overlap(texts, encoders["byte-level"], encoders["metaspace"], 3)
        assert_equals_naive(result, texts, encoders["byte-level"], encoders["metaspace"])
        assert result.num_documents == 4 and result.num_bytes == 5063

    def test_are_told_as_json_values(self, encoders) -> None:
        result = corpus_overlap(TEXT, encoders["byte-level"], encoders["metaspace"], 2)
        told = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert told["target"] == "byte-level" and told["orders"] == [1, 2]
        assert told["num_strings"] >= max(told["unique"]["num_windows"])


class TestRefusals:
    @pytest.mark.parametrize("max_order", [0, 32, 2.0])
    def test_an_order_that_cannot_be_counted(self, encoders, max_order) -> None:
        with pytest.raises(InvalidValueError, match="max_order"):
            corpus_overlap(TEXT, encoders["pairs"], encoders["pairs"], max_order)

    @pytest.mark.parametrize("memory_mib", [0, -1, 0.5])
    def test_a_memory_that_holds_nothing(self, encoders, memory_mib) -> None:
        with pytest.raises(InvalidValueError, match="memory_mib"):
            corpus_overlap(TEXT, encoders["pairs"], encoders["pairs"], memory_mib=memory_mib)

    @pytest.mark.parametrize("texts", [[], ["", ""]], ids=["none", "empty"])
    def test_a_corpus_without_a_window(self, encoders, texts) -> None:
        with pytest.raises(CorpusError):
            corpus_overlap(texts, encoders["pairs"], encoders["pairs"])


class TestTemporaryFolder:
    @pytest.mark.parametrize("broken", [False, True], ids=["finished", "interrupted"])
    @pytest.mark.usefixtures("tiny")
    def test_is_removed(self, encoders, tmp_path, monkeypatch, broken) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

        def texts():
            yield from TEXT
            assert len(list(tmp_path.glob("tokagnostic-*/run-*.i64"))) > 0, "nothing was written yet"
            if broken:
                raise KeyboardInterrupt

        if broken:
            with pytest.raises(KeyboardInterrupt):
                corpus_overlap(texts(), encoders["pairs"], encoders["metaspace"], memory_mib=1)
        else:
            corpus_overlap(texts(), encoders["pairs"], encoders["metaspace"], memory_mib=1)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("tiny")
class TestWorkFolder:
    """N-documents are counted once, whatever happens in between."""

    @pytest.fixture
    def corpus(self, tmp_path) -> Corpus:
        file = tmp_path / "text.jsonl"
        lines = [json.dumps({"text": f"{text} {i}"}) for i in range(5) for text in TEXT]
        file.write_text("\n".join(lines), encoding="utf-8")
        return Corpus(CorpusConfig(data=(str(file),)))

    @pytest.mark.parametrize("stop_after", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 7, 20)), 19])
    @pytest.mark.parametrize("kind", ["corpus", "list"])
    def test_takes_up_an_interrupted_count(self, encoders, corpus, tmp_path, monkeypatch, stop_after, kind) -> None:
        pair = encoders["metaspace"], encoders["byte-level"]
        documents = corpus if kind == "corpus" else list(corpus)
        whole = corpus_overlap(documents, *pair, 3, memory_mib=1)
        add = CorpusCounter.add
        counted: list[Document] = []

        def stopping(counter: CorpusCounter, batch, cursor) -> None:
            if len(counted) == stop_after:
                raise KeyboardInterrupt
            add(counter, batch, cursor)
            counted.extend(batch)

        work = tmp_path / "work"
        monkeypatch.setattr(CorpusCounter, "add", stopping)
        monkeypatch.setattr(CorpusCounter, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            corpus_overlap(documents, *pair, 3, memory_mib=1, folder=work)
        monkeypatch.undo()
        saved = json.loads((work / MANIFEST).read_text())["num_documents"] if stop_after else 0
        assert saved <= stop_after and (saved > 0 or stop_after < 2)
        counted.clear()

        def counting(counter: CorpusCounter, batch, cursor) -> None:
            add(counter, batch, cursor)
            counted.extend(batch)

        monkeypatch.setattr(CorpusCounter, "add", counting)
        again = corpus_overlap(documents, *pair, 3, memory_mib=1, folder=work)
        assert again.to_dict() == whole.to_dict()
        assert len(counted) == 20 - saved
        assert [entry.name for entry in work.iterdir()] == [MANIFEST]
        counted.clear()
        assert corpus_overlap(documents, *pair, 3, folder=work).to_dict() == whole.to_dict() and not counted

    def test_goes_on_with_the_merge(self, encoders, corpus, tmp_path, monkeypatch) -> None:
        pair = encoders["metaspace"], encoders["byte-level"]
        with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:
            patch.setattr("tokagnostic.evaluation.corpus_overlap.string_counts.tally", interrupt)
            corpus_overlap(corpus, *pair, 3, memory_mib=1, folder=tmp_path / "work")
        monkeypatch.setattr(CorpusCounter, "add", None)
        again = corpus_overlap(corpus, *pair, 3, memory_mib=1, folder=tmp_path / "work")
        monkeypatch.undo()
        assert again.to_dict() == corpus_overlap(corpus, *pair, 3).to_dict()

    def test_is_refused_if_it_belongs_to_another_count(self, encoders, corpus, tmp_path, monkeypatch) -> None:
        pair = encoders["metaspace"], encoders["byte-level"]
        with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:
            patch.setattr("tokagnostic.evaluation.corpus_overlap.string_counts.tally", interrupt)
            corpus_overlap(corpus, *pair, 3, folder=tmp_path / "work")
        with pytest.raises(InvalidValueError, match="max_order"):
            corpus_overlap(corpus, *pair, 2, folder=tmp_path / "work")
        with pytest.raises(InvalidValueError, match="reference"):
            corpus_overlap(corpus, pair[0], encoders["pairs"], 3, folder=tmp_path / "work")
        with pytest.raises(InvalidValueError, match="corpus"):
            corpus_overlap(TEXT, *pair, 3, folder=tmp_path / "work")

    def test_is_cleared_of_what_a_killed_process_left(self, encoders, corpus, tmp_path) -> None:
        pair = encoders["metaspace"], encoders["byte-level"]
        work = WorkFolder.open(tmp_path / "work", counting_settings(*pair, 3))
        for name in ("run-000001.i64", "run-000002.i64.partial"):
            (work.path / name).write_bytes(b"half")
        WorkFolder.open(work.path, work.settings)
        assert list(work.path.iterdir()) == []

    def test_is_refused_if_it_holds_files_of_others_and_leaves_them(self, encoders, tmp_path) -> None:
        (tmp_path / "thesis.tex").write_text("a year of work")
        with pytest.raises(InvalidValueError, match="other files"):
            corpus_overlap(TEXT, encoders["pairs"], encoders["pairs"], folder=tmp_path)
        assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]

    @pytest.mark.parametrize("damage", ["no JSON", "another format", "a run outside", "a run cut off", "no cursor"])
    def test_is_refused_if_damaged(self, encoders, corpus, tmp_path, monkeypatch, damage) -> None:
        pair = encoders["metaspace"], encoders["byte-level"]
        work = tmp_path / "work"
        with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:
            patch.setattr("tokagnostic.evaluation.corpus_overlap.string_counts.tally", interrupt)
            corpus_overlap(corpus, *pair, 3, folder=work)
        values = json.loads((work / MANIFEST).read_text())
        if damage == "no JSON":
            (work / MANIFEST).write_text("{")
        elif damage == "a run cut off":
            run = work / values["runs"][0][0]
            run.write_bytes(run.read_bytes()[:-16])
        else:
            changed = {
                "another format": {"format": 3},
                "a run outside": {"runs": [["../x", 1]]},
                "no cursor": {"cursor": 1},
            }
            (work / MANIFEST).write_text(json.dumps(values | changed[damage]))
        with pytest.raises(SourceError):
            corpus_overlap(corpus, *pair, 3, folder=work)
