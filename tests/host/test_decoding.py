"""Whatever way a sequence takes through a host, what is read equals what one call with the whole sequence reads."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import pytest
import torch
from hosts import EOS, RECURRENT, TOKENS, VOCABULARY, logits_of, make_host, make_memory, random_ids, wake
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel, StaticCache

from tokagnostic.errors import HostError
from tokagnostic.host import Attachment, attach
from tokagnostic.host.caches import RememberingCache, find_cache
from tokagnostic.memory import NgramMemory
from tokagnostic.tokens import TokenBytes

TOLERANCE = {"atol": 1e-5, "rtol": 0}
KERNELS = (0, 4)
GREEDY = {"max_new_tokens": 10, "min_new_tokens": 10, "do_sample": False}


def vocabulary(prefix: str = "first") -> TokenBytes:
    return TokenBytes.from_list(TOKENS, prefix=prefix)


def attached(host: PreTrainedModel, memory: NgramMemory, kernel: int, prefix: str = "first") -> Attachment:
    """A memory that is heard in logits of about 1; the convolution is random, not zero."""
    host.get_output_embeddings().weight.data.mul_(0.05)
    attachment = wake(attach(host, vocabulary(prefix), memory, layers=(0, 2), conv_kernel=kernel))
    torch.manual_seed(13)
    for layer in attachment.reader.values():
        if layer.conv is not None:
            nn.init.normal_(layer.conv.weight, std=0.5)
    return attachment


def in_pieces(host: nn.Module, ids: Tensor, sizes: Sequence[int], cache: object, **arguments: Tensor) -> Tensor:
    """Logits of a sequence that arrives in pieces, float [B, T, V]."""
    logits, begin = [], 0
    for size in sizes:
        end = begin + size
        given = {
            name: value[:, :end] if name == "attention_mask" else value[:, begin:end]
            for name, value in arguments.items()
        }
        logits.append(logits_of(host, ids[:, begin:end], past_key_values=cache, use_cache=True, **given))
        begin = end
    return torch.cat(logits, dim=1)


@pytest.fixture(params=KERNELS, ids=["no_conv", "conv"])
def kernel(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def attachment(family_host: PreTrainedModel, memory: NgramMemory, kernel: int) -> Attachment:
    return attached(family_host, memory, kernel)


@pytest.mark.parametrize("make_cache", [lambda host: DynamicCache(config=host.config), lambda host: StaticCache(host.config, max_cache_len=24)], ids=["dynamic", "static"])  # fmt: skip
@pytest.mark.parametrize("sizes", [(1,) * 13, (6, 7), (4, 1, 5, 3), (12, 1)], ids=str)
def test_pieces_equal_the_whole(
    family_host: PreTrainedModel,
    attachment: Attachment,
    keys_read: list[Tensor],
    sizes: tuple[int, ...],
    make_cache: Callable[[PreTrainedModel], object],
) -> None:
    """H-16."""
    ids = random_ids(2, 13)
    ids[0, :3], ids[1, 4] = torch.tensor([EOS, EOS, 1]), EOS
    whole = logits_of(family_host, ids, use_cache=False)
    keys_read.clear()
    pieces = in_pieces(family_host, ids, sizes, make_cache(family_host))
    torch.testing.assert_close(pieces, whole, **TOLERANCE)


@pytest.mark.parametrize("prefix", ["none", "first", "always"])
@pytest.mark.parametrize("max_order", [1, 2, 5])
def test_keys_of_pieces_are_the_keys_of_the_whole(
    host: PreTrainedModel, max_order: int, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = make_memory(max_order=max_order)
    attachment = attached(host, memory, 0, prefix)
    seen: list[Tensor] = []
    features_of = memory.features_of

    def spy(keys: Tensor, layer: int = 0) -> Tensor:
        seen.append(keys)
        return features_of(keys, layer)

    monkeypatch.setattr(memory, "features_of", spy)
    for seed in range(8):
        ids = random_ids(2, 12, seed=seed, low=0, high=7)
        seen.clear()
        in_pieces(host, ids, (1, 1, 1, 4, 2, 3), DynamicCache(config=host.config))
        assert torch.equal(torch.cat(seen, dim=1), attachment.hasher(ids))


@pytest.mark.parametrize("pad_id", [EOS, 2], ids=["pad_is_eos", "pad_is_text"])
@pytest.mark.parametrize("cache_kind", [None, "static"], ids=["dynamic", "static"])
def test_generation_from_a_left_padded_batch(
    family_host: PreTrainedModel, attachment: Attachment, pad_id: int, cache_kind: str | None
) -> None:
    """H-12: prompts of 3 and 9 tokens; with a cache each row continues as it does alone and without one."""
    short, long = random_ids(1, 3, seed=1), random_ids(1, 9, seed=2)
    short[0, 0] = 5
    ids = torch.cat([torch.cat([torch.full((1, 6), pad_id), short], dim=1), long])
    mask = torch.ones_like(ids)
    mask[0, :6] = 0
    out = family_host.generate(ids, attention_mask=mask, cache_implementation=cache_kind, **GREEDY)
    for row, prompt in zip(out, (short, long), strict=True):
        alone = family_host.generate(prompt, attention_mask=torch.ones_like(prompt), use_cache=False, **GREEDY)
        assert row[-10:].tolist() == alone[0, -10:].tolist()


MODES: dict[str, dict[str, object]] = {
    "greedy": GREEDY,
    "sampling": {**GREEDY, "do_sample": True, "top_k": 20},
    "several samples": {**GREEDY, "do_sample": True, "num_return_sequences": 3},
    "beams": {**GREEDY, "num_beams": 3},
    "all beams": {**GREEDY, "num_beams": 4, "num_return_sequences": 4},
    "sampled beams": {**GREEDY, "num_beams": 3, "do_sample": True},
}


@pytest.mark.parametrize("mode", MODES)
def test_generation_with_a_cache_equals_generation_without(
    family_host: PreTrainedModel, attachment: Attachment, mode: str
) -> None:
    """H-17 for beams."""
    prompt = random_ids(2, 6)
    results = []
    for use_cache in (True, False):
        torch.manual_seed(3)
        results.append(family_host.generate(prompt, use_cache=use_cache, **MODES[mode]).tolist())
    assert results[0] == results[1]
    with attachment.disabled():
        torch.manual_seed(3)
        assert family_host.generate(prompt, **MODES[mode]).tolist() != results[0]


@pytest.mark.parametrize(("operation", "helped"), [("reorder_cache", False), ("crop", True)], ids=["beams", "assisted"])
def test_a_history_that_does_not_follow_its_cache_is_noticed(
    host: PreTrainedModel, memory: NgramMemory, monkeypatch: pytest.MonkeyPatch, operation: str, helped: bool
) -> None:
    """H-17: the laws of beams and drafts can fail. A history that ignores them gives other ids, or an error."""
    attached(host, memory, 4)
    prompt, way = random_ids(1, 6), {"assistant_model": make_host("llama")} if helped else {"num_beams": 4}
    expected = host.generate(prompt, **GREEDY, **way).tolist()
    monkeypatch.delattr(RememberingCache, operation)
    try:
        assert host.generate(prompt, **GREEDY, **way).tolist() != expected
    except HostError as error:
        assert "of which the memory has seen" in str(error)


def test_assisted_generation_rolls_the_history_back(family_host: PreTrainedModel, attachment: Attachment) -> None:
    """Drafts of a helper that is often wrong are cropped from the cache."""
    if family_host.config.model_type in RECURRENT:
        pytest.skip("transformers does not assist hosts with recurrent states")
    helper = make_host("llama")
    wake(attach(helper, VOCABULARY, make_memory(seed=9), layers=(1,)))
    prompt = random_ids(1, 6)
    alone = family_host.generate(prompt, use_cache=False, **GREEDY)
    assert family_host.generate(prompt, assistant_model=helper, **GREEDY).tolist() == alone.tolist()
    assert family_host.generate(prompt, prompt_lookup_num_tokens=3, **GREEDY).tolist() == alone.tolist()


def test_a_cropped_cache_goes_on_from_where_it_was_cut(family_host: PreTrainedModel, attachment: Attachment) -> None:
    if family_host.config.model_type in RECURRENT:
        pytest.skip("a recurrent state cannot be cropped")
    ids, other = random_ids(2, 13), random_ids(2, 13, seed=6)
    cache = DynamicCache(config=family_host.config)
    cache.activate_past_recording()
    in_pieces(family_host, torch.cat([ids[:, :8], other[:, :4]], dim=1), (12,), cache)
    cache.crop(-4)
    rest = in_pieces(family_host, ids[:, 8:], (2, 3), cache)
    torch.testing.assert_close(rest, logits_of(family_host, ids)[:, 8:], **TOLERANCE)


def test_a_copied_prefix_is_continued_twice(family_host: PreTrainedModel, attachment: Attachment) -> None:
    first, second = random_ids(1, 11, seed=1), random_ids(1, 11, seed=2)
    second[:, :6] = first[:, :6]
    prefix = DynamicCache(config=family_host.config)
    in_pieces(family_host, first[:, :6], (6,), prefix)
    for ids in (first, second):
        rest = in_pieces(family_host, ids[:, 6:], (5,), copy.deepcopy(prefix))
        torch.testing.assert_close(rest, logits_of(family_host, ids)[:, 6:], **TOLERANCE)


def test_two_sequences_interleaved_on_one_host(family_host: PreTrainedModel, attachment: Attachment) -> None:
    sequences = [random_ids(1, 8, seed=1), random_ids(2, 8, seed=2)]
    caches = [DynamicCache(config=family_host.config) for _ in sequences]
    steps: list[list[Tensor]] = [[], []]
    for t in range(8):
        for i, ids in enumerate(sequences):
            steps[i].append(logits_of(family_host, ids[:, t : t + 1], past_key_values=caches[i], use_cache=True))
    for ids, logits in zip(sequences, steps, strict=True):
        torch.testing.assert_close(torch.cat(logits, dim=1), logits_of(family_host, ids), **TOLERANCE)


def test_a_reset_cache_serves_another_sequence(family_host: PreTrainedModel, attachment: Attachment) -> None:
    cache = StaticCache(family_host.config, max_cache_len=16)
    in_pieces(family_host, random_ids(2, 7), (7,), cache)
    cache.reset()
    ids = random_ids(2, 9, seed=8)
    torch.testing.assert_close(in_pieces(family_host, ids, (5, 4), cache), logits_of(family_host, ids), **TOLERANCE)


@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])
def test_ids_may_be_handed_over_in_one_buffer(
    family_host: PreTrainedModel, attachment: Attachment, masked: bool
) -> None:
    """What a cache remembers does not change when the caller writes the next ids over the last ones."""
    ids, cache = random_ids(2, 12), DynamicCache(config=family_host.config)
    whole, buffer, steps = logits_of(family_host, ids), torch.empty(2, 4, dtype=torch.int64), []
    for begin in (0, 4, 8):
        buffer.copy_(ids[:, begin : begin + 4])
        mask = {"attention_mask": torch.ones(2, begin + 4, dtype=torch.int64)} if masked else {}
        steps.append(logits_of(family_host, buffer, past_key_values=cache, use_cache=True, **mask))
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, **TOLERANCE)


class TestRefusals:
    def test_a_cache_that_was_filled_with_the_memory_off(self, host: PreTrainedModel, memory: NgramMemory) -> None:
        attachment = attached(host, memory, 0)
        cache = DynamicCache(config=host.config)
        with attachment.disabled():
            in_pieces(host, random_ids(1, 4), (4,), cache)
        with pytest.raises(HostError, match="holds 4 positions of which the memory has seen none"):
            in_pieces(host, random_ids(1, 1), (1,), cache)

    def test_a_cache_that_was_filled_partly_with_the_memory_off(
        self, host: PreTrainedModel, memory: NgramMemory
    ) -> None:
        attachment = attached(host, memory, 0)
        cache = DynamicCache(config=host.config)
        in_pieces(host, random_ids(1, 4), (4,), cache)
        with attachment.disabled():
            in_pieces(host, random_ids(1, 2), (2,), cache)
        with pytest.raises(HostError, match="holds 6 positions of which the memory has seen 4"):
            in_pieces(host, random_ids(1, 1), (1,), cache)

    def test_a_cache_of_another_attachment(self, host: PreTrainedModel, memory: NgramMemory) -> None:
        attachment = attached(host, memory, 0)
        cache = DynamicCache(config=host.config)
        in_pieces(host, random_ids(1, 4), (4,), cache)
        attachment.remove()
        attached(host, make_memory(seed=8), 0)
        with pytest.raises(HostError, match="under another attachment"):
            in_pieces(host, random_ids(1, 1), (1,), cache)

    def test_more_rows_than_the_cache_has(self, host: PreTrainedModel, memory: NgramMemory) -> None:
        attached(host, memory, 0)
        cache = DynamicCache(config=host.config)
        in_pieces(host, random_ids(1, 4), (4,), cache)
        with pytest.raises(HostError, match="2 rows of ids for a cache of 1"):
            in_pieces(host, random_ids(2, 1), (1,), cache)


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_mask_as_long_as_a_static_cache_says_no_more_than_one_up_to_here(
    host: PreTrainedModel, memory: NgramMemory, beyond: int
) -> None:
    wake(attach(host, VOCABULARY, memory))
    ids, mask = random_ids(2, 9), torch.full((2, 16), beyond)
    mask[:, :9] = 1
    mask[0, :2] = 0
    whole = logits_of(host, ids, attention_mask=mask[:, :9])
    cache = StaticCache(host.config, max_cache_len=16)
    pieces = [(0, 4), (4, 5), (5, 9)]
    rows = [logits_of(host, ids[:, a:b], attention_mask=mask, cache=cache) for a, b in pieces]
    torch.testing.assert_close(torch.cat(rows, dim=1)[mask[:, :9] == 1], whole[mask[:, :9] == 1], rtol=0, atol=1e-5)


def test_a_call_without_a_cache_asks_for_none_by_a_name_that_warns(host: PreTrainedModel, memory: NgramMemory) -> None:
    class Output(dict[str, object]):
        def get(self, name: str, default: object = None) -> object:
            raise AssertionError(f"asked for {name}")

    cache = DynamicCache(config=host.config)
    assert find_cache(Output(logits=1)) is None
    assert find_cache(Output(logits=1, past_key_values=None)) is None
    assert find_cache(Output(logits=1, past_key_values=cache)) is cache


def test_a_cache_that_does_not_say_what_it_holds_is_refused(host: PreTrainedModel, memory: NgramMemory) -> None:
    class PagedAttentionCache:
        pass

    wake(attach(host, VOCABULARY, memory))
    with pytest.raises(HostError, match="type PagedAttentionCache"):
        logits_of(host, random_ids(), cache=PagedAttentionCache())


def test_continuous_batching_is_refused_before_its_thread_starts(host: PreTrainedModel, memory: NgramMemory) -> None:
    before = {thread.name for thread in threading.enumerate()}
    attachment = attach(host, VOCABULARY, memory)
    for off in (nullcontext, attachment.disabled):
        with off(), pytest.raises(HostError, match="generate_batch"):
            host.generate_batch([[1, 2, 3]], progress_bar=False)
    assert {thread.name for thread in threading.enumerate()} <= before | {"tqdm_monitor"}
    attachment.remove()
    assert host.init_continuous_batching(host.generation_config) is not None
