"""What every kind of memory promises: a new kind is done when it passes this file unchanged."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import pytest
import torch

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing.windows_numba import WindowStream
from tokagnostic.host.history import History
from tokagnostic.memory import MemoryConfig, NgramMemory, load_memory, memory_kinds, save_memory

BY_BYTES = [kind for kind in memory_kinds() if MemoryConfig.from_dict({"kind": kind}).by_bytes]


def through_pickle(value):
    return pickle.loads(pickle.dumps(value))


@pytest.fixture
def memory(kind: str, make_memory) -> NgramMemory:
    return make_memory(kind)


@pytest.mark.parametrize("kind", memory_kinds())
class TestEveryKind:
    def test_sees_no_future(self, memory, ids):
        changed = ids.clone()
        changed[:, 5:] = 0
        assert torch.equal(memory(changed)[:, :5], memory(ids)[:, :5])
        assert not torch.equal(memory(changed)[:, 5:], memory(ids)[:, 5:])

    def test_nothing_crosses_a_document_start(self, memory, ids):
        starts = torch.zeros_like(ids, dtype=torch.bool)
        starts[:, 0] = starts[:, 5] = True
        whole = memory(ids, starts)
        assert torch.equal(whole[:, :5], memory(ids[:, :5]))
        assert torch.equal(whole[:, 5:], memory(ids[:, 5:]))

    def test_nothing_crosses_an_id_without_bytes(self, memory, ids):
        assert torch.equal(memory(ids)[:1, 5:], memory(ids[:1, 5:]))
        masked = torch.where(torch.arange(9) == 4, -100, ids)
        assert torch.equal(memory(masked)[:, 5:], memory(ids[:, 5:]))

    def test_missing_windows_give_exactly_zero(self, memory, ids):
        features = memory(ids).view(*ids.shape, memory.max_order, -1)
        exists = memory.hasher(ids) >= 0
        assert exists.any() and not exists.all()
        assert torch.equal(features != 0, exists.unsqueeze(-1).expand_as(features))

    def test_streaming_keys_equal_whole(self, memory, ids):
        starts = torch.zeros_like(ids, dtype=torch.bool)
        starts[:, 0] = starts[1, 4] = True
        whole = memory.hasher(ids, starts)
        hasher, history = memory.hasher, None
        for begin, end in [(0, 1), (1, 1), (1, 2), (2, 6), (6, 9)]:
            piece, flags = ids[:, begin:end], starts[:, begin:end]
            before = None if history is None else history.last_waiting
            keys, waiting = hasher(piece, flags, history), hasher.waiting(piece, flags, before)
            assert torch.equal(keys, whole[:, begin:end])
            if history is None:
                history = History.of(0, piece, flags, keys, waiting)
            else:
                history = history.extended(piece, flags, keys, waiting)
        assert torch.equal(memory.features_of(whole), memory(ids, starts))

    def test_features_have_the_stated_width(self, memory, ids):
        assert memory(ids).shape == (2, 9, memory.feature_dim)
        assert memory(ids[:, :0]).shape == (2, 0, memory.feature_dim)
        assert memory.rows(memory.hasher(ids)).shape == (2, 9, memory.max_order, memory.addresser.num_heads)

    def test_parameters_live_in_the_store(self, memory):
        assert {name.split(".")[0] for name, _ in memory.named_parameters()} == {"store"}
        assert not list(memory.named_buffers())

    def test_everything_but_the_rows_is_integer_and_no_cast_reaches_it(self, memory, ids):
        """M-13: rows are the same before and after any cast of the module."""
        rows = memory.rows(memory.hasher(ids))
        for dtype in (torch.bfloat16, torch.float16, torch.float64):
            memory.to(dtype)
            assert torch.equal(memory.rows(memory.hasher(ids)), rows)
            assert rows.dtype == memory.visits[0].counts.dtype == torch.int64
            assert memory(ids).dtype == dtype

    def test_rows_not_looked_up_get_no_gradient(self, memory, ids):
        """M-02: the gradient holds no entry for them, not even a zero."""
        memory.train()
        memory(ids).square().sum().backward()
        gradient = memory.store.tables[0].grad.coalesce()
        rows = memory.rows(memory.hasher(ids))
        assert gradient.is_sparse
        assert gradient.indices()[0].tolist() == rows[rows >= 0].unique().tolist()

    def test_a_frozen_memory_gets_no_gradient_and_counts_nothing(self, memory, ids):
        memory.freeze().train()
        assert memory.frozen
        assert not memory(ids).requires_grad
        assert not memory.visits[0].counts.any()

    def test_training_counts_every_row_that_was_read(self, memory, ids):
        memory.train()
        memory(ids)
        memory(ids)
        memory.eval()
        memory(ids)
        rows = memory.rows(memory.hasher(ids))
        expected = 2 * torch.bincount(rows[rows >= 0], minlength=memory.addresser.num_rows[0])
        assert torch.equal(memory.visits[0].counts, expected)

    @pytest.mark.parametrize("copied", [copy.deepcopy, through_pickle], ids=["copy", "pickle"])
    def test_a_copy_of_it_can_be_trained(self, memory, ids, copied):
        again = copied(memory.train())
        again(ids, layer=1).sum().backward()
        assert torch.equal(again(ids, layer=1), memory(ids, layer=1))
        assert torch.equal(again.visits[1].counts, 2 * memory.visits[1].counts)
        assert again.store.tables[1].grad is not None and memory.store.tables[1].grad is None

    def test_layers_read_their_own_table_or_the_shared_one(self, kind, make_memory, ids):
        own, shared = make_memory(kind, num_tables=2), make_memory(kind, num_tables=1)
        assert not torch.equal(own(ids, layer=0), own(ids, layer=1))
        assert torch.equal(shared(ids, layer=0), shared(ids, layer=5))
        with pytest.raises(InvalidValueError, match="layer 2 of a memory with 2 tables"):
            own(ids, layer=2)

    def test_building_is_reproducible_and_leaves_the_global_generator_alone(self, kind, make_memory, ids):
        state = torch.random.get_rng_state()
        first, second, other = make_memory(kind), make_memory(kind), make_memory(kind, seed=1)
        assert torch.equal(torch.random.get_rng_state(), state)
        assert torch.equal(first(ids), second(ids))
        assert not torch.equal(first(ids), other(ids))

    def test_its_config_survives_json(self, memory):
        values = json.loads(json.dumps(memory.config.to_dict()))
        assert MemoryConfig.from_dict(values) == memory.config

    @pytest.mark.parametrize("value", [1e6, True, False, "1000003", None, 0, -1, [5], {}, float("nan")], ids=repr)
    def test_its_config_refuses_what_is_no_whole_number(self, memory, value):
        """H-06: a float from JSON, a bool and a text are never taken for a size."""
        for field in dataclasses.fields(memory.config):
            if type(getattr(memory.config, field.name)) is int and not (field.name == "seed" and value == 0):
                with pytest.raises(InvalidValueError, match=field.name):
                    MemoryConfig.from_dict({**memory.config.to_dict(), field.name: value})

    @pytest.mark.parametrize("value", [True, "0.02", None, -0.1, float("nan"), float("inf"), []], ids=repr)
    def test_its_config_refuses_what_is_no_number(self, memory, value):
        for field in dataclasses.fields(memory.config):
            if type(getattr(memory.config, field.name)) is float:
                with pytest.raises(InvalidValueError, match=field.name):
                    MemoryConfig.from_dict({**memory.config.to_dict(), field.name: value})

    def test_its_config_refuses_unknown_fields(self, memory):
        with pytest.raises(InvalidValueError, match="'num_row'"):
            MemoryConfig.from_dict({**memory.config.to_dict(), "num_row": 5})

    @pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "copied"])
    def test_its_file_brings_it_back_bit_by_bit(self, memory, ids, cache, tmp_path, mapped):
        memory.train()
        memory(ids)
        save_memory(memory, tmp_path / "memory.safetensors")
        again = load_memory(tmp_path / "memory.safetensors", cache, mapped=mapped)
        assert again.config == memory.config and again.frozen
        for layer in range(memory.num_tables):
            assert torch.equal(again(ids, layer=layer), memory(ids, layer=layer))
            assert torch.equal(again.store.tables[layer], memory.store.tables[layer])
        save_memory(again, tmp_path / "again.safetensors")
        assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "memory.safetensors").read_bytes()


@pytest.mark.parametrize("kind", BY_BYTES)
class TestEveryKindAddressedByBytes:
    """What only a memory can promise whose rows know nothing but bytes."""

    def test_equal_bytes_have_equal_rows_under_any_tokenizer(self, kind, make_memory, vocabulary, other_vocabulary):
        """One tokenizer needs three tokens for a word, the other one."""
        whole, parts = other_vocabulary.encode(b"internal"), vocabulary.encode(b"internal")
        assert (len(whole), len(parts)) == (1, 3)
        mine, other = make_memory(kind, vocabulary.cache), make_memory(kind, other_vocabulary.cache)
        for layer in range(mine.num_tables):
            three = mine.rows(mine.hasher(torch.tensor([parts])), layer)[0, -1, 2]
            one = other.rows(other.hasher(torch.tensor([whole])), layer)[0, -1, 0]
            assert three.tolist() == one.tolist()

    def test_the_same_windows_of_two_tokenizers_read_the_same(self, kind, make_memory, vocabulary, other_vocabulary):
        text = b"internal the memory \x00\xff"
        found = []
        for words in (vocabulary, other_vocabulary):
            memory = make_memory(kind, words.cache, max_order=1)
            ids = words.encode(text)
            features = memory(torch.tensor([ids]))[0]
            found.append({words.tokens[v]: features[t].tolist() for t, v in enumerate(ids)})
        common = found[0].keys() & found[1].keys()
        assert {b"\x00", b"\xff"} <= common
        assert all(found[0][piece] == found[1][piece] for piece in common)

    def test_streaming_keys_equal_whole(self, memory, ids):
        stream = WindowStream(memory.hasher.cache, memory.max_order)
        parts = [stream.push(ids[0, begin:end].numpy()) for begin, end in [(0, 1), (1, 1), (1, 2), (2, 6), (6, 9)]]
        keys = torch.cat([torch.from_numpy(part) for part in parts])
        assert torch.equal(keys, memory.hasher(ids)[0])
        assert torch.equal(memory.features_of(keys.unsqueeze(0)), memory(ids[:1]))


@pytest.mark.parametrize("kind", ["nothing", None, 3, ["joint"], ""], ids=repr)
def test_an_unknown_kind_is_refused(kind):
    with pytest.raises(InvalidValueError, match="memory kind"):
        MemoryConfig.from_dict({"kind": kind})
