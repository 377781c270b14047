"""Models whose likelihoods are known, and a tiny host with a memory that is heard in its logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from tokagnostic.hashing import HashCache
from tokagnostic.host import Attachment, attach
from tokagnostic.memory import JointConfig
from tokagnostic.tokens.encoder import TextEncoder


class KnownModel(nn.Module):
    """Gives every position the same logits, and remembers the ids that it was called with."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.row = nn.Parameter(logits)
        self.calls: list[Tensor] = []

    def forward(self, input_ids: Tensor, use_cache: bool) -> SimpleNamespace:
        assert not use_cache
        self.calls.append(input_ids)
        return SimpleNamespace(logits=self.logits(input_ids))

    def logits(self, input_ids: Tensor) -> Tensor:
        """float [B, T, V]."""
        return self.row.expand(*input_ids.shape, -1)


class PlaceModel(KnownModel):
    """Gives the target of a window's position i the loss `place_nats(i)`, whatever it is, over 256 ids and a dummy."""

    def __init__(self) -> None:
        super().__init__(torch.zeros(257))

    def logits(self, input_ids: Tensor) -> Tensor:
        """float [B, T, V]; the dummy id takes more and more of the mass."""
        logits = super().logits(input_ids).clone()
        logits[..., 256] = torch.arange(input_ids.shape[1])
        return logits


def place_nats(place: int) -> float:
    """What `PlaceModel` makes a target cost."""
    return math.log(256 + math.exp(place))


def naive_place_nats(num_targets: int, context: int, stride: int) -> list[float]:
    """What each target costs if it is scored in the first of the windows that reaches it."""
    nats = []
    for target in range(num_targets):
        begin = next(begin for begin in range(0, num_targets, stride) if begin + context > target)
        nats.append(place_nats(target - begin))
    return nats


def tiny_host(encoder: TextEncoder, positions: int = 64) -> LlamaForCausalLM:
    """A random Llama, the same at every call, with weights large enough for logits to differ."""
    torch.manual_seed(7)
    host = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(encoder.token_bytes),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=positions,
        )
    )
    for parameter in host.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.2)
    return host.eval()


def attach_heard(host: nn.Module, encoder: TextEncoder, layers: Sequence[int] = (1,)) -> Attachment:
    """Attach a memory with a reader that changes the logits."""
    config = JointConfig(max_order=3, num_rows=211, num_heads=2, dim=5, seed=3, init_std=1.0)
    attachment = attach(host, encoder, config.build(HashCache.of(encoder)), layers)
    torch.manual_seed(8)
    for layer in attachment.reader.values():
        nn.init.normal_(layer.value.weight, std=0.5)
    return attachment
