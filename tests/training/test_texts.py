"""The text of a run as its settings say: whole or streamed, one or several, and resumed where it stood."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from setups import SENTENCES, assert_equal, change, weights_of

from tokagnostic.corpus import CorpusConfig
from tokagnostic.errors import CorpusError, InvalidValueError, SourceError, TrainingError
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.training import fit as fit_module
from tokagnostic.training.config import PretrainConfig, TextConfig
from tokagnostic.training.mixture import Mixture
from tokagnostic.training.packing import TokenStream
from tokagnostic.training.pretrain import pretrain
from tokagnostic.training.streamed_text import StreamedText
from tokagnostic.training.texts import load_text


def stop_when_saving(config: PretrainConfig, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """A run that is interrupted when it is about to save."""
    save = fit_module.save_checkpoint

    def save_or_stop(folder: Path, checkpoint: Any, *more: Any, **named: Any) -> Path:
        if checkpoint.step == step:
            raise KeyboardInterrupt
        return save(folder, checkpoint, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(fit_module, "save_checkpoint", save_or_stop)
        with pytest.raises(KeyboardInterrupt):
            pretrain(config)


@pytest.fixture
def two_sources(tmp_path: Path) -> tuple[str, str]:
    for name, number in (("a.jsonl", 5), ("b.jsonl", 40)):
        rows = [{"text": f"{name} {i} {SENTENCES[i % 3]}"} for i in range(number)]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")


@pytest.fixture
def streamed(config: PretrainConfig, two_sources: tuple[str, str]) -> PretrainConfig:
    """A run over two sources with weights, whose buffers are much smaller than they are."""
    text = TextConfig(shuffle_buffer=4, weights=(1, 2))
    return change(config, corpus=CorpusConfig(data=two_sources), text=text)


class TestLoading:
    def test_a_text_is_whole_or_streamed_one_or_several(
        self, encoder: TextEncoder, two_sources: tuple[str, str]
    ) -> None:
        corpus = CorpusConfig(data=two_sources)
        assert isinstance(load_text(corpus, TextConfig(), encoder), TokenStream)
        assert isinstance(load_text(corpus, TextConfig(shuffle_buffer=2), encoder), StreamedText)
        mixed = load_text(corpus, TextConfig(weights=(1, 2)), encoder)
        assert isinstance(mixed, Mixture) and mixed.counts.documents == 45

    def test_the_whole_text_knows_its_bytes(self, encoder: TextEncoder, two_sources: tuple[str, str]) -> None:
        text = load_text(CorpusConfig(data=two_sources), TextConfig(), encoder)
        rows = [json.loads(line)["text"] for path in two_sources for line in Path(path).read_text().splitlines()]
        assert text.counts.bytes == sum(map(len, rows))

    @pytest.mark.parametrize("weights", [(1.0,), (1.0, 2.0, 3.0)], ids=len)
    def test_another_number_of_weights_than_sources_is_one_line(
        self, encoder: TextEncoder, two_sources: tuple[str, str], weights: tuple[float, ...]
    ) -> None:
        with pytest.raises(InvalidValueError, match=rf"{len(weights)} weights for the sources .*b\.jsonl") as caught:
            load_text(CorpusConfig(data=two_sources), TextConfig(weights=weights), encoder)
        assert "\n" not in str(caught.value)

    def test_a_limit_and_weights_are_refused(self, encoder: TextEncoder, two_sources: tuple[str, str]) -> None:
        with pytest.raises(InvalidValueError, match="limit of 3 documents for sources with weights"):
            load_text(CorpusConfig(data=two_sources, limit=3), TextConfig(weights=(1, 1)), encoder)

    @pytest.mark.parametrize(
        "wrong",
        [{"shuffle_buffer": -1}, {"processes": -1}, {"processes": 1.5}, {"weights": (0.0,)}, {"weights": (1, -1.0)}],
        ids=str,
    )
    def test_a_wrong_setting_is_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(InvalidValueError):
            TextConfig(**wrong)


class TestRun:
    def test_a_streamed_run_that_is_stopped_twice_ends_where_an_uninterrupted_one_does(
        self, streamed: PretrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """M-22, D-09."""
        streamed = change(streamed, fit=change(streamed.fit, num_steps=8, save_every=1))
        pretrain(change(streamed, output=str(tmp_path / "steady")))
        stop_when_saving(streamed, monkeypatch, step=4)
        stop_when_saving(change(streamed, resume=True), monkeypatch, step=6)
        pretrain(change(streamed, resume=True))
        assert_equal(weights_of(Path(streamed.output)), weights_of(tmp_path / "steady"))
        results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("run", "steady")]
        for name in ("documents", "bytes", "tokens_in_text", "final_loss"):
            assert results[0][name] == results[1][name]
        assert results[0]["documents"] > 0

    @pytest.mark.slow
    def test_and_with_other_numbers_of_processes_that_encode(
        self, streamed: PretrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        pretrain(change(streamed, output=str(tmp_path / "steady")))
        encoding = change(streamed, text=change(streamed.text, processes=2))
        stop_when_saving(encoding, monkeypatch, step=4)
        pretrain(change(streamed, text=change(streamed.text, processes=1), resume=True))
        assert_equal(weights_of(Path(streamed.output)), weights_of(tmp_path / "steady"))

    @pytest.mark.parametrize("text", [TextConfig(weights=(1, 2)), TextConfig(shuffle_buffer=3)], ids=["whole", "one"])
    def test_other_kinds_of_text_resume_too(
        self, streamed: PretrainConfig, text: TextConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        streamed = change(streamed, text=text)
        pretrain(change(streamed, output=str(tmp_path / "steady")))
        stop_when_saving(streamed, monkeypatch, step=4)
        pretrain(change(streamed, resume=True))
        assert_equal(weights_of(Path(streamed.output)), weights_of(tmp_path / "steady"))

    def test_a_changed_file_is_refused_by_its_name(
        self, streamed: PretrainConfig, two_sources: tuple[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stop_when_saving(streamed, monkeypatch, step=4)
        with open(two_sources[1], "a") as file:
            file.write('{"text": "one more"}\n')
        with pytest.raises(
            TrainingError, match=r"has text.*b\.jsonl = .*bytes.* but the run is resumed with"
        ) as caught:
            pretrain(change(streamed, resume=True))
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        "changed",
        [{"shuffle_buffer": 5}, {"weights": (1, 3)}, {"shuffle_buffer": 0}],
        ids=["buffer", "weights", "whole"],
    )
    def test_another_way_of_reading_is_refused(
        self, streamed: PretrainConfig, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stop_when_saving(streamed, monkeypatch, step=4)
        with pytest.raises(TrainingError, match=rf"text\.{next(iter(changed))}"):
            pretrain(change(streamed, text=dataclasses.replace(streamed.text, **changed), resume=True))

    @pytest.mark.parametrize(
        ("lines", "error", "message"),
        [
            ('{"text": "a"}\n{"text": 7}\n', CorpusError, r"a number under 'text' at .*bad\.jsonl, line 2"),
            ('{"text": " "}\n', CorpusError, r"no document in .*bad\.jsonl"),
            ('{"text": "short"}\n', TrainingError, r"tokens in .*bad\.jsonl; expected at least one block of 16"),
            (None, SourceError, r"bad\.jsonl does not exist"),
        ],
        ids=["bad row", "blank", "short", "missing"],
    )
    def test_bad_text_leaves_nothing_behind(
        self, streamed: PretrainConfig, tmp_path: Path, lines: str | None, error: type[Exception], message: str
    ) -> None:
        """D-02, D-04."""
        if lines is not None:
            (tmp_path / "bad.jsonl").write_text(lines)
        corpus = CorpusConfig(data=(str(tmp_path / "bad.jsonl"),))
        with pytest.raises(error, match=message) as caught:
            pretrain(change(streamed, corpus=corpus, text=TextConfig(shuffle_buffer=4)))
        assert "\n" not in str(caught.value) and not Path(streamed.output).exists()

    def test_the_command_line_reads_how_to_read(self) -> None:
        tyro = pytest.importorskip("tyro")
        flags = ["--tokenizer", "t", "--output", "o", "--corpus.data", "a.jsonl.zst", "b.parquet"]
        flags += ["--text.shuffle-buffer", "10000", "--text.weights", "3", "1", "--text.processes", "2"]
        config = tyro.cli(PretrainConfig, args=flags)
        assert config.corpus.data == ("a.jsonl.zst", "b.parquet")
        assert config.text == TextConfig(10_000, (3.0, 1.0), 2)
