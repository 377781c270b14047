"""Bits per byte of a frozen memory and its controls to rows of dots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokagnostic.plots import drawing

CONTROLS = {
    "native": "native: a memory of its own, from scratch",
    "frozen": "frozen: the memory of the other tokenizer",
    "order1": "order1: frozen, single tokens only",
    "permuted": "permuted: frozen, rows shuffled",
    "random": "random: a table of noise",
    "none": "none: no memory",
    "off": "off: frozen, memory switched off",
}
"""What each run is, from the best expected to the worst."""


def plot_controls(bpb: Mapping[str, float | Sequence[float]], path: str | Path) -> None:
    """Draw bits per byte of the frozen memory and of every control as dots; the axis does not start at zero.

    Args:
        bpb: control to bits per byte of the source, or to one value per seed, whose mean is then drawn larger.
        path: the figure file.

    Raises:
        InvalidValueError: if there is nothing to draw, or for a path of an unknown format.
        MissingExtraError: without matplotlib.
    """
    values = {name: drawing.numbers(value) for name, value in bpb.items()}
    means = {name: math.fsum(seeds) / len(seeds) for name, seeds in values.items() if seeds}
    drawing.require_some(means)
    names = sorted(means, key=means.__getitem__, reverse=True)
    figure = drawing.new_figure(6.8, 0.9 + 0.36 * len(names))
    axes = figure.subplots()
    for name, colour in (("none", drawing.GREY), ("native", drawing.COLOURS[2])):
        if name in means:
            axes.axvline(means[name], color=colour, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    for y, name in enumerate(names):
        colour = drawing.COLOURS[1] if name == "frozen" else drawing.COLOURS[2] if name == "native" else drawing.GREY
        axes.plot(means[name], y, "o", color=colour, markersize=8, zorder=3)
        if len(values[name]) > 1:
            axes.plot(values[name], [y] * len(values[name]), "|", color=drawing.INK, markersize=9, zorder=4)
        offset = max(values[name])
        axes.annotate(
            f"{means[name]:.3f}",
            (offset, y),
            (8, 0),
            "data",
            "offset points",
            va="center",
            fontsize=8,
            color=drawing.INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            zorder=2,
        )
    axes.set_yticks(range(len(names)), [CONTROLS.get(name, name) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.margins(x=0.14)
    drawing.tidy(axes, grid="y")
    drawing.explain(figure, "bits per byte of the held-out text (left is better; the axis does not start at zero)")
    drawing.save(figure, path)


def plot_seen_novel(split: Mapping[str, Mapping[str, float]], path: str | Path) -> None:
    """Draw bits per byte where the longest window was in the memory's training text, and where it was not.

    Args:
        split: run to its values under "seen" and "novel".
        path: the figure file.

    Raises:
        InvalidValueError: if there is nothing to draw, or for a path of an unknown format.
        MissingExtraError: without matplotlib.
    """
    rows = {
        name: values for name, values in split.items() if len(drawing.numbers([values["seen"], values["novel"]])) == 2
    }
    drawing.require_some(rows)
    names = sorted(rows, key=lambda name: rows[name]["seen"], reverse=True)
    figure = drawing.new_figure(6.8, 1.2 + 0.36 * len(names))
    left, right = figure.subplots(1, 2, sharey=True)
    # One scale for both, or a difference between novel windows would look as large as one between seen windows.
    width = (
        1.6 * max(drawing.spread_of([values[kind] for values in rows.values()]) for kind in ("seen", "novel")) or 0.1
    )
    for axes, kind, colour, marker in (
        (left, "seen", drawing.COLOURS[0], "o"),
        (right, "novel", drawing.COLOURS[1], "D"),
    ):
        points = [rows[name][kind] for name in names]
        axes.plot(points, range(len(names)), marker, color=colour, markersize=7)
        for y, value in enumerate(points):
            axes.annotate(
                f"{value:.3f}", (value, y), (7, 0), "data", "offset points", va="center", fontsize=8, color=drawing.INK
            )
        axes.set_title(f"{kind} windows", fontsize=9, color=colour)
        axes.set_ylim(-0.6, len(names) - 0.4)
        drawing.tidy(axes, grid="y")
        middle = (min(points) + max(points)) / 2
        axes.set_xlim(middle - width / 2, middle + width / 2)
    left.set_yticks(range(len(names)), names)
    drawing.explain(figure, "bits per byte (left is better; both axes have one scale and do not start at zero)")
    drawing.save(figure, path)
