"""Tiny random hosts of several families, a toy vocabulary and memories to attach."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from tokagnostic.hashing import HashCache
from tokagnostic.host import Attachment
from tokagnostic.memory import JointConfig, NgramMemory
from tokagnostic.tokens import TokenBytes

NUM_ROWS = 320
"""Embedding rows of every host: more than the vocabulary has ids."""
EOS = 0
"""A special id, without bytes."""
TOKENS = [None, b" ", b"a", b"b", b" a", b" in", b"in", b"ter", b"nal", b"internal", b"\x00", b"\xc3"]
TOKENS += [bytes([i]) for i in range(32, 256)]
VOCABULARY = TokenBytes.from_list(TOKENS)
LEADING_SPACE_VOCABULARY = TokenBytes.from_list(TOKENS, prefix="first")

_SIZES = {"vocab_size": NUM_ROWS, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
_GATED = {**_SIZES, "intermediate_size": 96, "num_key_value_heads": 2}
_ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
_IDS = {"bos_token_id": EOS, "eos_token_id": EOS, "pad_token_id": EOS}

FAMILIES: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**_GATED, **_IDS)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**_GATED, **_IDS)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**_GATED, **_IDS, head_dim=16)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=NUM_ROWS,
            n_embd=64,
            n_layer=3,
            n_head=4,
            n_positions=64,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            **_IDS,
        )
    ),
    "neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**_SIZES, intermediate_size=96, **_IDS)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**_GATED, **_IDS, sliding_window=6)),
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**_GATED, **_IDS, head_dim=16, sliding_window=6)),
    "gemma3": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(**_GATED, **_IDS, head_dim=16, sliding_window=6, layer_types=_ALTERNATING)
    ),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**_GATED, **_IDS)),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(**_GATED, **_IDS)),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**_GATED, **_IDS, num_local_experts=4)),
    "qwen3_next": lambda: Qwen3NextForCausalLM(
        Qwen3NextConfig(
            **_GATED,
            **_IDS,
            **_EXPERTS,
            head_dim=16,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=16,
            linear_value_head_dim=16,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
        )
    ),
}
RECURRENT = ("qwen3_next",)
"""Families with states that no one can take back: they cannot crop, nor divide a row into documents."""
WINDOWED = ("gemma2", "gemma3", "mistral")
"""Families with layers that attend to so many positions, padding among them."""
USUAL = ("gemma3", "gpt2", "llama")
"""Families that the default tier tries: alternating windows, learned positions, and what most are like. The rest is slow."""


def make_host(family: str = "llama") -> PreTrainedModel:
    """A random host in evaluation mode, the same at every call; large enough weights for logits to differ."""
    torch.manual_seed(11)
    host = FAMILIES[family]().eval()
    for parameter in host.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.2)
    return host


def make_memory(**changes: int) -> NgramMemory:
    """A memory whose rows are as large as hidden states."""
    settings = {"max_order": 3, "num_rows": 211, "num_heads": 2, "dim": 5, "seed": 3, **changes}
    return JointConfig(**settings, init_std=1.0).build(HashCache.build(VOCABULARY))


def wake(attachment: Attachment) -> Attachment:
    """Give the reader a value projection that is heard in the logits."""
    torch.manual_seed(12)
    for layer in attachment.reader.values():
        nn.init.normal_(layer.value.weight, std=0.3)
    return attachment


def random_ids(rows: int = 2, length: int = 9, seed: int = 5, *, low: int = 1, high: int = len(TOKENS)) -> Tensor:
    """Ids with bytes, int64 [rows, length]."""
    return torch.randint(low, high, (rows, length), generator=torch.Generator().manual_seed(seed))


def logits_of(host: nn.Module, input_ids: Tensor, **arguments: object) -> Tensor:
    """Logits, float [B, T, V]."""
    with torch.no_grad():
        return host(input_ids=input_ids, **arguments).logits


def digest(host: nn.Module) -> dict[str, Tensor]:
    """A copy of every value in a module's state."""
    return {name: value.clone() for name, value in host.state_dict().items()}


def structure(host: PreTrainedModel) -> list[tuple[str, type, list[str], list[int]]]:
    """What every module of a host is, holds and has hooked to it."""
    return [
        (name, type(module), sorted(vars(module)), [len(module._forward_hooks), len(module._forward_pre_hooks)])
        for name, module in host.named_modules()
    ]
