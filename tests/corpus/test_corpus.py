"""A corpus of many sources: order, limit, digest, cursor, and what cannot be a corpus."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import itertools
import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokagnostic.corpus import Corpus, CorpusConfig, CorpusCounts, Cursor
from tokagnostic.errors import CorpusError, InvalidValueError, SourceError

WIKITEXT = Path(__file__).resolve().parents[2] / ".." / "shared" / "corpora" / "wikitext2"
UNITS = ("whole", "line", "paragraph", "article")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = "\n = A = \r\n \nü one\ntwo\u2028\n\n\n = B = \nthree"
    (tmp_path / "b.txt").write_bytes(text.encode())
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"first\n\nsecond\n"))
    (tmp_path / "empty.txt").write_bytes(b"")
    rows = [{"text": text}, {"text": " "}, {"text": "x\n\ny"}, {"text": "z"}]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def sources_of(folder: Path) -> tuple[str, ...]:
    return (f"{folder}/*.txt*", f"{folder}/c.jsonl", f"{folder}/b.txt")


@pytest.mark.parametrize("unit", UNITS)
def test_any_prefix_and_the_resumed_rest_are_the_whole(folder: Path, unit: str) -> None:
    """D-09: at every document, with the cursor sent through JSON."""
    config = CorpusConfig(sources_of(folder), documents=unit)
    whole = list(Corpus(config).iterate())
    assert len(whole) >= 5
    for stop, (_, cursor) in enumerate(whole, start=1):
        assert list(Corpus(config).iterate(Cursor(**json.loads(json.dumps(asdict(cursor)))))) == whole[stop:]


@given(
    lines=st.lists(st.sampled_from(["", " ", "a", "b\r", " = T = ", "é"]), min_size=1, max_size=12),
    unit=st.sampled_from(UNITS),
    data=st.data(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_second_resume_continues_too(tmp_path: Path, lines: list[str], unit: str, data: st.DataObject) -> None:
    """D-09: the place of a resumed pass advances like that of an uninterrupted one."""
    (tmp_path / "a.txt").write_bytes("\n".join([*lines, "end"]).encode())
    config = CorpusConfig((str(tmp_path / "a.txt"),), documents=unit)
    whole = list(Corpus(config).iterate())
    stop = data.draw(st.integers(1, len(whole)))
    rest = list(Corpus(config).iterate(whole[stop - 1][1]))
    assert rest == whole[stop:]
    if rest:
        second = data.draw(st.integers(1, len(rest)))
        assert list(Corpus(config).iterate(rest[second - 1][1])) == whole[stop + second :]


@pytest.mark.slow
def test_the_embedded_text_resumes_inside_a_document() -> None:
    config = CorpusConfig(documents="paragraph", limit=40)
    whole = list(Corpus(config).iterate())
    assert len(whole) == 40
    for stop in (1, 17, 39, 40):
        assert list(Corpus(config).iterate(whole[stop - 1][1])) == whole[stop:]


def test_files_of_a_glob_come_by_name_and_a_file_named_twice_once(folder: Path) -> None:
    names = [Path(document.source.split(":")[0]).name for document in Corpus(CorpusConfig(sources_of(folder)))]
    assert names == ["a.txt.gz", "b.txt", "c.jsonl", "c.jsonl", "c.jsonl"]


def test_a_recursive_glob_finds_files_in_folders(folder: Path) -> None:
    (folder / "x" / "y").mkdir(parents=True)
    (folder / "x" / "y" / "deep.text").write_text("deep")
    assert [document.data for document in Corpus(CorpusConfig((f"{folder}/**/*.text",)))] == [b"deep"]


def test_a_file_whose_name_looks_like_a_glob_is_itself(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("x")
    assert [document.data for document in Corpus(CorpusConfig((f"{tmp_path}/a[1].txt",)))] == [b"x"]


def test_a_limit_counts_documents_over_resumes(folder: Path) -> None:
    config = CorpusConfig(sources_of(folder), documents="line", limit=5)
    whole = list(Corpus(config).iterate())
    assert len(whole) == 5
    assert list(Corpus(config).iterate(whole[2][1])) == whole[3:]
    assert list(Corpus(config).iterate(whole[4][1])) == []


def test_parts_that_meet_make_the_whole_and_share_no_document(tmp_path: Path) -> None:
    lines = [b"line %d\n" % (i % 400) for i in range(800)]
    (tmp_path / "a.txt").write_bytes(b"".join(lines))
    config = CorpusConfig((str(tmp_path / "a.txt"),), documents="line")
    edges = (0, 0.1, 0.4, 1)
    parts = [
        [document.data for document in Corpus(dataclasses.replace(config, part=part))]
        for part in itertools.pairwise(edges)
    ]
    assert sorted(itertools.chain(*parts)) == sorted(lines)
    # Each line stands twice: no copy may fall into another part.
    assert sum(len(set(part)) for part in parts) == 400
    for part, (begin, end) in zip(parts, itertools.pairwise(edges), strict=True):
        share = end - begin
        assert abs(len(set(part)) - 400 * share) < 4 * (400 * share * (1 - share)) ** 0.5


def test_a_part_resumes_and_counts_only_its_own_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {i}\n" for i in range(60)))
    corpus = Corpus(CorpusConfig((str(tmp_path / "a.txt"),), documents="line", part=(0.3, 0.8), limit=12))
    whole = list(corpus.iterate())
    assert len(whole) == corpus.counts.documents == 12
    assert list(corpus.iterate(whole[4][1])) == whole[5:]


def test_counts_belong_to_the_latest_pass(folder: Path) -> None:
    corpus = Corpus(CorpusConfig(sources_of(folder)))
    total = sum(len(document.data) for document in corpus)
    list(corpus)
    assert corpus.counts == CorpusCounts(documents=5, bytes=total, empty=2, empty_bytes=1)


@pytest.mark.parametrize("unit", UNITS)
def test_a_resumed_pass_has_met_what_the_whole_pass_meets(folder: Path, unit: str) -> None:
    """D-09: blank, broken and repaired documents before the cursor are counted once."""
    rows = [{"text": "a\ud800\n\nb\n\nc"}, {"other": 1}, {"text": "d\n\n\ud800e"}, {"text": " "}]
    (folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = CorpusConfig((*sources_of(folder), f"{folder}/d.jsonl"), documents=unit, on_bad_document="replace")
    corpus = Corpus(config)
    cursors = [cursor for _, cursor in corpus.iterate()]
    met = corpus.counts
    assert met.empty and met.skipped and met.replaced
    for cursor in cursors:
        list(corpus.iterate(cursor))
        assert corpus.counts == met


def test_the_digest_covers_bytes_and_borders(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ab\nc\n")
    config = CorpusConfig((str(tmp_path / "a.txt"),), documents="line")
    framed = b"\3" + bytes(7) + b"ab\n" + b"\2" + bytes(7) + b"c\n"
    assert Corpus(config).digest() == hashlib.sha256(framed).hexdigest()
    assert Corpus(CorpusConfig(config.data)).digest() != Corpus(config).digest()


def test_a_document_gives_its_text(folder: Path) -> None:
    for document in Corpus(CorpusConfig(sources_of(folder))):
        assert document.text.encode() == document.data


@pytest.mark.parametrize("data", [b"", b" ", b"\n", b"\xef\xbb\xbf"], ids=["nothing", "space", "newline", "mark"])
def test_a_corpus_without_a_document_is_an_error_that_counts(tmp_path: Path, data: bytes) -> None:
    """D-04: each of the four is skipped and counted, and nothing is left."""
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(CorpusError, match=r"no document in .*a\.txt \(1 empty, 0 skipped\)"):
        list(Corpus(CorpusConfig((str(tmp_path / "a.txt"),))))


def test_empty_rows_are_skipped_and_counted(tmp_path: Path) -> None:
    """D-04: the four blank texts beside a real one."""
    rows = ["", " ", "\n", "\ufeff", "a"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    corpus = Corpus(CorpusConfig((str(tmp_path / "a.jsonl"),)))
    assert [document.data for document in corpus] == [b"a"]
    assert corpus.counts.empty == 4


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("{}/none.txt", "none.txt does not exist"),
        ("{}/*.none", "no file matches"),
        ("{}", "is a folder"),
        ("{}/a.txt.zip", "packed"),
    ],
    ids=["missing", "glob", "folder", "zip"],
)
def test_a_source_that_cannot_be_is_refused_at_once(tmp_path: Path, spec: str, complaint: str) -> None:
    (tmp_path / "a.txt.zip").write_bytes(b"x")
    with pytest.raises(SourceError, match=complaint) as caught:
        Corpus(CorpusConfig((spec.format(tmp_path),)))
    assert "\n" not in str(caught.value)


def test_a_cursor_of_another_corpus_is_refused(folder: Path) -> None:
    with pytest.raises(CorpusError, match=r"a cursor in other\.txt"):
        list(Corpus(CorpusConfig(sources_of(folder))).iterate(Cursor("other.txt")))


@pytest.mark.parametrize(
    "wrong",
    [
        {"data": ()},
        {"data": "a.txt"},
        {"data": ("",)},
        {"documents": "word"},
        {"on_bad_document": "ignore"},
        {"text_field": ""},
        {"limit": 0},
        {"part": (0.5, 0.5)},
        {"part": (-0.1, 1)},
        {"part": (0, 1.1)},
        {"part": (0, float("nan"))},
        {"part": (0.2,)},
    ],
    ids=str,
)
def test_a_wrong_setting_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        CorpusConfig(**wrong)


def test_a_long_text_streams_in_pieces(tmp_path: Path) -> None:
    """D-03: memory follows the largest document, not the file."""
    import tracemalloc

    (tmp_path / "a.txt").write_bytes(b"a line of some length, repeated\n\n" * 200_000)
    corpus = Corpus(CorpusConfig((str(tmp_path / "a.txt"),), documents="paragraph", limit=20_000))
    tracemalloc.start()
    for _ in corpus:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.skipif(not WIKITEXT.is_dir(), reason="the WikiText-2 text is not on this machine")
def test_wikitext_holds_122_articles() -> None:
    corpus = Corpus(CorpusConfig((f"{WIKITEXT}/*.txt",), documents="article"))
    articles = list(corpus)
    assert len(articles) == 122
    joined = b"".join(article.data for article in articles)
    assert joined == b"".join(path.read_bytes() for path in sorted(WIKITEXT.glob("*.txt")))


def test_the_command_line_reads_a_corpus_config() -> None:
    tyro = pytest.importorskip("tyro")
    config = tyro.cli(CorpusConfig, args=["--data", "a.txt", "hf:b", "--documents", "line", "--limit", "3"])
    assert config == CorpusConfig(("a.txt", "hf:b"), documents="line", limit=3)


def test_what_was_skipped_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """D-01: a corpus with bad documents says how many."""
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "good"}\n{"text": 7}\n{"text": "caf\xe9"}\n')
    assert len(list(Corpus(CorpusConfig((str(tmp_path / "a.jsonl"),), on_bad_document="skip")))) == 1
    assert "2 bad documents were skipped and 0 repaired" in caplog.text
