"""Text files and JSON Lines: bytes in, bytes out, and a place for every error."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.errors import CorpusError, SourceError

SEVEN_LINES = b'{"text": "ok"}\n{"content": "x"}\n{"text": null}\n{"text": 7}\n[]\n\n{"text": "half\n'


def corpus_of(path: Path, **settings: object) -> Corpus:
    return Corpus(CorpusConfig((str(path),), **settings))


def texts_of(path: Path, **settings: object) -> list[bytes]:
    return [document.data for document in corpus_of(path, **settings)]


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return write


class TestText:
    def test_bytes_come_out_as_they_stand(self, write) -> None:
        """D-07: no translation of line ends, no splitting at other breaks, a byte order mark kept."""
        data = b"\xef\xbb\xbfa\r\nb\rc\n" + "\u2028 \u0085 é".encode()
        for unit in ("whole", "line", "paragraph", "article"):
            assert b"".join(texts_of(write("a.txt", data), documents=unit)) == data

    def test_delivered_and_blank_bytes_add_up_to_the_file(self, write) -> None:
        data = b"\na\r\n \n\nb\n\n"
        corpus = corpus_of(write("a.txt", data), documents="line")
        assert [document.data for document in corpus] == [b"a\r\n", b"b\n"]
        assert (corpus.counts.empty, corpus.counts.bytes + corpus.counts.empty_bytes) == (4, len(data))

    def test_a_gzip_file_reads_as_its_content(self, write) -> None:
        data = "one\n\ntwo é\n".encode()
        packed = write("a.txt.gz", gzip.compress(data))
        assert texts_of(packed) == [data]
        assert texts_of(packed, documents="paragraph") == [b"one\n\n", "two é\n".encode()]

    @pytest.mark.parametrize("damage", [lambda packed: packed[:-9], lambda packed: b"plain"], ids=["cut", "not gzip"])
    def test_a_damaged_gzip_file_is_a_source_error(self, write, damage) -> None:
        with pytest.raises(SourceError, match="cannot be read"):
            texts_of(write("a.txt.gz", damage(gzip.compress(bytes(range(256)).hex().encode()))))

    @pytest.mark.parametrize("unit", ["whole", "line", "paragraph"])
    def test_broken_utf8_is_named_by_line_and_byte_offset(self, write, unit: str) -> None:
        """D-01: a Latin-1 byte in a text file."""
        with pytest.raises(CorpusError, match=r"byte 0xE9\) at .*a\.txt, line 3, byte offset 11") as caught:
            texts_of(write("a.txt", b"one\n\ntwo ca\xe9\n"), documents=unit)
        assert "\n" not in str(caught.value)

    def test_broken_utf8_is_skipped_or_replaced_and_counted(self, write) -> None:
        """D-01: the other two policies, and never Latin-1."""
        path = write("a.txt", b"good\ncaf\xe9\ngood too\n")
        skipping = corpus_of(path, documents="line", on_bad_document="skip")
        assert [document.data for document in skipping] == [b"good\n", b"good too\n"]
        assert (skipping.counts.skipped, skipping.counts.replaced) == (1, 0)
        replacing = corpus_of(path, documents="line", on_bad_document="replace")
        assert [document.data for document in replacing] == [b"good\n", "caf\ufffd\n".encode(), b"good too\n"]
        assert (replacing.counts.skipped, replacing.counts.replaced, replacing.counts.documents) == (0, 1, 3)

    def test_sources_name_file_and_line(self, write) -> None:
        path = write("a.txt", b"\na\nb\n\nc\n")
        assert [document.source for document in corpus_of(path)] == [str(path)]
        assert [document.source for document in corpus_of(path, documents="line")] == [f"{path}:{n}" for n in (2, 3, 5)]
        assert [document.source for document in corpus_of(path, documents="paragraph")] == [f"{path}:1", f"{path}:5"]


class TestJsonLines:
    def test_a_text_is_the_field_of_one_line(self, write) -> None:
        path = write("a.jsonl", b'{"text": "a\\r\\nb"}\r\n{"n": 1, "text": "\\u00e9\xe2\x80\xa8x"}')
        assert texts_of(path) == [b"a\r\nb", "é\u2028x".encode()]
        assert [document.source for document in corpus_of(path)] == [f"{path}:1", f"{path}:2"]

    def test_the_field_can_be_named(self, write) -> None:
        assert texts_of(write("a.ndjson", b'{"content": "x", "text": 7}\n'), text_field="content") == [b"x"]

    def test_a_byte_order_mark_before_the_first_line_is_no_text(self, write) -> None:
        assert texts_of(write("a.jsonl", b'\xef\xbb\xbf{"text": "a"}\n{"text": "\xef\xbb\xbfb"}\n')) == [
            b"a",
            b"\xef\xbb\xbfb",
        ]

    def test_parts_of_a_row_join_to_it_and_say_so(self, write) -> None:
        path = write("a.jsonl.gz", gzip.compress(json.dumps({"text": "a\n\nb\n"}).encode()))
        assert texts_of(path, documents="paragraph") == [b"a\n\n", b"b\n"]
        assert [document.source for document in corpus_of(path, documents="paragraph")] == [
            f"{path}:1#1",
            f"{path}:1#2",
        ]

    @pytest.mark.parametrize(
        ("number", "complaint"),
        [
            (2, "no field 'text' at .*line 1 .*'content'"),
            (3, "null under 'text' at .*line 1"),
            (4, "a number under 'text' at .*line 1"),
            (5, "a list at .*line 1"),
            (6, "an empty line at .*line 1"),
            (7, "no JSON value at .*line 1"),
        ],
    )
    def test_each_bad_line_is_reported_with_its_place(self, write, number: int, complaint: str) -> None:
        """D-02: a missing field, null, a number, a list, an empty line, half a line."""
        line = SEVEN_LINES.splitlines(keepends=True)[number - 1]
        with pytest.raises(CorpusError, match=complaint) as caught:
            texts_of(write("a.jsonl", line))
        assert "\n" not in str(caught.value)

    def test_an_error_in_a_later_line_names_that_line(self, write) -> None:
        """D-02: under the policy `error` the first bad line of seven stops the corpus."""
        with pytest.raises(CorpusError, match=r"a\.jsonl, line 2"):
            texts_of(write("a.jsonl", SEVEN_LINES))

    @pytest.mark.parametrize("policy", ["skip", "replace"])
    def test_bad_lines_are_left_out_and_counted(self, write, policy: str) -> None:
        """D-02: what holds no text cannot be mended, so `replace` skips it too."""
        corpus = corpus_of(write("a.jsonl", SEVEN_LINES), on_bad_document=policy)
        assert [document.data for document in corpus] == [b"ok"]
        assert (corpus.counts.skipped, corpus.counts.replaced, corpus.counts.documents) == (6, 0, 1)

    def test_broken_utf8_follows_the_policy(self, write) -> None:
        """D-01: line 3 of five holds the byte E9."""
        good = b'{"text": "ok"}\n'
        path = write("a.jsonl", good * 2 + b'{"text": "caf\xe9"}\n' + good * 2)
        with pytest.raises(CorpusError, match=r"byte 0xE9\) at .*a\.jsonl, line 3, byte offset 43"):
            texts_of(path)
        assert texts_of(path, on_bad_document="skip") == [b"ok"] * 4
        assert texts_of(path, on_bad_document="replace")[2] == "caf\ufffd".encode()

    def test_half_a_surrogate_pair_is_no_text(self, write) -> None:
        path = write("a.jsonl", b'{"text": "x\\ud83dy \\ud83d\\ude00"}\n')
        with pytest.raises(CorpusError, match=r"half a surrogate pair \(\\ud83d\) at .*line 1"):
            texts_of(path)
        assert texts_of(path, on_bad_document="replace") == ["x\ufffdy 😀".encode()]

    @pytest.mark.parametrize("line", [b"[" * 100_000, b'{"n": ' + b"9" * 5_000 + b"}"], ids=["nested", "long number"])
    def test_json_that_overwhelms_the_parser_is_a_bad_line(self, write, line: bytes) -> None:
        with pytest.raises(CorpusError, match="line 1"):
            texts_of(write("a.jsonl", line))
