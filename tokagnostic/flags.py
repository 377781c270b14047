"""A verb's flags, over the defaults of a TOML file if one is named, to its config."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import tomllib
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tokagnostic.errors import InvalidValueError, SourceError, TokagnosticError

Options = TypeVar("Options")


def parse_flags(config_class: type[Options], arguments: Sequence[str], verb: str) -> tuple[Options, bool]:
    """Read a command line.

    Args:
        config_class: a dataclass; a field's docstring is its flag's help.
        arguments: what follows the verb.
        verb: for the help text.

    Returns:
        The config, and whether the result is wanted as JSON.

    Raises:
        TokagnosticError: if flags cannot be read, the config refuses a value, or a TOML file cannot be used.
        SystemExit: after the help, with code 0.
    """
    import tyro

    _refuse_repeated(arguments)
    path = _config_path(arguments)
    defaults = [] if path is None else list(_flags_of(config_class, _read_toml(path), path))
    json_flag = Annotated[bool, tyro.conf.arg(help="Print the result as JSON."), tyro.conf.FlagCreatePairsOff]
    config_flag = Annotated[str | None, tyro.conf.arg(help="A TOML file with defaults for these flags.")]
    extended: Any = dataclasses.make_dataclass(
        config_class.__name__,
        [
            ("json", json_flag, dataclasses.field(default=False, kw_only=True)),
            ("config", config_flag, dataclasses.field(default=None, kw_only=True)),
        ],
        bases=(config_class,),
        frozen=True,
    )
    extended.__doc__ = config_class.__doc__
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed = tyro.cli(
                extended, prog=f"tokagnostic {verb}", args=[*defaults, *_unnamed(config_class, arguments)]
            )
    except SystemExit as stop:
        # A config that refuses a value says in one line what tyro would put into a box.
        for cause in _causes(stop):
            if isinstance(cause, TokagnosticError):
                raise cause from None
        if stop.code == 0:
            raise
        raise InvalidValueError(
            _in_one_line(complaint.getvalue()),
            expected=f"flags as `tokagnostic {verb} --help` lists them",
            remedy="Correct the command line",
        ) from None
    own = {entry.name: getattr(parsed, entry.name) for entry in dataclasses.fields(config_class)}  # type: ignore[arg-type]
    return config_class(**own), parsed.json


def _in_one_line(complaint: str) -> str:
    """What a box says above its first rule, without the help on single flags, which is indented further."""
    lines = [line.strip("\n\u2502") for line in complaint.splitlines()[1:]]
    rule = next((i for i, line in enumerate(lines) if "\u2500\u2500" in line), len(lines))
    words = " ".join(line for line in lines[:rule] if not line.startswith(" " * 8)).split()
    return " ".join(words).rstrip(".")


def _unnamed(config_class: Any, arguments: Sequence[str]) -> Iterator[str]:
    """The arguments with the names of positional values left out: `--reports a b` reads as `a b`."""
    positional = _positional_names(config_class)
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if flag not in positional:
            yield argument
        elif equals:
            yield value


def _positional_names(config_class: Any) -> set[str]:
    hints = get_type_hints(config_class, include_extras=True)
    return {f"--{name}" for name, hint in hints.items() if get_origin(hint) is Annotated}


def _refuse_repeated(arguments: Sequence[str]) -> None:
    """Refuse a flag given twice, of which the second would silently win."""
    flags = [argument.split("=", 1)[0] for argument in arguments if argument.startswith("--")]
    repeated = next((flag for flag in flags if flags.count(flag) > 1), None)
    if repeated is not None:
        raise InvalidValueError(
            f"{repeated} twice", expected="each flag once", remedy=f"Give all values after one {repeated}"
        )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The errors during whose handling an error was raised, latest first."""
    cause = error.__context__
    while cause is not None:
        yield cause
        cause = cause.__context__


def _config_path(arguments: Sequence[str]) -> str | None:
    for i, argument in enumerate(arguments):
        if argument == "--config" and i + 1 < len(arguments):
            return arguments[i + 1]
        if argument.startswith("--config="):
            return argument.removeprefix("--config=")
    return None


def _read_toml(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SourceError(
            f"config {path} cannot be read ({error})", expected="a TOML file", remedy="Check path and syntax"
        ) from error


def _flags_of(config_class: Any, table: dict[str, Any], path: str, place: str = "") -> Iterator[str]:
    """The flags that say what a TOML table says; flags after them win.

    Raises:
        InvalidValueError: for a setting that the config does not have, or a value of another type.
    """
    hints = get_type_hints(config_class)
    names = [entry.name for entry in dataclasses.fields(config_class)]
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in names:
            raise InvalidValueError(
                f"unknown setting {place + key!r} in {path}",
                expected=f"settings among {', '.join(sorted(names))}",
                remedy="Remove the setting or correct its name",
            )
        hint = hints[name]
        if not _fits(value, hint):
            raise InvalidValueError(
                f"{place}{key} = {value!r} in {path}",
                expected=_described(hint),
                remedy="Correct the value",
            )
        flag = f"--{place}{name.replace('_', '-')}"
        if flag in _positional_names(config_class):
            raise InvalidValueError(
                f"{key!r} in {path}", expected="what has a default", remedy=f"Name the {key} on the command line"
            )
        if isinstance(value, dict):
            yield from _flags_of(hint, value, path, f"{place}{name}.".replace("_", "-"))
        elif isinstance(value, bool):
            yield flag if value else f"--{place}no-{name.replace('_', '-')}"
        elif isinstance(value, list):
            yield from (flag, *map(str, value))
        else:
            yield f"{flag}={value}"


def _fits(value: Any, hint: Any) -> bool:
    """Whether a TOML value is of a field's type: a table for a config, a list for a tuple, a whole number for a float."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is tuple:
        return isinstance(value, list) and all(_fits(item, parts[0]) for item in value)
    if dataclasses.is_dataclass(hint):
        return isinstance(value, dict)
    return type(value) is hint or (hint is float and type(value) is int)


def _described(hint: Any) -> str:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_described(part) for part in parts if part is not type(None))
    if origin is Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if origin is tuple:
        return f"a list, each item {_described(parts[0])}"
    if dataclasses.is_dataclass(hint):
        return "a table of settings"
    return {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}[hint]
