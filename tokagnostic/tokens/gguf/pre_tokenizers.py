"""The name that a GGUF file gives to its pre-tokenizer turned into the steps of the tokenizers library.

The names and the rules are those of llama.cpp. Where the tokenizer that a name stands for is known to put the text into
NFC first, which llama.cpp leaves out, so do the steps here: it is what the model was trained with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokagnostic.tokens.gguf.patterns import (
    BAILING,
    DEEPSEEK_CODER,
    DEEPSEEK_LLM,
    DEEPSEEK_V3,
    FALCON,
    GPT2,
    GPT4O,
    LLAMA3,
    QWEN2,
    QWEN35,
    SEED,
    SENTENCES,
    TEKKEN,
    UNNAMED,
)

Step = dict[str, Any]

_NFC: Step = {"type": "NFC"}
_DIGIT = r"\p{N}"


@dataclass(frozen=True)
class ByteLevelSteps:
    """What a byte-level tokenizer does before its merges."""

    pre_tokenizers: tuple[Step, ...]
    normalizer: Step | None = None
    ignores_merges: bool = False
    """A piece of the text that is a token as a whole becomes it, merges or not."""


def _split(pattern: str) -> Step:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _cut(*patterns: str, nfc: bool = False, ignores_merges: bool = False) -> ByteLevelSteps:
    """Cut by one pattern after the other, then write bytes as symbols."""
    symbols = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return ByteLevelSteps((*map(_split, patterns), symbols), _NFC if nfc else None, ignores_merges)


_STEPS_OF_NAMES: tuple[tuple[str, ByteLevelSteps], ...] = (
    ("default", _cut(*UNNAMED)),
    ("gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe gigachat", _cut(GPT2)),
    ("a.x-4.0 mellum modern-bert exaone4 jais trillion granite-docling", _cut(GPT2)),
    ("mpt olmo", _cut(GPT2, nfc=True)),
    ("smollm starcoder refact codeshell exaone minerva-7b mellum2", _cut(_DIGIT, GPT2)),
    ("command-r", _cut(_DIGIT, GPT2, nfc=True)),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", _cut(LLAMA3, ignores_merges=True)),
    ("dbrx smaug-bpe chatglm-bpe glm4", _cut(LLAMA3)),
    ("qwen2 deepseek-r1-qwen megrez", _cut(QWEN2, nfc=True)),
    ("stablelm2 hunyuan solar-open grok-2", _cut(QWEN2)),
    ("qwen35", _cut(QWEN35, nfc=True)),
    ("deepseek-llm", _cut(*DEEPSEEK_LLM)),
    ("deepseek-coder", _cut(*DEEPSEEK_CODER)),
    ("deepseek-v3 hunyuan-dense joyai-llm", _cut(*DEEPSEEK_V3)),
    ("tekken", _cut(TEKKEN, ignores_merges=True)),
    ("gpt-4o llama4 kanana2 minimax-m2", _cut(GPT4O, ignores_merges=True)),
    ("falcon", _cut(*FALCON)),
    ("bloom poro-chat gpt3-finnish", _cut(SENTENCES)),
    ("viking", _cut(SENTENCES, _DIGIT)),
    ("bailingmoe bailingmoe2 llada-moe", _cut(BAILING)),
    ("seed-coder", _cut(SEED)),
)

BYTE_LEVEL_STEPS: dict[str, ByteLevelSteps] = {
    name: steps for names, steps in _STEPS_OF_NAMES for name in names.split()
}
"""The steps by name; a file without a name means `default`."""
