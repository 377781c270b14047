"""Tokenizers of mistral-common, by version and live: ids equal to the package's own."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokagnostic.errors import MissingExtraError, SourceError, TokenizerError
from tokagnostic.tokens import mistral
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.mistral import mistral_files, read_mistral, read_mistral_object

pytest.importorskip("mistral_common")
pytest.importorskip("tiktoken")

TEXTS = (
    "",
    "The river runs through the old stone town; in 1848 it rose over the lower bridge.",
    "def f(x):\n\treturn {'a': [1, 2,  3]}\n\n\n   # <s>[INST] no special [/INST]</s>\r\n",
    " ".join(" " * n + "x" for n in range(41)),
    "\U0001f600\U0001f469\u200d\U0001f469\u200d\U0001f467 \u65e5\u672c\u8a9e \u4e2d\u6587 \u0645\u0631\u062d\u0628\u0627 cafe\u0301 \ufb01",
)


@cache
def of_the_package(version: str) -> Any:
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    makers = {
        "v1": MistralTokenizer.v1,
        "v2": MistralTokenizer.v2,
        "v3": MistralTokenizer.v3,
        "v7": MistralTokenizer.v7,
        "tekken": lambda: MistralTokenizer.v3(is_tekken=True),
        "tekken-240911": lambda: MistralTokenizer.v3(is_tekken=True, is_mm=True),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return makers[version]()


@cache
def ours(version: str) -> TextEncoder:
    return TextEncoder.from_reading(read_mistral(version))


def their_ids(version: str, text: str) -> list[int]:
    return of_the_package(version).instruct_tokenizer.tokenizer.encode(text, bos=False, eos=False)


@pytest.mark.parametrize("version", ["v1", "v3", "tekken"])
def test_ids_are_those_of_the_package(version: str) -> None:
    for text in TEXTS:
        ids = ours(version).encode(text)
        assert ids.tolist() == their_ids(version, text)
        assert ours(version).token_bytes.join(ids) == text.encode()
    assert ours(version).start_id == 1


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v2", "v7", "tekken-240911"])
def test_ids_are_those_of_the_package_in_every_version(version: str) -> None:
    test_ids_are_those_of_the_package(version)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=80))
def test_tekken_keeps_every_text(text: str) -> None:
    ids = ours("tekken").encode(text)
    assert ids.tolist() == their_ids("tekken", text)
    assert ours("tekken").token_bytes.join(ids) == text.encode()


def test_the_table_of_tekken_is_what_the_package_says_of_each_id() -> None:
    from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy

    tekken = of_the_package("tekken").instruct_tokenizer.tokenizer
    table = ours("tekken").token_bytes
    assert len(table) == tekken.n_words == 131_072
    for v in range(0, len(table), 7):
        assert (table[v] or b"") == tekken.id_to_byte_piece(v, SpecialTokenPolicy.IGNORE)
    assert ours("tekken").spellings()[:1000] == [tekken.id_to_piece(v) for v in range(1000)]


def test_wikitext_through_tekken(shared_folder: Path) -> None:
    text = (shared_folder / "corpora" / "wikitext2" / "valid.txt").read_text(encoding="utf-8")[:150_000]
    ids = ours("tekken").encode(text)
    assert ids.tolist() == their_ids("tekken", text)
    assert ours("tekken").token_bytes.join(ids) == text.encode()


def test_what_is_saved_the_package_reads_too(tmp_path: Path) -> None:
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    ours("tekken").save(tmp_path)
    theirs = Tekkenizer.from_file(tmp_path / "tekken.json")
    assert theirs.n_words == 131_072
    for text in TEXTS:
        assert theirs.encode(text, bos=True, eos=False) == [1, *their_ids("tekken", text)]


@pytest.mark.parametrize("version", ["v1", "tekken"])
def test_a_live_tokenizer_and_what_wraps_it_are_the_same(version: str) -> None:
    whole = of_the_package(version)
    fingerprint = ours(version).token_bytes.fingerprint
    for tokenizer in (
        (whole, whole.instruct_tokenizer.tokenizer) if version == "tekken" else (whole.instruct_tokenizer,)
    ):
        assert TextEncoder.of(tokenizer).token_bytes.fingerprint == fingerprint


def test_a_class_of_transformers_is_told_by_its_module() -> None:
    holder = type("MistralCommonBackend", (), {"__module__": "transformers.tokenization_mistral_common"})()
    holder.tokenizer = of_the_package("tekken")
    assert TextEncoder.of(holder).token_bytes.fingerprint == ours("tekken").token_bytes.fingerprint


def test_the_class_of_transformers_is_read_as_what_it_holds() -> None:
    from transformers.utils import is_mistral_common_available

    if not is_mistral_common_available():
        pytest.skip("transformers asks for Pillow and a newer mistral-common")
    from transformers import MistralCommonBackend

    wrapped = MistralCommonBackend(str(mistral_files()["tekken"]))
    encoder = TextEncoder.of(wrapped)
    assert encoder.token_bytes.fingerprint == ours("tekken").token_bytes.fingerprint
    assert encoder.start_id == wrapped.bos_token_id


def test_a_file_of_tekken_is_found_by_every_name_of_its() -> None:
    files = mistral_files()
    assert files["tekken"] == files["v3-tekken"] == files["tekken-240718"]
    assert files["tekken-240911"] != files["tekken"]
    assert {"v1", "v2", "v3", "v7"} <= set(files)


def test_an_unknown_version_lists_the_known_ones() -> None:
    with pytest.raises(SourceError, match=r"no tokenizer 'v99'; expected one of tekken, .*v1, v2, v3"):
        read_mistral("v99")


def test_an_object_without_a_tokenizer_inside_is_refused() -> None:
    with pytest.raises(TokenizerError, match="an object of type SimpleNamespace without a tokenizer inside"):
        read_mistral_object(SimpleNamespace(tokenizer=3))


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mistral, "find_spec", lambda name: None if name == "mistral_common" else find_spec(name))
    with pytest.raises(MissingExtraError, match=r"pip install 'tokagnostic\[mistral\]'"):
        read_mistral("v1")


def test_the_models_file_of_mistral_v1_is_that_of_the_package(shared_folder: Path) -> None:
    file = shared_folder / "tokenizers" / "mistral-v1.model"
    assert file.read_bytes() == mistral_files()["v1"].read_bytes()
