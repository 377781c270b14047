"""Folders that are complete or absent, whatever a killed process, a damaged file or a full disk left."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from tokagnostic.errors import TrainingError
from tokagnostic.training import checkpoint as module
from tokagnostic.training.checkpoint import Checkpoint, checkpoints_in, load_newest, save_checkpoint
from tokagnostic.training.named_tensors import (
    module_tensors,
    optimizer_tensors,
    restore_module,
    restore_optimizer,
)
from tokagnostic.training.state import refuse_difference


def make(step: int) -> Checkpoint:
    return Checkpoint(step, {"a": torch.full((3, 2), float(step)), "b": torch.tensor(step)}, {"text": "x"})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestSaving:
    def test_what_was_saved_is_loaded(self, tmp_path: Path) -> None:
        wide = torch.arange(6.0).reshape(2, 3).T
        save_checkpoint(tmp_path / "c", Checkpoint(7, {"wide": wide, "count": torch.tensor(3)}, {"fit": {"seed": 1}}))
        loaded = load_newest(tmp_path / "c")
        assert loaded is not None and (loaded.step, loaded.facts) == (7, {"fit": {"seed": 1}})
        assert torch.equal(loaded.tensors["wide"], wide) and loaded.tensors["count"].item() == 3

    def test_the_two_newest_stay(self, tmp_path: Path) -> None:
        for step in (1, 2, 10, 99_999_999, 100_000_000):
            save_checkpoint(tmp_path, make(step))
        assert names(tmp_path) == ["step-100000000", "step-99999999"]
        newest = load_newest(tmp_path)
        assert newest is not None and newest.step == 100_000_000

    @pytest.mark.parametrize("num_kept", [1, 2, 3, 9])
    def test_as_many_stay_as_are_asked_for(self, tmp_path: Path, num_kept: int) -> None:
        for step in range(1, 6):
            save_checkpoint(tmp_path, make(step), num_kept)
        assert names(tmp_path) == [f"step-{step:08d}" for step in range(1, 6)][-num_kept:]

    def test_nothing_executable_is_written(self, tmp_path: Path) -> None:
        path = save_checkpoint(tmp_path, make(1))
        assert names(path) == ["facts.json", "state.safetensors"]

    def test_what_a_killed_run_left_is_ignored_and_then_removed(self, tmp_path: Path) -> None:
        save_checkpoint(tmp_path, make(1))
        left = tmp_path / ".partial-00000002"
        left.mkdir()
        (left / "state.safetensors").write_bytes(b"half")
        (tmp_path / "step-notes").mkdir()
        newest = load_newest(tmp_path)
        assert newest is not None and newest.step == 1
        save_checkpoint(tmp_path, make(2))
        assert names(tmp_path) == ["step-00000001", "step-00000002", "step-notes"]

    def test_a_step_that_is_there_is_replaced(self, tmp_path: Path) -> None:
        path = save_checkpoint(tmp_path, make(1))
        (path / "state.safetensors").write_bytes(b"damaged")
        save_checkpoint(tmp_path, make(1))
        newest = load_newest(tmp_path)
        assert newest is not None and newest.tensors["b"].item() == 1

    @pytest.mark.parametrize(
        "error",
        [OSError(28, "No space left on device"), SafetensorError("I/O error: no\nspace")],
        ids=["os", "library"],
    )
    @pytest.mark.parametrize("function", ["save_file", "_flush_to_disk", "_digest"])
    def test_a_full_disk_is_one_line_and_leaves_nothing_under_the_final_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, function: str
    ) -> None:
        save_checkpoint(tmp_path, make(1))

        def refuse(*_: object) -> None:
            raise error

        monkeypatch.setattr(module, function, refuse)
        with pytest.raises(TrainingError, match=r"step-00000002 could not be written .* earlier checkpoints") as caught:
            save_checkpoint(tmp_path, make(2))
        assert "\n" not in str(caught.value)
        assert names(tmp_path) == ["step-00000001"]

    def test_a_folder_that_cannot_be_made_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(TrainingError, match="could not be written"):
            save_checkpoint(tmp_path / "file" / "c", make(1))


class TestLoading:
    def test_without_checkpoints_there_is_none(self, tmp_path: Path) -> None:
        assert load_newest(tmp_path) is None and load_newest(tmp_path / "absent") is None

    @pytest.mark.parametrize(
        "damage", ["truncated", "flipped", "no state", "no facts", "torn facts", "foreign facts", "list"]
    )
    def test_a_damaged_newest_is_named_in_the_log_and_the_one_before_is_taken(
        self, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        save_checkpoint(tmp_path, make(1))
        path = save_checkpoint(tmp_path, make(2))
        state, facts = path / "state.safetensors", path / "facts.json"
        data = state.read_bytes()
        if damage == "truncated":
            state.write_bytes(data[:-5])
        elif damage == "flipped":
            state.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        elif damage == "no state":
            state.unlink()
        elif damage == "no facts":
            facts.unlink()
        elif damage == "torn facts":
            facts.write_text(facts.read_text()[:20])
        else:
            facts.write_text("[]" if damage == "list" else json.dumps({"step": None}))
        with caplog.at_level(logging.WARNING):
            newest = load_newest(tmp_path)
        assert newest is not None and newest.step == 1
        assert [str(path) in record.getMessage() for record in caplog.records] == [True]

    def test_if_none_can_be_read_one_line_says_so(self, tmp_path: Path) -> None:
        for step in (1, 2):
            (save_checkpoint(tmp_path, make(step)) / "state.safetensors").write_bytes(b"")
        with pytest.raises(TrainingError, match=r"no checkpoint in .* the newest is .*step-00000002"):
            load_newest(tmp_path)

    def test_checkpoints_come_oldest_first(self, tmp_path: Path) -> None:
        for step in (3, 20):
            save_checkpoint(tmp_path, make(step))
        assert [path.name for path in checkpoints_in(tmp_path)] == ["step-00000003", "step-00000020"]


class TestState:
    def test_frozen_parameters_are_left_out_and_shared_ones_kept_once(self) -> None:
        model = nn.ModuleDict({"one": nn.Linear(2, 2), "two": nn.Linear(2, 2), "norm": nn.BatchNorm1d(2)})
        model["two"].weight = model["one"].weight
        model["two"].bias.requires_grad_(False)
        model["norm"].register_buffer("passing", torch.ones(1), persistent=False)
        found = set(module_tensors(model))
        assert {"model.one.weight", "model.one.bias", "model.norm.running_mean"} <= found
        assert not {"model.two.weight", "model.two.bias", "model.norm.passing"} & found

    def test_restoring_is_in_place(self) -> None:
        model, other = nn.Linear(2, 3), nn.Linear(2, 3)
        weight = other.weight
        restore_module(other, module_tensors(model))
        assert other.weight is weight and torch.equal(weight, model.weight)

    @pytest.mark.parametrize("saved", [{}, {"model.weight": torch.ones(2, 2)}], ids=["missing", "another shape"])
    def test_what_does_not_fit_is_refused(self, saved: dict[str, torch.Tensor]) -> None:
        with pytest.raises(TrainingError, match=r"the checkpoint has model.weight of shape .*expected shape \(3, 2\)"):
            restore_module(nn.Linear(2, 3), saved)

    def test_an_optimizer_goes_on_as_if_nothing_had_been(self) -> None:
        torch.manual_seed(0)
        models = [nn.Linear(2, 3) for _ in range(2)]
        optimizers = [torch.optim.AdamW(model.parameters(), lr=0.1) for model in models]
        known = [{p: name for name, p in model.named_parameters()} for model in models]

        def step(i: int) -> None:
            models[i](torch.ones(1, 2)).sum().backward()
            optimizers[i].step()
            optimizers[i].zero_grad()

        step(0)
        step(0)
        restore_module(models[1], module_tensors(models[0]))
        restore_optimizer(optimizers[1], known[1], optimizer_tensors(optimizers[0], known[0]))
        step(0)
        step(1)
        assert torch.equal(models[0].weight, models[1].weight) and torch.equal(models[0].bias, models[1].bias)


class TestDifference:
    def test_equal_facts_pass(self) -> None:
        refuse_difference("it", {"a": [1, 2], "b": {"c": None}}, {"b": {"c": None}, "a": [1, 2]})

    @pytest.mark.parametrize(
        ("saved", "given", "message"),
        [
            ({"fit": {"seed": 1}}, {"fit": {"seed": 2}}, "it has fit.seed = 1, but the run is resumed with 2"),
            ({"a": 1}, {"a": 1, "b": 2}, "it has b = null, but the run is resumed with 2"),
            ({"a": 1, "b": 2}, {"a": 1}, "it has b = 2, but the run is resumed with null"),
            ({"a": {"b": 1}}, {"a": [1]}, r"it has a = {\"b\": 1}, but the run is resumed with \[1\]"),
        ],
        ids=["value", "more", "less", "type"],
    )
    def test_the_first_difference_is_named(self, saved: dict, given: dict, message: str) -> None:
        with pytest.raises(TrainingError, match=message):
            refuse_difference("it", saved, given)

    def test_long_values_are_cut(self) -> None:
        with pytest.raises(TrainingError) as caught:
            refuse_difference("it", {"a": list(range(1000))}, {"a": 1})
        assert len(str(caught.value)) < 400
