from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tokagnostic import cli
from tokagnostic.errors import CorpusError, InvalidValueError
from tokagnostic.evaluation.key_set import KeySet
from tokagnostic.flags import parse_flags
from tokagnostic.hashing import HashCache
from tokagnostic.memory.file import load_memory, read_recipe, verify_memory
from tokagnostic.studies.controls import CONTROLS
from tokagnostic.studies.demo import DemoConfig, DemoStopped, demo
from tokagnostic.studies.report import LEFT_BEHIND, MEANING
from tokagnostic.tokens.sources import load_tokenizer
from tokagnostic.training.updating import Updater
from tokagnostic.verbs import models


@pytest.fixture(scope="module")
def report(finished: Path) -> dict:
    return json.loads((finished / "report.json").read_text(), parse_constant=lambda name: pytest.fail(name))


class TestWhatItLeaves:
    def test_is_every_file_that_it_promises_and_nothing_else(self, finished) -> None:
        names = {path.name for path in finished.iterdir()}
        assert names <= LEFT_BEHIND
        assert names == LEFT_BEHIND - {"off"}
        for name in ("overlap.png", "controls.png", "curves.png", "seen_novel.png"):
            assert (finished / name).read_bytes().startswith(b"\x89PNG")
        for run in ("source", *CONTROLS):
            lines = (finished / run / "metrics.jsonl").read_text().splitlines()
            assert any("held_out_bits_per_byte" in json.loads(line) for line in lines)

    def test_has_every_control_in_bits_per_byte(self, report) -> None:
        """E-14: none, frozen, off, random, permuted, order 1 and native, side by side."""
        assert set(report["bpb"]) == {"none", "frozen", "off", "random", "permuted", "order1", "native"}
        assert all(0 < bits < 20 for bits in report["bpb"].values())
        assert report["bpb"]["off"] != report["bpb"]["frozen"]

    def test_states_the_transfer_efficiency_of_its_own_numbers(self, report) -> None:
        none, frozen, native = (report["bpb"][control] for control in ("none", "frozen", "native"))
        assert report["transfer_efficiency"] == pytest.approx((none - frozen) / (none - native))

    def test_names_python_and_the_digest_of_the_text(self, report, finished, text_file) -> None:
        import platform

        from tokagnostic.corpus import Corpus, CorpusConfig

        assert report["python"] == platform.python_version()
        corpus = Corpus(CorpusConfig(data=(str(text_file),), documents="paragraph"))
        assert report["text"]["digest"] == corpus.digest()
        page = (finished / "report.md").read_text()
        assert report["text"]["digest"] in page and f"Python {platform.python_version()}" in page

    def test_is_scored_on_all_held_out_bytes_and_on_nothing_else(self, report) -> None:
        for control in report["controls"].values():
            score = control["score"]
            assert score["bytes"] == report["text"]["held_out_bytes"]
            assert score["num_documents"] == report["text"]["held_out_documents"]
            assert score["lossy"] is False and score["unscored_bytes"] == 0
            assert score["seen"]["bytes"] + score["novel"]["bytes"] == score["bytes"]
        states = {name: control["score"]["memory"] for name, control in report["controls"].items()}
        assert states == {name: "none" if name == "none" else "on" for name in CONTROLS}
        assert report["controls"]["frozen"]["off"]["memory"] == "off"

    def test_trained_every_control_for_the_same_steps(self, report, finished) -> None:
        counts = {
            json.loads((finished / run / "metrics.jsonl").read_text().splitlines()[-1])["tokens"] for run in CONTROLS
        }
        assert len(counts) == 1
        assert report["frozen_table_unchanged"] is True
        unchanged = {name: control["table_unchanged"] for name, control in report["controls"].items()}
        assert unchanged == {name: None if name in ("none", "native") else True for name in CONTROLS}

    def test_holds_a_memory_file_that_says_what_it_was_trained_on(self, report, finished) -> None:
        verify_memory(finished / "memory.safetensors")
        recipe = read_recipe(finished / "memory.safetensors")
        assert recipe.identity == report["source"]["memory"]["identity"]
        assert recipe.trained_on["text"] == report["text"]
        target = load_tokenizer(str(finished / "tokenizers" / "target"))
        memory = load_memory(finished / "memory.safetensors", HashCache.of(target))
        assert int(memory.visits[0].counts.sum()) > 0

    def test_holds_both_tokenizers_of_different_kind(self, report, finished) -> None:
        source, target = (load_tokenizer(str(finished / "tokenizers" / role)) for role in ("source", "target"))
        for role, encoder in (("source", source), ("target", target)):
            assert encoder.token_bytes.fingerprint == report["tokenizers"][role]["fingerprint"]
        assert report["tokenizers"]["source"]["name"].startswith("byte-level BPE")
        assert report["tokenizers"]["target"]["name"].startswith("Unigram")
        assert source.start_id is not None and target.start_id is not None

    def test_has_the_config_beside_it(self, finished, tiny_config) -> None:
        config = json.loads((finished / "config.json").read_text())
        assert config == json.loads(json.dumps(dataclasses.asdict(tiny_config(finished))))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(report, tiny_config, tmp_path) -> None:
    again = demo(tiny_config(tmp_path / "again"))
    assert again["bpb"] == report["bpb"]
    assert again["source"]["memory"]["identity"] == report["source"]["memory"]["identity"]
    other = demo(tiny_config(tmp_path / "other", seed=1, target_steps=1, source_steps=1))
    assert other["text"] == report["text"] and other["tokenizers"] == report["tokenizers"]
    assert other["bpb"]["none"] != report["bpb"]["none"]


def test_the_memory_has_not_seen_the_held_out_text(finished, text_file) -> None:
    """Windows that occur in the held-out text alone are in no set of seen windows."""
    from tokagnostic.corpus import Corpus, CorpusConfig
    from tokagnostic.studies.division import divide_text

    config = CorpusConfig(data=(str(text_file),), documents="paragraph")
    text = divide_text(list(Corpus(config)), config, 0.15)
    source = load_tokenizer(str(finished / "tokenizers" / "source"))
    seen = KeySet.of_documents(text.source, source, 3)
    held_out = KeySet.of_documents(text.held_out, source, 3)
    assert 0 < seen.contains(held_out.keys).mean() < 1


class TestFolder:
    def test_of_an_earlier_demonstration_is_replaced(self, tiny_config, finished, tmp_path, monkeypatch) -> None:
        import shutil

        folder = tmp_path / "demo"
        shutil.copytree(finished, folder)
        (folder / "report.json").write_text("earlier")
        with pytest.raises(StopHereError):
            self.run_until_tokenizers(tiny_config(folder), monkeypatch)
        assert [path.name for path in folder.iterdir()] == ["config.json"]

    @pytest.mark.parametrize("name", ["thesis.tex", ".hidden"])
    def test_that_holds_something_else_is_refused_and_left_alone(self, name, tiny_config, tmp_path) -> None:
        (tmp_path / name).write_text("years of work")
        with pytest.raises(InvalidValueError, match=name):
            demo(tiny_config(tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == [name]

    def test_of_another_run_is_refused(self, tiny_config, tmp_path) -> None:
        (tmp_path / "config.json").write_text(json.dumps({"tokenizer": "x", "fit": {}}))
        with pytest.raises(InvalidValueError, match="no demonstration"):
            demo(tiny_config(tmp_path))
        assert (tmp_path / "config.json").exists()

    def test_of_a_demonstration_with_something_besides_is_refused(self, tiny_config, finished, tmp_path) -> None:
        import shutil

        shutil.copytree(finished, tmp_path / "demo")
        (tmp_path / "demo" / "notes.txt").write_text("mine")
        with pytest.raises(InvalidValueError, match=r"notes\.txt"):
            demo(tiny_config(tmp_path / "demo"))
        assert (tmp_path / "demo" / "report.json").exists()

    def test_that_is_a_file_is_refused(self, tiny_config, tmp_path) -> None:
        (tmp_path / "demo").write_text("mine")
        with pytest.raises(InvalidValueError, match="is a file"):
            demo(tiny_config(tmp_path / "demo"))
        assert (tmp_path / "demo").read_text() == "mine"

    def test_is_left_alone_when_the_text_cannot_be_used(self, tiny_config, finished, tmp_path) -> None:
        import shutil

        from tokagnostic.corpus import CorpusConfig

        shutil.copytree(finished, tmp_path / "demo")
        (tmp_path / "short.txt").write_text("one document")
        config = tiny_config(tmp_path / "demo", corpus=CorpusConfig(data=(str(tmp_path / "short.txt"),)))
        with pytest.raises(CorpusError, match="1 documents"):
            demo(config)
        assert (tmp_path / "demo" / "report.json").exists()

    @staticmethod
    def run_until_tokenizers(config: DemoConfig, monkeypatch: pytest.MonkeyPatch) -> None:
        def stop(*_: object) -> None:
            raise StopHereError

        monkeypatch.setattr("tokagnostic.studies.demo._train_tokenizers", stop)
        demo(config)


class TestStop:
    """A demonstration does not resume: its runs' advice to do so would be refused as an unknown flag."""

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"])
    @pytest.mark.parametrize("call", [2, 6], ids=["in the source", "in a control"])
    def test_says_that_it_begins_again_and_is_no_success(
        self, tiny_config, tmp_path, monkeypatch, capsys, number: int, code: int, call: int
    ) -> None:
        update, calls = Updater.update, []

        def update_or_stop(*arguments: object) -> float:
            calls.append(1)
            if len(calls) == call:
                os.kill(os.getpid(), number)
            return update(*arguments)

        monkeypatch.setattr(Updater, "update", update_or_stop)
        config = tiny_config(tmp_path / "demo")
        monkeypatch.setattr(models, "parse_flags", lambda *_: (config, False))
        with pytest.raises(SystemExit) as ended:
            cli.main(["demo"])
        assert ended.value.code == code and len(calls) == call
        line = capsys.readouterr().err.splitlines()[-1]
        assert line.startswith(f"tokagnostic: stopped by {signal.Signals(number).name}") and "--resume" not in line
        assert line.endswith(f"give the same command again, which replaces what it left in {tmp_path / 'demo'}")

    def test_and_does_begin_again_in_the_same_folder(self, tiny_config, tmp_path, monkeypatch) -> None:
        def stop(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

        config = tiny_config(tmp_path / "demo")
        with monkeypatch.context() as patch:
            patch.setattr("tokagnostic.training.fit.warmup_cosine", lambda *_: (stop(), 1.0)[1])
            with pytest.raises(DemoStopped):
                demo(config)
        assert (tmp_path / "demo" / "source").exists()
        with pytest.raises(StopHereError):
            TestFolder.run_until_tokenizers(config, monkeypatch)
        assert [path.name for path in (tmp_path / "demo").iterdir()] == ["config.json"]

    def test_has_no_flag_to_resume(self) -> None:
        with pytest.raises(InvalidValueError, match="--resume"):
            parse_flags(DemoConfig, ["--resume"], "demo")


class StopHereError(Exception):
    """Raised in place of the training."""


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, math.nan])
def test_a_share_that_leaves_nothing_is_refused(share, tiny_config: Callable[..., DemoConfig], tmp_path) -> None:
    with pytest.raises(InvalidValueError, match="held_out_share"):
        tiny_config(tmp_path, held_out_share=share)


def test_every_control_has_a_meaning() -> None:
    assert set(MEANING) == {*CONTROLS, "off"}
