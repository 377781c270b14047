"""What all figures share: an empty figure, its colours and axes, and its way to a file.

Figures are made through matplotlib's objects alone, so that no backend is chosen and no global setting changed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokagnostic.errors import InvalidValueError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
DPI = 160
UNDATED = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""Metadata that let equal figures be equal files."""
INK, GREY, SHADE, FAINT = "#222222", "#767676", "#c4c4c4", "#dddddd"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's palette, which readers with any colour vision can tell apart."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("matplotlib", extra="plot", purpose="Drawing a figure") from error
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format that its suffix names; nothing half-written is left under the final name."""
    path = Path(path)
    if path.suffix not in FORMATS:
        raise InvalidValueError(
            f"figure file {path}", expected=f"a name that ends in {' or '.join(FORMATS)}", remedy="Choose such a name"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        figure.savefig(partial, format=path.suffix[1:], dpi=DPI, metadata=UNDATED.get(path.suffix))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def numbers(value: float | Sequence[float | None] | None) -> list[float]:
    """The finite numbers of one value or of several."""
    values = value if isinstance(value, Sequence) else [value]
    return [float(number) for number in values if number is not None and math.isfinite(number)]


def spread_of(values: Sequence[float]) -> float:
    """The largest less the smallest."""
    return max(values) - min(values)


def explain(figure: Figure, text: str) -> None:
    """Write what the horizontal axis holds, centred under the whole figure, where a long line has room."""
    figure.supxlabel(text, fontsize=9, color=INK)


def require_some(values: Mapping[str, Any]) -> None:
    """Refuse a figure of nothing.

    Raises:
        InvalidValueError: if there is no value.
    """
    if not values:
        raise InvalidValueError(
            "results without a finite number", expected="at least one value to draw", remedy="Check the run's report"
        )


def tidy(axes: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    """Axes that stay behind what they measure."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(labelsize=8, colors=INK, color=GREY)
    axes.grid(axis=grid, color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_fontsize(9)
        label.set_color(INK)


def short(name: str, most: int = 32) -> str:
    """A name that fits into a title: the end of it, which tells paths apart."""
    return name if len(name) <= most else f"…{name[1 - most :]}"
