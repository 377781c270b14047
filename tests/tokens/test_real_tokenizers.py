"""Real tokenizers on real text: joined bytes are the source, up to what the fidelity line says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.normalizers import NFC

from tests.tokens.naive_windows import windows_of
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer
from tokagnostic.tokens.token_bytes import TokenKind

NAMES = ("llama2", "qwen3", "smollm2")
PAGE = (
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1ee \u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3002\ud55c\uad6d\uc5b4 cafe\u0301\n"
    "def f(x):\n\tif x != 0:  # ``two''\n        return {'k': [1, 22, 333]}\r\n\n\n <s></s><|endoftext|><|im_start|> \x00\x7f"
)


@pytest.fixture(scope="module")
def real(shared_folder: Path) -> dict[str, TextEncoder]:
    return {name: load_tokenizer(str(shared_folder / "tokenizers" / name)) for name in NAMES}


@pytest.fixture(scope="module")
def wikitext(shared_folder: Path) -> str:
    return (shared_folder / "corpora" / "wikitext2" / "valid.txt").read_bytes()[:300_000].decode(errors="ignore")


def promised(encoder: TextEncoder, text: str) -> bytes:
    assert encoder.token_bytes.fidelity is not None
    return (NFC().normalize_str(text) if encoder.token_bytes.fidelity.level == "nfc" else text).encode()


def test_fidelity_lines(real: dict[str, TextEncoder]) -> None:
    lines = {name: encoder.token_bytes.fidelity and encoder.token_bytes.fidelity.line for name, encoder in real.items()}
    assert lines == {
        "llama2": "exact, except that the character '▁' (U+2581) becomes a space",
        "qwen3": "exact up to NFC: the text is put into NFC first",
        "smollm2": "lossy: 21 of 256 bytes have no symbol and vanish: "
        "04 06 13 14 16 1D C0 C1 F1 F2 F5 F6 F7 F8 F9 FA FB FC FD FE FF",
    }


@pytest.mark.parametrize("name", NAMES)
def test_joined_ids_are_the_text(real: dict[str, TextEncoder], wikitext: str, name: str) -> None:
    encoder = real[name]
    for text in (wikitext, PAGE, " " + PAGE, "\n".join([PAGE] * 3)):
        ids = encoder.encode(text)
        assert encoder.token_bytes.join(ids) == promised(encoder, text)
        assert TokenKind.SPECIAL not in encoder.token_bytes.kinds[ids]


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_the_tokenizer_itself(
    real: dict[str, TextEncoder], shared_folder: Path, wikitext: str, name: str
) -> None:
    tokenizer = Tokenizer.from_file(str(shared_folder / "tokenizers" / name / "tokenizer.json"))
    text = wikitext.replace("<unk>", "unk")
    assert len(text) > 1 << 18
    assert real[name].encode(text).tolist() == tokenizer.encode(text, add_special_tokens=False).ids


def test_first_windows_are_equal_with_and_without_a_prefix(real: dict[str, TextEncoder]) -> None:
    """T-09."""
    text = "Genghis rode"
    by_byte = windows_of(real["smollm2"].token_bytes, real["smollm2"].encode(text), 8)
    by_mark = windows_of(real["llama2"].token_bytes, real["llama2"].encode(text), 8)
    assert text.encode() in by_byte & by_mark


def test_starts_are_read_from_the_config(real: dict[str, TextEncoder]) -> None:
    assert {name: encoder.start_id for name, encoder in real.items()} == {"llama2": 1, "qwen3": 151_645, "smollm2": 1}
    assert len(real["qwen3"].token_bytes) == 151_669
