"""Packed files: the same documents, the same cursors, and one line where one is cut or no such file."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.errors import CorpusError, SourceError

pa = pytest.importorskip("pyarrow")


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}
every_packing = pytest.mark.parametrize("ending", PACKERS)
ROWS = b"".join(json.dumps({"text": f"row {i}\n\nü{i}"}).encode() + b"\n" for i in range(300))


def pack(folder: Path, ending: str, data: bytes, name: str = "a.jsonl") -> Path:
    path = folder / f"{name}.{ending}"
    path.write_bytes(PACKERS[ending](data))
    return path


@every_packing
@pytest.mark.parametrize("unit", ["whole", "paragraph"])
def test_a_packed_file_is_its_content_and_resumes_at_any_document(tmp_path: Path, ending: str, unit: str) -> None:
    """D-09."""
    (tmp_path / "a.jsonl").write_bytes(ROWS)
    plain = [document.data for document in Corpus(CorpusConfig((str(tmp_path / "a.jsonl"),), documents=unit))]
    config = CorpusConfig((str(pack(tmp_path, ending, ROWS)),), documents=unit)
    whole = list(Corpus(config).iterate())
    assert [document.data for document, _ in whole] == plain
    for stop in (1, 2, 150, len(whole)):
        assert list(Corpus(config).iterate(whole[stop - 1][1])) == whole[stop:]


@every_packing
def test_parts_packed_one_after_another_are_one_file(tmp_path: Path, ending: str) -> None:
    path = pack(tmp_path, ending, b"one\n", "a.txt")
    path.write_bytes(path.read_bytes() + PACKERS[ending](b"two\n"))
    assert [document.data for document in Corpus(CorpusConfig((str(path),)))] == [b"one\ntwo\n"]


@every_packing
@pytest.mark.parametrize(
    "damage", [lambda packed: packed[: len(packed) // 2], lambda packed: b"plain text"], ids=["cut", "not packed"]
)
def test_a_cut_file_and_one_that_is_not_packed_are_one_line(tmp_path: Path, ending: str, damage) -> None:
    path = pack(tmp_path, ending, ROWS)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SourceError, match=rf"a\.jsonl\.{ending} cannot be read .*whole {ending} file") as caught:
        list(Corpus(CorpusConfig((str(path),))))
    assert "\n" not in str(caught.value)


@every_packing
def test_a_bad_row_is_named_by_its_line_in_the_unpacked_file(tmp_path: Path, ending: str) -> None:
    """D-02."""
    path = pack(tmp_path, ending, ROWS + b'{"text": [1]}\n')
    with pytest.raises(CorpusError, match=rf"a list under 'text' at .*\.{ending}, line 301"):
        list(Corpus(CorpusConfig((str(path),))))


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.zst", "a.parquet.gz", "a.zip", "a.txt.lz4", "a.txt.Z"])
def test_what_is_not_unpacked_is_refused_with_what_would_be(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(SourceError, match=r"packed in a way .*\.gz, \.bz2, \.xz, \.zst") as caught:
        Corpus(CorpusConfig((str(tmp_path / name),)))
    assert "\n" not in str(caught.value)
