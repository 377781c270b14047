"""H-14: packed documents read as if alone, whichever way their boundaries are told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hosts import EOS, TOKENS, make_host, make_memory, random_ids
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from tokagnostic.errors import HostError
from tokagnostic.host import Attachment, attach
from tokagnostic.tokens import TokenBytes

LENGTHS = (4, 1, 6, 9, 2)
"""Tokens of each document; shorter and longer than windows, and than the reach of a convolution."""
SPACE_A = TOKENS.index(b" a")


def documents() -> list[Tensor]:
    """Ids [1, T] each; every document begins with a space that a tokenizer may have invented, and one holds an eos."""
    made = [random_ids(1, length, seed=length) for length in LENGTHS]
    for document in made:
        document[0, 0] = SPACE_A
    made[3][0, 4], made[3][0, 5] = EOS, SPACE_A
    return made


def by_positions(ids: Tensor) -> dict[str, Tensor]:
    return {"position_ids": torch.cat([torch.arange(length) for length in LENGTHS])[None]}


def by_numbers(ids: Tensor) -> dict[str, Tensor]:
    return {"seq_idx": torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))[None].int()}


def by_own_name(ids: Tensor) -> dict[str, Tensor]:
    return {"doc_ids": by_numbers(ids)["seq_idx"] % 2}


def by_lengths(ids: Tensor) -> dict[str, Tensor]:
    return {"cu_seq_lens_q": torch.tensor([0, *LENGTHS]).cumsum(0).int()}


def by_mask(ids: Tensor) -> dict[str, Tensor]:
    number = by_numbers(ids)["seq_idx"][0]
    return {"attention_mask": (number[:, None] == number).tril()[None, None]}


def by_float_mask(ids: Tensor) -> dict[str, Tensor]:
    seen = by_mask(ids)["attention_mask"]
    return {"attention_mask": torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)}


WAYS: dict[str, Callable[[Tensor], dict[str, Tensor]]] = {
    "positions": by_positions,
    "numbers": by_numbers,
    "own name": by_own_name,
    "lengths": by_lengths,
    "mask": by_mask,
    "float mask": by_float_mask,
}


class Packed:
    """A host whose first layer reads, and what the memory and its convolution were asked and gave in each call."""

    def __init__(self, max_order: int, prefix: str, boundary_ids: tuple[int, ...] = ()) -> None:
        self.host = make_host()
        self.memory = make_memory(max_order=max_order)
        self.attachment: Attachment = attach(
            self.host,
            TokenBytes.from_list(TOKENS, prefix=prefix),
            self.memory,
            layers=(0,),  # before any attention, so that what a convolution is given depends on ids alone
            conv_kernel=4,
            boundary_ids=boundary_ids,
        )
        torch.manual_seed(4)
        reader = self.attachment.reader["0"]
        nn.init.normal_(reader.value.weight)
        nn.init.normal_(reader.conv.weight)
        self.mixed: list[Tensor] = []
        reader.conv.register_forward_hook(lambda module, given, output: self.mixed.append(output[0].detach()))
        self.keys: list[Tensor] = []
        features_of = self.memory.features_of
        self.memory.features_of = lambda keys, layer=0: (self.keys.append(keys), features_of(keys, layer))[1]

    def __call__(self, ids: Tensor, **arguments: object) -> None:
        with torch.no_grad():
            self.host(input_ids=ids, **{"use_cache": False, **arguments})

    def assert_first_call_is_the_others_joined(self) -> None:
        assert torch.equal(self.keys[0], torch.cat(self.keys[1:], dim=1))
        torch.testing.assert_close(self.mixed[0], torch.cat(self.mixed[1:], dim=1))


@pytest.mark.parametrize("prefix", ["none", "first", "always"])
@pytest.mark.parametrize("max_order", [1, 2, 3, 4, 5, 6, 7])
def test_every_way_gives_the_rows_of_each_document_alone(max_order: int, prefix: str) -> None:
    packed = Packed(max_order, prefix)
    ids = torch.cat(documents(), dim=1)
    for tell in WAYS.values():
        packed.keys.clear()
        packed.mixed.clear()
        packed(ids, **tell(ids))
        for document in documents():
            packed(document)
        packed.assert_first_call_is_the_others_joined()


@pytest.mark.parametrize("prefix", ["none", "first", "always"])
@pytest.mark.parametrize("max_order", [1, 3, 7])
def test_an_id_that_starts_documents_gives_the_rows_of_each_document_alone(max_order: int, prefix: str) -> None:
    """The id stands before each document, packed and alone."""
    bounds = (EOS, TOKENS.index(b"\x00"))
    packed = Packed(max_order, prefix, boundary_ids=bounds)
    marked = [torch.cat([torch.tensor([[bounds[i % 2]]]), document], dim=1) for i, document in enumerate(documents())]
    packed(torch.cat(marked, dim=1))
    for document in marked:
        packed(document)
    packed.assert_first_call_is_the_others_joined()


@pytest.mark.parametrize("prefix", ["none", "always"])
def test_an_eos_breaks_windows_without_being_told(prefix: str) -> None:
    """What follows a special id reads as if it were alone, where the tokenizer's spaces do not depend on the start."""
    packed = Packed(5, prefix)
    first, second = documents()[2:4]
    eos = torch.tensor([[EOS]])
    packed(torch.cat([first, eos, second], dim=1))
    for ids in (first, eos, second):
        packed(ids)
    assert torch.equal(packed.keys[0], torch.cat(packed.keys[1:], dim=1))


def test_documents_that_are_not_told_apart_are_read_as_one() -> None:
    """The law above can fail: without boundaries the rows are others, and so is what the convolution makes of them."""
    packed = Packed(3, "first")
    ids = torch.cat(documents(), dim=1)
    packed(ids)
    packed(ids, **by_positions(ids))
    assert not torch.equal(packed.keys[0], packed.keys[1])
    assert not torch.allclose(packed.mixed[0], packed.mixed[1], atol=1e-2)


def test_boundaries_told_twice_are_both_heeded() -> None:
    """Positions that run on from one document into the next, and numbers beside them."""
    packed = Packed(3, "first")
    ids = torch.cat(documents(), dim=1)
    packed(ids, position_ids=torch.arange(ids.shape[1])[None], **by_numbers(ids))
    for document in documents():
        packed(document)
    packed.assert_first_call_is_the_others_joined()


def test_rows_of_a_batch_have_documents_of_their_own() -> None:
    packed = Packed(3, "first")
    ids = random_ids(2, 7)
    packed(ids, seq_idx=torch.tensor([[0, 0, 1, 1, 1, 1, 1], [3, 3, 3, 3, 3, 3, 4]]))
    keys = packed.keys.pop()
    for row, cut in ((0, 2), (1, 6)):
        packed(ids[row : row + 1, :cut])
        packed(ids[row : row + 1, cut:])
        assert torch.equal(keys[row], torch.cat([packed.keys[-2], packed.keys[-1]], dim=1)[0])


def test_empty_documents_are_no_documents() -> None:
    packed = Packed(3, "first")
    ids = random_ids(1, 5)
    packed(ids, cu_seq_lens_q=torch.tensor([0, 0, 2, 2, 5, 5]))
    packed(ids[:, :2])
    packed(ids[:, 2:])
    packed.assert_first_call_is_the_others_joined()


@pytest.mark.parametrize("also", [None, "seq_idx", "cu_seq_lens_q"])
def test_packed_documents_may_arrive_in_pieces(also: str | None) -> None:
    """A cache that holds part of a row: its last document goes on, or the next one begins, as the positions say."""
    packed = Packed(4, "first")
    ids = torch.cat(documents(), dim=1)
    positions = by_positions(ids)["position_ids"]
    cache = DynamicCache(config=packed.host.config)
    for begin, end in ((0, 4), (4, 7), (7, 8), (8, 22)):
        arguments = {"position_ids": positions[:, begin:end]}
        if also == "seq_idx":
            arguments[also] = by_numbers(ids)["seq_idx"][:, begin:end]
        elif also is not None and end - begin == 1:
            arguments[also] = torch.tensor([0, 1])
        packed(ids[:, begin:end], past_key_values=cache, use_cache=True, **arguments)
    pieces = torch.cat(packed.keys, dim=1), torch.cat(packed.mixed, dim=1)
    packed.keys, packed.mixed = [pieces[0]], [pieces[1]]
    for document in documents():
        packed(document)
    packed.assert_first_call_is_the_others_joined()


class TestRefusals:
    @pytest.fixture
    def host(self) -> PreTrainedModel:
        return Packed(2, "none").host

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"seq_idx": torch.zeros(1, 5)}, r"seq_idx of shape \[1, 5\] for ids of shape \[2, 4\]"),
            ({"document_ids": torch.zeros(3, 4)}, r"document_ids of shape \[3, 4\]"),
            ({"segment_ids": [0, 0, 1, 1]}, "segment_ids of shape list"),
            ({"cu_seq_lens_q": torch.tensor([0, 4])}, r"cu_seq_lens_q \[0, 4\] for ids of shape \[2, 4\]"),
            ({"position_ids": torch.zeros(3, 4)}, r"position_ids of shape \[3, 4\]"),
            ({"attention_mask": torch.ones(1, 1, 4, 4, dtype=torch.int64)}, r"mask of shape \[1, 1, 4, 4\]"),
        ],
        ids=["long numbers", "rows", "list", "lengths of many rows", "positions", "whole-numbered mask"],
    )
    def test_what_does_not_fit_the_ids(self, host: PreTrainedModel, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(HostError, match=message):
            host(input_ids=random_ids(2, 4), **arguments)

    @pytest.mark.parametrize("bounds", [[], [4], [0, 3], [1, 4], [0, 3, 2, 4], [[0, 4]], [0, 5], [-1, 0, 4]], ids=str)
    def test_lengths_that_do_not_divide_the_row(self, host: PreTrainedModel, bounds: list[int]) -> None:
        with pytest.raises(HostError, match="cu_seq_lens_q"):
            host(input_ids=random_ids(1, 4), cu_seq_lens_q=torch.tensor(bounds))

    @pytest.mark.parametrize("given", [{"seq_idx": torch.tensor([[3]])}, {"cu_seq_lens_q": torch.tensor([0, 1])}])
    def test_numbers_behind_cached_positions_without_positions(
        self, host: PreTrainedModel, given: dict[str, Tensor]
    ) -> None:
        cache = DynamicCache(config=host.config)
        host(input_ids=random_ids(1, 4), past_key_values=cache)
        with pytest.raises(HostError, match="in a call behind 4 cached positions; expected position_ids beside it"):
            host(input_ids=random_ids(1, 1), past_key_values=cache, **given)
