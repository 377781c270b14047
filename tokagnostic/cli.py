"""The command line: a verb's answer on stdout, a user's mistake in one line on stderr."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence

from tokagnostic import __version__
from tokagnostic.errors import InvalidValueError, TokagnosticError
from tokagnostic.verbs import models, reports, tokenizers
from tokagnostic.verbs.answer import Answer

VERBS: dict[str, Callable[[Sequence[str]], Answer]] = {
    "demo": models.demo,
    "pretrain": models.pretrain,
    "export": models.export,
    "attach": models.attach,
    "eval": models.evaluate,
    "generate": models.generate,
    "overlap": tokenizers.overlap,
    "coverage": tokenizers.coverage,
    "inspect": tokenizers.inspect,
    "compare": reports.compare,
    "plot": reports.plot,
    "bench": reports.bench,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a verb; a user's mistake is one line and exit code 2, a bug is a traceback."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        _run(given)
        # What a reader of the pipe does not want any more is noticed here and not at exit.
        sys.stdout.flush()
    except TokagnosticError as error:
        _fail(str(error))
    except KeyboardInterrupt as stop:
        print(f"tokagnostic: {str(stop) or 'interrupted; what was reported as saved is intact'}", file=sys.stderr)
        sys.exit(getattr(stop, "exit_code", 130))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno is None:
            raise
        place = f"{error.filename}: " if error.filename is not None else ""
        _fail(
            f"{place}{error.strerror}; expected a place that can be read and written. "
            "Check the path, its permissions and the space left."
        )


def _run(given: Sequence[str]) -> None:
    verb, *rest = given or ["--help"]
    if verb in ("-h", "--help"):
        print(_help())
    elif verb == "--version":
        print(f"tokagnostic {__version__}")
    elif verb in VERBS:
        answer = VERBS[verb](rest)
        print(json.dumps(answer.result, indent=1, allow_nan=False) if answer.as_json else answer.text)
    else:
        raise InvalidValueError(
            f"verb {verb!r}", expected=f"one of {', '.join(VERBS)}", remedy="Run `tokagnostic --help`"
        )


def _fail(message: str) -> None:
    print(f"tokagnostic: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


def _help() -> str:
    verbs = "\n".join(f"  {name:<9} {(function.__doc__ or '').strip()}" for name, function in VERBS.items())
    return (
        "usage: tokagnostic VERB [OPTIONS]\n\n"
        "N-gram memory for language models that does not depend on the tokenizer.\n\n"
        f"{verbs}\n\n"
        "Every verb has --help, --json for machines, and --config FILE.toml for defaults."
    )
