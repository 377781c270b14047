"""A folder that holds the beginning of a run, or all of it."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from setups import LINES, MEMORY, RUN_FIT, assert_equal, change, lines_of, steps_of, weights_of

from tokagnostic import cli
from tokagnostic.corpus import CorpusConfig
from tokagnostic.errors import SourceError, TokagnosticError, TrainingError
from tokagnostic.training import pretrain as pretrain_module
from tokagnostic.training.config import AttachConfig, PretrainConfig
from tokagnostic.training.pretrain import pretrain
from tokagnostic.training.run import load_run
from tokagnostic.verbs import models


class TestResume:
    def stopped(self, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
        """A run that is interrupted when it is about to save."""
        from tokagnostic.training import fit as fit_module

        save = fit_module.save_checkpoint

        def save_or_stop(folder: Path, checkpoint: Any, num_kept: int) -> Path:
            if checkpoint.step == step:
                raise KeyboardInterrupt
            return save(folder, checkpoint, num_kept)

        with monkeypatch.context() as patch:
            patch.setattr(fit_module, "save_checkpoint", save_or_stop)
            with pytest.raises(KeyboardInterrupt):
                pretrain(config)

    def test_an_interrupted_run_ends_where_it_would_have(
        self, config: PretrainConfig, source_run: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """M-22."""
        self.stopped(config, monkeypatch, step=4)
        assert not (Path(config.output) / "result.json").exists()
        with pytest.raises(SourceError, match="holds no finished run"):
            load_run(config.output)
        pretrain(change(config, resume=True))
        assert_equal(weights_of(Path(config.output)), weights_of(source_run))
        assert steps_of(Path(config.output)) == [1, 2, 3, 4]
        settings = json.loads((Path(config.output) / "config.json").read_text())
        assert settings["resume"] is False

    def test_a_run_with_a_frozen_memory_too(
        self, attach_config: AttachConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        pretrain(change(attach_config, output=str(tmp_path / "steady")))
        self.stopped(attach_config, monkeypatch, step=4)
        pretrain(change(attach_config, resume=True))
        assert_equal(weights_of(Path(attach_config.output)), weights_of(tmp_path / "steady"))

    def test_a_run_stopped_before_its_first_checkpoint_starts_again(
        self, config: PretrainConfig, source_run: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.stopped(config, monkeypatch, step=2)
        pretrain(change(config, resume=True))
        assert_equal(weights_of(Path(config.output)), weights_of(source_run))

    @pytest.mark.parametrize("save_every", [0, 2], ids=["without checkpoints", "with checkpoints"])
    def test_a_finished_run_is_left_as_it_is(self, config: PretrainConfig, save_every: int) -> None:
        config = change(config, fit=change(RUN_FIT, save_every=save_every))
        facts = pretrain(config)
        folder = Path(config.output)
        times = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        assert pretrain(change(config, resume=True)) == facts
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == times

    def test_a_run_killed_while_it_writes_its_results_is_finished_by_resuming(
        self, config: PretrainConfig, source_run: Path
    ) -> None:
        facts = pretrain(config)
        folder = Path(config.output)
        (folder / "result.json").unlink()
        (folder / "attachment" / "attachment.json").unlink()
        again = pretrain(change(config, resume=True))
        assert {**again, "tokens_per_second": 0} == {**facts, "tokens_per_second": 0}
        assert_equal(weights_of(folder), weights_of(source_run))

    def test_a_folder_with_another_run_is_refused(self, config: PretrainConfig) -> None:
        pretrain(config)
        with pytest.raises(TrainingError, match=r"holds a run already; expected a new output folder. Add --resume"):
            pretrain(config)

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"fit": change(RUN_FIT, learning_rate=0.5)}, "fit.learning_rate = 0.01, but the run is resumed with 0.5"),
            ({"gate": "signed_sqrt"}, 'gate = "sigmoid"'),
            ({"layers": (0,)}, r"layers = \[1\]"),
            ({"memory": change(MEMORY, seed=1)}, "memory.seed = 0"),
            ({"train_host": False}, "train_host = true"),
        ],
        ids=["rate", "gate", "layers", "memory", "host"],
    )
    def test_other_settings_are_refused(self, config: PretrainConfig, changes: dict[str, Any], named: str) -> None:
        pretrain(config)
        with pytest.raises(TrainingError, match=f"config.json has {named}") as caught:
            pretrain(change(config, resume=True, **changes))
        assert "\n" not in str(caught.value)

    def test_another_text_under_the_same_name_is_refused(
        self, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        text = tmp_path / "text.txt"
        text.write_text("\n".join(LINES))
        config = change(config, corpus=CorpusConfig(data=(str(text),), documents="line"))
        self.stopped(config, monkeypatch, step=4)
        text.write_text("\n".join(LINES[1:]))
        with pytest.raises(TrainingError, match="has text = "):
            pretrain(change(config, resume=True))

    def test_a_config_that_cannot_be_read_is_one_line(self, config: PretrainConfig) -> None:
        pretrain(config)
        (Path(config.output) / "config.json").write_text('{"tokenizer"')
        with pytest.raises(TrainingError, match=r"config.json cannot be read"):
            pretrain(change(config, resume=True))

    def test_reporting_may_change(self, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stopped(config, monkeypatch, step=4)
        pretrain(change(config, resume=True, fit=change(RUN_FIT, log_every=3, save_every=1)))
        assert steps_of(Path(config.output)) == [1, 2, 3, 4]


class TestFullDisk:
    @pytest.fixture
    def small_files(self) -> Iterator[Callable[[int], None]]:
        """The system itself refuses files above a size, as a full disk would."""
        resource = pytest.importorskip("resource")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    def test_is_one_line_and_exit_code_2_and_the_run_goes_on_when_there_is_room(
        self,
        config: PretrainConfig,
        source_run: Path,
        small_files: Callable[[int], None],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        TestResume().stopped(config, monkeypatch, step=4)
        checkpoints = Path(config.output) / "checkpoints"
        before = {path: path.read_bytes() for path in checkpoints.rglob("*") if path.is_file()}
        small_files(4096)
        monkeypatch.setitem(cli.VERBS, "pretrain", lambda _: models._train(change(config, resume=True), as_json=False))
        with pytest.raises(SystemExit) as ended:
            cli.main(["pretrain"])
        small_files(-1)
        line = capsys.readouterr().err.splitlines()[-1]
        assert ended.value.code == 2
        assert line.startswith(f"tokagnostic: checkpoint {checkpoints / 'step-00000004'} could not be written (")
        assert line.endswith("or name another output folder; the earlier checkpoints are intact.")
        assert {path: path.read_bytes() for path in checkpoints.rglob("*") if path.is_file()} == before
        pretrain(change(config, resume=True))
        assert_equal(weights_of(Path(config.output)), weights_of(source_run))

    def test_results_that_cannot_be_written_are_written_when_there_is_room(
        self,
        config: PretrainConfig,
        source_run: Path,
        small_files: Callable[[int], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        save = pretrain_module._save

        def save_without_room(*arguments: Any) -> None:
            small_files(4096)
            save(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(pretrain_module, "_save", save_without_room)
            with pytest.raises(TokagnosticError, match=r"memory.safetensors cannot be written \(") as caught:
                pretrain(config)
        small_files(-1)
        assert "\n" not in str(caught.value) and not (Path(config.output) / "result.json").exists()
        pretrain(change(config, resume=True))
        assert_equal(weights_of(Path(config.output)), weights_of(source_run))


@pytest.mark.slow
def test_a_run_killed_at_ten_moments_ends_where_an_uninterrupted_one_does(
    tokenizer_file: Path, texts: dict[str, Path], tmp_path: Path
) -> None:
    """M-22, D-09: SIGKILL, which no handler sees; every other time while a checkpoint is being written."""
    arguments = ["--tokenizer", str(tokenizer_file), "--corpus.data", str(texts["jsonl"]), "--host.width=16"]
    arguments += ["--host.num-layers=2", "--host.num-heads=2", "--memory.num-rows=2003", "--memory.dim=4"]
    arguments += ["--fit.num-steps=600", "--fit.batch-size=2", "--fit.block-length=16", "--fit.save-every=1"]

    def start(folder: Path, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tokagnostic", "pretrain", *arguments, "--output", str(folder), *more]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def newest(folder: Path) -> int:
        found = [int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*")]
        return max(found, default=0)

    def wait_until(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        while not holds():
            assert process.poll() is None, "the run has ended before it was killed: give it more steps"
            time.sleep(0.0001)

    steady, killed = tmp_path / "steady", tmp_path / "killed"
    checkpoints = killed / "checkpoints"
    draws, torn = random.Random(9), 0
    for kill in range(10):
        begun = newest(killed)
        process = start(killed, *(["--resume"] if kill else []))
        wait_until(lambda begun=begun: newest(killed) > begun, process)
        time.sleep(draws.uniform(0, 0.2))
        if kill % 2:
            wait_until(lambda: any(checkpoints.glob(".partial-*")), process)
            time.sleep(draws.uniform(0, 0.002))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL and not (killed / "result.json").exists()
        torn += any(checkpoints.glob(".partial-*"))
    assert torn, "no kill has met a checkpoint that was being written"
    last, uninterrupted = start(killed, "--resume"), start(steady)
    assert last.wait() == uninterrupted.wait() == 0
    assert digests_of(killed) == digests_of(steady)
    assert steps_of(killed) == steps_of(steady)
    assert [line["loss"] for line in lines_of(killed)] == [line["loss"] for line in lines_of(steady)]
    assert not list(killed.rglob(".*partial*"))


def digests_of(folder: Path) -> dict[str, str]:
    """SHA-256 of the trained host, reader and memory and of the last checkpoint's state, as files."""
    files = [*sorted((folder / "checkpoints").rglob("*.safetensors"))[-1:], *folder.glob("*/*.safetensors")]
    assert len(files) == 4
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
