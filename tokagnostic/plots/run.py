"""The metrics of one run to one figure: what it learns, how it reads, and how its table fills."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokagnostic.errors import InvalidValueError
from tokagnostic.plots import drawing
from tokagnostic.plots.curves import End, label_ends, points_of, settled_top, smoothed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = list[tuple[float, float]]


def plot_run(records: Sequence[Mapping[str, Any]], path: str | Path, *, smooth: int = 1) -> None:
    """Draw a run's curves over its training tokens, each kind that its metrics hold in a panel of its own.

    Above are loss and bits per byte; below, of a memory, the gates by layer, the hit rates by order, and the rows written
    beside those that would be if rows were drawn by lot.

    Args:
        records: of its metrics.
        path: the figure file.
        smooth: each point is the mean over this many records up to it.

    Raises:
        InvalidValueError: if no record holds a loss, or for a path of an unknown format.
        MissingExtraError: without matplotlib.
    """
    if smooth < 1:
        raise InvalidValueError(f"smooth = {smooth}", expected="1 or more lines", remedy="Set smooth to 1 or more")
    learning = {
        "loss (nats per token)": {"training": _points(records, smooth, "loss")},
        "bits per byte": {
            "training": _points(records, smooth, "bits_per_byte"),
            "held out": _points(records, 1, "held_out_bits_per_byte"),
        },
    }
    reading = {
        "gate by layer": _each(records, smooth, "gate", "layer"),
        "hit rate by order (%)": _each(records, smooth, "hit_rate", "order", 100),
        "rows written (%)": {
            "measured": _points(records, 1, "rows_written", scale=100),
            "expected": _points(records, 1, "rows_written_expected", scale=100),
        },
    }
    rows = [panels for panels in map(_without_empty, (learning, reading)) if panels]
    if not learning["loss (nats per token)"]["training"]:
        raise InvalidValueError(
            f"{len(records)} lines of metrics without a loss",
            expected="those of a run that has begun",
            remedy="Name the folder of such a run",
        )
    figure = drawing.new_figure(9.6, 2.9 * len(rows))
    grid = figure.add_gridspec(len(rows), math.lcm(*map(len, rows)))
    ends: list[list[End]] = []
    for i, panels in enumerate(rows):
        width = grid.ncols // len(panels)
        for j, (title, curves) in enumerate(panels.items()):
            ends.append(_draw(figure.add_subplot(grid[i, j * width : (j + 1) * width]), title, curves))
    drawing.explain(figure, "training tokens")
    label_ends(figure, list(zip(figure.axes, ends, strict=True)))
    drawing.save(figure, path)


def _points(records: Sequence[Mapping[str, Any]], smooth: int, field: str, key: str = "", scale: float = 1) -> Points:
    """A field's values over tokens, or those under a key of it."""
    found = [
        {"tokens": record.get("tokens"), "value": record[field][key] if key else record[field]}
        for record in records
        if field in record and (not key or key in record[field])
    ]
    return [(x, scale * y) for x, y in smoothed(points_of(found, "tokens", "value"), smooth)]


def _each(
    records: Sequence[Mapping[str, Any]], smooth: int, field: str, name: str, scale: float = 1
) -> dict[str, Points]:
    """A curve for each key of a field that holds several numbers."""
    keys = dict.fromkeys(key for record in records for key in record.get(field, ()))
    return {f"{name} {key}": _points(records, smooth, field, key, scale) for key in keys}


def _without_empty(panels: Mapping[str, Mapping[str, Points]]) -> dict[str, dict[str, Points]]:
    found = {title: {name: points for name, points in curves.items() if points} for title, curves in panels.items()}
    return {title: curves for title, curves in found.items() if curves}


def _draw(axes: Axes, title: str, curves: Mapping[str, Points]) -> list[End]:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    ends = []
    for i, (name, points) in enumerate(curves.items()):
        colour, behind = drawing.COLOURS[i % len(drawing.COLOURS)], name == "expected"
        # What is expected lies behind what is measured: where they agree it is a seam around it.
        style: dict[str, Any] = {"color": colour, "linewidth": 1.5, "zorder": 3}
        if behind:
            style = {"color": drawing.SHADE, "linewidth": 5, "zorder": 2, "solid_capstyle": "round"}
        marker = "o" if len(points) < 30 and not behind else None
        axes.plot(*zip(*points, strict=True), **style, marker=marker, markersize=3, label=name)
        ends.append((points[-1], f"{name}: {points[-1][1]:.3g}", drawing.GREY if behind else colour))
    drawing.tidy(axes)
    axes.set_title(title, fontsize=9, color=drawing.INK, loc="left", pad=9)
    axes.margins(x=0.02)
    axes.set_xlim(left=0)
    if title.endswith("(%)"):
        axes.set_ylim(0, 105)
    elif title.startswith("gate"):
        axes.set_ylim(0, 1.05)
    else:
        axes.set_ylim(top=settled_top(curves.values()))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return ends
