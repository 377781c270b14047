"""Results to what their charts are made of: rows with a length or a place in percent of the chart's width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

CAUSES = {
    "cut_points": ("no cut at an end", "the reference does not cut at one of its ends"),
    "more_tokens": (
        "more tokens between",
        "the reference cuts at both its ends, but into more tokens than were counted",
    ),
    "prefix": ("prefix space", "it would be found if invented leading spaces were kept"),
    "normalisation": ("text rewritten", "one of the tokenizers rewrote the text there"),
    "special": ("no bytes there", "the reference has an id without bytes there"),
}
"""What a cause of a miss is called, and what it means; the commonest first."""
COUNTINGS = ("unique", "weighted")
_AXIS_ENDS = (1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100)
_LAST_LENGTH = 16


def share_tracks(pair: Mapping[str, Any]) -> dict[str, Any]:
    """The any-order shares with their intervals along an axis that ends at 100.

    Args:
        pair: an overlap's JSON values.

    Returns:
        `low`, where the axis begins, and `rows`: per order `unique` and `weighted`, each its `share` and, where there
        is an interval, `interval`; with `at` and `span` as places on the axis in percent of its width.
    """
    intervals = pair.get("intervals")
    bounds = {counting: intervals[counting]["any_order"] if intervals else () for counting in COUNTINGS}
    numbers = [share for counting in COUNTINGS for share in pair[counting]["any_order"] if share is not None]
    numbers += [low for rows in bounds.values() for low, _ in rows if low is not None]
    low = min(90, math.floor(min(numbers, default=0) / 10) * 10)

    def place(share: float) -> float:
        return 100 * (share - low) / (100 - low)

    rows = []
    for n, order in enumerate(pair["orders"]):
        row: dict[str, Any] = {"order": order}
        for counting in COUNTINGS:
            share = pair[counting]["any_order"][n]
            interval = bounds[counting][n] if bounds[counting] else None
            if interval is not None and interval[0] is None:
                interval = None
            row[counting] = {
                "share": share,
                "at": None if share is None else place(share),
                "interval": interval,
                "span": None if interval is None else [place(bound) for bound in interval],
            }
        rows.append(row)
    return {"low": low, "rows": rows}


def cause_bars(pair: Mapping[str, Any], counting: str) -> dict[str, Any] | None:
    """What is missed of each order, by cause, along an axis that begins at 0; None where causes were not counted.

    Args:
        pair: an overlap's JSON values.
        counting: "unique" or "weighted".

    Returns:
        `high`, where the axis ends, and `rows`: per order `missed` in percent and `parts`, each a cause with its
        `share` and `width` in percent of the axis; `causes`, those that occur at any order.
    """
    if not pair.get("causes"):
        return None
    shares = pair["causes"][counting]
    rows = []
    for n, order in enumerate(pair["orders"]):
        parts = {cause: shares[cause][n] for cause in CAUSES if shares.get(cause)}
        is_empty = any(share is None for share in parts.values())
        rows.append({"order": order, "missed": None if is_empty else math.fsum(parts.values()), "shares": parts})
    high = _round_up(max((row["missed"] or 0 for row in rows), default=0))
    for row in rows:
        row["parts"] = [
            {"cause": cause, "share": share, "width": 100 * share / high}
            for cause, share in row["shares"].items()
            if share
        ]
    causes = [cause for cause in CAUSES if any(row["shares"].get(cause) for row in rows)]
    return {"high": high, "rows": rows, "causes": causes}


def length_bars(counts: Sequence[int]) -> list[dict[str, Any]]:
    """How many ids have each number of bytes, the long ones together.

    Args:
        counts: ids by number of bytes, from 0 bytes on.

    Returns:
        Per bar its `label`, `num_ids`, and `height` in percent of the highest.
    """
    heights = {str(length): counts[length] for length in range(1, min(len(counts), _LAST_LENGTH))}
    if len(counts) > _LAST_LENGTH:
        heights[f"{_LAST_LENGTH}+"] = sum(counts[_LAST_LENGTH:])
    most = max(heights.values(), default=0) or 1
    return [{"label": label, "num_ids": number, "height": 100 * number / most} for label, number in heights.items()]


def _round_up(share: float) -> float:
    """The least round number that holds a share."""
    return next(end for end in _AXIS_ENDS if share <= end or end == 100)
