"""Caches that do not count what they hold, or not where one looks first."""

from __future__ import annotations

import pytest
import torch
from hosts import EOS, NUM_ROWS, VOCABULARY, logits_of, make_memory, random_ids, wake
from torch import nn
from transformers import (
    Mamba2Config,
    Mamba2ForCausalLM,
    MiniMaxConfig,
    MiniMaxForCausalLM,
    PreTrainedModel,
    ReformerConfig,
    ReformerModelWithLMHead,
)

from tokagnostic.errors import HostError
from tokagnostic.host import Attachment, attach

IDS = {"bos_token_id": EOS, "eos_token_id": EOS, "pad_token_id": EOS}
SIZES = {"vocab_size": NUM_ROWS, "hidden_size": 64, "num_hidden_layers": 3}


def mamba2() -> PreTrainedModel:
    """Its states do not tell how many positions they have seen."""
    return Mamba2ForCausalLM(
        Mamba2Config(**SIZES, **IDS, state_size=8, num_heads=8, head_dim=16, expand=2, n_groups=1, chunk_size=4)
    )


def minimax() -> PreTrainedModel:
    """Its cache tells that it holds no position, for its first layer holds none."""
    return MiniMaxForCausalLM(
        MiniMaxConfig(
            **SIZES,
            **IDS,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=96,
            head_dim=16,
            num_local_experts=2,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
            block_size=4,
        )
    )


HOSTS = {"mamba2": mamba2, "minimax": minimax}


def attached(family: str, kernel: int = 0) -> tuple[PreTrainedModel, Attachment]:
    torch.manual_seed(11)
    host = HOSTS[family]().eval()
    for parameter in host.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.1)  # with larger ones MiniMax itself rounds by more than 1e-5
    attachment = wake(attach(host, VOCABULARY, make_memory(), layers=[0, 2], conv_kernel=kernel))
    for layer in attachment.reader.values():
        if layer.conv is not None:
            nn.init.normal_(layer.conv.weight, std=0.3)
    return host, attachment


@pytest.mark.parametrize("kernel", [0, 4])
@pytest.mark.parametrize("family", HOSTS)
def test_decoding_reads_what_a_call_with_the_whole_sequence_reads(family: str, kernel: int) -> None:
    host, _ = attached(family, kernel)
    with torch.no_grad():
        found = host.generate(
            random_ids(2, 8),
            max_new_tokens=6,
            min_new_tokens=6,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
    whole = logits_of(host, found.sequences, use_cache=False)
    torch.testing.assert_close(torch.stack(found.logits, dim=1), whole[:, 7:-1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", HOSTS)
@pytest.mark.parametrize("num_seen", [0, 3])
def test_positions_that_went_by_with_the_memory_off_are_refused(family: str, num_seen: int) -> None:
    host, attachment = attached(family)
    name = "cache_params" if family == "mamba2" else "past_key_values"
    cache = None
    with torch.no_grad():
        if num_seen:
            cache = host(random_ids(1, num_seen), use_cache=True)[name]
        with attachment.disabled():
            cache = host(random_ids(1, 4), use_cache=True, **{name: cache})[name]
            host(random_ids(1, 1), use_cache=True, **{name: cache})
        with pytest.raises(HostError, match="a cache that "):
            host(random_ids(1, 1), use_cache=True, **{name: cache})


def test_a_host_that_remembers_in_a_way_unknown_is_refused() -> None:
    config = ReformerConfig(
        **IDS,
        vocab_size=NUM_ROWS,
        hidden_size=64,
        attn_layers=["local", "local", "local"],
        is_decoder=True,
        axial_pos_embds=False,
        attention_head_size=16,
        num_attention_heads=4,
        feed_forward_size=96,
    )
    with pytest.raises(HostError, match="remembers earlier calls in past_buckets_states"):
        attach(ReformerModelWithLMHead(config), VOCABULARY, make_memory())
