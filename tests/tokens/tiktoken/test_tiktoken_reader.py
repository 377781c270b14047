"""Encodings of the tiktoken package, live and by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tokagnostic.errors import MissingExtraError, SourceError, TokenizerError
from tokagnostic.hashing import HashCache
from tokagnostic.tokens import TokenBytes, TokenKind
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer
from tokagnostic.tokens.tiktoken.vocabulary import RankVocabulary

tiktoken = pytest.importorskip("tiktoken")


@pytest.fixture
def encoding(toy_vocabulary: RankVocabulary) -> object:
    return tiktoken.Encoding(
        "toy",
        pat_str=toy_vocabulary.pattern,
        mergeable_ranks=toy_vocabulary.ids,
        special_tokens=toy_vocabulary.special,
    )


@pytest.fixture(scope="module")
def cl100k(shared_folder: Path) -> TextEncoder:
    return load_tokenizer(str(shared_folder / "tokenizers" / "cl100k_base.tiktoken"))


def test_a_live_encoding_is_read_with_its_gaps_and_specials(encoding) -> None:
    encoder = TextEncoder.of(encoding)
    table = encoder.token_bytes
    assert len(table) == encoding.n_vocab == 301
    assert [table.kinds[v] for v in (257, 258, 300)] == [TokenKind.HOLE, TokenKind.TEXT, TokenKind.SPECIAL]
    assert (encoder.name, encoder.start_id) == ("toy", 300)
    for text in ("hello, he held it", "<|endoftext|>", "\u20ac \U0001f600\n\n  x"):
        assert encoder.encode(text).tolist() == encoding.encode_ordinary(text)
    assert TokenBytes.from_tokenizer(encoding).fingerprint == table.fingerprint
    assert HashCache.of(encoding).num_ids == 301


def test_a_changed_original_changes_nothing(encoding) -> None:
    encoder = TextEncoder.of(encoding)
    before = encoder.encode("hello").tolist()
    encoding._mergeable_ranks.clear()
    encoding._special_tokens["hello"] = 299
    assert encoder.encode("hello").tolist() == before
    assert encoder.spellings()[258] == "hel"


def test_an_encoding_of_another_make_is_refused(encoding) -> None:
    del encoding._pat_str
    with pytest.raises(TokenizerError, match="without its parts"):
        TextEncoder.of(encoding)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(SourceError, match=r"no encoding 'cl10k'; expected one of .*cl100k_base.*o200k_base"):
        load_tokenizer("tiktoken:cl10k")


def test_a_name_that_cannot_be_fetched_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(name: str) -> object:
        raise requests.ConnectionError("no\nroute")

    monkeypatch.setattr(tiktoken, "get_encoding", unreachable)
    with pytest.raises(SourceError, match=r"cannot be fetched \(no route\).* name its path") as caught:
        load_tokenizer("tiktoken:cl100k_base")
    assert "\n" not in str(caught.value)


def test_a_name_that_is_there_is_read(encoding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiktoken, "get_encoding", {"p50k_base": encoding}.__getitem__)
    encoder = load_tokenizer("tiktoken:p50k_base")
    assert encoder.name == "tiktoken:p50k_base"
    assert encoder.encode("hello").tolist() == encoding.encode_ordinary("hello")


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tokagnostic\[tiktoken\]'"):
        load_tokenizer("tiktoken:cl100k_base")


def test_telling_families_apart_imports_none_of_them() -> None:
    code = (
        "import sys\n"
        "from tokagnostic.errors import TokenizerError\n"
        "from tokagnostic.tokens.families import read_tokenizer\n"
        "try:\n    read_tokenizer(object())\nexcept TokenizerError as error:\n    assert 'type object' in str(error)\n"
        "assert not {'tiktoken', 'mistral_common', 'sentencepiece', 'transformers', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class TestCl100k:
    """GPT-4's own file."""

    def test_its_ids_are_those_of_tiktoken(self, cl100k: TextEncoder, shared_folder: Path) -> None:
        vocabulary = cl100k._engine.vocabulary
        original = tiktoken.Encoding(
            "cl100k", pat_str=vocabulary.pattern, mergeable_ranks=vocabulary.ids, special_tokens=vocabulary.special
        )
        text = (shared_folder / "corpora" / "wikitext2" / "test.txt").read_text(encoding="utf-8")[:200_000]
        ids = cl100k.encode(text)
        assert ids.tolist() == original.encode(text, disallowed_special=())
        assert cl100k.token_bytes.join(ids) == text.encode()

    def test_its_holes_and_specials_are_where_openai_put_them(self, cl100k: TextEncoder) -> None:
        kinds = cl100k.token_bytes.kinds
        special = {100257, 100258, 100259, 100260, 100276}
        assert len(kinds) == 100277
        assert set((kinds == TokenKind.SPECIAL).nonzero()[0].tolist()) == special
        assert set((kinds == TokenKind.HOLE).nonzero()[0].tolist()) == {100256, *range(100261, 100276)}
        assert cl100k.start_id == 100257
        assert cl100k.token_bytes.fidelity.line == "exact"
