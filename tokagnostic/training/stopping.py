"""A signal that asks a run to end to an end at a good moment: at once before training, after a saved step within it.

SIGTERM is what a scheduler sends before it kills, and a run that has obeyed it has not failed: exit code 0. SIGINT is a
person at the keyboard, whose shell shall not go on with the next line of a script: exit code 130, as for any program.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class RunStopped(KeyboardInterrupt):
    """A run that was asked to end, and did so without losing anything.

    Args:
        number: the signal.
        account: what was done before the end, and how to go on.
    """

    def __init__(self, number: int, account: str) -> None:
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name} {account}")
        self.number = number
        self.exit_code = 0 if number == signal.SIGTERM else 128 + number


@contextmanager
def stopping_before_training() -> Iterator[None]:
    """Within it a signal ends what is done there and then: programs are loaded and text is read, and nothing is lost.

    Raises:
        RunStopped: where the signal was met.
    """

    def stop(number: int, _: FrameType | None) -> None:
        raise RunStopped(number, "before training began: there is nothing to save; give the same command again")

    with _handled_by(stop):
        yield


class StopRequest:
    """Within it a signal is noted and nothing is interrupted; a second SIGINT is a person who does not want to wait.

    Only the main thread can heed signals: elsewhere it notes nothing.
    """

    def __init__(self) -> None:
        self.number = 0
        """The signal that has come; 0 for none."""
        self._context = _handled_by(self._note)

    def __enter__(self) -> StopRequest:
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = self.number or number


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within it the handler answers the signals; afterwards those answer that did before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, before in former.items():
            # A handler that was not set from Python cannot be named, and so not be put back.
            signal.signal(number, signal.SIG_DFL if before is None else before)
