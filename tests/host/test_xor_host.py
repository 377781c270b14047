"""A memory addressed by ids in a host: nothing changes at first, decoding reads what a whole call reads, its folder is enough."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hosts import EOS, TOKENS, VOCABULARY, digest, logits_of, make_host, random_ids, wake
from torch import nn

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing import HashCache
from tokagnostic.host import attach
from tokagnostic.host.loading import load_attachment
from tokagnostic.memory import NgramMemory, XorConfig, load_memory, save_memory
from tokagnostic.tokens import TokenBytes

OTHER = TokenBytes.from_list([*TOKENS[:-1], b"other"])


def make_xor(**changes: object) -> NgramMemory:
    settings = {"max_order": 3, "num_rows": 211, "num_heads": 2, "dim": 5, "seed": 3, "num_tables": 2, **changes}
    return XorConfig(**settings, init_std=1.0).build(HashCache.build(VOCABULARY))


def test_a_fresh_attachment_changes_nothing_and_can_be_removed(family_host) -> None:
    ids, before = random_ids(), digest(family_host)
    plain = logits_of(family_host, ids)
    attachment = attach(family_host, VOCABULARY, make_xor(), layers=[0, 2])
    assert torch.equal(logits_of(family_host, ids), plain)
    wake(attachment)
    assert not torch.equal(logits_of(family_host, ids), plain)
    attachment.remove()
    assert torch.equal(logits_of(family_host, ids), plain)
    assert all(torch.equal(value, before[name]) for name, value in family_host.state_dict().items())


@pytest.mark.parametrize("cuts", [[1] * 12, [5, 1, 1, 5], [3, 0, 9]], ids=str)
@pytest.mark.parametrize("conv_kernel", [0, 4], ids=["plain", "convolved"])
def test_decoding_reads_what_a_whole_call_reads(cuts: list[int], conv_kernel: int) -> None:
    host, ids = make_host(), random_ids(2, 12)
    ids[0, 5] = EOS
    host.get_output_embeddings().weight.data.mul_(0.05)
    attachment = wake(attach(host, VOCABULARY, make_xor(), layers=[0, 2], conv_kernel=conv_kernel))
    for layer in attachment.reader.values():
        if layer.conv is not None:
            nn.init.normal_(layer.conv.weight, std=0.5)
    whole, cache, parts, begin = logits_of(host, ids), None, [], 0
    for length in filter(None, cuts):
        with torch.no_grad():
            output = host(ids[:, begin : begin + length], past_key_values=cache, use_cache=True)
        cache, begin = output.past_key_values, begin + length
        parts.append(output.logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=0)
    with attachment.disabled():
        assert not torch.allclose(logits_of(host, ids), whole, atol=1e-2)


def test_padding_is_stepped_over() -> None:
    host, ids = make_host(), random_ids(1, 8)
    host.get_output_embeddings().weight.data.mul_(0.05)
    wake(attach(host, VOCABULARY, make_xor(), layers=[0, 2]))
    plain = logits_of(host, ids)
    padded = torch.cat((torch.full((1, 3), EOS), ids), dim=1)
    mask = (torch.arange(11) >= 3).long().unsqueeze(0)
    places = (torch.arange(11) - 3).clamp(min=0).unsqueeze(0)
    seen = logits_of(host, padded, attention_mask=mask, position_ids=places)[:, 3:]
    torch.testing.assert_close(seen, plain, atol=1e-5, rtol=0)


def test_packed_documents_read_what_they_read_alone() -> None:
    host, one, other = make_host(), random_ids(1, 6, 1), random_ids(1, 5, 2)
    attachment = wake(attach(host, VOCABULARY, make_xor(), layers=[0, 2]))
    starts = torch.zeros(1, 11, dtype=torch.bool)
    starts[0, [0, 6]] = True
    packed = attachment.hasher(torch.cat((one, other), dim=1), starts)
    assert torch.equal(packed, torch.cat((attachment.hasher(one), attachment.hasher(other)), dim=1))


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda memory: pickle.loads(pickle.dumps(memory))], ids=["copy", "pickle"]
)
@pytest.mark.parametrize("from_file", [False, True], ids=["in memory", "mapped"])
def test_copies_and_pickles_read_the_same(copied, from_file: bool, tmp_path) -> None:
    memory = make_xor()
    if from_file:
        save_memory(memory, tmp_path / "memory.safetensors")
        memory = load_memory(tmp_path / "memory.safetensors", memory.hasher.cache)
    ids = random_ids()
    assert torch.equal(copied(memory)(ids, layer=1), memory(ids, layer=1))


def test_a_saved_attachment_comes_back_bit_by_bit(tmp_path) -> None:
    host, ids = make_host(), random_ids()
    attachment = wake(attach(host, VOCABULARY, make_xor(), layers=[0, 2], gate="signed_sqrt", conv_kernel=4))
    logits = logits_of(host, ids)
    attachment.save_pretrained(tmp_path)
    assert "| Orders read | 2 to 3 of 2 to 3 |" in (tmp_path / "README.md").read_text()
    again = make_host()
    load_attachment(again, VOCABULARY, tmp_path)
    assert torch.equal(logits_of(again, ids), logits)
    with pytest.raises(InvalidValueError, match="under another one its rows mean nothing"):
        load_attachment(make_host(), OTHER, tmp_path)


def test_a_host_of_another_tokenizer_is_refused_and_left_alone() -> None:
    host = make_host()
    with pytest.raises(InvalidValueError, match="under another one its rows mean nothing"):
        attach(host, OTHER, make_xor(), layers=[0, 2])
    assert not [module for module in host.modules() if isinstance(module, NgramMemory)]
