"""A private copy that encodes by ranks: plain text, whatever the text."""

from __future__ import annotations

import dataclasses
import pickle
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokagnostic.errors import CorpusError, MissingExtraError, TokenizerError
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.tiktoken.engine import RankEngine, read_engine
from tokagnostic.tokens.tiktoken.vocabulary import RankVocabulary

CONFIGS = Path(__file__).resolve().parents[3] / "tokenizers_cfg"
TEXTS = st.text(max_size=60)

pytest.importorskip("tiktoken")


def encoder_of(vocabulary: RankVocabulary) -> TextEncoder:
    return TextEncoder.from_reading(read_engine(RankEngine(vocabulary)))


def without(vocabulary: RankVocabulary, *tokens: bytes) -> RankVocabulary:
    ids = {token: v for token, v in vocabulary.ids.items() if token not in tokens}
    return dataclasses.replace(vocabulary, ids=ids)


def test_the_pair_of_lowest_rank_merges_first(toy_vocabulary: RankVocabulary) -> None:
    encoder = encoder_of(toy_vocabulary)
    assert encoder.encode("hello").tolist() == [258, ord("l"), ord("o")]
    assert encoder.encode("").tolist() == []
    assert encoder.encode("hello").dtype == np.int64
    assert encoder.start_id == 300
    assert encoder.name == "toy"
    assert encoder.spellings()[258] == "hel"


def test_a_spelled_special_stays_text(toy_vocabulary: RankVocabulary) -> None:
    encoder = encoder_of(toy_vocabulary)
    ids = encoder.encode("a<|endoftext|>b")
    assert 300 not in ids
    assert encoder.token_bytes.join(ids) == b"a<|endoftext|>b"


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(TEXTS, max_size=30))
def test_a_batch_is_its_texts_one_by_one(texts: list[str]) -> None:
    ids = {bytes((byte,)): byte for byte in range(256)} | {b"aa": 256, b"\xc3\xa9": 257, b" a": 258}
    engine = RankEngine(RankVocabulary("toy", r"\s?\p{L}+|\s+|[^\s\p{L}]+", ids, {}))
    table = engine.vocabulary.token_bytes()
    batch = engine.encode(texts, follows=False)
    assert len(batch) == len(texts)
    for text, encoded in zip(texts, batch, strict=True):
        assert encoded.tolist() == engine.encode([text], follows=True)[0].tolist()
        assert table.join(encoded) == text.encode()


def test_half_of_a_surrogate_pair_is_refused_and_named(toy_vocabulary: RankVocabulary) -> None:
    encoder = encoder_of(toy_vocabulary)
    with pytest.raises(CorpusError, match=r"document 1 holds U\+D800"):
        encoder.encode_batch(["fine", "a\ud800b", "fine"])


def test_a_pattern_that_leaves_characters_out_is_found_by_the_probe(toy_vocabulary: RankVocabulary) -> None:
    with pytest.raises(TokenizerError, match=r"do not join back .* leaves no character out"):
        encoder_of(dataclasses.replace(toy_vocabulary, pattern=r"\S+| "))


@pytest.mark.parametrize("pattern", ["(", r"\p{Nonsense}+"], ids=repr)
def test_a_broken_pattern_is_named(toy_vocabulary: RankVocabulary, pattern: str) -> None:
    with pytest.raises(TokenizerError, match="tiktoken does not take the pattern") as caught:
        RankEngine(dataclasses.replace(toy_vocabulary, pattern=pattern))
    assert "\n" not in str(caught.value)


def test_what_kills_the_library_is_an_error_like_others(toy_vocabulary: RankVocabulary) -> None:
    with pytest.raises(TokenizerError, match="tiktoken gave up on the text"):
        RankEngine(dataclasses.replace(toy_vocabulary, pattern=r"\s*")).encode(["a b"], follows=False)


def test_a_byte_without_a_rank_is_refused_where_nothing_covers_it(toy_vocabulary: RankVocabulary) -> None:
    euro = "\u20ac".encode()
    ids = without(toy_vocabulary, b"\xe2", b"\xff").ids | {euro[:2]: 400}
    encoder = encoder_of(dataclasses.replace(toy_vocabulary, ids=ids))
    assert encoder.token_bytes.fidelity.level == "lossy"
    assert encoder.encode("\u20ac").tolist() == [400, 0xAC]
    assert len(encoder.token_bytes) == 401
    with pytest.raises(TokenizerError, match="document 1: the byte E2 of the text '\u2603' has no rank"):
        encoder.encode_batch(["fine", "\u2603"])


def test_a_vocabulary_that_spells_nothing_is_refused(toy_vocabulary: RankVocabulary) -> None:
    with pytest.raises(TokenizerError, match="turns every probe text into ids without bytes"):
        encoder_of(dataclasses.replace(toy_vocabulary, ids={b"\xff": 0}))


def test_the_engine_goes_to_another_process(toy_vocabulary: RankVocabulary) -> None:
    encoder = encoder_of(toy_vocabulary)
    copy = pickle.loads(pickle.dumps(encoder))
    assert copy.encode("hello there").tolist() == encoder.encode("hello there").tolist()
    assert copy.token_bytes.fingerprint == encoder.token_bytes.fingerprint


def test_without_the_package_one_line_says_what_to_install(
    toy_vocabulary: RankVocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tokagnostic\[tiktoken\]'"):
        RankEngine(toy_vocabulary)


def patterns() -> dict[str, str]:
    found = {path.stem: tomllib.loads(path.read_text()).get("ranks") for path in sorted(CONFIGS.glob("*.toml"))}
    return {name: table["pattern"] for name, table in found.items() if table is not None}


def check_runs(vocabulary: RankVocabulary, signs: tuple[str, ...]) -> None:
    ids = vocabulary.ids | {b"aa": 301, b"aaaa": 302, b"  ": 303, b"^^": 304}
    encoder = encoder_of(dataclasses.replace(vocabulary, ids=ids))
    for sign in signs:
        text = sign * 1_000_000 + "x"
        start = time.perf_counter()
        encoded = encoder.encode(text)
        assert time.perf_counter() - start < 10
        assert encoder.token_bytes.join(encoded) == text.encode()


def test_a_million_times_the_same_sign_takes_seconds(toy_vocabulary: RankVocabulary) -> None:
    check_runs(dataclasses.replace(toy_vocabulary, pattern=patterns()["cl100k"]), ("^", " "))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", patterns().values(), ids=patterns())
def test_a_million_times_any_sign_takes_seconds(toy_vocabulary: RankVocabulary, pattern: str) -> None:
    signs = ("a", "A", "^", " ", "\n", "1", "\u65e5", "\u0301", "\u3000", "aA", "\U0001f600", "\t ")
    check_runs(dataclasses.replace(toy_vocabulary, pattern=pattern), signs)
