"""What the training loop refuses, before it starts and on its way, and what it leaves intact."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator, DistributedType
from safetensors.torch import load_file
from setups import FIT, LINES, TABLE, Setup, change, lines_of, steps_of
from torch import nn

from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.errors import InvalidValueError, TrainingError
from tokagnostic.training import checkpoint as checkpoint_module
from tokagnostic.training.fit import fit
from tokagnostic.training.packing import BlockSampler, TokenStream
from tokagnostic.training.processes import require_text_for_all
from tokagnostic.training.streamed_text import StreamedText
from tokagnostic.training.updating import make_accelerator


class TestRefusals:
    def test_a_loss_that_is_not_finite_names_the_step_and_keeps_the_checkpoint(
        self, setup: Setup, tmp_path: Path
    ) -> None:
        """A parameter is poisoned after step 6; the checkpoint of step 4 is sound."""

        def poison() -> float:
            if len(lines_of(tmp_path)) > 4:
                with torch.no_grad():
                    setup.model.model.norm.weight[0] = math.nan
            return 1.0

        with pytest.raises(
            TrainingError, match=r"loss nan at step 7 .* expected a finite loss.* another folder"
        ) as caught:
            setup.fit(tmp_path, change(FIT, save_every=4, evaluate_every=3), evaluate=poison)
        message = str(caught.value)
        assert "\n" not in message and "model.model.norm.weight is infinite or NaN" in message
        assert f"nothing was updated, the last checkpoint is {tmp_path / 'checkpoints' / 'step-00000004'}" in message
        state = checkpoint_module.load_newest(tmp_path / "checkpoints")
        assert state is not None and state.step == 4
        assert all(torch.isfinite(tensor).all() for tensor in state.tensors.values() if tensor.is_floating_point())

    @pytest.mark.parametrize("streamed", [False, True], ids=["in memory", "streamed"])
    def test_a_loss_that_is_not_finite_updates_nothing_and_names_its_text(
        self, setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streamed: bool
    ) -> None:
        """A text that breaks the loss, of finite parameters, in the second batch of the third update."""
        settings = change(FIT, accumulation=2)
        if streamed:
            (tmp_path / "text.txt").write_text("\n".join(LINES))
            corpus = Corpus(CorpusConfig(data=(str(tmp_path / "text.txt"),), documents="line"))
            setup.stream = StreamedText(corpus, setup.encoder, 7)  # type: ignore[assignment]
        calls, before = [0], {}
        forward = setup.model.forward

        def break_sixth(*arguments: Any, **named: Any) -> Any:
            output = forward(*arguments, **named)
            calls[0] += 1
            if calls[0] == 5:
                before.update(setup.tensors())
            if calls[0] == 6:
                output.loss = output.loss * math.inf
            return output

        monkeypatch.setattr(setup.model, "forward", break_sixth)
        with pytest.raises(
            TrainingError, match=r"loss inf at step 3 on blocks 10 to 11 of the text \(.*no checkpoint"
        ) as caught:
            setup.fit(tmp_path / "run", settings)
        message = str(caught.value)
        assert "all trained parameters are finite" in message and "Look at that text" in message and "\n" not in message
        after = setup.tensors()
        changed = [name for name in before if not torch.equal(before[name], after[name])]
        assert calls[0] == 6 and changed == ["visits.0"]
        assert all(parameter.grad is None for parameter in setup.model.parameters())
        assert steps_of(tmp_path / "run") == [1, 2]
        named = message.split("of the text (")[1].split(")")[0].split(" and ")[0].split(", ")
        sampler = BlockSampler(setup.stream, settings.block_length, settings.batch_size, settings.seed)
        texts = [
            setup.encoder.token_bytes.join(row.tolist()) for row in [sampler.batch(i) for i in range(6)][5].input_ids
        ]
        sources = {f"{tmp_path / 'text.txt'}:{i + 1}": line for i, line in enumerate(LINES)}
        for name in named:
            line = sources[name] if streamed else LINES[int(name.removeprefix("document "))]
            pieces = [line[i : i + 5].encode() for i in range(len(line) - 4)]
            assert any(piece in text for piece in pieces for text in texts), name

    def test_an_update_that_poisons_a_parameter_is_not_saved(self, setup: Setup, tmp_path: Path) -> None:
        """The loss of a step is that before its update: an update that blows up shows in the parameters first."""
        settings = change(FIT, save_every=1, warmup_share=0.5, learning_rate=1e35)
        with pytest.raises(TrainingError, match=r"(made model\..* infinite or NaN|loss (nan|inf) at step \d)"):
            setup.fit(tmp_path, settings)
        for path in checkpoint_module.checkpoints_in(tmp_path / "checkpoints"):
            tensors = load_file(path / "state.safetensors")
            assert all(torch.isfinite(tensor).all() for name, tensor in tensors.items() if name.startswith("model."))

    def test_a_parameter_that_is_not_finite_at_the_end_is_an_error(self, setup: Setup, tmp_path: Path) -> None:
        def poison() -> float:
            with torch.no_grad():
                setup.memory.store.tables[0][7] = math.inf
            return 1.0

        with pytest.raises(TrainingError, match=rf"the update of step 8 made model.{TABLE} infinite or NaN"):
            setup.fit(tmp_path, evaluate=poison)

    def test_nothing_to_train_is_refused(self, make_setup: Callable[..., Setup], tmp_path: Path) -> None:
        setup = make_setup(train_host=False)
        setup.attachment.remove()
        with pytest.raises(TrainingError, match="neither host nor reader"):
            fit(setup.model, setup.stream, FIT, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("kind", ["FSDP", "DEEPSPEED", "MEGATRON_LM"])
    def test_a_launch_that_would_shard_the_table_with_the_host_is_refused(
        self, setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        """M-05."""
        monkeypatch.setattr(Accelerator, "distributed_type", DistributedType(kind))
        with pytest.raises(TrainingError, match=f"a launch with {kind}; expected plain data parallelism"):
            setup.fit(tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_more_processes_than_blocks_of_text_are_refused(self) -> None:
        require_text_for_all(2, num_tokens=32, block_length=16)
        with pytest.raises(TrainingError, match="3 processes for a text of 2 blocks of 16 tokens"):
            require_text_for_all(3, num_tokens=47, block_length=16)

    def test_a_text_shorter_than_a_block_is_refused(self, setup: Setup, tmp_path: Path) -> None:
        setup.stream = TokenStream.from_ids([torch.arange(9).numpy()])
        with pytest.raises(TrainingError, match="9 tokens in 1 documents; expected at least one block of 16 tokens"):
            setup.fit(tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_a_block_longer_than_the_context_of_the_host_is_refused(self, setup: Setup, tmp_path: Path) -> None:
        with pytest.raises(TrainingError, match="block_length = 17 for a host with a context of 16 tokens"):
            setup.fit(tmp_path, change(FIT, block_length=17))

    def test_a_host_in_half_precision_is_trained_with_a_warning(
        self, setup: Setup, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """M-19."""
        setup.model.to(torch.bfloat16)
        with caplog.at_level(logging.WARNING):
            setup.fit(tmp_path)
        assert any("parameters are trained in bfloat16" in record.getMessage() for record in caplog.records)

    def test_a_table_in_half_precision_is_refused(self, setup: Setup, tmp_path: Path) -> None:
        """M-19."""
        setup.memory.store.tables[0] = nn.Parameter(setup.memory.store.tables[0].detach().to(torch.float16))
        with pytest.raises(InvalidValueError, match=r"a table of dtype torch.float16"):
            setup.fit(tmp_path)

    def test_a_full_disk_is_one_line(self, setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(checkpoint_module, "save_file", refuse)
        with pytest.raises(TrainingError, match=r"step-00000004 could not be written .*No space left"):
            setup.fit(tmp_path, change(FIT, save_every=4))
        assert list((tmp_path / "checkpoints").iterdir()) == []

    def test_a_folder_that_cannot_be_made_is_one_line(self, setup: Setup, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(TrainingError, match="could not be written"):
            setup.fit(tmp_path / "file" / "run")

    def test_what_can_be_refused_is_refused_before_the_start_is_told(self, setup: Setup, tmp_path: Path) -> None:
        told: list[str] = []
        with pytest.raises(TrainingError):
            setup.fit(tmp_path, change(FIT, block_length=17), on_start=lambda: told.append("start"))
        assert told == []
        setup.fit(tmp_path, on_start=lambda: told.append("start"))
        assert told == ["start"]


class TestPrecision:
    def test_bf16_computes_in_bf16_keeps_parameters_in_fp32_and_leaves_the_model_as_it_was(
        self, setup: Setup, tmp_path: Path
    ) -> None:
        before = set(vars(setup.model))
        dtypes: set[torch.dtype] = set()
        setup.model.lm_head.register_forward_hook(lambda *arguments: dtypes.add(arguments[2].dtype))
        setup.fit(tmp_path, change(FIT, precision="bf16"))
        assert dtypes == {torch.bfloat16}
        assert {parameter.dtype for parameter in setup.model.parameters()} == {torch.float32}
        assert set(vars(setup.model)) == before
        assert setup.model(input_ids=torch.ones(1, 4, dtype=torch.int64)).logits.dtype == torch.float32

    def test_another_precision_in_the_same_process_is_one_line(
        self, make_setup: Callable[..., Setup], tmp_path: Path
    ) -> None:
        make_setup().fit(tmp_path / "one", change(FIT, num_steps=1))
        with pytest.raises(TrainingError, match=r"precision = 'bf16' cannot be had .*start another process") as caught:
            make_setup().fit(tmp_path / "two", change(FIT, precision="bf16"))
        assert "\n" not in str(caught.value) and not (tmp_path / "two").exists()


def test_processes_that_do_not_know_of_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingError, match=r"2 processes .* do not know of each other") as caught:
        make_accelerator(FIT)
    assert "ACCELERATE_USE_CPU=1" in caught.value.remedy
