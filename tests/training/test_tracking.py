"""What a run tells the trackers of others, through Accelerate's own interface."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from accelerate import tracking as accelerate_tracking
from accelerate.tracking import GeneralTracker
from accelerate.utils import LoggerType
from setups import FIT, Setup, change, lines_of

from tokagnostic.errors import InvalidValueError, MissingExtraError
from tokagnostic.training.config import PretrainConfig
from tokagnostic.training.pretrain import pretrain


class Notebook(GeneralTracker):
    """A tracker that only remembers, made by Accelerate in the place of an installed one."""

    name = "trackio"
    requires_logging_directory = False
    made: ClassVar[list[Notebook]] = []

    def __init__(self, run_name: str, **settings: Any) -> None:
        super().__init__()
        self.run_name, self.settings = run_name, settings
        self.config: dict[str, Any] = {}
        self.lines: list[tuple[int | None, dict[str, Any]]] = []
        self.ended = 0
        self.made.append(self)

    @property
    def tracker(self) -> Notebook:
        return self

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.config = values

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        self.lines.append((step, values))

    def finish(self) -> None:
        self.ended += 1


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Notebook]:
    """Trackers that runs have begun; trackio stands for any."""
    monkeypatch.setattr(Notebook, "made", [])
    monkeypatch.setitem(accelerate_tracking.LOGGER_TYPE_TO_CLASS, "trackio", Notebook)
    available = lambda: [LoggerType.TRACKIO]
    monkeypatch.setattr(accelerate_tracking, "get_available_trackers", available)
    monkeypatch.setattr("tokagnostic.training.tracking.get_available_trackers", available)
    return Notebook.made


def flat(line: dict[str, Any]) -> dict[str, Any]:
    """Numbers under one name each."""
    found = {}
    for name, value in line.items():
        found |= {f"{name}/{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
    return {name: value for name, value in found.items() if name != "step" and value is not None}


def test_a_tracker_is_told_every_line_and_is_ended(setup: Setup, tmp_path: Path, made: list[Notebook]) -> None:
    settings = change(FIT, trackers=("trackio",), log_every=3, evaluate_every=4)
    setup.fit(tmp_path / "source", settings, evaluate=lambda: 1.5)
    (tracker,) = made
    lines = lines_of(tmp_path / "source")
    assert tracker.lines == [(line["step"], flat(line)) for line in lines] and len(lines) == 5
    assert {"loss", "gate/1", "hit_rate/1", "hit_rate/2", "rows_written"} <= set(tracker.lines[0][1])
    assert {type(value) for _, values in tracker.lines for value in values.values()} <= {int, float}
    assert tracker.config["learning_rate"] == FIT.learning_rate
    assert {type(value) for value in tracker.config.values()} <= {int, float, bool, str}
    assert tracker.ended == 1 and tracker.settings == {"name": "source", "resume": "never"}


def test_a_run_that_breaks_ends_its_tracker_and_one_that_is_resumed_goes_on_there(
    make_setup: Callable[..., Setup], tmp_path: Path, made: list[Notebook]
) -> None:
    """Also where it had none before: which trackers are told is no property of a run."""

    def stop() -> float:
        raise KeyboardInterrupt

    settings = change(FIT, save_every=2)
    with pytest.raises(KeyboardInterrupt):
        make_setup().fit(tmp_path / "run", change(settings, trackers=("trackio",), evaluate_every=5), evaluate=stop)
    make_setup().fit(tmp_path / "run", change(settings, trackers=("trackio",)), resume=True)
    assert [tracker.ended for tracker in made] == [1, 1]
    assert [tracker.settings["resume"] for tracker in made] == ["never", "allow"]
    assert [step for tracker in made for step, _ in tracker.lines] == [1, 2, 3, 4, 5, 5, 6, 7, 8]


def test_a_run_without_trackers_makes_none(setup: Setup, tmp_path: Path, made: list[Notebook]) -> None:
    setup.fit(tmp_path)
    assert made == []


@pytest.mark.parametrize("name", ["tensorboard", "trackio"])
def test_one_that_is_not_installed_is_refused_in_one_line_before_anything_is_written(
    config: PretrainConfig, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    monkeypatch.setattr("tokagnostic.training.tracking.get_available_trackers", lambda: [])
    settings = dataclasses.replace(config, fit=change(config.fit, trackers=(name,)))
    with pytest.raises(
        MissingExtraError, match=rf"`{name}`, which is not installed.*pip install 'tokagnostic\[{name}\]'"
    ):
        pretrain(settings)
    assert not Path(config.output).exists()


def test_an_unknown_one_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="trackers = 'wandb'; expected tensorboard or trackio"):
        change(FIT, trackers=("wandb",))


@pytest.mark.skipif(
    not (importlib.util.find_spec("tensorboard") or importlib.util.find_spec("tensorboardX")),
    reason="tensorboard is in the extra `tensorboard`",
)
def test_tensorboard_writes_into_the_folder_of_the_run(setup: Setup, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    setup.fit(tmp_path, change(FIT, trackers=("tensorboard",)))
    events = EventAccumulator(str(tmp_path / "tokagnostic")).Reload()
    losses = [line["loss"] for line in lines_of(tmp_path)]
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(losses, rel=1e-6)
    assert len(events.Scalars("gate/1")) == len(losses)
