"""What `tokenizers_cfg/` states of each tokenizer, held against the tokenizer itself, where it is at hand."""

from __future__ import annotations

import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tokagnostic.errors import SourceError
from tokagnostic.tokens.sources import load_tokenizer

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in sorted(ROOT.glob("tokenizers_cfg/*.toml"))}
STATED = {name: settings["fingerprint"] for name, settings in CONFIGS.items() if "fingerprint" in settings}
SHARED = {"cl100k": "cl100k_base.tiktoken", "llama2": "llama2", "qwen3": "qwen3", "smollm2": "smollm2"}
"""Where the folder of real tokenizers has what a name stands for."""


def spec_at_hand(name: str) -> str:
    scheme, _, rest = CONFIGS[name]["spec"].partition(":")
    path = ROOT / ".." / "shared" / "tokenizers" / SHARED.get(name, "(absent)")
    if path.exists():
        return str(path)
    if scheme == "hf" or not find_spec({"mistral": "mistral_common"}.get(scheme, scheme)):
        pytest.skip(f"{scheme}:{rest} is neither in the folder of real tokenizers nor in an installed package")
    return name


def cases() -> list[object]:
    """Those of the hub are read in other tests too, and take longest."""
    return [
        pytest.param(name, marks=pytest.mark.slow) if CONFIGS[name]["spec"].startswith("hf:") else name
        for name in STATED
    ]


@pytest.mark.parametrize("name", cases())
def test_the_fingerprint_is_that_of_the_tokenizer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_at_hand(name)
    if CONFIGS[name]["spec"].startswith("tiktoken:"):

        def refuse(url: str) -> bytes:
            raise OSError(f"no download of {url} in a test")

        monkeypatch.setattr("tiktoken.load.read_file", refuse)
    try:
        encoder = load_tokenizer(spec)
    except SourceError as error:
        if "no download" not in str(error):
            raise
        pytest.skip(f"{CONFIGS[name]['spec']} is not in tiktoken's cache")
    assert encoder.token_bytes.fingerprint == STATED[name]


def test_what_the_encodings_of_tiktoken_are_made_of_is_stated_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    openai_public = pytest.importorskip("tiktoken_ext.openai_public")
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda url, expected_hash: expected_hash)
    encodings = {settings["spec"].removeprefix("tiktoken:"): settings.get("ranks") for settings in CONFIGS.values()}
    for name in ("cl100k_base", "o200k_base", "p50k_base", "r50k_base"):
        made_of = openai_public.ENCODING_CONSTRUCTORS[name]()
        stated = encodings[name]
        assert stated["pattern"] == made_of["pat_str"]
        assert stated["special"] == made_of["special_tokens"]
        assert stated["sha256"] == made_of["mergeable_ranks"]


def test_no_two_files_describe_the_same_ranks() -> None:
    digests = [settings["ranks"]["sha256"] for settings in CONFIGS.values() if "ranks" in settings]
    assert len(digests) == len(set(digests)) > 4


def test_llama_3_has_256_specials_after_its_ranks() -> None:
    special = CONFIGS["llama3"]["ranks"]["special"]
    assert sorted(special.values()) == list(range(128_000, 128_256))
    assert special["<|begin_of_text|>"] == 128_000
    assert special["<|eot_id|>"] == 128_009
