"""What people put around a host: Trainer, compilers, LoRA, autocast, placements; the memory reads the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from hosts import (
    EOS,
    FAMILIES,
    LEADING_SPACE_VOCABULARY,
    VOCABULARY,
    logits_of,
    make_host,
    make_memory,
    random_ids,
    wake,
)
from torch import Tensor, nn
from torch._dynamo.utils import counters
from transformers import AutoModelForCausalLM, PreTrainedModel, Trainer, TrainingArguments

from tokagnostic.errors import HostError
from tokagnostic.host import attach, attachment_of
from tokagnostic.host.inputs import BOUNDARY_ARGUMENTS
from tokagnostic.memory import NgramMemory

ROWS = random_ids(8, 12)
LENGTHS = (5, 1, 6)
"""Of the documents in every row."""


@pytest.fixture(autouse=True)
def fresh_accelerate_state() -> Iterator[None]:
    """Accelerate keeps one precision and one compiler per process: let no test see those of another."""
    yield
    forget_accelerate()


def forget_accelerate() -> None:
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state()
    GradientState._reset_state()


def numbers() -> list[int]:
    return [number for number, length in enumerate(LENGTHS) for _ in range(length)]


COLUMNS: dict[str, list[int]] = {
    "position_ids": [place for length in LENGTHS for place in range(length)],
    "seq_idx": numbers(),
    "segment_ids": numbers(),
    "document_ids": [7 - number for number in numbers()],
    "doc_ids": [number % 2 for number in numbers()],
}


def train(host: nn.Module, folder: Path, columns: dict[str, list[int]], **settings: object) -> Trainer:
    """Some updates by transformers' Trainer with its defaults, columns that are not named dropped among them."""
    data = {"input_ids": ROWS.tolist(), "labels": ROWS.tolist()}
    data |= {name: [column] * len(ROWS) for name, column in columns.items()}
    arguments = TrainingArguments(
        str(folder),
        max_steps=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        **{"per_device_train_batch_size": 2, **settings},
    )
    trainer = Trainer(host, arguments, train_dataset=Dataset.from_dict(data))
    trainer.train()
    return trainer


def gradients(host: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.to_dense().clone() for name, p in host.named_parameters() if p.grad is not None}


class TestTrainer:
    """M-24: what tells document starts arrives, or an error comes."""

    @pytest.mark.parametrize("column", COLUMNS)
    def test_boundaries_in_the_dataset_arrive(
        self, host: PreTrainedModel, memory: NgramMemory, keys_read: list[Tensor], column: str, tmp_path: Path
    ) -> None:
        attachment = attach(host, LEADING_SPACE_VOCABULARY, memory.freeze(), packed=True)
        train(host, tmp_path, {column: COLUMNS[column]})
        expected = [attachment.hasher(part) for part in ROWS.split(LENGTHS, dim=1)]
        rows = {tuple(row.flatten().tolist()) for row in torch.cat(expected, dim=1)}
        read = {tuple(row.flatten().tolist()) for keys in keys_read for row in keys}
        assert read <= rows and len(read) == 4
        assert any(reader.value.weight.any() for reader in attachment.reader.values())

    @pytest.mark.parametrize("columns", [{}, {"documents": numbers()}], ids=["none", "of another name"])
    def test_boundaries_that_do_not_arrive_are_missed(
        self, host: PreTrainedModel, memory: NgramMemory, columns: dict[str, list[int]], tmp_path: Path
    ) -> None:
        attachment = attach(host, VOCABULARY, memory.freeze(), packed=True)
        with pytest.raises(HostError, match="does not tell where its documents start"):
            train(host, tmp_path, columns)
        attachment.packed = False
        train(host, tmp_path, columns)

    def test_they_are_asked_for_in_training_alone_and_not_where_an_id_tells_them(
        self, host: PreTrainedModel, memory: NgramMemory
    ) -> None:
        attachment = attach(host, VOCABULARY, memory, packed=True)
        logits_of(host, ROWS)
        host.train()
        with pytest.raises(HostError, match="does not tell"):
            host(ROWS)
        with attachment.disabled():
            host(ROWS)
        with attachment.given_keys(attachment.hasher(ROWS)):
            host(ROWS)
        attachment.remove()
        attach(host, VOCABULARY, memory, packed=True, boundary_ids=(EOS,))
        host(ROWS)

    @pytest.mark.parametrize(
        "settings",
        [
            {"gradient_accumulation_steps": 2},
            {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
            {"bf16": True},
        ],
        ids=["accumulation", "checkpointing", "autocast"],
    )
    def test_its_settings_leave_the_rows_alone(
        self,
        host: PreTrainedModel,
        memory: NgramMemory,
        keys_read: list[Tensor],
        settings: dict[str, object],
        tmp_path: Path,
    ) -> None:
        attachment = attach(host, VOCABULARY, memory.freeze())
        before = attachment.reader["1"].key.weight.clone()
        dtypes: list[torch.dtype] = []
        host.lm_head.register_forward_hook(lambda module, given, output: dtypes.append(output.dtype))
        train(host, tmp_path, {}, **settings)
        assert dtypes[0] == (torch.bfloat16 if "bf16" in settings else torch.float32)
        assert not torch.equal(attachment.reader["1"].key.weight, before)
        expected = {tuple(row.flatten().tolist()) for row in attachment.hasher(ROWS)}
        assert {tuple(row.flatten().tolist()) for keys in keys_read for row in keys} <= expected


class TestSignature:
    def test_what_tells_boundaries_is_named_and_taken_back(
        self, family_host: PreTrainedModel, memory: NgramMemory
    ) -> None:
        before, kind = inspect.signature(family_host.forward), type(family_host)
        attachment = attach(family_host, VOCABULARY, memory)
        during = inspect.signature(family_host.forward)
        assert set(during.parameters) == set(before.parameters) | set(BOUNDARY_ARGUMENTS)
        assert [name for name in during.parameters if name in before.parameters] == list(before.parameters)
        assert isinstance(family_host, kind) and type(family_host).__name__ == kind.__name__
        attachment.remove()
        assert type(family_host) is kind and inspect.signature(family_host.forward) == before

    def test_names_that_no_host_knows_go_no_further(self, family_host: PreTrainedModel, memory: NgramMemory) -> None:
        ids = random_ids(2, 9)
        given = torch.tensor([0] * 4 + [1] * 5).expand(2, 9)
        plain = logits_of(family_host, ids)
        attachment = attach(family_host, VOCABULARY, memory)
        for name in ("segment_ids", "document_ids", "doc_ids"):
            assert torch.equal(logits_of(family_host, ids, **{name: given}), plain)
            with attachment.disabled():
                assert torch.equal(logits_of(family_host, ids, **{name: given}), plain)


class TestCompiled:
    """M-17: compiled before or after attaching, switched on and off, taken out: as uncompiled, in a bounded number of graphs."""

    @pytest.fixture(autouse=True)
    def fresh_compiler(self) -> None:
        torch._dynamo.reset()
        counters.clear()

    def num_graphs(self) -> int:
        return counters["stats"]["unique_graphs"]

    @pytest.mark.slow
    @pytest.mark.parametrize("first", ["attach", "compile"])
    def test_on_off_and_out(self, host: PreTrainedModel, memory: NgramMemory, first: str) -> None:
        ids = random_ids()
        plain = logits_of(host, ids)
        if first == "compile":
            compiled = torch.compile(host, backend="eager")
            assert torch.equal(logits_of(compiled, ids), plain)
            attachment = wake(attach(host, VOCABULARY, memory))
        else:
            attachment = wake(attach(host, VOCABULARY, memory))
            compiled = torch.compile(host, backend="eager")
        read = logits_of(host, ids)
        assert not torch.equal(read, plain)
        for repeat in range(4):
            assert torch.equal(logits_of(compiled, ids), read)
            with attachment.disabled():
                assert torch.equal(logits_of(compiled, ids), plain)
            if repeat == 0:
                num_graphs = self.num_graphs()
        assert self.num_graphs() == num_graphs <= 8
        attachment.remove()
        assert torch.equal(logits_of(compiled, ids), plain)
        assert self.num_graphs() <= num_graphs + 1

    @pytest.mark.slow
    def test_other_lengths_make_no_endless_graphs(self, host: PreTrainedModel, memory: NgramMemory) -> None:
        wake(attach(host, VOCABULARY, memory))
        compiled = torch.compile(host, backend="eager")
        found = []
        for length in (9, 12, 15, 11, 20, 13, 8):
            ids = random_ids(2, length, seed=length)
            torch.testing.assert_close(logits_of(compiled, ids), logits_of(host, ids), atol=1e-4, rtol=1e-4)
            found.append(self.num_graphs())
        assert found[2:] == [found[1]] * 5

    @pytest.mark.slow
    def test_a_compiled_host_decodes_with_a_cache(self, host: PreTrainedModel, memory: NgramMemory) -> None:
        wake(attach(host, VOCABULARY, memory, conv_kernel=4))
        settings = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}
        expected = host.generate(random_ids(1, 6), **settings).tolist()
        host.forward = torch.compile(host.forward, backend="eager")
        assert host.generate(random_ids(1, 6), **settings).tolist() == expected

    @pytest.mark.slow
    def test_trainer_trains_a_compiled_host(self, host: PreTrainedModel, memory: NgramMemory, tmp_path: Path) -> None:
        attachment = attach(host, VOCABULARY, memory.freeze())
        host.compile(backend="eager")
        train(host, tmp_path, {"doc_ids": numbers()})
        assert self.num_graphs() > 0
        assert attachment.reader["1"].value.weight.any()

    @pytest.mark.slow
    def test_gradients_are_those_of_the_uncompiled_host(self, host: PreTrainedModel, memory: NgramMemory) -> None:
        wake(attach(host, VOCABULARY, memory, layers=(0, 2), conv_kernel=4))
        ids = random_ids()
        host(ids, labels=ids, use_cache=False).loss.backward()
        expected = gradients(host)
        host.zero_grad()
        torch.compile(host, backend="eager")(ids, labels=ids, use_cache=False).loss.backward()
        found = gradients(host)
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-4, msg=name)


class TestLora:
    """peft beside the memory, on top of it or below."""

    @pytest.fixture
    def lora(self) -> Callable[[nn.Module], nn.Module]:
        peft = pytest.importorskip("peft", reason="peft is not installed")

        def wrap(host: nn.Module) -> nn.Module:
            torch.manual_seed(3)
            config = peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
            return peft.get_peft_model(host, config)

        return wrap

    @pytest.mark.parametrize("order", ["lora on top", "lora below"])
    def test_both_are_trained_and_neither_is_lost(
        self, lora: Callable[[nn.Module], nn.Module], order: str, tmp_path: Path
    ) -> None:
        host = make_host()
        if order == "lora below":
            model = lora(host)
            attachment = attach(model, VOCABULARY, make_memory().freeze())
        else:
            attachment = attach(host, VOCABULARY, make_memory().freeze())
            model = lora(host)
            attachment.reader.requires_grad_(True)  # peft freezes all that is not its own
        wake(attachment)
        assert attachment_of(model) is attachment
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        train(model, tmp_path, {"doc_ids": numbers()})
        moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
        trainable = {name for name, p in model.named_parameters() if p.requires_grad}
        assert moved == trainable
        assert any("lora_B" in name for name in moved) and any("reader.1.value" in name for name in moved)
        expected = logits_of(model, ROWS)
        model.save_pretrained(tmp_path / "lora")
        attachment.save_pretrained(tmp_path / "memory")
        from peft import PeftModel

        from tokagnostic.host.loading import load_attachment

        again = PeftModel.from_pretrained(make_host(), tmp_path / "lora").eval()
        load_attachment(again, VOCABULARY, tmp_path / "memory")
        assert torch.equal(logits_of(again, ROWS), expected)

    def test_removing_the_memory_leaves_lora(self, lora: Callable[[nn.Module], nn.Module]) -> None:
        model = lora(make_host())
        expected = logits_of(model, ROWS)
        attachment = wake(attach(model, VOCABULARY, make_memory()))
        assert not torch.equal(logits_of(model, ROWS), expected)
        attachment.remove()
        assert torch.equal(logits_of(model, ROWS), expected)


class TestPrecisions:
    """A bf16 host, and autocast over an fp32 one: rows are the same, logits close, training goes on."""

    @pytest.mark.parametrize("way", ["bf16 host", "autocast"])
    def test_rows_are_the_same_and_the_reader_is_trained_in_fp32(
        self, way: str, host: PreTrainedModel, memory: NgramMemory, keys_read: list[Tensor]
    ) -> None:
        attachment = wake(attach(host, VOCABULARY, memory.freeze(), conv_kernel=4))
        exact = logits_of(host, ROWS)
        if way == "bf16 host":
            host.to(torch.bfloat16)
        host.train()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=way == "autocast"):
            output = host(ROWS, labels=ROWS, use_cache=False)
        output.loss.backward()
        assert torch.equal(keys_read[0], keys_read[1])
        torch.testing.assert_close(output.logits.float(), exact, atol=1.5, rtol=0.3)
        for name, parameter in attachment.reader.named_parameters():
            assert parameter.dtype == torch.float32 and parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("family", [name for name in sorted(FAMILIES) if name in ("gpt2", "llama")])
def test_a_placed_host_reads_as_one_that_is_not(family: str, memory: NgramMemory, tmp_path: Path) -> None:
    """device_map: hooks of accelerate stand around each module's forward."""
    make_host(family).save_pretrained(tmp_path)
    placed = AutoModelForCausalLM.from_pretrained(tmp_path, device_map={"": "cpu"}).eval()
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    for host in (placed, plain):
        torch.manual_seed(0)
        wake(attach(host, VOCABULARY, make_memory(), layers=(0, 2)))
    assert torch.equal(logits_of(placed, ROWS), logits_of(plain, ROWS))
    settings = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    assert placed.generate(ROWS[:1], **settings).tolist() == plain.generate(ROWS[:1], **settings).tolist()


def test_lora_on_all_linear_layers_leaves_the_reader_alone(
    host: PreTrainedModel, memory: NgramMemory, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    attachment = wake(attach(host, VOCABULARY, memory))
    expected = logits_of(host, random_ids())
    model = peft.get_peft_model(host, peft.LoraConfig(target_modules="all-linear"))
    wrapped = [name for name, module in model.named_modules() if hasattr(module, "lora_A")]
    assert len(wrapped) == 3 * 7 and not any("tokagnostic" in name for name in wrapped)
    assert torch.equal(logits_of(model, random_ids()), expected)
    attachment.save_pretrained(tmp_path / "folder")
