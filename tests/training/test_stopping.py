"""A run that is asked to end by a signal loses nothing, says how to go on, and tells a scheduler from a person."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from setups import FIT, Setup, assert_equal, change, steps_of, weights_of

from tokagnostic import cli
from tokagnostic.training import fit as fit_module
from tokagnostic.training import pretrain as pretrain_module
from tokagnostic.training.checkpoint import load_newest
from tokagnostic.training.config import PretrainConfig
from tokagnostic.training.pretrain import pretrain
from tokagnostic.training.stopping import RunStopped, StopRequest, stopping_before_training
from tokagnostic.training.updating import Updater

both = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


@pytest.fixture(autouse=True)
def handlers_are_put_back() -> Any:
    before = handlers()
    yield
    assert handlers() == before


def signal_in(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, number: int, call: int = 1) -> None:
    """The signal comes within a call of a function, the first or a later one."""
    function, calls = getattr(module, name), []

    def wrapped(*arguments: Any, **named: Any) -> Any:
        calls.append(name)
        if len(calls) == call:
            send(number)
        return function(*arguments, **named)

    monkeypatch.setattr(module, name, wrapped)


class TestSignals:
    @both
    def test_before_training_end_what_is_done_at_once(self, number: int, code: int) -> None:
        told = pytest.raises(RunStopped, match=r"before training began: there is nothing to save")
        with told as caught, stopping_before_training():
            send(number)
            time.sleep(60)
        assert caught.value.exit_code == code and str(caught.value).startswith(
            f"stopped by {signal.Signals(number).name} "
        )

    @both
    def test_within_a_run_are_noted(self, number: int, code: int) -> None:
        with StopRequest() as request:
            assert request.number == 0
            send(number)
            assert request.number == number

    def test_a_scheduler_may_repeat_itself_and_a_person_who_does_is_obeyed(self) -> None:
        with StopRequest() as request:
            send(signal.SIGTERM)
            send(signal.SIGTERM)
            assert request.number == signal.SIGTERM
            with pytest.raises(KeyboardInterrupt):
                send(signal.SIGINT)

    def test_another_thread_than_the_first_heeds_none(self) -> None:
        noted: list[int] = []

        def run() -> None:
            with StopRequest() as request:
                noted.append(request.number)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert noted == [0]


class TestFit:
    SETTINGS = change(FIT, num_steps=12, save_every=5)

    @pytest.mark.parametrize("save_every", [0, 5, 3], ids=["never saves", "would save later", "saves then"])
    @both
    def test_the_step_is_finished_and_saved_and_the_run_goes_on_from_it_bit_for_bit(
        self,
        make_setup: Callable[..., Setup],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        number: int,
        code: int,
        save_every: int,
    ) -> None:
        settings = change(self.SETTINGS, save_every=save_every)
        steady, resumed = make_setup(), make_setup()
        steady.fit(tmp_path / "steady", settings)
        with monkeypatch.context() as patch:
            signal_in(patch, Updater, "update", number, call=3)
            with pytest.raises(RunStopped, match=r"after step 3 of 12, which is saved in .*checkpoints; .*--resume"):
                make_setup().fit(tmp_path / "run", settings)
        newest = load_newest(tmp_path / "run" / "checkpoints")
        assert newest is not None and newest.step == 3
        resumed.fit(tmp_path / "run", settings, resume=True)
        assert_equal(steady.tensors(), resumed.tensors())
        assert steps_of(tmp_path / "run") == list(range(1, 13))

    def test_a_signal_while_a_checkpoint_is_written_leaves_it_whole(
        self, setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        signal_in(monkeypatch, fit_module, "save_checkpoint", signal.SIGTERM)
        with pytest.raises(RunStopped, match="after step 6 of 12"):
            setup.fit(tmp_path, self.SETTINGS)
        assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == [
            "step-00000005",
            "step-00000006",
        ]

    def test_a_signal_in_the_last_step_is_too_late_to_stop_anything(
        self, setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        signal_in(monkeypatch, Updater, "update", signal.SIGTERM, call=12)
        assert setup.fit(tmp_path, self.SETTINGS).num_steps == 12

    def test_all_processes_stop_when_one_is_asked(
        self, setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Two:
            num_processes, device = 2, "cpu"

            def __init__(self, other: float) -> None:
                self.other = other

            def reduce(self, asked: Any, how: str) -> Any:
                assert how == "sum"
                return asked + self.other

        with StopRequest() as request:
            assert not fit_module._is_asked_to_stop(request, Two(0.0))
            assert fit_module._is_asked_to_stop(request, Two(1.0))
            send(signal.SIGTERM)
            assert fit_module._is_asked_to_stop(request, Two(0.0))


class TestPretrain:
    @pytest.mark.parametrize("function", ["_tokenizer", "_assemble", "load_text"])
    def test_while_inputs_are_read_nothing_is_written(
        self, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch, function: str
    ) -> None:
        signal_in(monkeypatch, pretrain_module, function, signal.SIGTERM)
        with pytest.raises(RunStopped, match="before training began"):
            pretrain(config)
        assert not Path(config.output).exists()

    def test_while_results_are_written_the_run_is_finished(
        self, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch, source_run: Path
    ) -> None:
        signal_in(monkeypatch, pretrain_module, "_save", signal.SIGTERM)
        assert pretrain(config)["steps"] == 4
        assert_equal(weights_of(Path(config.output)), weights_of(source_run))

    @both
    def test_the_command_line_prints_one_line_and_its_code(
        self,
        config: PretrainConfig,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        number: int,
        code: int,
    ) -> None:
        signal_in(monkeypatch, Updater, "update", number, call=3)
        arguments = ["--tokenizer", config.tokenizer, "--output", config.output, "--corpus.data", *config.corpus.data]
        sizes = ["--host.width=16", "--host.num-layers=2", "--host.num-heads=2", "--memory.num-rows=211"]
        with pytest.raises(SystemExit) as ended:
            cli.main(["pretrain", *arguments, *sizes, "--fit.num-steps=9", "--fit.block-length=16"])
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (code, "")
        last = err.splitlines()[-1]
        assert last.startswith(f"tokagnostic: stopped by {signal.Signals(number).name} after step 3 of 9, ")
        assert last.endswith("give the same command with --resume to go on")


@pytest.mark.slow
def test_a_process_that_gets_sigterm_saves_says_so_and_is_resumed_to_the_same_end(
    config: PretrainConfig, tmp_path: Path
) -> None:
    """From the start of the program, in training, and once more: each time exit code 0 and one line."""
    arguments = ["--tokenizer", config.tokenizer, "--corpus.data", *config.corpus.data, "--host.width=16"]
    arguments += ["--host.num-layers=2", "--host.num-heads=2", "--memory.num-rows=211", "--memory.dim=4"]
    arguments += ["--fit.num-steps=400", "--fit.batch-size=2", "--fit.block-length=16", "--fit.save-every=0"]

    def start(folder: Path, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tokagnostic", "pretrain", *arguments, "--output", str(folder), *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def num_lines(folder: Path) -> int:
        return len(steps_of(folder)) if (folder / "metrics.jsonl").is_file() else 0

    steady, stopped = tmp_path / "steady", tmp_path / "stopped"
    process = start(steady)
    assert process.wait() == 0
    process = start(stopped)
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 0 and "stopped by SIGTERM before training began" in err.splitlines()[-1]
    for sitting in range(2):
        process, before = start(stopped, *(["--resume"] if sitting else [])), num_lines(stopped)
        while num_lines(stopped) <= before:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
        assert process.returncode == 0 and "--resume to go on" in err.splitlines()[-1]
    process = start(stopped, "--resume")
    assert process.wait() == 0
    assert_equal(weights_of(stopped), weights_of(steady))
