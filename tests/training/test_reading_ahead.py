"""Runs and evaluations that read a frozen memory ahead: the same bits as without, and no thread left behind."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from setups import SENTENCES, assert_equal, change, lines_of, weights_of
from torch import Tensor

from tokagnostic.corpus import Document
from tokagnostic.errors import InvalidValueError
from tokagnostic.evaluation.bits_per_byte import bits_per_byte
from tokagnostic.memory.ahead import ReadAhead
from tokagnostic.training import fit as fit_module
from tokagnostic.training.checkpoint import Checkpoint
from tokagnostic.training.config import AttachConfig, TextConfig
from tokagnostic.training.pretrain import pretrain
from tokagnostic.training.run import load_run

TEXTS = {"whole": TextConfig(), "streamed": TextConfig(shuffle_buffer=3), "mixed": TextConfig(weights=(1.0,))}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each read: whether it had been fetched."""
    found, take = [], ReadAhead.take

    def noted(ahead: ReadAhead, keys: Tensor, table: int) -> Tensor | None:
        features = take(ahead, keys, table)
        found.append(features is not None)
        return features

    monkeypatch.setattr(ReadAhead, "take", noted)
    return found


@contextmanager
def no_reading_ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(ReadAhead, "helps", property(lambda _: False))
        yield


def stop_when_saved(config: AttachConfig, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Run until a checkpoint is written, and go no further."""
    save = fit_module.save_checkpoint

    def save_and_stop(folder: Path, checkpoint: Checkpoint, num_kept: int) -> None:
        save(folder, checkpoint, num_kept)
        if checkpoint.step == step:
            raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(fit_module, "save_checkpoint", save_and_stop)
        with pytest.raises(InterruptedError):
            pretrain(config)


def assert_no_thread_left() -> None:
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("tokagnostic-ahead")] == []


@pytest.mark.parametrize("stays", [False, True], ids=["moving", "staying"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_run_is_the_same_with_and_without(
    attach_config: AttachConfig,
    text: TextConfig,
    stays: bool,
    taken: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    fit = change(attach_config.fit, accumulation=2, save_every=1)
    config = change(attach_config, text=text, fit=fit, memory_stays=stays, output=str(tmp_path / "ahead"))
    pretrain(config)
    assert taken == [False] + [True] * (2 * fit.num_steps - 1), "only the first batch has none before it"
    assert_no_thread_left()
    with no_reading_ahead(monkeypatch):
        pretrain(change(config, output=str(tmp_path / "plain")))
    assert len(taken) == 2 * fit.num_steps
    assert_equal(weights_of(tmp_path / "ahead"), weights_of(tmp_path / "plain"))
    losses = [[line.get("loss") for line in lines_of(tmp_path / name)] for name in ("ahead", "plain")]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_run_that_is_stopped_goes_on_with_the_batch_that_it_had_looked_at(
    attach_config: AttachConfig, text: TextConfig, taken: list[bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A checkpoint keeps the place before the batch that was read ahead."""
    config = change(attach_config, text=text, fit=change(attach_config.fit, num_steps=6, save_every=1))
    pretrain(change(config, output=str(tmp_path / "steady")))
    stop_when_saved(config, monkeypatch, step=2)
    assert_no_thread_left()
    stop_when_saved(change(config, resume=True), monkeypatch, step=5)
    pretrain(change(config, resume=True))
    assert any(taken)
    assert_equal(weights_of(Path(config.output)), weights_of(tmp_path / "steady"))
    results = [
        json.loads((folder / "result.json").read_text()) for folder in (Path(config.output), tmp_path / "steady")
    ]
    for name in ("documents", "bytes", "tokens_in_text", "final_loss"):
        assert results[0][name] == results[1][name]


def test_what_goes_wrong_while_reading_ahead_ends_the_run(
    attach_config: AttachConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise IndexError("row 7 of a table of 5 rows")

    monkeypatch.setattr(ReadAhead, "_fetch", fail)
    with pytest.raises(IndexError, match="row 7"):
        pretrain(attach_config)
    assert_no_thread_left()


def test_an_evaluation_is_the_same_with_and_without(
    source_run: Path, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load_run(source_run)
    documents = [Document(sentence.encode() * 2, str(i)) for i, sentence in enumerate(SENTENCES)]
    ahead = bits_per_byte(run.model, run.encoder, documents, 8, 4, batch_size=2)
    assert taken[0] is False and len(taken) > 2 and all(taken[1:])
    assert_no_thread_left()
    with no_reading_ahead(monkeypatch):
        plain = bits_per_byte(run.model, run.encoder, documents, 8, 4, batch_size=2)
    assert ahead == plain


@pytest.mark.parametrize("wrong", [{"train_table": True}, {"memory_file": None}], ids=str)
def test_only_a_frozen_file_can_stay(attach_config: AttachConfig, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        change(attach_config, memory_stays=True, **wrong)
