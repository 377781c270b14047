from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evaluation.overlap_tokenizers import TEXT, byte_level, metaspace
from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.errors import CorpusError
from tokagnostic.evaluation.cluster.rank_results import first_place, merge_corpus_overlap, merge_overlap
from tokagnostic.evaluation.corpus_overlap.counting import corpus_overlap
from tokagnostic.evaluation.overlap import count_overlap
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer


@pytest.fixture(scope="module")
def specs(tmp_path_factory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tokenizers")
    pairs = byte_level([(b"i", b"n"), (b" ", b" "), (b"in", b"t"), (b"e", b"r")])
    TextEncoder.from_tokenizer(metaspace(340)).save(folder / "metaspace")
    TextEncoder.from_tokenizer(pairs).save(folder / "pairs")
    return str(folder / "metaspace"), str(folder / "pairs")


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for i in range(3):
        lines = [json.dumps({"text": text}) for text in (*(f"{text} {i}" for text in TEXT), " \n")]
        (folder / f"{i}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def run(tmp_path: Path, *steps: object, tasks: int = 2, workers: int = 1, reading: Path | None = None) -> None:
    local = pytest.importorskip("datatrove.executor.local", reason="the extra `cluster` is not installed")
    readers = pytest.importorskip("datatrove.pipeline.readers", reason="the extra `cluster` is not installed")
    pytest.importorskip("orjson", reason="datatrove reads JSON Lines by it")
    reader = [] if reading is None else [readers.JsonlReader(str(reading))]
    name = "-".join(type(step).__name__ for step in steps)
    local.LocalPipelineExecutor(
        [*reader, *steps], tasks=tasks, workers=workers, logging_dir=str(tmp_path / f"logs-{name}")
    ).run()


def blocks():
    pytest.importorskip("datatrove", reason="the extra `cluster` is not installed")
    from tokagnostic.evaluation.cluster import blocks as cluster

    return cluster


def test_the_ranks_counts_are_those_of_one_process_over_the_same_documents(tmp_path, texts, specs) -> None:
    target, reference = specs
    run(tmp_path, blocks().CountOverlap(tmp_path / "job", [target], [reference], 3, resamples=20), reading=texts)
    merged = merge_overlap(tmp_path / "job").to_dict()
    corpus = Corpus(CorpusConfig(data=(str(texts / "*.jsonl"),)))
    alone = count_overlap(corpus, [load_tokenizer(target)], [load_tokenizer(reference)], 3, resamples=20)
    expected = alone[0][0].finish().to_dict()
    assert merged.pop("intervals") is not None and expected.pop("intervals") is not None
    assert merged == expected
    assert merged["num_documents"] == 12


@pytest.mark.slow
def test_the_runs_of_all_ranks_give_the_overlap_of_the_corpus(tmp_path, texts, specs) -> None:
    cluster = blocks()
    run(tmp_path, cluster.SortWindows(tmp_path / "job", *specs, 3, memory_mib=1), reading=texts)
    run(tmp_path, cluster.CountWindows(tmp_path / "job", memory_mib=1), tasks=3)
    corpus = Corpus(CorpusConfig(data=(str(texts / "*.jsonl"),)))
    alone = corpus_overlap(corpus, *(load_tokenizer(spec) for spec in specs), 3)
    assert merge_corpus_overlap(tmp_path / "job").to_dict() == alone.to_dict()


def test_a_rank_that_died_is_run_again_alone(tmp_path, texts, specs) -> None:
    cluster = blocks()
    step = cluster.CountOverlap(tmp_path / "job", specs[:1], specs[1:], 2, resamples=0)
    run(tmp_path, step, reading=texts)
    whole = merge_overlap(tmp_path / "job").to_dict()
    (tmp_path / "job" / "overlap-00001-of-00002.json").unlink()
    (tmp_path / "logs-CountOverlap" / "completions" / "00001").unlink()
    other = tmp_path / "job" / "overlap-00000-of-00002.json"
    before = other.stat().st_mtime_ns
    run(tmp_path, step, reading=texts)
    assert merge_overlap(tmp_path / "job").to_dict() == whole
    assert other.stat().st_mtime_ns == before


def test_a_rank_that_sorted_some_documents_goes_on_after_them(tmp_path, specs, monkeypatch) -> None:
    cluster = blocks()
    from datatrove.data import Document

    from tokagnostic.evaluation.corpus_overlap import counter as corpus_counter

    monkeypatch.setattr(corpus_counter, "BYTES_PER_MIB", 16 * 200)
    monkeypatch.setattr("tokagnostic.evaluation.windows.BATCH_DOCUMENTS", 1)
    documents = [Document(f"{text} {i}", f"{i}") for i in range(3) for text in TEXT]
    step = cluster.SortWindows(tmp_path, *specs, 3, memory_mib=1)

    def dying():
        yield from documents[:7]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(step.run(dying()))
    counted: list[str] = []
    add = corpus_counter.CorpusCounter.add
    monkeypatch.setattr(
        corpus_counter.CorpusCounter,
        "add",
        lambda self, batch, cursor: (counted.extend(batch), add(self, batch, cursor)),
    )
    assert list(step.run(iter(documents))) == documents
    assert 5 <= len(counted) < 12
    list(cluster.CountWindows(tmp_path).run())
    alone = corpus_overlap([document.text for document in documents], *(load_tokenizer(spec) for spec in specs), 3)
    assert merge_corpus_overlap(tmp_path).to_dict() == alone.to_dict()


def test_documents_are_passed_on_as_they_came(tmp_path, specs) -> None:
    cluster = blocks()
    from datatrove.data import Document

    documents = [Document("one inter", "a"), Document(" ", "blank"), Document("two", "b")]
    passed = cluster.CountOverlap(tmp_path, specs[:1], specs[1:], 2).run(iter(documents), 0, 1)
    assert list(cluster.SortWindows(tmp_path, *specs, 2).run(passed, 0, 1)) == documents
    assert list(cluster.CountWindows(tmp_path).run(iter(documents), 0, 1)) == documents
    assert merge_overlap(tmp_path).num_documents == merge_corpus_overlap(tmp_path).num_documents == 2


def test_documents_of_every_rank_have_places_of_their_own_in_the_resampling(tmp_path, specs, monkeypatch) -> None:
    cluster = blocks()
    from datatrove.data import Document

    monkeypatch.setattr("tokagnostic.evaluation.windows.BATCH_DOCUMENTS", 1)
    resampled = []
    for rank in (0, 1):
        step = cluster.CountOverlap(tmp_path, specs[:1], specs[1:], 2, resamples=20)
        list(step.run((Document(text, "") for text in TEXT), rank, 2))
        (pair,) = json.loads((tmp_path / f"overlap-{rank:05d}-of-00002.json").read_text())["pairs"][0]
        sides = [[load_tokenizer(spec)] for spec in specs]
        alone = count_overlap(TEXT, *sides, 2, first_document=first_place(rank), resamples=20)[0][0]
        assert pair["resampled"] == alone.resampled.tolist()
        resampled.append(pair["resampled"])
    assert resampled[0] != resampled[1]


@pytest.mark.parametrize("policy", ["error", "skip", "replace"])
def test_half_a_surrogate_pair_is_met_by_the_policy(tmp_path, specs, policy) -> None:
    cluster = blocks()
    from datatrove.data import Document

    documents = [Document("fine", "a"), Document("half \ud800 a pair", "the broken one")]
    step = cluster.CountOverlap(tmp_path, specs[:1], specs[1:], 2, on_bad_document=policy)
    if policy == "error":
        with pytest.raises(CorpusError, match="the broken one"):
            list(step.run(iter(documents), 0, 1))
    else:
        list(step.run(iter(documents), 0, 1))
        assert merge_overlap(tmp_path).num_documents == {"skip": 1, "replace": 2}[policy]


def test_a_block_travels_to_another_process(tmp_path, specs) -> None:
    cluster = blocks()
    step = pickle.loads(pickle.dumps(cluster.CountOverlap(tmp_path, specs[:1], specs[1:], 2)))
    assert step.folder == str(tmp_path) and step.targets == [specs[0]]


@pytest.mark.slow
def test_ranks_that_run_at_once_count_the_same(tmp_path, texts, specs) -> None:
    step = blocks().CountOverlap(tmp_path / "job", specs[:1], specs[1:], 3)
    run(tmp_path, step, workers=2, reading=texts)
    at_once = merge_overlap(tmp_path / "job").to_dict()
    again = blocks().CountOverlap(tmp_path / "other", specs[:1], specs[1:], 3)
    run(tmp_path / "again", again, reading=texts)
    assert merge_overlap(tmp_path / "other").to_dict() == at_once


def test_where_datatrove_is_missing_the_error_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "sys.modules['datatrove'] = None\n"  # an import of it now fails
        "from tokagnostic.errors import MissingExtraError\n"
        "try:\n"
        "    import tokagnostic.evaluation.cluster.blocks\n"
        "except MissingExtraError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'tokagnostic[cluster]'" in done.stdout
