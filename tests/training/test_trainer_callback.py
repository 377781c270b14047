"""A Trainer that is interrupted and goes on: reader, table and host are those of a run that was not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from setups import MEMORY, TABLE, Setup, assert_equal, change
from torch import Tensor
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

from tokagnostic import AttachmentCallback
from tokagnostic.errors import HostError, TrainingError
from tokagnostic.hashing import HashCache
from tokagnostic.host import attach
from tokagnostic.host.loading import load_attachment
from tokagnostic.memory.file import load_memory, save_memory
from tokagnostic.training.memory_optimizer import memory_optimizer

READER = "tokagnostic.reader.1.key.weight"


class PowerCut(TrainerCallback):
    """Ends a run in the middle of a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


def trainer_of(setup: Setup, folder: Path, *more: TrainerCallback, callback: bool = True, **settings: Any) -> Trainer:
    """Six steps with a checkpoint after every second one; the rates fall, so that the schedule matters."""
    rows = torch.randint(40, 110, (12, 16), generator=torch.Generator().manual_seed(2)).tolist()
    table = {"optimizers": (memory_optimizer(setup.model, lr=1e-2), None)} if not setup.memory.frozen else {}
    arguments = TrainingArguments(
        str(folder),
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **{
            "max_steps": 6,
            "save_strategy": "steps",
            "save_steps": 2,
            "logging_steps": 1,
            "learning_rate": 1e-2,
            "per_device_train_batch_size": 2,
            **settings,
        },
    )
    data = Dataset.from_dict({"input_ids": rows, "labels": rows})
    ours = [AttachmentCallback(setup.attachment)] if callback else []
    return Trainer(setup.model, arguments, train_dataset=data, eval_dataset=data, callbacks=[*ours, *more], **table)


def interrupted(setup: Setup, folder: Path, after: int = 5, **settings: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        trainer_of(setup, folder, PowerCut(after), **settings).train()


@pytest.fixture(params=["frozen table", pytest.param("trained table", marks=pytest.mark.slow)])
def make(request: pytest.FixtureRequest, make_setup: Callable[..., Setup]) -> Callable[[], Setup]:
    """The same fresh host, reader and memory at every call, as in another process."""

    def made() -> Setup:
        setup = make_setup()
        if request.param == "frozen table":
            setup.memory.freeze()
        return setup

    return made


class TestResuming:
    @pytest.mark.slow
    def test_a_resumed_run_ends_with_the_bits_of_one_that_was_not_interrupted(
        self, make: Callable[[], Setup], tmp_path: Path
    ) -> None:
        whole = make()
        begun = whole.tensors()
        trainer_of(whole, tmp_path / "whole").train()
        expected = whole.tensors()
        moved = {name for name, value in expected.items() if not torch.equal(value, begun[name])}
        assert any("reader" in name for name in moved) and (TABLE in moved) is not whole.memory.frozen
        interrupted(make(), tmp_path / "parts")
        resumed = make()
        trainer_of(resumed, tmp_path / "parts").train(resume_from_checkpoint=True)
        assert_equal(resumed.tensors(), expected)
        again = make()
        trainer_of(again, tmp_path / "parts").train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-2"))
        assert_equal(again.tensors(), expected)

    @pytest.mark.slow
    def test_lora_beside_the_memory_is_resumed_with_it(self, make_setup: Callable[..., Setup], tmp_path: Path) -> None:
        """peft saves what is its own and nothing else."""
        peft = pytest.importorskip("peft", reason="peft is not installed")

        def with_lora() -> Setup:
            setup = make_setup()
            setup.memory.freeze()
            torch.manual_seed(0)
            setup.model = peft.get_peft_model(setup.model, peft.LoraConfig(target_modules=["q_proj"]))
            setup.attachment.reader.requires_grad_(True)
            return setup

        trainer_of(whole := with_lora(), tmp_path / "whole").train()
        interrupted(with_lora(), tmp_path / "parts")
        trainer_of(resumed := with_lora(), tmp_path / "parts").train(resume_from_checkpoint=True)
        assert_equal(resumed.tensors(), whole.tensors())

    def test_a_checkpoint_is_a_plain_host_and_a_saved_attachment(
        self, make: Callable[[], Setup], tmp_path: Path
    ) -> None:
        setup = make()
        trainer_of(setup, tmp_path, save_total_limit=1).train()
        (checkpoint,) = tmp_path.iterdir()
        host, report = AutoModelForCausalLM.from_pretrained(checkpoint, output_loading_info=True)
        assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        load_attachment(host.eval(), setup.encoder, checkpoint / "tokagnostic")
        ids = torch.arange(40, 60)[None]
        with torch.no_grad():
            assert torch.equal(host(ids).logits, setup.model.eval()(ids).logits)

    @pytest.mark.slow
    def test_a_checkpoint_of_another_folder_is_found_where_the_arguments_say(
        self, make: Callable[[], Setup], tmp_path: Path
    ) -> None:
        interrupted(make(), tmp_path / "first")
        last = str(tmp_path / "first" / "checkpoint-4")
        setup = make()
        with pytest.raises(TrainingError, match="at step 4 from a checkpoint that is not in"):
            trainer_of(setup, tmp_path / "second").train(resume_from_checkpoint=last)
        trainer_of(setup, tmp_path / "second", resume_from_checkpoint=last).train(resume_from_checkpoint=last)
        trainer_of(whole := make(), tmp_path / "whole").train()
        assert_equal(setup.tensors(), whole.tensors())

    @pytest.mark.slow
    def test_a_checkpoint_of_another_run_under_the_same_name_is_not_taken(
        self, make: Callable[[], Setup], tmp_path: Path
    ) -> None:
        interrupted(make(), tmp_path / "first")
        interrupted(make(), tmp_path / "second", learning_rate=1e-3, seed=1)
        with pytest.raises(TrainingError, match="from a checkpoint that is not in"):
            trainer_of(make(), tmp_path / "second").train(resume_from_checkpoint=str(tmp_path / "first/checkpoint-4"))

    def test_the_best_reader_comes_back_with_the_best_host(self, make: Callable[[], Setup], tmp_path: Path) -> None:
        setup, seen = make(), {}

        class Grading(TrainerCallback):
            """The second step is the best, whatever the losses are."""

            def on_evaluate(
                self, args: Any, state: Any, control: Any, metrics: dict[str, float], **kwargs: Any
            ) -> None:
                seen[state.global_step] = setup.tensors()

        trainer = trainer_of(
            setup,
            tmp_path,
            Grading(),
            eval_strategy="steps",
            eval_steps=2,
            load_best_model_at_end=True,
            metric_for_best_model="mark",
        )
        evaluate, marks = trainer.evaluate, iter([1.0, 2.0, 3.0])
        trainer.evaluate = lambda *args, **kwargs: {**evaluate(*args, **kwargs), "eval_mark": -next(marks)}
        trainer.train()
        assert trainer.state.best_global_step == 2
        assert_equal(setup.tensors(), seen[2])
        assert not torch.equal(seen[2][READER], seen[6][READER])


@pytest.mark.slow
class TestMemoryFile:
    def test_a_memory_of_a_file_is_named_and_not_copied(self, make_setup: Callable[..., Setup], tmp_path: Path) -> None:
        file = tmp_path / "memory.safetensors"
        first = make_setup()
        save_memory(first.memory, file)

        def with_file(where: Path) -> Setup:
            setup = make_setup()
            cache = HashCache.of(setup.encoder)
            setup.attachment.remove()
            setup.memory = load_memory(where, cache)
            torch.manual_seed(0)
            setup.attachment = attach(setup.model, cache, setup.memory)
            return setup

        interrupted(with_file(file), tmp_path / "run")
        assert not list((tmp_path / "run").rglob("memory.safetensors"))
        moved = Path(shutil.move(file, tmp_path / "moved.safetensors"))
        trainer_of(resumed := with_file(moved), tmp_path / "run").train(resume_from_checkpoint=True)
        trainer_of(whole := with_file(moved), tmp_path / "whole").train()
        assert_equal(resumed.tensors(), whole.tensors())
        other = make_setup()
        with torch.no_grad():
            other.memory.store.tables[0].add_(1)
        save_memory(other.memory, file)
        with pytest.raises(HostError, match="expected the frozen memory that is attached"):
            trainer_of(with_file(file), tmp_path / "run").train(resume_from_checkpoint=True)


@pytest.mark.slow
class TestRefusals:
    """Nothing goes on with a reader that the checkpoint does not hold."""

    def test_a_checkpoint_without_a_reader(self, make: Callable[[], Setup], tmp_path: Path) -> None:
        interrupted(make(), tmp_path, callback=False)
        with pytest.raises(TrainingError, match="checkpoint-4 without the reader"):
            trainer_of(make(), tmp_path).train(resume_from_checkpoint=True)

    def test_a_checkpoint_that_was_cut_short(self, make: Callable[[], Setup], tmp_path: Path) -> None:
        """Killed between the host and the reader, or in the middle of it; the checkpoint before it will do."""
        interrupted(make(), tmp_path)
        shutil.rmtree(tmp_path / "checkpoint-4" / "tokagnostic")
        with pytest.raises(TrainingError, match="checkpoint-4 without the reader"):
            trainer_of(make(), tmp_path).train(resume_from_checkpoint=True)
        trainer_of(make(), tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [({"gate": "signed_sqrt"}, "gate = 'sigmoid'"), ({"layers": (0,)}, r"layers = \(1,\)")],
        ids=["gate", "layers"],
    )
    def test_a_reader_of_other_settings(
        self, make: Callable[[], Setup], settings: dict[str, Any], message: str, tmp_path: Path
    ) -> None:
        interrupted(make(), tmp_path)
        setup = make()
        cache = setup.attachment.hasher.cache
        setup.attachment.remove()
        setup.attachment = attach(setup.model, cache, setup.memory, **settings)
        before = setup.tensors()
        with pytest.raises(HostError, match=message):
            trainer_of(setup, tmp_path).train(resume_from_checkpoint=True)
        ours = [name for name in before if "tokagnostic" in name]
        assert_equal(_some(setup.tensors(), ours), _some(before, ours))

    def test_a_reader_of_another_dtype(self, make: Callable[[], Setup], tmp_path: Path) -> None:
        interrupted(make(), tmp_path)
        setup = make()
        setup.attachment.reader.to(torch.bfloat16)
        with pytest.raises(HostError, match=r"in torch.float32; expected torch.bfloat16"):
            trainer_of(setup, tmp_path).train(resume_from_checkpoint=True)

    def test_a_table_of_another_size(self, make_setup: Callable[..., Setup], tmp_path: Path) -> None:
        interrupted(make_setup(), tmp_path)
        setup = make_setup()
        cache = setup.attachment.hasher.cache
        setup.attachment.remove()
        setup.memory = change(MEMORY, num_rows=101).build(cache)
        setup.attachment = attach(setup.model, cache, setup.memory)
        with pytest.raises(HostError, match="memory of other sizes"):
            trainer_of(setup, tmp_path).train(resume_from_checkpoint=True)

    def test_an_attachment_of_another_host(self, make: Callable[[], Setup], tmp_path: Path) -> None:
        setup, other = make(), make()
        setup.attachment = other.attachment
        with pytest.raises(HostError, match="another attachment than that of the Trainer's LlamaForCausalLM"):
            trainer_of(setup, tmp_path)


def _some(tensors: dict[str, Tensor], names: list[str]) -> dict[str, Tensor]:
    return {name: tensors[name] for name in names}


@pytest.mark.parametrize("strategy", ["checkpoint", "all_checkpoints"])
def test_checkpoints_that_would_be_pushed_without_the_reader_are_refused(
    make_setup: Callable[..., Setup], tmp_path: Path, strategy: str
) -> None:
    """Asked of the callback alone: a Trainer that pushes calls the hub when it is made."""
    setup = make_setup()
    arguments = TrainingArguments(str(tmp_path), report_to=[], use_cpu=True, push_to_hub=True, hub_strategy=strategy)
    with pytest.raises(TrainingError, match=f"hub_strategy = '{strategy}'.*attachment.push_to_hub"):
        AttachmentCallback(setup.attachment).on_init_end(arguments, None, None, model=setup.model)


def test_an_optimizer_that_cannot_train_a_table_is_refused_before_the_first_step(
    make_setup: Callable[..., Setup], tmp_path: Path
) -> None:
    setup = make_setup()
    trainer = trainer_of(setup, tmp_path)
    trainer.optimizer = torch.optim.AdamW(setup.model.parameters(), lr=1e-2)
    with pytest.raises(TrainingError, match=r"AdamW.*memory_optimizer"):
        trainer.train()
