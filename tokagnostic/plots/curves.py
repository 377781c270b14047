"""Metrics of runs to learning curves, each with its name at its end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokagnostic.errors import InvalidValueError
from tokagnostic.plots import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

End = tuple[tuple[float, float], str, str]
"""A curve's last point, its name and its colour."""
LABEL_POINTS = 8
SETTLED = 0.2
"""Share of training after which a curve has to stay inside the figure."""


def plot_learning_curves(
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    path: str | Path,
    *,
    x: str = "tokens",
    y: str = "loss",
    x_label: str = "training tokens",
    y_label: str = "training loss (nats per token)",
    smooth: int = 1,
) -> None:
    """Draw one curve per run, with its name at its end.

    Args:
        runs: name to the records of its metrics; a record without x or y, or where y is not finite, is passed over.
        path: the figure file.
        x: the field along the horizontal axis.
        y: the field along the vertical axis.
        x_label: its name and unit.
        y_label: its name and unit.
        smooth: each point is the mean over this many records up to it.

    Raises:
        InvalidValueError: if no run has a point, or for a path of an unknown format.
        MissingExtraError: without matplotlib.
    """
    if smooth < 1:
        raise InvalidValueError(f"smooth = {smooth}", expected="1 or more lines", remedy="Set smooth to 1 or more")
    curves = {name: smoothed(points_of(records, x, y), smooth) for name, records in runs.items()}
    curves = {name: points for name, points in curves.items() if points}
    if not curves:
        raise InvalidValueError(
            f"no record that holds {x!r} and {y!r} in {', '.join(runs)}",
            expected="at least one such record",
            remedy="Name fields that the metrics have",
        )
    figure = drawing.new_figure(6.4, 3.8)
    from matplotlib.ticker import EngFormatter

    axes = figure.subplots()
    ends = []
    for i, (name, points) in enumerate(curves.items()):
        colour = drawing.COLOURS[i % len(drawing.COLOURS)]
        marker = "o" if len(points) < 30 else None
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.5, marker=marker, markersize=3)
        ends.append((points[-1], name, colour))
    drawing.tidy(axes)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.margins(x=0.02)
    axes.set_ylim(top=settled_top(curves.values()))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    label_ends(figure, [(axes, ends)])
    drawing.save(figure, path)


def points_of(records: Sequence[Mapping[str, Any]], x: str, y: str) -> list[tuple[float, float]]:
    """The pairs of two fields of those records that have both, y finite."""
    pairs = [(record.get(x), record.get(y)) for record in records]
    return [(float(a), float(b)) for a, b in pairs if a is not None and b is not None and math.isfinite(b)]


def smoothed(points: Sequence[tuple[float, float]], width: int) -> list[tuple[float, float]]:
    """Each value replaced by the mean of the last `width` up to it."""
    values = [value for _, value in points]
    means = [math.fsum(values[max(0, i + 1 - width) : i + 1]) / min(width, i + 1) for i in range(len(values))]
    return [(x, mean) for (x, _), mean in zip(points, means, strict=True)]


def settled_top(curves: Iterable[Sequence[tuple[float, float]]]) -> float:
    """The top of an axis that lets the start of training run out of it, beside which nothing else could be told apart."""
    settled = [value for points in curves for x, value in points if x >= SETTLED * points[-1][0]]
    return max(settled) + (0.05 * drawing.spread_of(settled) or 1.0)


def label_ends(figure: Figure, panels: Sequence[tuple[Axes, Sequence[End]]]) -> None:
    """Write each curve's name to the right of its axes at the height of its end, no two on top of each other.

    Args:
        figure: with all curves drawn; it is laid out to learn where they end.
        panels: axes, and of their curves the ends.
    """
    figure.draw_without_rendering()
    for axes, ends in panels:
        _label(axes, ends, 72 / figure.dpi)


def _label(axes: Axes, ends: Sequence[End], points_per_pixel: float) -> None:
    heights = [axes.transData.transform(point)[1] * points_per_pixel for point, _, _ in ends]
    order = sorted(range(len(ends)), key=heights.__getitem__)
    placed = _spread([heights[i] for i in order], LABEL_POINTS * 1.3)
    for i, height in zip(order, placed, strict=True):
        (x, y), name, colour = ends[i]
        axes.annotate(
            name,
            (x, y),
            (1.03, (height / points_per_pixel - axes.bbox.y0) / axes.bbox.height),
            textcoords="axes fraction",
            va="center",
            fontsize=LABEL_POINTS,
            color=colour,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )


def _spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Positions at least a gap apart and as near as can be, by least squares, to the wanted ones, which rise."""
    blocks: list[tuple[float, int]] = []
    for i, position in enumerate(wanted):
        blocks.append((position - i * gap, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (mean, count), (previous, previous_count) = blocks.pop(), blocks.pop()
            total = count + previous_count
            blocks.append(((mean * count + previous * previous_count) / total, total))
    means = [mean for mean, count in blocks for _ in range(count)]
    return [mean + i * gap for i, mean in enumerate(means)]
