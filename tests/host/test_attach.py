"""What attaching promises, for every family of hosts."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from hosts import (
    EOS,
    LEADING_SPACE_VOCABULARY,
    RECURRENT,
    VOCABULARY,
    digest,
    logits_of,
    make_memory,
    random_ids,
    structure,
    wake,
)
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from tokagnostic.errors import HostError, InvalidValueError
from tokagnostic.host import attach
from tokagnostic.host.counting import MOST_WAITING
from tokagnostic.memory import NgramMemory


class TestEveryFamily:
    """The contract of a host: a family is supported when it passes this class unchanged."""

    def test_a_fresh_attachment_changes_no_logit(self, family_host: PreTrainedModel, memory: NgramMemory) -> None:
        ids, mask = random_ids(), torch.tensor([[0, 0, *[1] * 7], [1] * 9])
        before, masked_before = logits_of(family_host, ids), logits_of(family_host, ids, attention_mask=mask)
        attach(family_host, VOCABULARY, memory, layers=(0, 2))
        assert torch.equal(logits_of(family_host, ids), before)
        assert torch.equal(logits_of(family_host, ids, attention_mask=mask), masked_before)

    def test_a_trained_reader_is_heard(self, family_host: PreTrainedModel, memory: NgramMemory) -> None:
        before = logits_of(family_host, random_ids())
        wake(attach(family_host, VOCABULARY, memory))
        assert not torch.allclose(logits_of(family_host, random_ids()), before, atol=1e-2)

    def test_names_of_the_host_stay_and_ours_are_apart(self, family_host: PreTrainedModel, memory: NgramMemory) -> None:
        """M-12: of the hash arrays nothing is saved, and nothing is a buffer."""
        before, buffers = list(family_host.state_dict()), len(list(family_host.buffers()))
        attach(family_host, VOCABULARY, memory, layers=(1, 2))
        names = list(family_host.state_dict())
        weights = ("key.weight", "value.weight", "key_norm.weight", "query_norm.weight")
        ours = [f"tokagnostic.reader.{layer}.{weight}" for layer in (1, 2) for weight in weights]
        assert names == [*before, "tokagnostic.memory.store.tables.0", *ours]
        assert len(list(family_host.buffers())) == buffers

    def test_removing_restores_the_host_exactly(self, family_host: PreTrainedModel, memory: NgramMemory) -> None:
        logits, before, state = (
            logits_of(family_host, random_ids()),
            structure(family_host),
            list(family_host.state_dict()),
        )
        ignored, hasher = family_host._keys_to_ignore_on_save, memory.hasher
        attachment = wake(attach(family_host, VOCABULARY, memory, layers=(0, 1)))
        logits_of(family_host, random_ids())
        assert structure(family_host) != before
        for _ in range(2):
            attachment.remove()
            assert structure(family_host) == before
            assert list(family_host.state_dict()) == state
            assert family_host._keys_to_ignore_on_save is ignored
            assert memory.hasher is hasher
            assert torch.equal(logits_of(family_host, random_ids()), logits)
        wake(attach(family_host, VOCABULARY, memory))
        assert not torch.equal(logits_of(family_host, random_ids()), logits)

    def test_off_is_as_if_there_were_no_memory(self, family_host: PreTrainedModel, memory: NgramMemory) -> None:
        before = logits_of(family_host, random_ids())
        attachment = wake(attach(family_host, VOCABULARY, memory))
        on = logits_of(family_host, random_ids())
        with attachment.disabled():
            with pytest.raises(KeyError), attachment.disabled():
                raise KeyError
            assert torch.equal(logits_of(family_host, random_ids()), before)
            embeddings = family_host.get_input_embeddings()(random_ids())
            with torch.no_grad():
                torch.testing.assert_close(family_host(inputs_embeds=embeddings).logits, before)
        assert torch.equal(logits_of(family_host, random_ids()), on)

    @pytest.mark.parametrize("shard_size", ["1GB", "100KB"])
    def test_the_host_saves_itself_and_nothing_else(
        self, family_host: PreTrainedModel, memory: NgramMemory, tmp_path: Path, shard_size: str
    ) -> None:
        family_host.save_pretrained(tmp_path / "before", max_shard_size=shard_size)
        before = logits_of(family_host, random_ids())
        wake(attach(family_host, VOCABULARY, memory))
        family_host.save_pretrained(tmp_path / "after", max_shard_size=shard_size)
        files = sorted(path.name for path in (tmp_path / "before").iterdir())
        assert sorted(path.name for path in (tmp_path / "after").iterdir()) == files
        assert ("model.safetensors" in files) == (shard_size == "1GB")
        for name in files:
            if name.endswith(".safetensors"):
                assert (tmp_path / "after" / name).read_bytes() == (tmp_path / "before" / name).read_bytes()
        again, report = AutoModelForCausalLM.from_pretrained(tmp_path / "after", output_loading_info=True)
        assert not any(report.values())
        assert isinstance(family_host, type(again))
        # The files are equal byte for byte; how tensors lie in memory may still change the last bit of a sum.
        torch.testing.assert_close(logits_of(again.eval(), random_ids()), before, atol=1e-5, rtol=1e-5)

    def test_no_logit_depends_on_later_ids(self, family_host: PreTrainedModel, memory: NgramMemory) -> None:
        wake(attach(family_host, VOCABULARY, memory, layers=(0, 1)))
        ids = random_ids(2, 13)
        changed = ids.clone()
        changed[:, 6:] = random_ids(2, 7, seed=9)
        before, after = logits_of(family_host, ids), logits_of(family_host, changed)
        torch.testing.assert_close(after[:, :6], before[:, :6], atol=1e-4, rtol=0)
        assert not torch.allclose(after[:, 6], before[:, 6], atol=1e-2)

    @pytest.mark.parametrize("positions_given", [True, False], ids=["positions", "no_positions"])
    @pytest.mark.parametrize("side", ["left", "right"])
    @pytest.mark.parametrize("pad_id", [EOS, 2], ids=["pad_is_eos", "pad_is_text"])
    def test_padding_changes_nothing(
        self,
        family_host: PreTrainedModel,
        memory: NgramMemory,
        keys_read: list[Tensor],
        pad_id: int,
        side: str,
        positions_given: bool,
    ) -> None:
        """H-11, H-12: prompts of 3 and 9 tokens in one batch; the first token has a space that the tokenizer invented."""
        wake(attach(family_host, LEADING_SPACE_VOCABULARY, memory))
        short, long = random_ids(1, 3, seed=1), random_ids(1, 9, seed=2)
        short[0, 0], long[0, 0] = 4, 5
        pads, ones = torch.full((1, 6), pad_id), torch.ones(1, 3, dtype=torch.int64)
        row = [pads, short] if side == "left" else [short, pads]
        mask_row = [torch.zeros_like(pads), ones] if side == "left" else [ones, torch.zeros_like(pads)]
        ids = torch.cat([torch.cat(row, dim=1), long])
        mask = torch.cat([torch.cat(mask_row, dim=1), torch.ones(1, 9, dtype=torch.int64)])
        arguments = {"attention_mask": mask}
        if positions_given:
            arguments["position_ids"] = (mask.cumsum(1) - 1).masked_fill(mask == 0, 1)
        logits = logits_of(family_host, ids, **arguments)
        single = [logits_of(family_host, short), logits_of(family_host, long)]
        batch_keys, short_keys, long_keys = keys_read
        real = slice(6, 9) if side == "left" else slice(0, 3)
        assert torch.equal(batch_keys[0, real], short_keys[0])
        assert torch.equal(batch_keys[1], long_keys[0])
        assert batch_keys[0][mask[0] == 0].eq(-1).all()
        assert short_keys[0, :, 0].ne(-1).all()
        # Hosts with learned positions need them given, with or without a memory.
        if positions_given or side == "right" or family_host.config.model_type != "gpt2":
            torch.testing.assert_close(logits[0, real], single[0][0], atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(logits[1], single[1][0], atol=1e-3, rtol=1e-3)

    def test_packed_documents_read_as_if_alone(
        self, family_host: PreTrainedModel, memory: NgramMemory, keys_read: list[Tensor]
    ) -> None:
        """H-14: boundaries by positions that restart."""
        wake(attach(family_host, LEADING_SPACE_VOCABULARY, memory))
        documents = [random_ids(1, length, seed=length) for length in (4, 1, 6)]
        for document in documents:
            document[0, 0] = 5
        positions = torch.cat([torch.arange(document.shape[1]) for document in documents])[None]
        # Hosts divide their attention by positions only where no cache is asked for.
        packed = logits_of(family_host, torch.cat(documents, dim=1), position_ids=positions, use_cache=False)
        alone = [logits_of(family_host, document) for document in documents]
        assert torch.equal(keys_read[0], torch.cat(keys_read[1:], dim=1))
        if family_host.config.model_type in RECURRENT:
            return  # its own states run on from one document into the next
        torch.testing.assert_close(packed, torch.cat(alone, dim=1), atol=1e-3, rtol=1e-3)

    def test_generation_without_a_cache_equals_whole_calls(
        self, family_host: PreTrainedModel, memory: NgramMemory
    ) -> None:
        wake(attach(family_host, VOCABULARY, memory))
        prompt = random_ids(1, 5)
        out = family_host.generate(prompt, max_new_tokens=4, min_new_tokens=4, do_sample=False, use_cache=False)
        ids = prompt
        for _ in range(4):
            logits = logits_of(family_host, ids)[:, -1]
            logits[:, EOS] = -torch.inf
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
        assert out.tolist() == ids.tolist()

    def test_generation_of_a_padded_batch_equals_single_ones(
        self, family_host: PreTrainedModel, memory: NgramMemory
    ) -> None:
        """H-12: greedy continuation of a left-padded batch whose padding is eos."""
        wake(attach(family_host, VOCABULARY, memory))
        short, long = random_ids(1, 3, seed=1), random_ids(1, 9, seed=2)
        ids = torch.cat([torch.cat([torch.full((1, 6), EOS), short], dim=1), long])
        settings = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "use_cache": False}
        out = family_host.generate(ids, attention_mask=(ids != EOS).long(), **settings)
        for row, prompt in zip(out, (short, long), strict=True):
            alone = family_host.generate(prompt, attention_mask=torch.ones_like(prompt), **settings)
            assert row[-4:].tolist() == alone[0, -4:].tolist()

    def test_embeddings_without_ids_are_refused_before_anything_is_computed(
        self, family_host: PreTrainedModel, memory: NgramMemory
    ) -> None:
        """H-19: first with ids, then with embeddings of another length: never the ids of the call before."""
        attach(family_host, VOCABULARY, memory)
        logits_of(family_host, random_ids())
        computed: list[int] = []
        for module in family_host.modules():
            if not list(module.children()):
                module.register_forward_pre_hook(lambda *_: computed.append(1))
        with pytest.raises(HostError, match="inputs_embeds"):
            family_host(inputs_embeds=torch.zeros(1, 4, 64))
        assert computed == []

    @pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
    @pytest.mark.parametrize("use_reentrant", [False, True], ids=["saved tensors", "reentrant"])
    @pytest.mark.parametrize("conv_kernel", [0, 4], ids=["no conv", "conv"])
    def test_gradients_are_the_same_with_checkpointing(
        self, family_host: PreTrainedModel, memory: NgramMemory, use_reentrant: bool, conv_kernel: int
    ) -> None:
        """M-15: two forwards, of different lengths, before one backward."""
        attachment = wake(attach(family_host, VOCABULARY, memory, layers=(0, 2), conv_kernel=conv_kernel))
        for layer in attachment.reader.values():
            if layer.conv is not None:
                torch.nn.init.normal_(layer.conv.weight, std=0.5)
        family_host.train()

        def gradients() -> dict[str, torch.Tensor]:
            family_host.zero_grad()
            losses = [
                family_host(ids, labels=ids, use_cache=False).loss
                for ids in (random_ids(2, 9), random_ids(2, 5, seed=7))
            ]
            (losses[0] - 2 * losses[1]).backward()
            return {name: p.grad.to_dense().clone() for name, p in family_host.named_parameters() if p.grad is not None}

        expected = gradients()
        family_host.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        found = gradients()
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, msg=name, atol=1e-5, rtol=1e-4)

    def test_hidden_states_can_still_be_recorded(self, family_host: PreTrainedModel, memory: NgramMemory) -> None:
        plain = family_host(random_ids(), output_hidden_states=True).hidden_states
        wake(attach(family_host, VOCABULARY, memory, layers=(2,)))
        states = family_host(random_ids(), output_hidden_states=True).hidden_states
        assert len(states) == len(plain) == 4
        assert torch.equal(states[2], plain[2])
        assert not torch.equal(states[3], plain[3])

    def test_a_frozen_memory_is_bit_equal_after_training(
        self, family_host: PreTrainedModel, memory: NgramMemory
    ) -> None:
        """M-02: weight decay 0.1 set globally, every trainable parameter in AdamW."""
        attachment = attach(family_host, VOCABULARY, memory.freeze())
        before, reader = digest(memory), digest(attachment.reader)
        family_host.train()
        optimizer = torch.optim.AdamW(
            [p for p in family_host.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.1
        )
        for step in range(2):
            ids = random_ids(seed=step)
            family_host(ids, labels=ids, use_cache=False).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        assert all(torch.equal(value, before[name]) for name, value in memory.state_dict().items())
        assert not any(torch.equal(value, reader[name]) for name, value in attachment.reader.state_dict().items())
        assert memory.visits[0].counts.sum() == 0


def test_rows_that_were_not_looked_up_do_not_move(host: PreTrainedModel, memory: NgramMemory) -> None:
    """M-02: the table's group goes to an optimizer of sparse gradients."""
    attachment = wake(attach(host, VOCABULARY, memory))
    host.train()
    (group,) = [group for group in attachment.parameter_groups(1e-2) if group["rowwise"]]
    optimizer = torch.optim.SparseAdam(group["params"], lr=group["lr"])
    before = memory.store.tables[0].detach().clone()
    ids = random_ids()
    host(ids, labels=ids, use_cache=False).loss.backward()
    optimizer.step()
    moved = (memory.store.tables[0] != before).any(dim=1).nonzero().flatten()
    rows = memory.rows(attachment.hasher(ids))[:, :-1]  # the last position has no loss
    assert moved.tolist() == rows[rows >= 0].unique().tolist()


def test_one_table_read_at_two_layers_is_one_parameter_and_one_visit(
    host: PreTrainedModel, memory: NgramMemory
) -> None:
    """M-08: the table is owned once; visits are counted once per forward pass."""
    attachment = attach(host, VOCABULARY, memory, layers=[2, 1])
    named = [name for name, parameter in host.named_parameters() if parameter is memory.store.tables[0]]
    assert named == ["tokagnostic.memory.store.tables.0"]
    assert [name for name, _ in attachment.named_parameters()].count(named[0]) == 1
    assert attachment.layers == (1, 2)
    host.train()
    host(random_ids(1, 5))
    num_windows = int((attachment.hasher(random_ids(1, 5)) >= 0).sum())
    assert int(memory.visits[0].counts.sum()) == num_windows * memory.addresser.num_heads
    host.eval()
    host(random_ids(1, 5))
    assert int(memory.visits[0].counts.sum()) == num_windows * memory.addresser.num_heads


def test_a_table_per_layer_is_read_by_its_layer(host: PreTrainedModel) -> None:
    memory = make_memory(num_tables=2)
    wake(attach(host, VOCABULARY, memory, layers=(0, 2)))
    before = host(random_ids(), output_hidden_states=True).hidden_states
    with torch.no_grad():
        memory.store.tables[1].zero_()
    after = host(random_ids(), output_hidden_states=True).hidden_states
    assert torch.equal(after[2], before[2])
    assert not torch.equal(after[3], before[3])


@pytest.mark.parametrize("cast", ["bfloat16", "half"])
def test_a_cast_of_the_host_rounds_neither_table_nor_reader(
    host: PreTrainedModel, memory: NgramMemory, cast: str
) -> None:
    """M-13, M-19, M-26: rows are those of before, tables keep their dtype, a cast on purpose goes to them directly."""
    attachment = wake(attach(host, VOCABULARY, memory))
    host(random_ids(), labels=random_ids()).loss.backward()
    before, rows = digest(host.tokagnostic), memory.rows(attachment.hasher(random_ids()))
    getattr(host, cast)()
    assert host.dtype == getattr(torch, {"half": "float16"}.get(cast, cast))
    assert all(torch.equal(value, before[name]) for name, value in host.tokagnostic.state_dict().items())
    assert {value.dtype for value in host.tokagnostic.state_dict().values()} == {torch.float32}
    assert torch.equal(memory.rows(attachment.hasher(random_ids())), rows)
    assert logits_of(host, random_ids()).dtype == host.dtype
    with attachment.disabled():
        without = logits_of(host, random_ids())
    assert not torch.equal(logits_of(host, random_ids()), without)
    attachment.reader.to(torch.bfloat16)
    assert attachment.reader["1"].key.weight.dtype == torch.bfloat16
    assert logits_of(host, random_ids()).isfinite().all()


def test_autocast_leaves_the_rows_alone(host: PreTrainedModel, memory: NgramMemory, keys_read: list[Tensor]) -> None:
    """M-13: no float is on the way to a row."""
    wake(attach(host, VOCABULARY, memory))
    plain = logits_of(host, random_ids())
    with warnings.catch_warnings(), torch.autocast("cpu", dtype=torch.bfloat16):
        warnings.simplefilter("error")
        cast = logits_of(host, random_ids())
    assert torch.equal(keys_read[0], keys_read[1])
    torch.testing.assert_close(cast.float(), plain, atol=1.0, rtol=0.2)


def test_only_reader_and_table_are_the_attachments_parameters(host: PreTrainedModel, memory: NgramMemory) -> None:
    attachment = attach(host, VOCABULARY, memory, gate="signed_sqrt")
    in_host = dict(host.named_parameters())
    ours = dict(attachment.named_parameters())
    assert all(in_host[name] is parameter for name, parameter in ours.items())
    assert {name for name in in_host if name.startswith("tokagnostic.")} == set(ours)
    groups = {group["name"]: group for group in attachment.parameter_groups(1e-3, table_lr_factor=15)}
    assert sum(len(group["params"]) for group in groups.values()) == len(ours) == 5
    assert (groups["reader"]["lr"], groups["table"]["lr"]) == (1e-3, 1e-3 * 15)
    assert groups["table"]["params"] == [memory.store.tables[0]]
    assert groups["table"]["weight_decay"] == groups["reader_norms"]["weight_decay"] == 0
    assert "weight_decay" not in groups["reader"]
    assert [name for name, group in groups.items() if group["rowwise"]] == ["table"]
    torch.optim.AdamW(list(groups.values()), weight_decay=0.1)
    memory.freeze()
    assert [group["name"] for group in attachment.parameter_groups(1e-3)] == ["reader", "reader_norms"]
    with pytest.raises(InvalidValueError, match="lr"):
        attachment.parameter_groups(0)


def test_reads_are_counted_where_there_was_something_to_read(host: PreTrainedModel, memory: NgramMemory) -> None:
    """M-25: a counter for metrics."""
    attachment = attach(host, VOCABULARY, memory, layers=(0, 1))
    ids = torch.tensor([[2, 3, EOS, 2, 3]])
    for _ in range(2):
        logits_of(host, ids, attention_mask=torch.tensor([[1, 1, 1, 1, 0]]))
    reads = attachment.take_reads()
    assert [(read.layer, read.num_positions, read.num_found) for read in reads] == [(0, 10, 6), (1, 10, 6)]
    assert all(0 < read.gate_mean < 1 for read in reads)
    (first, _) = attachment.take_reads()
    assert (first.num_positions, first.num_found) == (0, 0)
    assert first.gate_mean != first.gate_mean


def test_the_gate_mean_is_that_of_the_positions_read(host: PreTrainedModel, memory: NgramMemory) -> None:
    attachment = attach(host, VOCABULARY, memory, layers=(0,))
    ids = torch.tensor([[2, EOS, 3]])
    logits_of(host, ids)
    hidden = host.get_input_embeddings()(ids)
    gate = attachment.reader["0"].read(hidden, memory(ids)).gate
    (read,) = attachment.take_reads()
    assert read.gate_mean == pytest.approx(float(gate[0, [0, 2]].detach().mean()), abs=1e-6)


class TestGivenKeys:
    """Windows of a long document know their true history."""

    def test_a_window_reads_the_keys_of_its_place(self, host: PreTrainedModel, memory: NgramMemory) -> None:
        attachment = wake(attach(host, VOCABULARY, memory))
        ids = random_ids(1, 9)
        keys = attachment.hasher(ids)
        alone = logits_of(host, ids[:, 4:])
        with attachment.given_keys(keys[:, 4:]):
            placed = logits_of(host, ids[:, 4:])
            with attachment.given_keys(attachment.hasher(ids[:, 4:])):
                assert torch.equal(logits_of(host, ids[:, 4:]), alone)
            assert torch.equal(logits_of(host, ids[:, 4:]), placed)
        assert not torch.equal(placed, alone)
        assert torch.equal(logits_of(host, ids[:, 4:]), alone)

    def test_padding_reads_nothing_all_the_same(
        self, host: PreTrainedModel, memory: NgramMemory, keys_read: list[Tensor]
    ) -> None:
        attachment = attach(host, VOCABULARY, memory)
        ids, mask = random_ids(), torch.ones(2, 9, dtype=torch.int64)
        mask[0, 5:] = 0
        keys = attachment.hasher(ids)
        with attachment.given_keys(keys):
            logits_of(host, ids, attention_mask=mask)
        assert torch.equal(keys_read[0], torch.where(mask[..., None] == 1, keys, -1))

    def test_keys_of_another_shape_are_refused(self, host: PreTrainedModel, memory: NgramMemory) -> None:
        attachment = attach(host, VOCABULARY, memory)
        keys = attachment.hasher(random_ids())
        for wrong in (keys[..., :2], keys[0], keys.int()):
            with pytest.raises(InvalidValueError, match="keys"), attachment.given_keys(wrong):
                pass
        with attachment.given_keys(keys), pytest.raises(HostError, match="shape"):
            logits_of(host, random_ids(2, 8))
        logits_of(host, random_ids(2, 8))


def test_reads_are_counted_however_many_calls_there_were(host: PreTrainedModel, memory: NgramMemory) -> None:
    """Reads are added up some at a time: none is lost, none is counted twice."""
    attachment = attach(host, VOCABULARY, memory)
    lengths = [1 + i % 3 for i in range(2 * MOST_WAITING + 5)]
    for length in lengths:
        logits_of(host, random_ids(1, length))
        assert len(attachment.reads[0]._waiting) < MOST_WAITING
    (read,) = attachment.take_reads()
    assert read.num_positions == read.num_found == sum(lengths)
    assert [reads.num_positions for reads in attachment.take_reads()] == [0]
