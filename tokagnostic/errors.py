"""What can go wrong outside the program, worded so that one line is enough to mend it.

Every error here states three things: what was given, what was expected, and what to do. The command line prints
that line and exits with code 2; anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

from typing import Any


class TokagnosticError(Exception):
    """A mistake in what the program was given, or a state of the world that it cannot work with.

    Args:
        given: what was found, with its value and place, as a clause without a full stop.
        expected: what would have been right, as a noun phrase.
        remedy: what the reader can do, as an instruction.
    """

    def __init__(self, given: str, *, expected: str, remedy: str) -> None:
        super().__init__(f"{given}; expected {expected}. {remedy}.")
        self.given = given
        self.expected = expected
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its three parts, so that it comes out of another process as it was raised there."""
        return _made_again, (type(self), self.given, self.expected, self.remedy)


def _made_again(kind: type[TokagnosticError], given: str, expected: str, remedy: str) -> TokagnosticError:
    error = kind.__new__(kind)
    TokagnosticError.__init__(error, given, expected=expected, remedy=remedy)
    return error


class InvalidValueError(TokagnosticError, ValueError):
    """A setting or an argument whose value cannot be used."""


class SourceError(TokagnosticError):
    """A tokenizer, file, model or dataset that cannot be found or opened."""


class TokenizerError(TokagnosticError):
    """A tokenizer whose bytes cannot be read, or whose ids do not join back to the text."""


class CorpusError(TokagnosticError):
    """A document that cannot be read as it stands: broken UTF-8, a missing field, nothing at all."""


class MemoryFileError(TokagnosticError):
    """A memory file that is damaged, foreign, or newer than this program."""


class HostError(TokagnosticError):
    """A model that a memory cannot be attached to, or a call that an attached memory cannot serve."""


class TrainingError(TokagnosticError):
    """A run that cannot start, go on, or be resumed."""


class WorkerError(TokagnosticError):
    """A process that died before it had done its part."""


class MissingExtraError(TokagnosticError):
    """An optional package that is not installed.

    Args:
        package: the package that could not be imported.
        extra: the extra of this project that brings it.
        purpose: what it is needed for.
    """

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package `{package}`, which is not installed",
            expected=f"the extra `{extra}`",
            remedy=f"Run `pip install 'tokagnostic[{extra}]'`",
        )
