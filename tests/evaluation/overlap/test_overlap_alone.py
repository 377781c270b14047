"""Windows that occur once, told by their first bytes, against a search of the text."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tokagnostic.evaluation.overlap.alone import LADDER, NEVER, mark_alone, twin_orders

CUTS = st.lists(st.integers(0, 40), max_size=20)
TEXTS = st.one_of(st.binary(min_size=1, max_size=40), st.text("ab", min_size=1, max_size=40).map(str.encode))


def ends_of(cuts: list[int], length: int) -> np.ndarray:
    """Ends of tokens, some of them without bytes, that make up a text."""
    return np.array([0, *sorted(min(cut, length) for cut in cuts), length], dtype=np.int64)


@settings(deadline=None)
@given(text=TEXTS, cuts=CUTS, other_cuts=CUTS)
def test_what_is_alone_occurs_once_behind_all_cut_points(text: bytes, cuts: list[int], other_cuts: list[int]) -> None:
    data = np.frombuffer(text + text, dtype=np.uint8)
    ends, other_ends = ends_of(cuts, len(text)), ends_of(other_cuts, len(text)) + len(text)
    alone, other_alone = (np.empty(len(e) - 1, dtype=np.int64) for e in (ends, other_ends))
    twins = np.empty((len(alone), 2), dtype=np.int64)
    mark_alone(data, ends, 0, len(alone), other_ends, 0, len(other_alone), -len(text), alone, other_alone, twins)
    sides = [(ends.tolist(), alone), ((other_ends - len(text)).tolist(), other_alone)]
    begins = {a for side, _ in sides for a, b in pairwise(side) if b > a}

    def expected(a: int, b: int) -> int:
        if a == b:
            return NEVER
        occurs = {n: sum(text[c : c + n] == text[a : a + n] for c in begins) for n in LADDER if a + n <= len(text)}
        return next((n for n, times in occurs.items() if times == 1), NEVER)

    for side, marks in sides:
        assert marks.tolist() == [expected(a, b) for a, b in pairwise(side)]
    theirs = list(pairwise(sides[1][0]))
    for (a, b), (begin_twin, end_twin) in zip(
        zip(sides[0][0], sides[0][0][1:], strict=False), twins.tolist(), strict=True
    ):
        assert begin_twin == next((r for r, (c, d) in enumerate(theirs) if c == a and d > c and b > a), -1)
        assert end_twin == next((r for r, (c, d) in enumerate(theirs) if d == b and d > c and b > a), -1)


def test_orders_of_twins_are_those_of_windows_that_exist() -> None:
    keys = np.array([[5, -1], [6, 7], [-1, -1], [8, -1]])
    assert twin_orders(0, 0, keys) == 1
    assert twin_orders(0, 1, keys) == 2
    assert [twin_orders(*twins, keys) for twins in ((-1, 0), (0, -1), (1, 3), (2, 3), (1, 0), (0, 3))] == [0] * 6
