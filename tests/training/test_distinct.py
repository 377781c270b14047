"""About how many different keys there were."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokagnostic.training.distinct import NUM_KEPT, DistinctKeys

KEYS = st.lists(st.integers(-1, 2**62 - 1), max_size=30).map(lambda keys: np.array(keys, dtype=np.int64))


@given(st.lists(KEYS, max_size=5))
def test_few_are_counted_exactly_in_any_order_and_by_any_number_of_sketches(pieces: list[np.ndarray]) -> None:
    truth = {key for piece in pieces for key in piece.tolist()} - {-1}
    one, others = DistinctKeys(), [DistinctKeys() for _ in pieces]
    for piece, other in zip(reversed(pieces), others, strict=True):
        one.add(piece)
        other.add(piece)
    joined = DistinctKeys()
    if others:
        joined.join(torch.stack([other.state for other in others]))
    assert len(one) == len(joined) == len(truth)
    assert torch.equal(one.state, joined.state)


def test_many_are_estimated_within_four_standard_errors_and_the_space_stays() -> None:
    """Keys in a row, as those of short windows may lie: what the hash does not spread would be estimated badly."""
    for step, num_keys in ((1, 200_000), (257, 1_000_000), (2**31, 500_000)):
        sketch = DistinctKeys()
        keys = np.arange(num_keys, dtype=np.int64) * step
        for part in np.array_split(np.concatenate((keys, keys[::3])), 20):
            sketch.add(part)
        assert abs(len(sketch) / num_keys - 1) < 4 / NUM_KEPT**0.5
        assert sketch.state.shape == (NUM_KEPT,)


def test_sketches_of_many_keys_are_joined_to_the_sketch_of_all() -> None:
    one, other, both = DistinctKeys(), DistinctKeys(), DistinctKeys()
    keys = np.arange(3 * NUM_KEPT, dtype=np.int64)
    one.add(keys[: 2 * NUM_KEPT])
    other.add(keys[NUM_KEPT:])
    both.add(keys)
    one.join(other.state)
    assert torch.equal(one.state, both.state) and len(one) == len(both)
