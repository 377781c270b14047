"""What a cache remembers of long sequences, and hashing on from it."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing import HashCache, NgramHasher
from tokagnostic.hashing.hasher import Past
from tokagnostic.host.history import FAN, History, Pieces
from tokagnostic.tokens import TokenBytes


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 40))
def test_pieces_are_the_whole(lengths: list[int], tail: int) -> None:
    whole = torch.randn(2, sum(lengths), 3)
    first, *rest = whole.split(lengths, dim=1)
    pieces = Pieces.of(first)
    for piece in rest:
        pieces = pieces.with_piece(piece)
    assert torch.equal(pieces.tail(tail), whole[:, max(0, sum(lengths) - tail) :])
    assert torch.equal(pieces.map(lambda kept: kept[[1, 0], 1:]).pieces[0], whole[[1, 0], 1:])


@pytest.mark.parametrize("length", [1, 63, 100, 1000])
def test_a_position_more_copies_little(length: int) -> None:
    """Token by token, the numbers copied grow as T log T and the pieces as log T."""
    pieces, copied = Pieces.of(torch.zeros(1, 1, 1)), 0
    for _ in range(length - 1):
        before = pieces
        pieces = pieces.with_piece(torch.zeros(1, 1, 1))
        copied += pieces.pieces[-1].shape[1] if len(pieces.pieces) <= len(before.pieces) else 0
    assert sum(piece.shape[1] for piece in pieces.pieces) == pieces.length == length
    assert len(pieces.pieces) <= FAN * (math.log(length, FAN) + 1)
    assert copied <= length * math.log(length, FAN)


def from_ids_alone(history: History) -> Past:
    """A past as kernels of devices see it, which go on from its last ids."""
    return SimpleNamespace(last_keys=None, last_waiting=history.last_waiting, tail=history.tail)


@settings(deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(-1, 9), min_size=9, max_size=9), min_size=1, max_size=3),
    flags=st.lists(st.booleans(), min_size=9, max_size=9),
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    max_order=st.integers(1, 4),
    prefix=st.sampled_from(["none", "first", "always"]),
    known=st.booleans(),
)
@example([[4, 2, 2, 0, 4, 4, 2, 0, 0]], [False] * 9, [1, 3, 1, 2], 3, "always", True)
@example(
    [[4, 2, 2, 0, 4, 4, 2, 0, 0]], [False, False, False, False, True] + [False] * 4, [1, 3, 1, 2], 3, "first", True
)
def test_hashing_on_from_a_history_equals_hashing_the_whole(
    rows: list[list[int]], flags: list[bool], sizes: list[int], max_order: int, prefix: str, known: bool
) -> None:
    """From the last keys where they are known, else from the last ids: two ways to one answer."""
    tokens = TokenBytes.from_list([b"a", b" ", b" a", b"  ", None, b"", b"\x00", b"in", b" in", b"x"], prefix=prefix)
    hasher = NgramHasher(HashCache.build(tokens), max_order)
    ids, starts = torch.tensor(rows), torch.tensor([flags] * len(rows))
    starts[:, 0] = True
    history, found, begin = None, [], 0
    for size in (1, *sizes):
        piece = slice(begin, begin := min(9, begin + size))
        past = history if known or history is None else from_ids_alone(history)
        keys = hasher(ids[:, piece], starts[:, piece], past)
        waiting = hasher.waiting(ids[:, piece], starts[:, piece], None if history is None else history.last_waiting)
        kept = ids[:, piece], starts[:, piece], keys, waiting
        history = History.of(0, *kept) if history is None else history.extended(*kept)
        found.append(keys)
    assert torch.equal(torch.cat(found, dim=1), hasher(ids[:, :begin], starts[:, :begin]))


def test_hashing_on_refuses_what_hashing_refuses_and_starts_no_document_unasked() -> None:
    hasher = NgramHasher(HashCache.build(TokenBytes.from_list([b"a", b"b"])), 2)
    ids, starts = torch.tensor([[0, 1]]), torch.tensor([[True, False]])
    history = History.of(0, ids, starts, hasher(ids, starts), None)
    with pytest.raises(InvalidValueError, match="token id 2 at position 1"):
        hasher(torch.tensor([[0, 2]]), torch.zeros(1, 2, dtype=torch.bool), history)
    with pytest.raises(InvalidValueError, match="starts"):
        hasher(ids, starts[:, :1], history)
    assert torch.equal(hasher(ids, None, history), hasher(ids, torch.zeros_like(starts), history))
    with pytest.raises(InvalidValueError, match="behind keys"):
        hasher(ids.expand(2, 2), starts.expand(2, 2), history)
    with pytest.raises(InvalidValueError, match="float"):
        hasher(ids.float(), starts, history)
