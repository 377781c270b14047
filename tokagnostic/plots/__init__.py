"""Saved results to figure files.

Every function takes plain values, as they stand in a result's JSON, and a path that ends in .png, .svg or .pdf.
"""

from tokagnostic.plots.controls import plot_controls, plot_seen_novel
from tokagnostic.plots.curves import plot_learning_curves
from tokagnostic.plots.drawing import FORMATS
from tokagnostic.plots.overlap import plot_overlap, plot_overlap_square
from tokagnostic.plots.run import plot_run

__all__ = [
    "FORMATS",
    "plot_controls",
    "plot_learning_curves",
    "plot_overlap",
    "plot_overlap_square",
    "plot_run",
    "plot_seen_novel",
]
