"""Hosts whose weights are not what their names say, and processes that cannot share a table: refused with the reason."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from hosts import VOCABULARY, logits_of, random_ids, structure, wake
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
    LlamaModel,
    PreTrainedModel,
)

from tokagnostic.errors import HostError
from tokagnostic.host import attach, attachment_of
from tokagnostic.memory import NgramMemory

IDS = random_ids()


@pytest.fixture
def one_process() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def loaded_in_four_bits(host: PreTrainedModel) -> nn.Module:
    """As transformers leaves a host whose quantizer has taken its layers over."""
    host.hf_quantizer = SimpleNamespace(quantization_config=SimpleNamespace(quant_method="bitsandbytes"))
    return host


def packed_by_hand(host: PreTrainedModel) -> nn.Module:
    """Two weights to a byte, and nothing else that tells."""
    host.model.layers[0].mlp.up_proj.weight = nn.Parameter(torch.zeros(48, 64, dtype=torch.uint8), requires_grad=False)
    return host


def quantized_by_torch(host: PreTrainedModel) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(host, {nn.Linear}, dtype=torch.qint8)


def sharded_by_layers(host: PreTrainedModel) -> nn.Module:
    mesh = init_device_mesh("cpu", (1,))
    for layer in host.model.layers:
        fully_shard(layer, mesh=mesh)
    return host


def sharded_in_one_tensor(host: PreTrainedModel) -> nn.Module:
    mesh = init_device_mesh("cpu", (1,))
    weight = host.model.layers[2].mlp.up_proj
    weight.weight = nn.Parameter(distribute_tensor(weight.weight.detach(), mesh))
    return host


def sharded_by_wrapping(host: PreTrainedModel) -> nn.Module:
    return FullyShardedDataParallel(host, device_id=torch.device("cpu"), use_orig_params=True)


def sharded_by_deepspeed(host: PreTrainedModel) -> nn.Module:
    """ZeRO-3 leaves placeholders without numbers, which know their shape by another name."""
    for number, parameter in enumerate(host.parameters()):
        parameter.ds_id, parameter.ds_shape = number, parameter.shape
        parameter.data = torch.empty(0)
    return host


def state(host: nn.Module) -> tuple[object, ...]:
    """What attaching would change."""
    return (
        [type(module) for module in host.modules()],
        [name for name, _ in host.named_parameters()],
        getattr(host, "_keys_to_ignore_on_save", None),
    )


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (loaded_in_four_bits, "quantised by bitsandbytes"),
        (packed_by_hand, r"layers.0.mlp.up_proj.weight of torch.uint8"),
        (quantized_by_torch, "q_proj of torch.ao.nn.quantized"),
        (sharded_by_layers, "layers.0.self_attn.q_proj.weight is a DTensor"),
        (sharded_in_one_tensor, "layers.2.mlp.up_proj.weight is a DTensor"),
        (sharded_by_wrapping, "FullyShardedDataParallel"),
        (sharded_by_deepspeed, "embed_tokens.weight is a placeholder of DeepSpeed"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_quantised_or_sharded_host_is_refused_and_left_as_it_was(
    host: PreTrainedModel,
    memory: NgramMemory,
    one_process: None,
    change: Callable[[PreTrainedModel], nn.Module],
    message: str,
) -> None:
    changed = change(host)
    before, hasher, table = state(changed), memory.hasher, memory.store.tables[0].detach().clone()
    with pytest.raises(HostError, match=message) as caught:
        attach(changed, VOCABULARY, memory)
    assert "\n" not in str(caught.value) and "attach" in caught.value.remedy
    assert state(changed) == before
    assert memory.hasher is hasher and torch.equal(memory.store.tables[0], table)
    assert attachment_of(changed) is None


def split_over_a_mesh(host: PreTrainedModel) -> nn.Module:
    plan = {"model.layers.*.mlp.up_proj": ColwiseParallel(), "model.layers.*.mlp.down_proj": RowwiseParallel()}
    return parallelize_module(host, init_device_mesh("cpu", (1,)), plan)


@pytest.mark.parametrize("change", [sharded_in_one_tensor, split_over_a_mesh, sharded_by_wrapping])
def test_a_host_that_is_sharded_after_attaching_is_refused_at_the_next_call(
    host: PreTrainedModel, memory: NgramMemory, one_process: None, change: Callable[[PreTrainedModel], nn.Module]
) -> None:
    wake(attach(host, VOCABULARY, memory.freeze()))
    logits_of(host, IDS)
    changed = change(host)
    with pytest.raises(HostError, match="was sharded after the memory was attached") as caught:
        logits_of(changed, IDS)
    assert "\n" not in str(caught.value)


class TestModelsThatPredictNoNextToken:
    """Refused with the reason, and left as they were."""

    SIZES: ClassVar[dict[str, int]] = {
        "vocab_size": 320,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda sizes: BertForMaskedLM(BertConfig(**sizes)), "predicts no next token"),
            (lambda sizes: BertLMHeadModel(BertConfig(**sizes)), "looks at tokens to come"),
            (
                lambda sizes: Gemma3ForCausalLM(
                    Gemma3TextConfig(**sizes, head_dim=16, intermediate_size=32, use_bidirectional_attention=True)
                ),
                "looks at tokens to come",
            ),
            (lambda sizes: LlamaForSequenceClassification(LlamaConfig(**sizes, pad_token_id=0)), "no next token"),
            (lambda sizes: LlamaForTokenClassification(LlamaConfig(**sizes)), "no next token"),
            (lambda sizes: LlamaModel(LlamaConfig(**sizes)), "attach to the whole model"),
        ],
        ids=["masked", "not_a_decoder", "both_ways", "classifier", "tagger", "bare_decoder"],
    )
    def test_by_its_kind(
        self, memory: NgramMemory, make: Callable[[dict[str, int]], PreTrainedModel], message: str
    ) -> None:
        model, hasher = make(self.SIZES), memory.hasher
        before = structure(model)
        with pytest.raises(HostError, match=message):
            attach(model, VOCABULARY, memory, layers=(0,))
        assert structure(model) == before and memory.hasher is hasher

    def test_a_decoder_of_that_family_is_served(self, memory: NgramMemory) -> None:
        wake(attach(BertLMHeadModel(BertConfig(**self.SIZES, is_decoder=True)).eval(), VOCABULARY, memory))


class TestDataParallel:
    """Gradients of a table are sparse, and data-parallel training exchanges dense ones."""

    def test_a_trainable_table_is_refused_before_anything_is_computed(
        self, host: PreTrainedModel, memory: NgramMemory, one_process: None
    ) -> None:
        attach(host, VOCABULARY, memory)
        wrapped = DistributedDataParallel(host)
        computed: list[object] = []
        host.model.embed_tokens.register_forward_hook(lambda *_: computed.append(1))
        with pytest.raises(HostError, match="trainable table under DistributedDataParallel") as caught:
            wrapped(input_ids=IDS, labels=IDS, use_cache=False)
        assert "freeze" in caught.value.remedy and computed == []

    def test_what_exchanges_nothing_is_served(
        self, host: PreTrainedModel, memory: NgramMemory, one_process: None
    ) -> None:
        attachment = wake(attach(host, VOCABULARY, memory))
        expected = logits_of(host, IDS)
        wrapped = DistributedDataParallel(host)
        assert torch.equal(logits_of(wrapped, IDS), expected)
        with attachment.disabled():
            assert wrapped(input_ids=IDS).logits.requires_grad

    def test_a_table_that_is_kept_out_of_the_exchange_is_trained(
        self, host: PreTrainedModel, memory: NgramMemory, one_process: None
    ) -> None:
        wake(attach(host, VOCABULARY, memory))
        (name,) = (name for name, parameter in host.named_parameters() if parameter is memory.store.tables[0])
        host._ddp_params_and_buffers_to_ignore = [name]
        DistributedDataParallel(host)(input_ids=IDS, labels=IDS, use_cache=False).loss.backward()
        assert memory.store.tables[0].grad.is_sparse

    def test_a_frozen_table_is_trained_around(
        self, host: PreTrainedModel, memory: NgramMemory, one_process: None
    ) -> None:
        attachment = wake(attach(host, VOCABULARY, memory.freeze()))
        alone = copy.deepcopy(host)
        alone(input_ids=IDS, labels=IDS, use_cache=False).loss.backward()
        DistributedDataParallel(host)(input_ids=IDS, labels=IDS, use_cache=False).loss.backward()
        for (name, weight), other in zip(
            attachment.reader.named_parameters(), attachment_of(alone).reader.parameters(), strict=True
        ):
            assert torch.equal(weight.grad, other.grad), name

    def test_a_memory_that_is_switched_off_for_a_step_stops_nothing(
        self, host: PreTrainedModel, memory: NgramMemory, one_process: None
    ) -> None:
        """M-06: on, off, on; in between the reader has a gradient of zero, and the host that of a plain one."""
        attachment = wake(attach(host, VOCABULARY, memory.freeze()))
        plain = copy.deepcopy(host)
        attachment_of(plain).remove()
        expected = plain(input_ids=IDS, labels=IDS, use_cache=False).loss
        expected.backward()
        wrapped = DistributedDataParallel(host)
        for off in (False, True, False):
            host.zero_grad()
            with attachment.disabled() if off else nullcontext():
                loss = wrapped(input_ids=IDS, labels=IDS, use_cache=False).loss
            loss.backward()
            lengths = {float(parameter.grad.norm()) for parameter in attachment.reader.parameters()}
            assert (lengths == {0.0}) == off
            if off:
                assert torch.equal(loss, expected)
                for one, other in zip(host.model.parameters(), plain.model.parameters(), strict=True):
                    assert torch.equal(one.grad, other.grad)


class TestFullyShard:
    """M-05: the host in shards, a table whole."""

    @staticmethod
    def shard(host: PreTrainedModel, ignored: set[nn.Parameter]) -> None:
        mesh = init_device_mesh("cpu", (1,))
        for layer in host.model.layers:
            fully_shard(layer, mesh=mesh, ignored_params=ignored)
        fully_shard(host, mesh=mesh, ignored_params=ignored)

    @pytest.mark.parametrize("frozen", [True, False])
    def test_a_table_in_the_shards_is_refused_with_the_setting_that_leaves_it_out(
        self, host: PreTrainedModel, memory: NgramMemory, one_process: None, frozen: bool
    ) -> None:
        attach(host, VOCABULARY, memory.requires_grad_(not frozen))
        self.shard(host, set())
        with pytest.raises(HostError, match="table that fully_shard has sharded") as caught:
            host(input_ids=IDS, labels=IDS, use_cache=False)
        assert "ignored_params=set(attachment.memory.parameters())" in caught.value.remedy

    def test_a_table_that_is_left_out_is_read_and_takes_no_memory_for_gradients(
        self, host: PreTrainedModel, memory: NgramMemory, one_process: None
    ) -> None:
        attachment = wake(attach(host, VOCABULARY, memory.freeze()))
        expected = logits_of(host, IDS)
        self.shard(host, set(attachment.memory.parameters()))
        host(input_ids=IDS, labels=IDS, use_cache=False).loss.backward()
        (table,) = memory.store.tables
        assert type(table) is nn.Parameter and table.grad is None
        assert all(parameter.grad is not None for parameter in attachment.reader.parameters())
        torch.testing.assert_close(logits_of(host, IDS), expected)
