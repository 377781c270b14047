"""Overlaps to heat maps: of one pair by order, with the causes of its misses beside it; of many pairs as a square."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokagnostic.errors import InvalidValueError
from tokagnostic.plots import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOUND = "#c6dbef"
CAUSES = {
    "special": ("no bytes there", drawing.COLOURS[6]),
    "normalisation": ("text rewritten", drawing.COLOURS[3]),
    "prefix": ("prefix space", drawing.COLOURS[2]),
    "more_tokens": ("more tokens between", drawing.COLOURS[4]),
    "cut_points": ("no cut at an end", drawing.COLOURS[1]),
}
"""Words and colour of each cause."""


def plot_overlap(result: Mapping[str, Any], path: str | Path, *, counting: str = "unique") -> None:
    """Draw the shares of target n-grams by target and reference order, with the any-order share above, and beside them
    why the others are missed, if the result says it.

    Args:
        result: an overlap's JSON values.
        path: the figure file.
        counting: "unique" or "weighted".

    Raises:
        InvalidValueError: for another way of counting, or a path of an unknown format.
        MissingExtraError: without matplotlib.
    """
    _check_counting(counting)
    shares, orders = result[counting], result["orders"]
    num_orders = len(orders)
    size = max(4.2, 1.9 + 0.55 * num_orders)
    causes = result["causes"][counting] if "causes" in result else None
    figure = drawing.new_figure(size + 0.5 + (0 if causes is None else 1.9 + 0.32 * num_orders), size + 0.9)
    ratios = {"height_ratios": (1, num_orders), "width_ratios": (1.0,) if causes is None else (1.75, 1.0)}
    grid = figure.add_gridspec(2, len(ratios["width_ratios"]), **ratios)
    above = figure.add_subplot(grid[0, 0])
    below = figure.add_subplot(grid[1, 0], sharex=above)
    above.tick_params(labelbottom=False)
    _shade(above, [shares["any_order"]])
    # The target's order runs along x, under the any-order row; `matrix` holds it by rows.
    _shade(below, [[row[m] for row in shares["matrix"]] for m in range(num_orders)])
    for n in range(num_orders):
        below.add_patch(_outline(n))
    above.set_yticks([0], ["any"])
    below.set_yticks(range(num_orders), [str(order) for order in orders])
    below.set_xticks(range(num_orders), [str(order) for order in orders])
    _name_axes(below, "target order (tokens)", "reference order (tokens)")
    if causes is not None:
        _stack(figure, figure.add_subplot(grid[:, 1]), shares["any_order"], causes, orders)
    counted = "distinct target n-grams" if counting == "unique" else "occurrences of target n-grams"
    figure.suptitle(
        f"target: {drawing.short(result['target'])}\nreference: {drawing.short(result['reference'])}\n"
        f"percent of {counted} that the reference makes\n"
        f"in the same document ({result['num_documents']:,} in all); outlined: same order",
        fontsize=9,
        color=drawing.INK,
    )
    drawing.save(figure, path)


def plot_overlap_square(result: Mapping[str, Any], path: str | Path, *, counting: str = "unique") -> None:
    """Draw for every target and reference the share of the target's n-grams of all orders together that are found.

    Args:
        result: the JSON values of an overlap of several pairs.
        path: the figure file.
        counting: "unique" or "weighted".

    Raises:
        InvalidValueError: for another way of counting, or a path of an unknown format.
        MissingExtraError: without matplotlib.
    """
    _check_counting(counting)
    targets, references = _labels(result["targets"], result["references"])
    longest = max(map(len, (*targets, *references)))
    margin = 0.6 + 0.075 * longest
    figure = drawing.new_figure(max(4.8, margin + 0.75 * len(references)), 1.6 + 0.06 * longest + 0.5 * len(targets))
    axes = figure.subplots()
    _shade(axes, result["square"][counting])
    axes.set_xticks(range(len(references)), references, rotation=35, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(targets)), targets)
    _name_axes(axes, "reference", "target")
    counted = "distinct n-grams" if counting == "unique" else "n-gram occurrences"
    figure.suptitle(
        f"percent of the target's {counted} of orders {result['orders'][0]} to {result['orders'][-1]}\n"
        f"together that the reference makes in the same document, in any order",
        fontsize=9,
        color=drawing.INK,
    )
    drawing.save(figure, path)


def _labels(*sides: Sequence[str]) -> list[list[str]]:
    """Names that fit beside cells: of paths the last part, if that tells them all apart."""
    last = {name: Path(name).name for side in sides for name in side}
    if len(set(last.values())) < len(last):
        last = {name: name for name in last}
    return [[drawing.short(last[name], 24) for name in side] for side in sides]


def _check_counting(counting: str) -> None:
    if counting not in ("unique", "weighted"):
        raise InvalidValueError(
            f"counting {counting!r}", expected="unique or weighted", remedy="Name one of these ways to count"
        )


def _name_axes(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)


def _stack(
    figure: Figure,
    axes: Axes,
    found: Sequence[float | None],
    causes: Mapping[str, Sequence[float | None]],
    orders: Sequence[int],
) -> None:
    """Stack the causes of misses on what is found, to 100 per order; causes that are nowhere stay out of the legend."""
    axes.set_axisbelow(True)
    bottom = [0.0] * len(orders)
    layers = {"found": ("found in any order", FOUND, found)}
    layers |= {cause: (*CAUSES[cause], shares) for cause, shares in causes.items()}
    for words, colour, layer in layers.values():
        heights = [share or 0.0 for share in layer]
        if any(heights):
            label = words if max(heights) >= 0.05 else f"{words} (under 0.1)"
            axes.bar(range(len(orders)), heights, 0.82, bottom, color=colour, label=label, linewidth=0)
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    lowest = min((share for share in found if share is not None), default=0.0)
    floor = max(0, 10 * math.floor((lowest - 5) / 10))
    axes.set_ylim(floor, 100)
    axes.set_xticks(range(len(orders)), [str(order) for order in orders])
    drawing.tidy(axes, grid="y")
    _name_axes(axes, "target order (tokens)", "")
    start = f";\nthe axis starts at {floor}" if floor else ""
    axes.set_title(f"found, and why the others are missed (percent{start})", fontsize=8, color=drawing.INK)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def _shade(axes: Axes, shares: Sequence[Sequence[float | None]]) -> None:
    """Fill cells by their percentage, and write it into them; None stays blank."""
    values = [[math.nan if share is None else share for share in row] for row in shares]
    axes.imshow(values, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    for y, row in enumerate(values):
        for x, share in enumerate(row):
            if not math.isnan(share):
                text = f"{share:.0f}" if share in (0, 100) else f"{share:.1f}"
                colour = "white" if share > 65 else drawing.INK
                axes.text(x, y, text, ha="center", va="center", fontsize=8, color=colour)
    axes.tick_params(length=0, labelsize=8, colors=drawing.INK)
    axes.spines[:].set_visible(False)


def _outline(order: int) -> Any:
    """A frame round the cell where both orders are the same."""
    from matplotlib.patches import Rectangle

    return Rectangle((order - 0.5, order - 0.5), 1, 1, fill=False, edgecolor=drawing.COLOURS[1], linewidth=1.5)
