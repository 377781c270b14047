from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.naive_overlap import naive_windows
from tests.evaluation.overlap_tokenizers import TEXT, byte_level, metaspace, trained_byte_level
from tokagnostic.errors import CorpusError, InvalidValueError, SourceError
from tokagnostic.evaluation.key_set import KeySet, SortedRuns
from tokagnostic.hashing.polynomial import hash_bytes
from tokagnostic.tokens.encoder import TextEncoder

KEYS = st.lists(st.integers(-1, 2**62 - 1) | st.integers(-1, 12), max_size=60)


@pytest.mark.parametrize("max_order", [1, 3, 7])
@pytest.mark.parametrize("tokenizer", [trained_byte_level(330), metaspace(340)], ids=["byte-level", "metaspace"])
def test_a_set_holds_the_keys_of_all_windows_of_the_text_and_no_others(tokenizer, max_order) -> None:
    encoder = TextEncoder.from_tokenizer(tokenizer)
    expected = {
        hash_bytes(window)
        for text in TEXT
        for order in range(1, max_order + 1)
        for window in naive_windows(encoder.token_bytes, encoder.encode(text), order)
    }
    assert KeySet.of_documents(TEXT, encoder, max_order).keys.tolist() == sorted(expected)


def test_a_set_answers_for_windows_of_another_tokenizer_by_their_bytes() -> None:
    seen = KeySet.of_documents(["international"], byte_level([(b"i", b"n"), (b"in", b"t")]), 2)
    keys = np.array([[hash_bytes(b"int"), hash_bytes(b"inte")], [hash_bytes(b"inter"), hash_bytes(b"na")]])
    assert seen.contains(keys).tolist() == [[True, True], [False, True]]


def test_no_window_crosses_documents() -> None:
    seen = KeySet.of_documents(["ab", "cd"], byte_level(), 2)
    assert seen.contains(np.array([hash_bytes(b"ab"), hash_bytes(b"bc"), hash_bytes(b"cd")])).tolist() == [
        True,
        False,
        True,
    ]


@given(st.lists(KEYS, max_size=12), KEYS)
def test_membership_is_that_of_a_python_set(pieces, asked) -> None:
    expected = {key for piece in pieces for key in piece if key >= 0}
    seen = KeySet.of_keys(np.array(piece, dtype=np.int64) for piece in pieces)
    assert seen.keys.tolist() == sorted(expected)
    assert len(seen) == len(expected)
    assert seen.contains(np.array(asked, dtype=np.int64)).tolist() == [key in expected for key in asked]


def test_many_small_pieces_leave_few_runs() -> None:
    runs = SortedRuns()
    for i in range(1000):
        runs.add(np.arange(7 * i, 7 * i + 9)[::-1].reshape(3, 3))
    assert len(runs._runs) <= 12
    assert runs.merged().tolist() == list(range(7002))


def test_the_empty_set_holds_nothing() -> None:
    empty = KeySet.of_keys([])
    assert empty.contains(np.array([[-1, 0], [1, 2**62 - 1]])).tolist() == [[False, False], [False, False]]


def test_a_text_without_documents_is_an_error() -> None:
    with pytest.raises(CorpusError):
        KeySet.of_documents([], byte_level(), 2)


@pytest.mark.parametrize(
    "keys",
    [
        np.array([2, 1]),
        np.array([1, 1]),
        np.array([-1, 1]),
        np.array([1.0]),
        np.array([[1]]),
        np.array([1], dtype=np.int32),
    ],
    ids=["falling", "twice", "no key", "float", "two axes", "int32"],
)
def test_an_array_that_is_no_sorted_set_is_refused(keys) -> None:
    with pytest.raises(InvalidValueError):
        KeySet(keys)


class TestFile:
    def test_gives_the_same_set_back(self, tmp_path) -> None:
        seen = KeySet.of_documents(TEXT, byte_level(), 3)
        seen.save(tmp_path / "seen.npy")
        assert KeySet.load(tmp_path / "seen.npy").keys.tolist() == seen.keys.tolist()
        assert [path.name for path in tmp_path.iterdir()] == ["seen.npy"]

    def test_of_the_same_text_is_the_same_file(self, tmp_path) -> None:
        for name in ("a.npy", "b.npy"):
            KeySet.of_documents(TEXT, byte_level(), 3).save(tmp_path / name)
        assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()

    @pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "text", "unsorted", "zip", "pickle"])
    def test_that_is_damaged_or_foreign_is_refused(self, tmp_path, damage) -> None:
        path = tmp_path / "seen.npy"
        KeySet.of_documents(TEXT, byte_level(), 3).save(path)
        if damage == "missing":
            path.unlink()
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "truncated":
            path.write_bytes(path.read_bytes()[:-5])
        elif damage == "text":
            path.write_text("no array")
        elif damage == "unsorted":
            np.save(path, np.array([3, 2, 1]))
        elif damage == "zip":
            np.savez(path.open("wb"), keys=np.array([1, 2]))
        else:
            np.save(path, np.array([{"an": "object"}], dtype=object), allow_pickle=True)
        with pytest.raises(SourceError, match=r"seen\.npy"):
            KeySet.load(path)
