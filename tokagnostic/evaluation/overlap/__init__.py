"""How much of a tokenizer's n-grams another one makes too, document by document."""

from tokagnostic.evaluation.overlap.counting import OverlapCounter, count_overlap, ngram_overlap, overlap_square
from tokagnostic.evaluation.overlap.counts import OverlapCounts
from tokagnostic.evaluation.overlap.report import Overlap
from tokagnostic.evaluation.overlap.square import OverlapSquare

__all__ = [
    "Overlap",
    "OverlapCounter",
    "OverlapCounts",
    "OverlapSquare",
    "count_overlap",
    "ngram_overlap",
    "overlap_square",
]
