"""A verb's result and what it was asked for to files, whose places are looked at before the work is done."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from tokagnostic.errors import InvalidValueError


def check_output(path: str | None, *, is_folder: bool = False) -> None:
    """Refuse a file or folder that cannot be written before the work is done that it shall hold.

    Args:
        path: the file or folder; None if none is wanted.
        is_folder: which of both.

    Raises:
        InvalidValueError: if it cannot be made or written.
    """
    if path is None:
        return
    target = Path(path).absolute()
    holder = next(place for place in (target, *target.parents) if place.exists())
    fits = holder.is_dir() if is_folder or holder != target else holder.is_file()
    if not fits or not os.access(holder, os.W_OK):
        kind = "folder" if is_folder else "file"
        raise InvalidValueError(
            f"output {path!r}", expected=f"the name of a {kind} that can be written", remedy="Name another one"
        )


def check_distinct(*paths: str | None) -> None:
    """Refuse two results in one file, of which the later would be all that is left.

    Raises:
        InvalidValueError: if two of the paths that are not None are the same.
    """
    named = [path for path in paths if path is not None]
    places = [Path(path).resolve() for path in named]
    twice = next((path for path, place in zip(named, places, strict=True) if places.count(place) > 1), None)
    if twice is not None:
        raise InvalidValueError(
            f"output {twice!r} for two results", expected="a file of its own for each", remedy="Name another one"
        )


def check_figure(path: str | None) -> None:
    """Refuse a figure of a format that is not drawn, or in a place that cannot be written, before the work is done.

    Raises:
        InvalidValueError: if so.
    """
    from tokagnostic.plots import FORMATS

    if path is not None and Path(path).suffix not in FORMATS:
        raise InvalidValueError(
            f"figure {path!r}", expected=f"a name that ends in {' or '.join(FORMATS)}", remedy="Choose such a name"
        )
    check_output(path)


def check_page(path: str | None) -> None:
    """Refuse a page that cannot be made, or in a place that cannot be written, before the work is done.

    Raises:
        InvalidValueError: if its name does not end in .html, or it cannot be written.
        MissingExtraError: if what makes pages is not installed.
    """
    if path is not None:
        from tokagnostic.pages import check_page as check_name

        check_name(path)
    check_output(path)


def write_result(path: str | None, result: dict[str, Any], options: Any) -> None:
    """Write a result and what it was asked for to one JSON file."""
    if path is not None:
        from tokagnostic.json_files import write_json

        write_json(Path(path), {**result, "config": dataclasses.asdict(options)})


def write_config_beside(path: str, options: Any) -> None:
    """Write what was asked for beside a result that is no JSON: the config of curves.png is curves.config.json."""
    from tokagnostic.json_files import write_json

    write_json(Path(path).with_suffix(".config.json"), dataclasses.asdict(options))
