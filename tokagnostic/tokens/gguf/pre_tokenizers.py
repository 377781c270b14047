"""The name that a GGUF file gives to its pre-tokenizer turned into the steps of the tokenizers library.

The names are those of llama.cpp; the steps are those of the tokenizer that each name stands for, its NFC included where
it has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Step = dict[str, Any]


@dataclass(frozen=True)
class ByteLevelSteps:
    """What a byte-level tokenizer does before its merges."""

    pre_tokenizers: tuple[Step, ...]
    normalizer: Step | None = None
    ignores_merges: bool = False
    """A piece of the text that is a token as a whole becomes it, merges or not."""


def _split(pattern: str) -> Step:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _byte_level(use_regex: bool) -> Step:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"
_QWEN2 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORDS = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_WORDS[0]}|{_WORDS[1]}|\p{{N}}|{_SIGNS}|{_BLANKS}"
_GPT4O = rf"{_WORDS[0]}{_ENDINGS}?|{_WORDS[1]}{_ENDINGS}?|\p{{N}}{{1,3}}|{_SIGNS}|{_BLANKS}"
_DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    + _BLANKS
)

_GPT2 = ByteLevelSteps((_byte_level(use_regex=True),))
_DIGITS = ByteLevelSteps(({"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)))
_LLAMA3_STEPS = ByteLevelSteps((_split(_LLAMA3), _byte_level(use_regex=False)), ignores_merges=True)
_QWEN2_STEPS = ByteLevelSteps((_split(_QWEN2), _byte_level(use_regex=False)), normalizer={"type": "NFC"})
_DEEPSEEK_STEPS = ByteLevelSteps(
    (
        _split(r"\p{N}{1,3}"),
        _split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
        _split(_DEEPSEEK),
        _byte_level(use_regex=False),
    )
)

BYTE_LEVEL_STEPS: dict[str, ByteLevelSteps] = {
    **dict.fromkeys(("", "default", "gpt-2", "jina-es", "jina-de", "phi-2"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), _DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), _LLAMA3_STEPS),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2_STEPS),
    "deepseek-v3": _DEEPSEEK_STEPS,
    "tekken": ByteLevelSteps((_split(_TEKKEN), _byte_level(use_regex=False)), ignores_merges=True),
    **dict.fromkeys(
        ("gpt-4o", "llama4"),
        ByteLevelSteps((_split(_GPT4O), _byte_level(use_regex=False)), ignores_merges=True),
    ),
}
