from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import naive
from tests.hashing.sequences import PREFIXES, by_torch, cache_of, sequences
from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing import NgramHasher
from tokagnostic.hashing.windows_numba import BLOCK, WindowStream, window_keys


@settings(deadline=None, max_examples=300)
@given(sequences())
def test_every_backend_equals_big_integers(case):
    tokens, ids, starts, order, prefix = case
    cache = cache_of(tokens, prefix)
    expected = naive.window_keys(tokens, ids, starts, order, prefix)
    flags = None if starts is None else np.array(starts, dtype=bool)
    assert NgramHasher(cache, order)(np.array(ids, dtype=np.int64), flags).tolist() == expected
    assert by_torch(cache, ids, starts, order) == expected


@settings(deadline=None, max_examples=200)
@given(sequences(), st.lists(st.integers(0, 20), max_size=6))
def test_a_stream_in_pieces_equals_the_whole(case, cuts):
    tokens, ids, starts, order, prefix = case
    cache = cache_of(tokens, prefix)
    stream = WindowStream(cache, order)
    bounds = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    parts = []
    for begin, end in pairwise(bounds):
        flags = None if starts is None else np.array(starts[begin:end], dtype=bool)
        parts.extend(stream.push(np.array(ids[begin:end], dtype=np.int64), flags).tolist())
    assert parts == naive.window_keys(tokens, ids, starts, order, prefix)


@settings(deadline=None, max_examples=100)
@given(sequences(), st.integers(1, 4))
def test_a_batch_equals_its_rows(case, num_rows):
    tokens, ids, starts, order, prefix = case
    cache = cache_of(tokens, prefix)
    # Each row is turned by one position more, so that rows differ and must not touch each other.
    rows = [ids[i:] + ids[:i] for i in range(num_rows)]
    flags = None if starts is None else [starts] * num_rows
    expected = [naive.window_keys(tokens, row, starts, order, prefix) for row in rows]
    batch = np.array(rows, dtype=np.int64).reshape(num_rows, len(ids))
    batch_flags = None if flags is None else np.array(flags, dtype=bool).reshape(batch.shape)
    assert NgramHasher(cache, order)(batch, batch_flags).tolist() == expected
    if ids:
        assert by_torch(cache, rows, flags, order) == expected


@pytest.mark.parametrize("length", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 63], ids=str)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_windows_and_segments_reach_from_block_to_block(prefix, length):
    """Ids without bytes stand around the border, so that a segment opens in one block and its first token is in another."""
    tokens = [b" a", b"b", None, b" ", b"the"]
    ids = np.random.default_rng(length).integers(-1, len(tokens), length).tolist()
    starts = (np.random.default_rng(1).random(length) < 0.05).tolist()
    for last in range(BLOCK - 1, length, BLOCK):
        ids[last - 3 : last + 2] = [2] * len(ids[last - 3 : last + 2])
        starts[last - 3] = True
    cache = cache_of(tokens, prefix)
    expected = naive.window_keys(tokens, ids, starts, 5, prefix)
    assert window_keys(np.array(ids), np.array(starts), cache, 5).tolist() == expected
    assert by_torch(cache, ids, starts, 5) == expected


def test_a_stream_stays_as_it_was_when_it_refuses_an_id():
    stream = WindowStream(cache_of([b" a", b"b"], "first"), 3)
    before = stream.push(np.array([0, 1]))
    with pytest.raises(InvalidValueError, match="token id 7 at position 300"):
        stream.push(np.array([1] * 300 + [7]))
    after = stream.push(np.array([0, 1]))
    whole = naive.window_keys([b" a", b"b"], [0, 1, 0, 1], None, 3, "first")
    assert [*before.tolist(), *after.tolist()] == whole


@pytest.mark.parametrize("starts", [[True], [[True, False]], [True, False, False]], ids=str)
def test_starts_of_another_shape_are_refused(starts):
    with pytest.raises(InvalidValueError, match=r"starts of shape .* for ids of shape \[2\]"):
        NgramHasher(cache_of([b"a"]), 2)(np.array([0, 0]), np.array(starts))


@settings(deadline=None, max_examples=200)
@given(st.binary(min_size=1, max_size=30), st.sets(st.integers(1, 29)), st.sets(st.integers(1, 29)))
def test_where_a_tokenizer_cuts_does_not_change_the_key(data, cuts, other_cuts):
    keys = []
    for bounds in (cuts, other_cuts):
        edges = [0, *sorted(cut for cut in bounds if cut < len(data)), len(data)]
        tokens = [data[begin:end] for begin, end in pairwise(edges)]
        hasher = NgramHasher(cache_of(tokens), len(tokens))
        keys.append(int(hasher(np.arange(len(tokens)))[-1, -1]))
    assert keys[0] == keys[1] == naive.key_of(data)


def test_long_tokens_do_not_overflow():
    """H-02: powers and products stay exact for tokens of 512 bytes and windows of seven of them."""
    random = np.random.default_rng(7)
    tokens = [random.bytes(512) for _ in range(9)] + [b"\xff" * 512]
    ids = random.integers(0, len(tokens), 20)
    cache = cache_of(tokens)
    expected = naive.window_keys(tokens, ids.tolist(), None, 7)
    assert NgramHasher(cache, 7)(ids).tolist() == expected
    assert by_torch(cache, ids.tolist(), None, 7) == expected


def test_ten_thousand_windows_are_bit_equal_and_never_negative():
    """H-03: no backend lets a negative number reach a remainder."""
    random = np.random.default_rng(3)
    tokens = [random.bytes(int(length)) for length in random.integers(1, 12, 500)]
    ids = random.integers(0, len(tokens), 5000)
    cache = cache_of(tokens)
    keys = NgramHasher(cache, 2)(ids)
    assert by_torch(cache, ids.tolist(), None, 2) == keys.tolist()
    assert keys[1:].min() >= 0 and keys.max() < 2**62


def test_nul_bytes_count():
    """H-09: any number of leading NULs makes another key."""
    strings = [b"a", b"\x00a", b"\x00\x00a", *(b"\x00" * length for length in range(1, 9))]
    keys = NgramHasher(cache_of(strings), 1)(np.arange(len(strings)))[:, 0].tolist()
    assert len(set(keys)) == len(strings)


def test_masked_ids_break_windows_and_are_never_looked_up():
    """H-11: ids of -1 and -100 do not index the cache from its end."""
    tokens = [bytes([65 + i]) for i in range(8)] + [None]
    keys = NgramHasher(cache_of(tokens), 3)(np.array([5, 6, -100, 7, 8, -1]))
    assert keys[2].tolist() == keys[4].tolist() == keys[5].tolist() == [-1, -1, -1]
    assert keys[3].tolist() == [naive.key_of(b"H"), -1, -1]
    assert keys[1].tolist() == [naive.key_of(b"G"), naive.key_of(b"FG"), -1]


@pytest.mark.parametrize("kind", ["numpy", "tensor"])
def test_an_id_beyond_the_cache_is_refused_on_the_cpu(kind):
    """H-11, T-18: the error names the id, its position and the size of the cache."""
    ids = np.array([[0, 1], [1, 3]])
    hasher = NgramHasher(cache_of([b"a", b"b", b"c"]), 2)
    with pytest.raises(InvalidValueError, match=r"token id 3 at position 1.*below 3"):
        hasher(ids if kind == "numpy" else torch.from_numpy(ids))


def test_an_id_beyond_the_cache_breaks_windows_and_is_counted_where_raising_would_stall(monkeypatch):
    """H-11, T-18: what a device does with an id that nobody knows."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    hasher = NgramHasher(cache_of([b"a", b"b"]), 2)
    keys = hasher(torch.tensor([[0, 5, 1, 0, -1]]))
    assert keys.tolist() == [naive.window_keys([b"a", b"b"], [0, 5, 1, 0, -1], None, 2)]
    assert hasher.num_unknown_ids == 1


def test_ids_past_the_vocabulary_but_inside_the_host_break_windows():
    """T-18: a host with 320 embedding rows and a vocabulary of 3; rows that no token has do not wrap around."""
    tokens = [b"a", b"b", None]
    hasher = NgramHasher(cache_of(tokens, num_ids=320), 3)
    ids = [0, 319, 1, 0, 3, 1]
    assert hasher(np.array(ids)).tolist() == naive.window_keys(tokens, ids, None, 3)


def test_empty_pieces_break_and_nul_is_a_byte():
    """T-31: an empty piece is not transparent; NUL and a zero-width space are ordinary bytes."""
    tokens = [b"a", b"", b"\x00", "\u200b".encode(), b"b"]
    keys = NgramHasher(cache_of(tokens), 3)(np.array([0, 1, 4, 2, 3]))
    assert keys[1].tolist() == [-1, -1, -1]
    assert keys[2].tolist() == [naive.key_of(b"b"), -1, -1]
    assert keys[4].tolist()[2] == naive.key_of(b"b\x00\xe2\x80\x8b")


@pytest.mark.parametrize(
    ("prefix", "first", "later"), [("none", b" a", b" a"), ("first", b"a", b" a"), ("always", b"a", b"a")]
)
def test_an_invented_space_is_taken_out_where_the_tokenizer_puts_it(prefix, first, later):
    """Only one space, only at a segment start; leading specials are passed over."""
    hasher = NgramHasher(cache_of([None, b" a", b"  b"], prefix), 1)
    keys = hasher(np.array([0, 1, 2, 0, 1, 1]))[:, 0].tolist()
    expected = [None, first, b"  b", None, later, b" a"]
    assert keys == [-1 if piece is None else naive.key_of(piece) for piece in expected]


def test_a_first_token_that_was_only_the_invented_space_is_without_bytes():
    """The next token is taken as it is: one space is removed, never more."""
    hasher = NgramHasher(cache_of([b" ", b" a"], "first"), 2)
    assert hasher(np.array([0, 1])).tolist() == [[-1, -1], [naive.key_of(b" a"), -1]]


@pytest.mark.parametrize("order", [0, -1, 2.0, True, "3", None], ids=repr)
def test_an_order_that_is_no_whole_number_is_refused(order):
    with pytest.raises(InvalidValueError, match="max_order"):
        NgramHasher(cache_of([b"a"]), order)


@pytest.mark.parametrize("shape", [(0,), (1,), (63,), (3, 0), (3, 1), (2, 100)], ids=str)
def test_shapes_follow_the_ids(shape):
    hasher = NgramHasher(cache_of([b"a"]), 4)
    ids = np.zeros(shape, dtype=np.int64)
    assert hasher(ids).shape == (*shape, 4)
    assert hasher(torch.from_numpy(ids)).shape == (*shape, 4)
