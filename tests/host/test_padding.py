"""A padded position takes no part: windows and taps see the real positions side by side, wherever padding stands."""

from __future__ import annotations

import copy

import pytest
import torch
from hosts import FAMILIES, RECURRENT, USUAL, WINDOWED, logits_of, make_host, random_ids
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_decoding import TOLERANCE, attached
from test_history import from_ids_alone
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from tokagnostic.hashing import HashCache, NgramHasher
from tokagnostic.host.history import History
from tokagnostic.host.padding import RealPositions, hash_real
from tokagnostic.host.reading import surroundings
from tokagnostic.host.short_conv import ShortConvolution, Surroundings
from tokagnostic.memory import NgramMemory
from tokagnostic.tokens import TokenBytes

LENGTH = 9
BYTES = [b"a", b" ", b" a", b"  ", None, b"", b"\x00", b"in", b" in", b"x"]
flags = st.lists(st.booleans(), min_size=LENGTH, max_size=LENGTH)


@given(st.lists(flags, min_size=1, max_size=3))
def test_side_by_side_and_back(rows: list[list[bool]]) -> None:
    real = torch.tensor(rows)
    values = torch.randn(*real.shape, 2)
    padding = RealPositions.of(real)
    packed = padding.side_by_side(values)
    for row, flags_of_row, found in zip(values, real, packed, strict=True):
        assert torch.equal(found[: int(flags_of_row.sum())], row[flags_of_row])
    assert torch.equal(padding.in_place(packed), values)
    for row, lasts in zip(real, padding.last.tolist(), strict=True):
        for t, last in enumerate(lasts):
            assert last == max((s for s in range(t + 1) if row[s]), default=-1)


@settings(deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.lists(st.integers(0, 9), min_size=LENGTH, max_size=LENGTH), flags), min_size=1, max_size=3
    ),
    begins=flags,
    sizes=st.lists(st.integers(0, 4), max_size=4),
    max_order=st.integers(1, 4),
    prefix=st.sampled_from(["none", "first", "always"]),
    known=st.booleans(),
)
@example([([0, 7, 0, 7, 0, 7, 0, 7, 0], [True] * 4 + [False] + [True] * 4)], [False] * 9, [8], 3, "none", True)
@example([([2] * 9, [False, False, True, False, True, True, False, False, True])], [False] * 9, [1, 1, 2, 3], 3, "first", False)  # fmt: skip
@example([([2] * 9, [False] * 4 + [True, False, True, True, True])], [False] * 9, [2, 3, 3], 3, "first", True)
def test_keys_are_those_of_the_real_ids_alone(
    rows: list[tuple[list[int], list[bool]]],
    begins: list[bool],
    sizes: list[int],
    max_order: int,
    prefix: str,
    known: bool,
) -> None:
    """In calls of any sizes, from the last keys where they are known, else from the last ids."""
    hasher = NgramHasher(HashCache.build(TokenBytes.from_list(BYTES, prefix=prefix)), max_order)
    ids, real = torch.tensor([row for row, _ in rows]), torch.tensor([flags_of_row for _, flags_of_row in rows])
    starts = torch.tensor([begins] * len(rows)) & real
    starts[:, 0] = True  # a row begins a document, whether or not its first position is padding
    expected = torch.full((*ids.shape, max_order), -1)
    for row, (row_ids, row_real) in enumerate(zip(ids, real, strict=True)):
        row_starts = starts[row, row_real]
        row_starts[:1] = True
        expected[row, row_real] = hasher(row_ids[row_real][None], row_starts[None])[0]
    history, found, begin = None, [], 0
    for size in (*sizes, LENGTH):
        piece = slice(begin, begin := min(LENGTH, begin + size))
        masked = ids[:, piece].masked_fill(~real[:, piece], -1)
        past = history if known or history is None else from_ids_alone(history)
        hashed = hash_real(hasher, masked, starts[:, piece], RealPositions.of(real[:, piece]), past)
        kept = masked, hashed.starts, hashed.kept_keys, hashed.waiting
        history = History.of(0, *kept, padded=True) if history is None else history.extended(*kept, padded=True)
        found.append(hashed.keys)
    assert torch.equal(torch.cat(found, dim=1), expected)


@given(flags, st.integers(0, LENGTH))
def test_taps_reach_over_padding(real: list[bool], first: int) -> None:
    """In one call or two."""
    torch.manual_seed(1)
    conv = ShortConvolution(4, 3, 2)
    torch.nn.init.normal_(conv.weight)
    flags_of_row = torch.tensor([real, [True] * LENGTH])
    values = torch.randn(2, LENGTH, 4)
    ids = torch.zeros(2, LENGTH, dtype=torch.int64).masked_fill(~flags_of_row, -1)
    starts = torch.zeros(2, LENGTH, dtype=torch.bool)
    expected = torch.zeros_like(values)
    for row in range(2):
        alone = values[row : row + 1, flags_of_row[row]]
        expected[row, flags_of_row[row]] = conv(alone, Surroundings(torch.ones(alone.shape[:2]), None))[0][0]
    history, found = None, []
    for piece in (slice(0, first), slice(first, LENGTH)):
        padding = RealPositions.of(flags_of_row[:, piece])
        around = surroundings(ids[:, piece], starts[:, piece], padding, history, 0, conv.reach)
        mixed, inputs = conv(values[:, piece], around)
        arguments = ids[:, piece], starts[:, piece], ids[:, piece, None], None
        history = (
            History.of(0, *arguments, padded=True) if history is None else history.extended(*arguments, padded=True)
        )
        history = history.with_conv_inputs({0: inputs.detach()})
        found.append(mixed)
    torch.testing.assert_close(torch.cat(found, dim=1), expected)


# Recurrent states and attention windows of so many positions see padding inside a row, attached or not.
PADDING_BLIND = [name for name in sorted(FAMILIES) if name not in (*RECURRENT, *WINDOWED)]
MASKS = {
    "inside": [1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1],
    "both sides and inside": [0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 1, 0],
    "a second turn of a padded batch": [0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1],
    "every other": [1, 0] * 6,
}


@pytest.mark.parametrize("family", [pytest.param(name, marks=() if name in USUAL else pytest.mark.slow) for name in PADDING_BLIND])  # fmt: skip
@pytest.mark.parametrize("sizes", [(12,), (7, 5), (5, 1, 1, 5), (1,) * 12], ids=str)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("kernel", [0, 4], ids=["no_conv", "conv"])
def test_a_row_with_padding_inside_is_the_row_without(
    family: str, memory: NgramMemory, kernel: int, mask: list[int], sizes: tuple[int, ...]
) -> None:
    """Two rows, of which the second has no padding; with the positions that the real ids have."""
    family_host = make_host(family)
    attached(family_host, memory, kernel)
    ids = random_ids(2, 12)
    flags_of_rows = torch.tensor([mask, [1] * 12])
    positions = (flags_of_rows.cumsum(1) - 1).clamp(min=0)
    cache, begin, found = DynamicCache(config=family_host.config), 0, []
    for size in sizes:
        end = begin + size
        arguments = {"attention_mask": flags_of_rows[:, :end], "position_ids": positions[:, begin:end]}
        found.append(logits_of(family_host, ids[:, begin:end], past_key_values=cache, use_cache=True, **arguments))
        begin = end
    logits = torch.cat(found, dim=1)
    for row, real in enumerate(flags_of_rows.bool()):
        alone = logits_of(family_host, ids[row : row + 1, real], use_cache=False)
        torch.testing.assert_close(logits[row : row + 1, real], alone, **TOLERANCE)


@pytest.mark.parametrize("name", ["seq_idx", "cu_seq_lens_q"])
def test_documents_are_told_apart_beside_padding(host: PreTrainedModel, memory: NgramMemory, name: str, keys_read: list[Tensor]) -> None:  # fmt: skip
    """A document that starts at padding starts at the next real id; numbers count where ids are real."""
    attachment = attached(host, memory, 0)
    ids = random_ids(1, 8)
    mask = torch.tensor([[1, 1, 0, 1, 0, 1, 1, 1]])
    numbers = torch.tensor([[1, 1, 0, 1, 2, 2, 2, 2]])
    given_numbers = numbers if name == "seq_idx" else torch.tensor([0, 4, 8], dtype=torch.int32)
    logits_of(host, ids, attention_mask=mask, **{name: given_numbers}, use_cache=False)
    real = mask.bool()
    expected = torch.full((1, 8, memory.max_order), -1)
    starts = torch.tensor([[True, False, False, True, False, False]])
    expected[real] = attachment.hasher(ids[real][None], starts)[0]
    assert torch.equal(keys_read[0], expected)


def test_a_copied_cache_with_padding_goes_on(host: PreTrainedModel, memory: NgramMemory) -> None:
    """Right-padded prompts, continued with the positions that their ids have."""
    attached(host, memory, 4)
    short, long = random_ids(1, 3, seed=1), random_ids(1, 6, seed=2)
    ids = torch.cat([torch.cat([short, torch.full((1, 3), 2)], dim=1), long])
    mask = torch.tensor([[1, 1, 1, 0, 0, 0], [1] * 6])
    cache = DynamicCache(config=host.config)
    logits_of(host, ids, attention_mask=mask, past_key_values=cache, use_cache=True)
    more = random_ids(2, 4, seed=3)
    arguments = {
        "attention_mask": torch.cat([mask, torch.ones(2, 4, dtype=torch.int64)], dim=1),
        "position_ids": torch.stack([torch.arange(3, 7), torch.arange(6, 10)]),
    }
    found = logits_of(host, more, past_key_values=copy.deepcopy(cache), use_cache=True, **arguments)
    for row, prompt in enumerate((short, long)):
        alone = logits_of(host, torch.cat([prompt, more[row : row + 1]], dim=1), use_cache=False)
        torch.testing.assert_close(found[row : row + 1], alone[:, -4:], **TOLERANCE)
