"""Where a memory meets its host."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hosts import NUM_ROWS
from torch import nn
from transformers import BertConfig, BertLMHeadModel, MixtralConfig, MixtralForCausalLM, PreTrainedModel

from tokagnostic.errors import HostError
from tokagnostic.host.discovery import find_parts


class Made(nn.Module):
    """A model of any make."""

    def __init__(self, num_layers: object, **lists: int) -> None:
        super().__init__()
        self.config = SimpleNamespace(num_hidden_layers=num_layers, hidden_size=4)
        self.embedding = nn.Embedding(5, 4)
        for name, length in lists.items():
            self.add_module(name, nn.ModuleList(nn.Identity() for _ in range(length)))

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(self, input_ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return self.embedding(input_ids)


def test_every_family_is_found_without_a_table(family_host: PreTrainedModel) -> None:
    parts = find_parts(family_host)
    assert parts.decoder is family_host.base_model
    assert (len(parts.layers), parts.width, parts.num_ids) == (3, 64, NUM_ROWS)
    assert parts.argument_names[0] == "input_ids"
    assert {"attention_mask", "position_ids"} <= set(parts.argument_names)


def test_the_bare_decoder_is_its_own_host(family_host: PreTrainedModel) -> None:
    bare = family_host.base_model
    assert find_parts(bare).decoder is bare


def test_experts_of_the_same_number_as_layers_are_not_taken_for_them() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    host = MixtralForCausalLM(MixtralConfig(vocab_size=9, num_hidden_layers=2, num_local_experts=2, **sizes))
    assert find_parts(host).layers is host.model.layers
    inner = Made(2, layers=2)
    for layer in (0, 1):
        inner.layers[layer] = nn.ModuleList([nn.Identity(), nn.Identity()])
    assert find_parts(inner).layers is inner.layers


def test_the_decoder_is_the_nearest_module_that_takes_ids() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    host = BertLMHeadModel(BertConfig(vocab_size=9, num_hidden_layers=2, is_decoder=True, **sizes))
    parts = find_parts(host)
    assert parts.layers is host.bert.encoder.layer
    assert parts.decoder is host.bert


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (nn.Linear(2, 2), "Linear has no config"),
        (Made("two", layers=2), "no config"),
        (Made(2), "its lists: none"),
        (Made(2, layers=3), r"layers \(3\)"),
        (Made(2, encoder=2, decoder=2), r"encoder \(2\), decoder \(2\)"),
    ],
    ids=["no_config", "no_number", "no_list", "other_length", "two_lists"],
)
def test_a_model_of_another_make_is_refused_with_what_was_found(model: nn.Module, found: str) -> None:
    with pytest.raises(HostError, match=found):
        find_parts(model)


def test_layers_that_are_one_module_are_refused() -> None:
    model = Made(2, layers=2)
    model.layers[1] = model.layers[0]
    with pytest.raises(HostError, match="repeats 1 layers"):
        find_parts(model)


def test_embeddings_that_are_no_table_are_refused() -> None:
    model = Made(2, layers=2)
    model.embedding = nn.Linear(2, 2)
    with pytest.raises(HostError, match="are Linear"):
        find_parts(model)


def test_a_decoder_without_ids_is_refused() -> None:
    class Blind(Made):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return hidden

    with pytest.raises(HostError, match="input_ids"):
        find_parts(Blind(2, layers=2))
