"""What a cache remembers of long sequences."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokagnostic.host.history import Pieces


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 40))
def test_pieces_are_the_whole(lengths: list[int], tail: int) -> None:
    whole = torch.randn(2, sum(lengths), 3)
    first, *rest = whole.split(lengths, dim=1)
    pieces = Pieces((first,))
    for piece in rest:
        pieces = pieces.with_piece(piece)
    assert torch.equal(pieces.tail(tail), whole[:, max(0, sum(lengths) - tail) :])
    assert torch.equal(pieces.map(lambda kept: kept[[1, 0], 1:]).pieces[0], whole[[1, 0], 1:])


@pytest.mark.parametrize("length", [1, 63, 100, 1000])
def test_a_position_more_copies_little(length: int) -> None:
    """Token by token, the numbers copied grow as T log T and the pieces as log T."""
    pieces, copied = Pieces((torch.zeros(1, 1, 1),)), 0
    for _ in range(length - 1):
        before = pieces
        pieces = pieces.with_piece(torch.zeros(1, 1, 1))
        copied += pieces.pieces[-1].shape[1] if len(pieces.pieces) <= len(before.pieces) else 0
    assert sum(piece.shape[1] for piece in pieces.pieces) == length
    assert len(pieces.pieces) <= math.log2(length) + 1
    assert copied <= length * (math.log2(length) + 1)
