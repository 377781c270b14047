"""How many rows different keys hit, and how many of them share rows: measured, and expected of rows drawn by lot."""

from __future__ import annotations

import math


def expected_share(num_rows: int, num_keys: float) -> float:
    """Share of rows that are hit if each key draws one of them by lot: 1 - (1 - 1 / R) ** k (balls into bins).

    It is also the probability that a key shares its row with one of k others.

    Args:
        num_rows: R, at least 2.
        num_keys: k.
    """
    return -math.expm1(num_keys * math.log1p(-1 / num_rows))
