"""Ids, padding and document starts of a call."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DynamicCache

from tokagnostic.errors import HostError
from tokagnostic.host.caches import history_of
from tokagnostic.host.history import History
from tokagnostic.host.inputs import document_starts, read_inputs

IDS = torch.tensor([[5, 6, 7, 8]])


def starts_of(positions: list[int], real: list[int] | None = None) -> list[int]:
    mask = None if real is None else torch.tensor([real], dtype=torch.bool)
    return document_starts(torch.tensor([positions]), mask)[0].int().tolist()


@given(st.lists(st.integers(1, 6), max_size=5))
def test_every_restart_of_the_positions_is_a_start(lengths: list[int]) -> None:
    positions = [position for length in lengths for position in range(length)]
    assert starts_of(positions) == [int(position == 0) for position in positions]


@pytest.mark.parametrize("fill", [0, 1, -1])
def test_positions_of_padding_count_for_nothing(fill: int) -> None:
    """H-12: collators leave 0, 1 or anything at padding."""
    assert starts_of([fill, fill, 0, 1, 2, fill, 3, fill], [0, 0, 1, 1, 1, 0, 1, 0]) == [0, 0, 1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("positions", "real", "expected"),
    [
        ([7, 8, 9, 3, 4], None, [0, 0, 0, 1, 0]),
        ([0, 1, 2, 3, 4], [0, 0, 1, 1, 1], [0, 0, 1, 0, 0]),
        ([4, 5, 6, 7, 8], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]),
        ([0, 0, 0], None, [1, 1, 1]),
        ([], None, []),
        ([0], [0], [0]),
        ([0], [1], [1]),
        ([4], None, [0]),
    ],
    ids=[
        "restart_above_0",
        "padding_counted_from_0",
        "continued",
        "single_tokens",
        "nothing",
        "one_padding",
        "one_token",
        "one_continued",
    ],
)
def test_starts(positions: list[int], real: list[int] | None, expected: list[int]) -> None:
    assert starts_of(positions, real) == expected


def test_a_call_without_mask_and_positions_is_taken_as_it_is() -> None:
    inputs = read_inputs({"input_ids": IDS})
    assert (inputs.real, inputs.starts) == (None, None)
    assert inputs.masked_ids is IDS


def test_padding_is_masked_whatever_its_id() -> None:
    """H-11: the id at a masked position is never looked at."""
    inputs = read_inputs({"input_ids": IDS, "attention_mask": torch.tensor([[0, 1, 1, 0]])})
    assert inputs.masked_ids.tolist() == [[-1, 6, 7, -1]]


def test_one_row_of_positions_serves_all_rows() -> None:
    inputs = read_inputs({"input_ids": IDS.repeat(2, 1), "position_ids": torch.tensor([[0, 1, 0, 1]])})
    assert inputs.starts.int().tolist() == [[1, 0, 1, 0]] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "without input_ids"),
        ({"inputs_embeds": torch.zeros(1, 4, 2)}, "without input_ids but with inputs_embeds"),
        ({"input_ids": IDS[0]}, r"shape \[4\]"),
        ({"input_ids": IDS, "attention_mask": torch.ones(1, 1, 3, 4)}, r"mask of shape \[1, 1, 3, 4\]"),
        ({"input_ids": IDS, "attention_mask": {"full": torch.ones(2, 4)}}, r"mask of shape \[2, 4\]"),
        ({"input_ids": IDS, "attention_mask": torch.ones(1, 3)}, r"mask of shape \[1, 3\]"),
        ({"input_ids": IDS, "position_ids": torch.zeros(2, 1, 4)}, r"position_ids of shape \[2, 1, 4\]"),
        ({"input_ids": IDS, "position_ids": torch.zeros(1, 3)}, r"position_ids of shape \[1, 3\]"),
    ],
    ids=[
        "nothing",
        "embeddings",
        "one_row",
        "4d_mask",
        "mask_dict",
        "short_mask",
        "3d_positions",
        "short_positions",
    ],
)
def test_a_call_that_cannot_be_served_is_refused(arguments: dict[str, object], message: str) -> None:
    """H-19 and the calls that would otherwise read the wrong windows."""
    with pytest.raises(HostError, match=message):
        read_inputs(arguments)


def test_an_empty_cache_is_no_history() -> None:
    for cache in (DynamicCache(), (), None):
        assert history_of(cache, owner=1, batch=1) is None


@pytest.mark.parametrize("cache", [((IDS, IDS),), object()], ids=["old_cache", "recurrent_state"])
def test_a_cache_that_does_not_say_what_it_holds_is_refused(cache: object) -> None:
    with pytest.raises(HostError, match=f"cache of type {type(cache).__name__}"):
        history_of(cache, owner=1, batch=1)


@pytest.mark.parametrize("as_float", [False, True], ids=["bool", "float"])
def test_a_square_mask_tells_padding_and_documents(as_float: bool) -> None:
    """H-14: two documents behind a padding; hosts that alternate kinds of attention get one mask for each."""
    document = torch.tensor([0, 1, 1, 1, 2, 2, 0])
    seen = ((document[:, None] == document) & (document[:, None] > 0)).tril()[None, None]
    mask = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf) if as_float else seen
    for one_or_many in (mask, {"sliding_attention": None, "full_attention": mask}):
        inputs = read_inputs({"input_ids": IDS.repeat(1, 2)[:, :7], "attention_mask": one_or_many})
        assert inputs.real.int().tolist() == [[0, 1, 1, 1, 1, 1, 0]]
        assert inputs.starts.int().tolist() == [[0, 1, 0, 0, 1, 0, 0]]


@pytest.mark.parametrize("hidden", [-torch.inf, torch.finfo(torch.float32).min, -1e9, -1e4], ids=str)
@pytest.mark.parametrize("bias", ["falling", "rising"])
def test_a_square_mask_may_hold_biases(hidden: float, bias: str) -> None:
    """As with distances that are added to the scores: what is not far below zero is seen."""
    places = torch.arange(7.0)
    distances = (places - places[:, None]) * (0.5 if bias == "falling" else -0.5)
    mask = distances.masked_fill(torch.ones(7, 7).triu(1).bool(), hidden)
    mask[3:, :3] = hidden
    inputs = read_inputs({"input_ids": IDS.repeat(1, 2)[:, :7], "attention_mask": mask[None, None]})
    assert inputs.real.all()
    assert inputs.starts.int().tolist() == [[1, 0, 0, 1, 0, 0, 0]]


def test_a_mask_of_any_form_will_do_if_the_keys_are_known() -> None:
    arguments = {"input_ids": IDS, "attention_mask": torch.ones(1, 1, 3, 4), "position_ids": torch.zeros(3, 1, 4)}
    inputs = read_inputs(arguments, boundaries=False)
    assert (inputs.real, inputs.starts) == (None, None)


@pytest.mark.parametrize("flags", [[1], [0], [1, 0], [1, 1]], ids=str)
def test_one_position_behind_others_is_masked_where_its_flag_says_so(flags: list[int]) -> None:
    """Decoding with padding: one row and several, of which the last position alone belongs to the call."""
    ids = torch.full((len(flags), 1), 5)
    keys = torch.zeros(len(flags), 3, 2, dtype=torch.int64)
    before = History.of(0, ids.expand(-1, 3), torch.zeros(len(flags), 3, dtype=torch.bool), keys, None)
    mask = torch.tensor([[1, 0, 1, flag] for flag in flags])
    inputs = read_inputs({"input_ids": ids, "attention_mask": mask}, history=before)
    assert inputs.masked_ids.flatten().tolist() == [5 if flag else -1 for flag in flags]


def test_positions_in_images_do_not_tell_documents_but_those_in_the_text_beside_them_do() -> None:
    ids = torch.arange(1, 7).view(1, 6)
    text = torch.tensor([[0, 1, 2, 0, 1, 2]])
    image = torch.tensor([[0, 1, 1, 1, 1, 2]]).expand(3, 1, 6)
    assert read_inputs({"input_ids": ids, "position_ids": image}).starts is None
    found = read_inputs({"input_ids": ids, "position_ids": torch.cat((text[None], image))}).starts
    assert found is not None and found.tolist() == [[True, False, False, True, False, False]]
