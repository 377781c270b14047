"""Saved results to figure files.

Every function takes plain values, as they stand in a result's JSON, and a path that ends in .png or .svg. Figures are
made through matplotlib's objects alone, so that no backend is chosen and no global setting changed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokagnostic.errors import InvalidValueError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
DPI = 160
LABEL_POINTS = 8
SETTLED = 0.2
"""Share of training after which a curve has to stay inside the figure."""
INK, GREY, FAINT = "#222222", "#767676", "#dddddd"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's palette, which readers with any colour vision can tell apart."""
MARKERS = "osD^vPX"

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


def plot_overlap(result: Mapping[str, Any], path: str | Path, *, counting: str = "unique") -> None:
    """Draw the shares of target n-grams by target and reference order, with the any-order share above.

    Args:
        result: an overlap's JSON values.
        path: the figure file.
        counting: "unique" or "weighted".

    Raises:
        InvalidValueError: for another way of counting, or a path of an unknown format.
        MissingExtraError: without matplotlib.
    """
    if counting not in ("unique", "weighted"):
        raise InvalidValueError(
            f"counting {counting!r}", expected="unique or weighted", remedy="Name one of these ways to count"
        )
    shares, orders = result[counting], result["orders"]
    num_orders = len(orders)
    size = max(4.2, 1.9 + 0.55 * num_orders)
    figure = _figure(size + 0.5, size + 0.9)
    above, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (1, num_orders)})
    _shade(above, [shares["any_order"]])
    # The target's order runs along x, under the any-order row; `matrix` holds it by rows.
    _shade(below, [[row[m] for row in shares["matrix"]] for m in range(num_orders)])
    for n in range(num_orders):
        below.add_patch(_outline(n))
    above.set_yticks([0], ["any"])
    below.set_yticks(range(num_orders), [str(order) for order in orders])
    below.set_xticks(range(num_orders), [str(order) for order in orders])
    below.set_xlabel("target order (tokens)")
    below.set_ylabel("reference order (tokens)")
    for axis in (below.xaxis, below.yaxis):
        axis.label.set_fontsize(9)
    counted = "distinct target n-grams" if counting == "unique" else "occurrences of target n-grams"
    figure.suptitle(
        f"target: {_short(result['target'])}\nreference: {_short(result['reference'])}\n"
        f"percent of {counted} that the reference makes\n"
        f"in the same document ({result['num_documents']:,} in all); outlined: same order",
        fontsize=9,
        color=INK,
    )
    _save(figure, path)


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
    curves = {name: _smooth(_points(records, x, y), smooth) for name, records in runs.items()}
    curves = {name: points for name, points in curves.items() if points}
    if not curves:
        raise InvalidValueError(
            f"{len(runs)} runs without a record that holds {x!r} and {y!r}",
            expected="at least one such record",
            remedy="Name fields that the metrics have",
        )
    figure = _figure(6.4, 3.8)
    from matplotlib.ticker import EngFormatter

    axes = figure.subplots()
    ends = []
    for i, (name, points) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        marker = "o" if len(points) < 30 else None
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.5, marker=marker, markersize=3)
        ends.append((points[-1], name, colour))
    _tidy(axes)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.margins(x=0.02)
    axes.set_ylim(top=_settled_top(curves.values()))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    _label_ends(figure, axes, ends)
    _save(figure, path)


def plot_controls(bpb: Mapping[str, float | Sequence[float]], path: str | Path) -> None:
    """Draw bits per byte of the frozen memory and of every control as dots; the axis does not start at zero.

    Args:
        bpb: control to bits per byte of the source, or to one value per seed, whose mean is then drawn larger.
        path: the figure file.

    Raises:
        InvalidValueError: if there is nothing to draw, or for a path of an unknown format.
        MissingExtraError: without matplotlib.
    """
    values = {name: _numbers(value) for name, value in bpb.items()}
    means = {name: math.fsum(seeds) / len(seeds) for name, seeds in values.items() if seeds}
    _require_some(means)
    names = sorted(means, key=means.__getitem__, reverse=True)
    figure = _figure(6.8, 0.9 + 0.36 * len(names))
    axes = figure.subplots()
    for name, colour in (("none", GREY), ("native", COLOURS[2])):
        if name in means:
            axes.axvline(means[name], color=colour, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    for y, name in enumerate(names):
        colour = COLOURS[1] if name == "frozen" else COLOURS[2] if name == "native" else GREY
        axes.plot(means[name], y, "o", color=colour, markersize=8, zorder=3)
        if len(values[name]) > 1:
            axes.plot(values[name], [y] * len(values[name]), "|", color=INK, markersize=9, zorder=4)
        offset = max(values[name])
        axes.annotate(
            f"{means[name]:.3f}",
            (offset, y),
            (8, 0),
            "data",
            "offset points",
            va="center",
            fontsize=8,
            color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            zorder=2,
        )
    axes.set_yticks(range(len(names)), [CONTROLS.get(name, name) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.margins(x=0.14)
    _tidy(axes, grid="y")
    _explain(figure, "bits per byte of the held-out text (left is better; the axis does not start at zero)")
    _save(figure, path)


def plot_seen_novel(split: Mapping[str, Mapping[str, float]], path: str | Path) -> None:
    """Draw bits per byte where the longest window was in the memory's training text, and where it was not.

    Args:
        split: run to its values under "seen" and "novel".
        path: the figure file.

    Raises:
        InvalidValueError: if there is nothing to draw, or for a path of an unknown format.
        MissingExtraError: without matplotlib.
    """
    rows = {name: values for name, values in split.items() if len(_numbers([values["seen"], values["novel"]])) == 2}
    _require_some(rows)
    names = sorted(rows, key=lambda name: rows[name]["seen"], reverse=True)
    figure = _figure(6.8, 1.2 + 0.36 * len(names))
    left, right = figure.subplots(1, 2, sharey=True)
    # One scale for both, or a difference between novel windows would look as large as one between seen windows.
    width = 1.6 * max(_range([values[kind] for values in rows.values()]) for kind in ("seen", "novel")) or 0.1
    for axes, kind, colour, marker in ((left, "seen", COLOURS[0], "o"), (right, "novel", COLOURS[1], "D")):
        points = [rows[name][kind] for name in names]
        axes.plot(points, range(len(names)), marker, color=colour, markersize=7)
        for y, value in enumerate(points):
            axes.annotate(
                f"{value:.3f}", (value, y), (7, 0), "data", "offset points", va="center", fontsize=8, color=INK
            )
        axes.set_title(f"{kind} windows", fontsize=9, color=colour)
        axes.set_ylim(-0.6, len(names) - 0.4)
        _tidy(axes, grid="y")
        middle = (min(points) + max(points)) / 2
        axes.set_xlim(middle - width / 2, middle + width / 2)
    left.set_yticks(range(len(names)), names)
    _explain(figure, "bits per byte (left is better; both axes have one scale and do not start at zero)")
    _save(figure, path)


def _figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("matplotlib", extra="plot", purpose="Drawing a figure") from error
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _save(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format that its suffix names; nothing half-written is left under the final name."""
    path = Path(path)
    if path.suffix not in FORMATS:
        raise InvalidValueError(
            f"figure file {path}", expected=f"a name that ends in {' or '.join(FORMATS)}", remedy="Choose such a name"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        figure.savefig(
            partial, format=path.suffix[1:], dpi=DPI, metadata=None if path.suffix == ".png" else {"Date": None}
        )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _shade(axes: Axes, shares: Sequence[Sequence[float | None]]) -> None:
    """Fill cells by their percentage, and write it into them; None stays blank."""
    values = [[math.nan if share is None else share for share in row] for row in shares]
    axes.imshow(values, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    for y, row in enumerate(values):
        for x, share in enumerate(row):
            if not math.isnan(share):
                text = f"{share:.0f}" if share in (0, 100) else f"{share:.1f}"
                axes.text(x, y, text, ha="center", va="center", fontsize=8, color="white" if share > 65 else INK)
    axes.tick_params(length=0, labelsize=8, colors=INK)
    axes.spines[:].set_visible(False)


def _outline(order: int) -> Any:
    """A frame round the cell where both orders are the same."""
    from matplotlib.patches import Rectangle

    return Rectangle((order - 0.5, order - 0.5), 1, 1, fill=False, edgecolor=COLOURS[1], linewidth=1.5)


def _points(records: Sequence[Mapping[str, Any]], x: str, y: str) -> list[tuple[float, float]]:
    pairs = [(record.get(x), record.get(y)) for record in records]
    return [(float(a), float(b)) for a, b in pairs if a is not None and b is not None and math.isfinite(b)]


def _smooth(points: Sequence[tuple[float, float]], width: int) -> list[tuple[float, float]]:
    """Each value replaced by the mean of the last `width` up to it."""
    values = [value for _, value in points]
    means = [math.fsum(values[max(0, i + 1 - width) : i + 1]) / min(width, i + 1) for i in range(len(values))]
    return [(x, mean) for (x, _), mean in zip(points, means, strict=True)]


def _settled_top(curves: Iterable[Sequence[tuple[float, float]]]) -> float:
    """The top of an axis that lets the start of training run out of it, beside which nothing else could be told apart."""
    settled = [value for points in curves for x, value in points if x >= SETTLED * points[-1][0]]
    return max(settled) + (0.05 * _range(settled) or 1.0)


def _numbers(value: float | Sequence[float | None] | None) -> list[float]:
    """The finite numbers of one value or of several."""
    values = value if isinstance(value, Sequence) else [value]
    return [float(number) for number in values if number is not None and math.isfinite(number)]


def _range(values: Sequence[float]) -> float:
    return max(values) - min(values)


def _explain(figure: Figure, text: str) -> None:
    """Write what the horizontal axis holds, centred under the whole figure, where a long line has room."""
    figure.supxlabel(text, fontsize=9, color=INK)


def _require_some(values: Mapping[str, Any]) -> None:
    if not values:
        raise InvalidValueError(
            "results without a finite number", expected="at least one value to draw", remedy="Check the run's report"
        )


def _tidy(axes: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(labelsize=8, colors=INK, color=GREY)
    axes.grid(axis=grid, color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_fontsize(9)
        label.set_color(INK)


def _label_ends(figure: Figure, axes: Axes, ends: Sequence[tuple[tuple[float, float], str, str]]) -> None:
    """Write each curve's name to the right of the axes at the height of its end, no two on top of each other.

    Args:
        figure: with all curves drawn; it is laid out to learn where they end.
        axes: of the curves.
        ends: last point, name and colour of each curve.
    """
    figure.draw_without_rendering()
    points_per_pixel = 72 / figure.dpi
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


def _short(name: str, most: int = 32) -> str:
    """A name that fits into a title: the end of it, which tells paths apart."""
    return name if len(name) <= most else f"…{name[1 - most :]}"
