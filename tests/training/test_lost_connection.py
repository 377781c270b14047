"""A source that fails, at first or in the middle: one line that says what is saved, and a run that goes on to the same end."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest
from setups import LINES, RUN_FIT, assert_equal, change, steps_of, weights_of

from tokagnostic import cli
from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.errors import SourceError
from tokagnostic.training import encoding
from tokagnostic.training.checkpoint import load_newest
from tokagnostic.training.config import PretrainConfig, TextConfig
from tokagnostic.training.pretrain import pretrain
from tokagnostic.training.run import CONFIG_FILE
from tokagnostic.verbs import models

HTTP = huggingface_hub.errors.HfHubHTTPError.__mro__[1]
"""Root of the errors of the library that the hub's client speaks HTTP by; it is no OSError."""
ERRORS = [
    ConnectionError("Server Disconnected"),
    TimeoutError(),
    OSError("reset\nby peer"),
    HTTP("read timed out"),
    http.client.IncompleteRead(b"half"),
    EOFError("Compressed file ended before the end-of-stream marker was reached"),
]
every_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
NUM_ROWS = 600


class Hub:
    """A dataset on a hub whose connection is lost at some row, as long as it is."""

    def __init__(self) -> None:
        self.lost_at: int | None = None
        self.error: Exception = ERRORS[0]
        self.answers = True

    def rows(self) -> Iterator[dict[str, str]]:
        for row in range(NUM_ROWS):
            if row == self.lost_at:
                raise self.error
            yield {"text": f"{row} {LINES[row % len(LINES)]}"}

    def load(self, *_: Any, **__: Any) -> datasets.IterableDataset:
        if not self.answers:
            raise self.error
        return datasets.IterableDataset.from_generator(self.rows)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr(datasets, "load_dataset", hub.load)
    return hub


@pytest.fixture
def streaming(config: PretrainConfig, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> PretrainConfig:
    """A run that reads some hundred documents of the hub while it trains, few at a time."""
    monkeypatch.setattr(encoding, "_BYTES_AT_ONCE", 256)
    fit = change(RUN_FIT, num_steps=60, batch_size=24, save_every=10, log_every=1)
    return change(config, corpus=CorpusConfig(("hf:some/name",)), text=TextConfig(shuffle_buffer=40), fit=fit)


@every_error
@pytest.mark.parametrize("lost_at", [None, 0, 300], ids=["at once", "at the first row", "in the middle"])
def test_a_corpus_ends_in_one_line_whatever_library_raised(hub: Hub, error: Exception, lost_at: int | None) -> None:
    hub.error, hub.lost_at, hub.answers = error, lost_at, lost_at is not None
    told = "cannot be opened" if lost_at is None else "cannot be read further"
    documents: list[bytes] = []
    with pytest.raises(SourceError, match=rf"hf:some/name'? {told} \(") as caught:
        documents.extend(document.data for document in Corpus(CorpusConfig(("hf:some/name",))))
    assert "\n" not in str(caught.value) and caught.value.__cause__ is error
    assert len(documents) <= (lost_at or 0)


def test_a_corpus_goes_on_where_it_was_lost(hub: Hub) -> None:
    corpus = Corpus(CorpusConfig(("hf:some/name",)))
    whole = [document for document, _ in corpus.iterate()]
    hub.lost_at = 400
    read = []
    with pytest.raises(SourceError):
        read.extend(corpus.iterate())
    hub.lost_at = None
    assert [document for document, _ in read] + [d for d, _ in corpus.iterate(read[-1][1])] == whole
    assert 0 < len(read) < 400


class TestRun:
    @every_error
    def test_that_cannot_begin_leaves_nothing(self, streaming: PretrainConfig, hub: Hub, error: Exception) -> None:
        hub.error, hub.lost_at = error, 0
        with pytest.raises(SourceError, match="cannot be read further") as caught:
            pretrain(streaming)
        assert "--resume" not in str(caught.value) and not (Path(streaming.output) / CONFIG_FILE).exists()

    @pytest.mark.parametrize(
        "buffer",
        [
            pytest.param(7, id="less than a batch", marks=pytest.mark.slow),
            pytest.param(40, id="more"),
            pytest.param(64, id="and at its end", marks=pytest.mark.slow),
        ],
    )
    def test_that_loses_its_text_saves_first_and_goes_on_bit_for_bit(
        self,
        streaming: PretrainConfig,
        hub: Hub,
        buffer: int,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        streaming = change(streaming, text=TextConfig(shuffle_buffer=buffer))
        pretrain(change(streaming, output=str(tmp_path / "steady")))
        monkeypatch.setitem(cli.VERBS, "pretrain", lambda _: models._train(streaming, as_json=False))
        hub.lost_at = 290
        with pytest.raises(SystemExit) as ended:
            cli.main(["pretrain"])
        hub.lost_at = None
        done = steps_of(Path(streaming.output))[-1]
        checkpoints = Path(streaming.output) / "checkpoints"
        newest = load_newest(checkpoints)
        assert newest is not None and 10 < done < 40 and done % 10
        assert newest.step == (done if buffer >= 24 else done // 10 * 10)
        saved = f"step {done}, which is saved" if buffer >= 24 else "the newest checkpoint"
        line = capsys.readouterr().err.splitlines()[-1]
        assert ended.value.code == 2 and line.startswith(
            "tokagnostic: hf:some/name cannot be read further (Server Disc"
        )
        assert line.endswith(f"the same command with --resume goes on from {saved} in {checkpoints}.")
        pretrain(change(streaming, resume=True))
        assert_equal(weights_of(Path(streaming.output)), weights_of(tmp_path / "steady"))
        assert steps_of(Path(streaming.output)) == list(range(1, 61))
