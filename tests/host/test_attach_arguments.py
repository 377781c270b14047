"""What attach takes: the host's vocabulary and its prefix policy; and what it refuses, the host left alone."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from hosts import (
    LEADING_SPACE_VOCABULARY,
    NUM_ROWS,
    TOKENS,
    VOCABULARY,
    logits_of,
    make_memory,
    random_ids,
    structure,
    wake,
)
from torch import Tensor
from transformers import PreTrainedModel

from tokagnostic.errors import HostError, InvalidValueError
from tokagnostic.hashing import HashCache
from tokagnostic.hashing.polynomial import hash_bytes
from tokagnostic.host import attach
from tokagnostic.memory import JointConfig, NgramMemory
from tokagnostic.memory.file import load_memory, save_memory
from tokagnostic.tokens import TokenBytes


class TestVocabulary:
    """Ids of the host and ids of the tokenizer."""

    def test_ids_beyond_the_tokenizer_read_nothing(
        self, host: PreTrainedModel, memory: NgramMemory, keys_read: list[Tensor], caplog: pytest.LogCaptureFixture
    ) -> None:
        """T-18: a random model generates ids that its tokenizer does not know."""
        with caplog.at_level(logging.WARNING):
            attachment = wake(attach(host, VOCABULARY, memory))
        assert [record.getMessage().split()[0] for record in caplog.records] == [str(NUM_ROWS - len(TOKENS))]
        assert attachment.hasher.cache.num_ids == NUM_ROWS
        ids = torch.tensor([[2, 319, 3, 4]])
        logits_of(host, ids)
        assert (keys_read[0][0] != -1).int().tolist() == [[1, 0, 0], [0, 0, 0], [1, 0, 0], [1, 1, 0]]
        torch.manual_seed(0)
        out = host.generate(
            ids, do_sample=True, max_new_tokens=20, min_new_tokens=20, temperature=100.0, use_cache=False
        )
        assert int(out.max()) >= len(TOKENS)

    @pytest.mark.parametrize("vocabulary", [VOCABULARY, LEADING_SPACE_VOCABULARY], ids=["plain", "leading_space"])
    def test_a_cache_is_padded_to_the_hosts_rows(self, vocabulary: TokenBytes) -> None:
        cache = HashCache.build(vocabulary)
        padded = cache.padded(NUM_ROWS)
        assert padded.fingerprint == HashCache.build(vocabulary, NUM_ROWS).fingerprint
        assert padded.padded(NUM_ROWS) is padded
        assert (padded.start_steps is padded.steps) == (cache.start_steps is cache.steps)
        with pytest.raises(InvalidValueError, match="num_ids"):
            padded.padded(NUM_ROWS - 1)

    def test_a_cache_and_its_vocabulary_are_the_same_to_a_host(
        self, host: PreTrainedModel, memory: NgramMemory
    ) -> None:
        attachment = attach(host, VOCABULARY, memory)
        fingerprint = attachment.hasher.cache.fingerprint
        assert memory.hasher is attachment.hasher
        attachment.remove()
        assert attach(host, HashCache.build(VOCABULARY), memory).hasher.cache.fingerprint == fingerprint

    def test_a_tokenizer_will_do(self, host: PreTrainedModel, memory: NgramMemory) -> None:
        from tokenizers import Tokenizer, models, pre_tokenizers

        symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE({symbol: i for i, symbol in enumerate(symbols)}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        attachment = attach(host, tokenizer, memory)
        ids = torch.tensor([tokenizer.encode("ab").ids])
        table = TokenBytes.from_list([b"ab"])
        assert attachment.hasher(ids)[0, 1, 1] == HashCache.build(table).steps[0, 0]

    @pytest.mark.parametrize("make", [TokenBytes.from_list, lambda x: HashCache.build(TokenBytes.from_list(x))])
    def test_more_ids_than_rows_are_refused(self, host: PreTrainedModel, memory: NgramMemory, make: object) -> None:
        with pytest.raises(HostError, match="321 ids for a host of 320"):
            attach(host, make([b"a"] * (NUM_ROWS + 1)), memory)

    def test_the_order_of_the_memory_is_kept(self, host: PreTrainedModel) -> None:
        memory = make_memory(max_order=5)
        memory.hasher.max_order = 2
        attachment = attach(host, VOCABULARY, memory)
        assert attachment.hasher.max_order == 2
        assert attachment.reader["1"].key.in_features == memory.feature_dim == 2 * 2 * 5
        logits_of(host, random_ids())


class TestRefusals:
    """A refused attachment leaves the host as it was."""

    @pytest.mark.parametrize("layers", [(), (3,), (-1,), (1, 1), (True,), (1.0,)], ids=str)
    def test_layers_that_the_host_does_not_have(
        self, host: PreTrainedModel, memory: NgramMemory, layers: tuple[int, ...]
    ) -> None:
        before = structure(host)
        with pytest.raises(InvalidValueError, match="layers"):
            attach(host, VOCABULARY, memory, layers=layers)
        assert structure(host) == before

    @pytest.mark.parametrize("ids", [5, None, [1.0], [10**6]], ids=str)
    def test_boundaries_that_are_no_ids(self, host: PreTrainedModel, memory: NgramMemory, ids: object) -> None:
        with pytest.raises(InvalidValueError, match="boundary_ids"):
            attach(host, VOCABULARY, memory, boundary_ids=ids)

    def test_what_is_no_model_or_no_memory(self, host: PreTrainedModel, memory: NgramMemory) -> None:
        with pytest.raises(InvalidValueError, match="a memory of type str; expected an object of type NgramMemory"):
            attach(host, VOCABULARY, "memory.safetensors")
        with pytest.raises(InvalidValueError, match="a model of type NoneType"):
            attach(None, VOCABULARY, memory)

    @pytest.mark.parametrize("layers", [(0,), (0, 1, 2)], ids=str)
    def test_another_number_of_layers_than_of_tables(self, host: PreTrainedModel, layers: tuple[int, ...]) -> None:
        before = structure(host)
        with pytest.raises(InvalidValueError, match="2 tables"):
            attach(host, VOCABULARY, make_memory(num_tables=2), layers=layers)
        assert structure(host) == before

    @pytest.mark.parametrize(
        "wrong", [{"gate": "tanh"}, {"conv_kernel": -4}, {"conv_kernel": 65}, {"conv_kernel": 10**6}], ids=str
    )
    def test_a_reader_that_is_not_available(
        self, host: PreTrainedModel, memory: NgramMemory, wrong: dict[str, object]
    ) -> None:
        before, hasher = structure(host), memory.hasher
        with pytest.raises(InvalidValueError, match=next(iter(wrong))):
            attach(host, VOCABULARY, memory, **wrong)
        assert structure(host) == before
        assert memory.hasher is hasher

    def test_a_second_memory(self, host: PreTrainedModel, memory: NgramMemory) -> None:
        attachment = attach(host, VOCABULARY, memory)
        for model in (host, host.model):
            with pytest.raises(HostError, match="already"):
                attach(model, VOCABULARY, make_memory())
        attachment.remove()
        attach(host, VOCABULARY, memory)

    def test_removing_after_somebody_else_changed_the_host(self, host: PreTrainedModel, memory: NgramMemory) -> None:
        attachment = attach(host, VOCABULARY, memory)
        layer = host.model.layers[1]
        ours = type(layer)
        layer.__class__ = type("Sharded", (ours,), {})
        with pytest.raises(HostError, match="Sharded"):
            attachment.remove()
        assert attachment.attached
        layer.__class__ = ours
        attachment.remove()
        assert not attachment.attached


class TestPrefixPolicy:
    """A memory's keys are those of the policy it was trained by, whatever stands for the host's tokenizer."""

    MEMORY = JointConfig(num_rows=11, num_heads=1, dim=2)

    def test_a_tokenizer_is_bound_by_the_policy_of_the_memory(self, host: PreTrainedModel) -> None:
        memory = self.MEMORY.build(HashCache.build(LEADING_SPACE_VOCABULARY, prefix="keep"))
        attachment = attach(host, LEADING_SPACE_VOCABULARY, memory)
        keys = attachment.hasher(torch.tensor([[TOKENS.index(b" in")]]))
        assert keys[0, 0, 0].item() == hash_bytes(b" in")

    def test_a_cache_of_another_law_is_refused(
        self, host: PreTrainedModel, memory: NgramMemory, tmp_path: Path
    ) -> None:
        """Its keys are as good as random to the memory, which would read them all the same."""
        before, cache = structure(host), HashCache.build_check(VOCABULARY)
        save_memory(memory, tmp_path / "memory.safetensors")
        for use in (lambda: attach(host, cache, memory), lambda: load_memory(tmp_path / "memory.safetensors", cache)):
            with pytest.raises(InvalidValueError, match=r"bases \(1414213564, 1618033989\); expected .* poly31x2"):
                use()
        assert structure(host) == before

    def test_a_cache_of_the_other_policy_is_refused(self, host: PreTrainedModel) -> None:
        memory = self.MEMORY.build(HashCache.build(LEADING_SPACE_VOCABULARY, prefix="keep"))
        with pytest.raises(InvalidValueError, match="prefix policy 'strip'"):
            attach(host, HashCache.build(LEADING_SPACE_VOCABULARY), memory)
