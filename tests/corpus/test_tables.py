"""Parquet files and hub datasets: rows to documents, resumed at any row."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.errors import CorpusError, SourceError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TEXTS = ["" if i % 7 == 3 else f"row {i}\r\n\nü{i}" for i in range(631)]


def write_parquet(path: Path, column: object, name: str = "text") -> Path:
    table = pa.table({"n": list(range(len(column))), name: column})
    pq.write_table(table, path, row_group_size=100)
    return path


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
def test_rows_of_any_text_type_come_out_as_bytes(tmp_path: Path, kind: object) -> None:
    path = write_parquet(tmp_path / "a.parquet", pa.array(TEXTS).cast(kind))
    corpus = Corpus(CorpusConfig((str(path),)))
    documents = list(corpus)
    assert [document.data for document in documents] == [text.encode() for text in TEXTS if text]
    assert documents[3].source == f"{path}:5"
    assert corpus.counts.empty == TEXTS.count("")


@pytest.mark.parametrize("unit", ["whole", "line", "paragraph"])
@pytest.mark.parametrize("hub", [False, True], ids=["parquet", "hub"])
def test_any_prefix_and_the_resumed_rest_are_the_whole(tmp_path: Path, unit: str, hub: bool) -> None:
    """D-09: a stop at any row, across row groups and batches, loses and repeats nothing."""
    path = write_parquet(tmp_path / "train.parquet", pa.array(TEXTS))
    config = CorpusConfig((f"hf:{tmp_path}" if hub else str(path),), documents=unit)
    whole = list(Corpus(config).iterate())
    for stop in (1, 2, 3, 86, 87, 255, 256, 300, len(whole)):
        assert list(Corpus(config).iterate(whole[stop - 1][1])) == whole[stop:]


def test_broken_utf8_and_null_in_a_table_follow_the_policy(tmp_path: Path) -> None:
    """D-01 and D-02 in a Parquet file, which may hold bytes that its type forbids."""
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 2, 6, 7)))
    broken = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"okcaf\xe9x")])
    path = write_parquet(tmp_path / "a.parquet", pa.concat_arrays([broken, pa.array([None], pa.string())]))
    with pytest.raises(CorpusError, match=r"byte 0xE9\) at .*a\.parquet, row 2, byte 3 of its text"):
        list(Corpus(CorpusConfig((str(path),))))
    skipping = Corpus(CorpusConfig((str(path),), on_bad_document="skip"))
    assert [document.data for document in skipping] == [b"ok", b"x"]
    assert skipping.counts.skipped == 2
    replacing = Corpus(CorpusConfig((str(path),), on_bad_document="replace"))
    assert [document.data for document in replacing] == [b"ok", "caf\ufffd".encode(), b"x"]
    assert (replacing.counts.replaced, replacing.counts.skipped) == (1, 1)


def test_null_is_named_by_its_row(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", pa.array(["a", None]))
    with pytest.raises(CorpusError, match=r"null at .*a\.parquet, row 2"):
        list(Corpus(CorpusConfig((str(path),))))


@pytest.mark.parametrize("hub", [False, True], ids=["parquet", "hub"])
def test_a_missing_column_and_one_that_is_no_text_are_named(tmp_path: Path, hub: bool) -> None:
    path = write_parquet(tmp_path / "train.parquet", pa.array(["a"]), name="content")
    data = (f"hf:{tmp_path}" if hub else str(path),)
    with pytest.raises(CorpusError, match=r"no column 'text' in .*'n', 'content'"):
        list(Corpus(CorpusConfig(data)))
    with pytest.raises(CorpusError, match="text column of type int64"):
        list(Corpus(CorpusConfig(data, text_field="n")))
    assert [document.data for document in Corpus(CorpusConfig(data, text_field="content"))] == [b"a"]


@pytest.mark.parametrize("hub", [False, True], ids=["parquet", "hub"])
@pytest.mark.parametrize("policy", ["error", "skip", "replace"])
def test_a_column_of_lists_is_no_text_under_any_policy(tmp_path: Path, hub: bool, policy: str) -> None:
    """D-02: not one row of it can be mended, so nothing is skipped in silence."""
    path = write_parquet(tmp_path / "train.parquet", pa.array([["a", "b"], ["c"]]))
    config = CorpusConfig((f"hf:{tmp_path}" if hub else str(path),), on_bad_document=policy)
    with pytest.raises(
        CorpusError, match=r"text column of type list<.*> in .*; expected a column of strings"
    ) as caught:
        list(Corpus(config))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"no parquet", b"PAR1" + bytes(50)], ids=["empty", "text", "cut"])
def test_a_damaged_parquet_file_is_a_source_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(SourceError, match="cannot be read") as caught:
        list(Corpus(CorpusConfig((str(tmp_path / "a.parquet"),))))
    assert "\n" not in str(caught.value)


def test_damage_in_the_middle_of_a_parquet_file_is_a_source_error(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", pa.array(TEXTS))
    data = bytearray(path.read_bytes())
    data[4:2000] = bytes(1996)
    path.write_bytes(bytes(data))
    with pytest.raises(SourceError, match=r"a\.parquet cannot be read further") as caught:
        list(Corpus(CorpusConfig((str(path),))))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", ["/nowhere", "::test", ":odd"], ids=["dataset", "split", "config"])
def test_an_unknown_dataset_split_or_config_is_a_source_error(tmp_path: Path, suffix: str) -> None:
    write_parquet(tmp_path / "train.parquet", pa.array(["a"]))
    with pytest.raises(SourceError, match="cannot be opened") as caught:
        list(Corpus(CorpusConfig((f"hf:{tmp_path}{suffix}",))))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["hf:", "hf::c", "hf:a:b:c:d"])
def test_a_malformed_dataset_spec_is_refused_before_anything_loads(spec: str) -> None:
    with pytest.raises(SourceError, match="hf:name:config:split"):
        Corpus(CorpusConfig((spec,)))


def test_the_split_is_read_where_the_config_is_left_empty(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", pa.array(["a"]))
    write_parquet(tmp_path / "validation.parquet", pa.array(["b"]))
    assert [document.data for document in Corpus(CorpusConfig((f"hf:{tmp_path}::validation",)))] == [b"b"]


def test_text_files_need_neither_torch_nor_datasets(tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "a.txt").write_text("x")
    code = (
        "import sys; from tokagnostic.corpus import Corpus, CorpusConfig; "
        f"list(Corpus(CorpusConfig(({str(tmp_path / 'a.txt')!r},)))); "
        "print(sorted({'torch', 'datasets', 'pyarrow', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
