"""The training loop: what moves and what does not, and what it writes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from setups import FIT, TABLE, Setup, assert_equal, change, lines_of, set_dropout
from torch import Tensor

from tokagnostic.training.config import FitConfig
from tokagnostic.training.fit import fit
from tokagnostic.training.packing import BlockSampler, TokenStream


def digest_of(table: Tensor) -> str:
    return hashlib.sha256(table.detach().numpy().tobytes()).hexdigest()


def sampler_of(setup: Setup, settings: FitConfig) -> BlockSampler:
    return BlockSampler(setup.stream, settings.block_length, settings.batch_size, settings.seed)


def rows_read(setup: Setup, settings: FitConfig) -> Tensor:
    """Every row that a run looks up, one entry per occurrence, int64 [...]."""
    rows = []
    for step in range(settings.num_steps * settings.accumulation):
        batch = sampler_of(setup, settings).batch(step)
        keys = setup.attachment.hasher(torch.from_numpy(batch.input_ids), torch.from_numpy(batch.starts))
        found = setup.memory.rows(keys)
        rows.append(found[found >= 0])
    return torch.cat(rows)


class TestWhatMoves:
    def test_the_loss_goes_down_and_the_table_learns_where_it_was_looked_up(self, setup: Setup, tmp_path: Path) -> None:
        """M-02: with weight decay 0.1 for all, rows that were not looked up are bit-equal."""
        settings = change(FIT, num_steps=40)
        before = setup.tensors()
        result = setup.fit(tmp_path, settings)
        after = setup.tensors()
        losses = [line["loss"] for line in result.metrics if "loss" in line]
        assert sum(losses[-5:]) / 5 < 0.7 * losses[0]
        looked_up = torch.zeros(len(before[TABLE]), dtype=torch.bool)
        looked_up[rows_read(setup, settings)] = True
        assert looked_up.any() and not looked_up.all()
        moved = (after[TABLE] != before[TABLE]).any(dim=1)
        assert torch.equal(moved, looked_up)
        assert all(not torch.equal(before[name], after[name]) for name in before)

    def test_a_frozen_memory_is_bit_equal_after_training_with_weight_decay(
        self, make_setup: Callable[..., Setup], tmp_path: Path
    ) -> None:
        setup = make_setup(frozen=True)
        before, digest = setup.tensors(), digest_of(setup.memory.store.tables[0])
        setup.fit(tmp_path, change(FIT, weight_decay=0.1, learning_rate=0.1, save_every=4))
        after = setup.tensors()
        assert digest_of(setup.memory.store.tables[0]) == digest
        assert [name for name in before if torch.equal(before[name], after[name])] == [TABLE, "visits.0"]

    def test_a_frozen_host_is_bit_equal_and_the_reader_is_trained(
        self, make_setup: Callable[..., Setup], tmp_path: Path
    ) -> None:
        setup = make_setup(frozen=True, train_host=False)
        before = setup.tensors()
        setup.fit(tmp_path)
        after = setup.tensors()
        assert all(
            torch.equal(before[name], after[name]) != name.startswith("tokagnostic.reader.1.") for name in before
        )

    def test_the_schedule_reaches_the_optimizers(self, setup: Setup, tmp_path: Path) -> None:
        """A run whose every update but the first has rate 0 ends where one of a single update does."""
        rates: list[list[float]] = []
        step = torch.optim.AdamW.step

        def spy(optimizer: torch.optim.AdamW, *arguments: Any) -> Any:
            rates.append([group["lr"] for group in optimizer.param_groups])
            return step(optimizer, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.optim.AdamW, "step", spy)
            result = setup.fit(tmp_path, change(FIT, warmup_share=0.5))
        expected = [line["learning_rate"] for line in result.metrics]
        assert rates == [[rate, rate] for rate in expected]
        assert expected[:4] == pytest.approx([0.0025, 0.005, 0.0075, 0.01]) and expected[-1] < 0.005

    def test_a_rate_of_zero_moves_nothing(self, setup: Setup, tmp_path: Path) -> None:
        before = setup.tensors()
        setup.fit(tmp_path, change(FIT, learning_rate=0))
        after = setup.tensors()
        assert [name for name in before if not torch.equal(before[name], after[name])] == ["visits.0"]

    def test_visits_count_every_occurrence_once_per_forward_pass(
        self, make_setup: Callable[..., Setup], tmp_path: Path
    ) -> None:
        """Also where two layers read the table, where gradients accumulate, and where an evaluation runs in between."""
        setup = make_setup(layers=(0, 1))
        settings = change(FIT, num_steps=3, accumulation=2, evaluate_every=1)
        ids = torch.zeros(1, 5, dtype=torch.int64)
        setup.fit(tmp_path, settings, evaluate=lambda: float(setup.model(input_ids=ids).logits.detach().sum()))
        counts = torch.bincount(rows_read(setup, settings), minlength=len(setup.memory.store.tables[0]))
        assert torch.equal(setup.memory.visits[0].counts, counts)

    def test_two_small_batches_are_one_big_one(self, make_setup: Callable[..., Setup], tmp_path: Path) -> None:
        """Dense and sparse gradients add up over accumulated batches."""
        big, small = make_setup(), make_setup()
        results = [
            big.fit(tmp_path / "big", change(FIT, num_steps=4, batch_size=4, learning_rate=1e-3)),
            small.fit(tmp_path / "small", change(FIT, num_steps=4, batch_size=2, accumulation=2, learning_rate=1e-3)),
        ]
        assert results[0].num_tokens == results[1].num_tokens
        for one, other in zip(results[0].metrics, results[1].metrics, strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
        for name, tensor in big.tensors().items():
            torch.testing.assert_close(tensor, small.tensors()[name], rtol=1e-3, atol=1e-4)

    def test_the_memory_is_found_in_the_host_if_it_is_not_named(self, setup: Setup, tmp_path: Path) -> None:
        before = setup.tensors()
        fit(setup.model, setup.stream, FIT, tmp_path)
        assert not torch.equal(setup.tensors()[TABLE], before[TABLE])

    def test_the_global_generator_is_left_as_it_was_and_decides_nothing(
        self, make_setup: Callable[..., Setup], tmp_path: Path
    ) -> None:
        """Dropout draws from a generator that the run's own seed decides."""
        results = []
        for run, (state, dropout) in enumerate([(1, 0.3), (2, 0.3), (1, 0.0)]):
            torch.manual_seed(state)
            setup = make_setup()
            set_dropout(setup, dropout)
            before = torch.get_rng_state()
            setup.fit(tmp_path / str(run))
            assert torch.equal(torch.get_rng_state(), before)
            results.append(setup.tensors())
        assert_equal(results[0], results[1])
        assert not torch.equal(results[0][TABLE], results[2][TABLE])


class TestReports:
    def test_a_line_of_metrics_has_all_fields(
        self, make_setup: Callable[..., Setup], tmp_path: Path, token_lengths
    ) -> None:
        setup = make_setup(layers=(0, 1))
        result = setup.fit(tmp_path, change(FIT, num_steps=5, log_every=2), token_lengths=token_lengths)
        lines = lines_of(tmp_path)
        assert lines == result.metrics and [line["step"] for line in lines] == [2, 4, 5]
        for line in lines:
            assert line["tokens"] == line["step"] * 2 * 16 and line["tokens_per_second"] > 0
            assert set(line["gate"]) == {"0", "1"} and all(0 < gate < 1 for gate in line["gate"].values())
            batch = sampler_of(setup, FIT).batch(line["step"] - 1)
            num_bytes = token_lengths[torch.from_numpy(batch.input_ids[:, 1:])].sum().item()
            assert line["bits_per_byte"] == pytest.approx(line["loss"] / math.log(2) * 2 * 15 / num_bytes)
        assert (result.num_steps, result.num_tokens) == (5, 160) and result.tokens_per_second > 0

    def test_without_lengths_or_memory_their_fields_are_left_out(self, setup: Setup, tmp_path: Path) -> None:
        setup.attachment.remove()
        result = fit(setup.model, setup.stream, change(FIT, num_steps=1), tmp_path)
        assert "bits_per_byte" not in result.metrics[0] and "gate" not in result.metrics[0]

    def test_tokens_without_bytes_and_layers_without_windows_make_no_nan(
        self, setup: Setup, tmp_path: Path, token_lengths: Tensor
    ) -> None:
        start = setup.encoder.start_id
        setup.stream = TokenStream.from_ids([torch.full((40,), start).numpy()])
        setup.fit(tmp_path, change(FIT, num_steps=1), token_lengths=token_lengths)
        (line,) = lines_of(tmp_path)
        assert line["gate"] == {"1": None} and "bits_per_byte" not in line

    def test_evaluations_come_at_their_steps_in_evaluation_mode(self, setup: Setup, tmp_path: Path) -> None:
        modes: list[tuple[str, bool]] = []
        forward = setup.model.model.forward
        setup.model.model.forward = lambda *a, **k: (modes.append(("update", setup.model.training)), forward(*a, **k))[
            1
        ]

        def evaluate() -> float:
            modes.append(("evaluation", setup.model.training))
            return 1.5

        result = setup.fit(tmp_path, change(FIT, num_steps=5, evaluate_every=2), evaluate=evaluate)
        update, evaluation = ("update", True), ("evaluation", False)
        assert modes == [update, update, evaluation, update, update, evaluation, update, evaluation]
        held_out = [line for line in result.metrics if "held_out_bits_per_byte" in line]
        assert [(line["step"], line["held_out_bits_per_byte"]) for line in held_out] == [(2, 1.5), (4, 1.5), (5, 1.5)]
        assert not setup.model.training

    def test_gates_are_those_of_training_not_of_the_evaluation(
        self, make_setup: Callable[..., Setup], tmp_path: Path
    ) -> None:
        ids = torch.full((4, 9), 5)
        gates = []
        for name in ("with", "without"):
            setup = make_setup()
            evaluate = (
                (lambda model=setup.model: float(model(input_ids=ids).logits.detach().sum()))
                if name == "with"
                else None
            )
            result = setup.fit(tmp_path / name, change(FIT, evaluate_every=1, log_every=4), evaluate=evaluate)
            gates.append([line["gate"] for line in result.metrics if "gate" in line])
        assert gates[0] == gates[1]

    def test_progress_shows_rate_and_time_left(
        self, setup: Setup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        setup.fit(tmp_path, label="source")
        shown = capsys.readouterr()
        assert "source: 100%" in shown.err and "tok/s" in shown.err and "<00:00" in shown.err and shown.out == ""
