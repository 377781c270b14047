"""Where a segment waits for its first bytes, against a walk over the ids."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokagnostic.hashing.segments_torch import waiting_segments

ROWS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12)


def walk(row: list[tuple[bool, bool]], prefix: str, before: bool) -> list[bool]:
    waiting, answers = before, []
    for has_bytes, start in row:
        waiting = (waiting or start) and not has_bytes
        waiting = waiting or (prefix == "always" and not has_bytes)
        answers.append(waiting)
    return answers


@pytest.mark.parametrize("prefix", ["first", "always"])
@given(row=ROWS, before=st.booleans())
def test_it_equals_a_walk(prefix: str, row: list[tuple[bool, bool]], before: bool) -> None:
    has_bytes, starts = (torch.tensor([[pair[i] for pair in row]], dtype=torch.bool) for i in range(2))
    found = waiting_segments(has_bytes, starts, prefix, torch.tensor([before]))
    assert found[0].tolist() == walk(row, prefix, before)
