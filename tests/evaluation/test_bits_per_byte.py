"""Bits per byte by models whose likelihoods are known, and by a host with a memory."""

from __future__ import annotations

import json
import math
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scored_models import KnownModel, PlaceModel, attach_heard, naive_place_nats, tiny_host
from tokenizers import normalizers
from transformers import PreTrainedTokenizerFast

from tests.evaluation.overlap_tokenizers import byte_level, word_piece
from tokagnostic.corpus import Document
from tokagnostic.errors import CorpusError, HostError, InvalidValueError
from tokagnostic.evaluation.bits_per_byte import bits_per_byte
from tokagnostic.evaluation.key_set import KeySet
from tokagnostic.tokens.encoder import TextEncoder

WITH_START = TextEncoder.of(byte_level(bos=True))
WITHOUT_START = TextEncoder.of(byte_level())
START = WITH_START.start_id
PIECES = TextEncoder.of(byte_level([(b"a", b"b"), (b"ab", b"c"), (b" ", b"a")], bos=True))
EMOJI = "naïve 日本語 \U0001f600\U0001f468\u200d\U0001f469 — done\n"
PAIRS = [(1, 1), (2, 1), (3, 2), (5, 5), (8, 3), (64, 64)]
pairs = pytest.mark.parametrize(("context", "stride"), PAIRS, ids=lambda number: str(number))


def uniform(num_ids: int = 256) -> KnownModel:
    """Every id is as likely as any other."""
    return KnownModel(torch.zeros(num_ids))


def loaded(probabilities: dict[bytes, float], encoder: TextEncoder) -> KnownModel:
    """Gives these bytes these probabilities whatever was before; the rest shares what is left."""
    num_ids = len(encoder.token_bytes)
    rest = (1 - sum(probabilities.values())) / (num_ids - len(probabilities))
    row = torch.full((num_ids,), math.log(rest))
    for piece, probability in probabilities.items():
        row[int(encoder.encode(piece.decode())[0])] = math.log(probability)
    return KnownModel(row)


class TestUniformModel:
    """E-01, E-07: over 256 byte tokens every byte costs 8 bits, wherever the windows are."""

    @pytest.mark.parametrize("encoder", [WITH_START, WITHOUT_START], ids=["with start", "without start"])
    @pairs
    def test_costs_exactly_eight_bits_per_byte(self, encoder, context, stride) -> None:
        result = bits_per_byte(uniform(), encoder, [EMOJI, "a", EMOJI * 4], context, stride)
        assert result.bits_per_byte == pytest.approx(8.0, abs=1e-12)
        assert result.mean_over_documents == pytest.approx(8.0, abs=1e-12)

    @settings(max_examples=25, deadline=None)
    @given(st.text(min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 9))
    def test_does_so_on_any_text(self, text, context, stride) -> None:
        result = bits_per_byte(uniform(), WITH_START, [text], context, min(stride, context))
        assert result.bits_per_byte == pytest.approx(8.0, abs=1e-12)
        assert result.total.num_bytes == len(text.encode())
        assert result.num_unscored_bytes == 0

    def test_the_denominator_is_the_source_and_not_decoded_tokens(self) -> None:
        """E-01: each byte of an emoji decodes to U+FFFD, three bytes, on its own."""
        result = bits_per_byte(uniform(), WITH_START, ["\U0001f600"])
        assert (result.total.num_bytes, result.total.num_tokens) == (4, 4)


class TestHandComputed:
    """E-03: two and one bits, by a model that says nothing else."""

    MODEL: ClassVar = {b"a": 0.5, b"b": 0.25}

    def test_the_start_is_context_and_no_end_is_scored(self) -> None:
        result = bits_per_byte(loaded(self.MODEL, WITH_START), WITH_START, ["ab", "b"])
        assert result.total.nats == pytest.approx((1 + 2 + 2) * math.log(2))
        assert result.bits_per_byte == pytest.approx(5 / 3)
        assert result.total.num_tokens == 3

    def test_without_a_start_the_first_token_is_context_and_out_of_the_denominator(self) -> None:
        encoder = TextEncoder.of(byte_level([(b"a", b"a")]))
        result = bits_per_byte(loaded({b"b": 0.25, b"aa": 0.5}, encoder), encoder, ["aab", "bb"])
        assert result.bits_per_byte == pytest.approx(4 / 2)
        values = result.to_dict()
        assert (values["bytes"], values["unscored_bytes"], values["tokens"]) == (2, 3, 2)
        assert values["rule"]["start_id"] is None
        assert "3 in all" in " ".join(values["notes"]) and "denominator" in " ".join(values["notes"])

    def test_micro_and_macro_averages_are_sums_divided_once_and_a_mean_of_documents(self) -> None:
        """E-10: nine documents of unequal length, in batches of five windows."""
        documents = ["a" * length for length in range(1, 9)] + ["b"]
        result = bits_per_byte(loaded(self.MODEL, WITH_START), WITH_START, documents, batch_size=5)
        assert result.bits_per_byte == pytest.approx((36 * 1 + 2) / 37)
        assert result.mean_over_documents == pytest.approx((8 * 1 + 2) / 9)
        assert result.total.nats == pytest.approx(sum(document.nats for document in result.documents))
        assert [document.num_tokens for document in result.documents] == [*range(1, 9), 1]
        halves = [bits_per_byte(loaded(self.MODEL, WITH_START), WITH_START, documents[i::2]) for i in (0, 1)]
        nats, num_bytes = (sum(getattr(half.total, name) for half in halves) for name in ("nats", "num_bytes"))
        assert nats / math.log(2) / num_bytes == pytest.approx(result.bits_per_byte, abs=1e-9)

    def test_tokens_and_words_are_divisors_with_names_of_their_own(self) -> None:
        """E-12."""
        values = bits_per_byte(loaded(self.MODEL, PIECES), PIECES, ["b b", "a"]).to_dict()
        assert (values["words"], values["tokens"], values["bytes"]) == (3, 4, 4)
        assert values["bits_per_word"] * 3 == pytest.approx(values["bits_per_token"] * 4)
        assert values["bits_per_token"] * 4 == pytest.approx(values["bits_per_byte"] * 4)


class TestWindows:
    """E-08: every token is scored once, in the first window that reaches it."""

    @settings(max_examples=60, deadline=None)
    @given(
        lengths=st.lists(st.integers(1, 20), min_size=1, max_size=4),
        context=st.integers(1, 8),
        stride=st.integers(1, 8),
        batch_size=st.integers(1, 5),
    )
    def test_agree_with_the_definition(self, lengths, context, stride, batch_size) -> None:
        stride = min(stride, context)
        documents = ["x" * length for length in lengths]
        result = bits_per_byte(PlaceModel(), WITH_START, documents, context, stride, batch_size=batch_size)
        for document, length in zip(result.documents, lengths, strict=True):
            assert document.nats == pytest.approx(sum(naive_place_nats(length, context, stride)))
            assert document.num_tokens == document.num_bytes == length

    @pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 16, 17])
    @pytest.mark.parametrize("stride", [1, 3, 8])
    def test_reach_every_token_of_documents_around_the_context(self, length, stride) -> None:
        result = bits_per_byte(PlaceModel(), WITH_START, ["x" * length, "y"], 8, stride)
        assert result.total.num_tokens == length + 1
        assert len(result.documents) == (2 if length else 1)

    def test_of_a_stride_equal_to_the_context_are_disjoint_chunks(self) -> None:
        model = PlaceModel()
        bits_per_byte(model, WITH_START, ["x" * 20], 8, 8, batch_size=1)
        assert [call.shape[1] for call in model.calls] == [8, 8, 4]
        default = bits_per_byte(PlaceModel(), WITH_START, ["x" * 20], 8)
        assert default.total == bits_per_byte(PlaceModel(), WITH_START, ["x" * 20], 8, 8).total
        assert default.stride == 8

    def test_begin_with_exactly_one_start_id(self) -> None:
        """E-04: the text spells the start, and the tokenizer would add one too."""
        text = "<s> hi"
        wrapped = PreTrainedTokenizerFast(tokenizer_object=byte_level(bos=True), bos_token="<s>")
        for tokenizer in (byte_level(bos=True), wrapped, WITH_START):
            model = uniform(257)
            result = bits_per_byte(model, tokenizer, [text], 64)
            (call,) = model.calls
            assert call[0, 0] == START
            assert (call == START).sum() == 1
            assert result.total.num_tokens == len(text)

    def test_are_counted_to_the_progress_byte_by_byte(self) -> None:
        told: list[int] = []
        bits_per_byte(uniform(), WITH_START, [EMOJI, "x" * 30], 4, 2, batch_size=3, progress=told.append)
        assert len(told) > 2
        assert sum(told) == len(EMOJI.encode()) + 30


class TestWhatIsReported:
    def test_a_folding_tokenizer_is_marked_lossy_over_the_bytes_of_the_source(self) -> None:
        """E-02: `Straße ﬁn` has 12 bytes, what is left of it 11."""
        folding = byte_level(normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), bos=True)
        text = "Straße ﬁn"
        folded = bits_per_byte(uniform(), folding, [text, "plain"])
        assert folded.total.num_bytes == len(text.encode()) + 5
        assert folded.total.num_tokens == len("straße fin".encode()) + 5
        values = folded.to_dict()
        assert values["lossy"] is True and values["num_inexact_documents"] == 1
        assert "no code length of the source" in values["notes"][0]
        assert "lossy" in values["tokenizer"]["fidelity"]
        exact = bits_per_byte(uniform(), WITH_START, [text, "plain"]).to_dict()
        assert exact["lossy"] is False and exact["notes"] == []

    def test_an_unknown_token_is_scored_and_not_free(self) -> None:
        encoder = TextEncoder.of(word_piece())
        result = bits_per_byte(KnownModel(torch.zeros(8)), encoder, ["cafe zzz the"])
        assert result.total.num_tokens == 2  # of three; without a start id the first is context
        assert result.num_inexact == 1

    @pytest.mark.parametrize("document", ["a", "\u200b"], ids=["one token", "no token"])
    def test_documents_without_a_scored_token_give_no_nan(self, document) -> None:
        encoder = TextEncoder.of(word_piece()) if document == "\u200b" else WITHOUT_START
        values = bits_per_byte(uniform(), encoder, [document]).to_dict()
        assert values["bits_per_byte"] is None and values["mean_over_documents"] is None
        assert values["unscored_bytes"] == len(document.encode())
        json.dumps(values, allow_nan=False)
        both = bits_per_byte(uniform(), WITHOUT_START, ["a", "ab"]).to_dict()
        assert both["mean_over_documents"] == pytest.approx(8.0)

    def test_empty_documents_are_left_out(self) -> None:
        """D-04."""
        result = bits_per_byte(uniform(), WITH_START, ["", "ab", b""])
        assert result.to_dict()["num_documents"] == 1
        assert result.total == bits_per_byte(uniform(), WITH_START, ["ab"]).total

    def test_the_rule_and_the_settings_are_part_of_the_result(self) -> None:
        """E-08, E-12."""
        values = bits_per_byte(uniform(257), WITH_START, [Document(b"ab c", "file:3")], 7, 5).to_dict()
        assert values["rule"] | {"context": 7, "stride": 5, "start_id": START} == values["rule"]
        assert values["memory"] == "none"
        assert values["tokenizer"]["fingerprint"] == WITH_START.token_bytes.fingerprint
        assert json.loads(json.dumps(values, allow_nan=False)) == values


class TestSeenAndNovel:
    SEEN = KeySet.of_documents(["ab"], WITHOUT_START, 2)

    def test_go_by_the_longest_window_before_a_token(self) -> None:
        """Of `abab` the windows before the tokens are none, a, ab and ba; `a`, `b` and `ab` were seen."""
        result = bits_per_byte(uniform(257), WITH_START, ["abab"], seen=self.SEEN, max_order=2)
        assert (result.seen.num_tokens, result.novel.num_tokens) == (2, 2)
        result = bits_per_byte(uniform(257), WITH_START, ["abab"], seen=self.SEEN, max_order=1)
        assert (result.seen.num_tokens, result.novel.num_tokens) == (3, 1)

    @pytest.mark.parametrize("family", ["byte_level", "metaspace"])
    def test_add_up_to_the_total_whatever_the_tokenizer_invents(self, family, toy_tokenizers) -> None:
        encoder = TextEncoder.of(toy_tokenizers[family])
        documents = [EMOJI, " The river", "the river runs", "x"]
        seen = KeySet.of_documents(["the river rises"], WITHOUT_START, 3)
        result = bits_per_byte(uniform(len(encoder.token_bytes)), encoder, documents, 4, seen=seen)
        assert result.seen.num_tokens > 0
        for name in ("num_tokens", "num_bytes"):
            assert getattr(result.seen, name) + getattr(result.novel, name) == getattr(result.total, name)
        assert result.seen.nats + result.novel.nats == pytest.approx(result.total.nats)
        assert result.total.num_bytes == sum(len(document.encode()) for document in documents)


class TestWithAMemory:
    TEXTS = ("abcab caba bcab cabc", "cab", "bcabcabcabbbc aabc", "a")

    def test_on_and_off_differ_by_the_memory_alone(self) -> None:
        host = tiny_host(PIECES)
        before = bits_per_byte(host, PIECES, self.TEXTS, 8, 4)
        attachment = attach_heard(host, PIECES)
        on = bits_per_byte(host, PIECES, self.TEXTS, 8, 4)
        with attachment.disabled():
            off = bits_per_byte(host, PIECES, self.TEXTS, 8, 4)
        assert [before.memory, on.memory, off.memory] == ["none", "on", "off"]
        assert before.documents == off.documents
        assert abs(on.bits_per_byte - off.bits_per_byte) > 1e-3
        assert [document.num_tokens for document in on.documents] == [d.num_tokens for d in off.documents]

    @pytest.mark.parametrize(("context", "stride"), [(4, 4), (4, 2), (5, 1), (3, 3)])
    def test_the_keys_read_in_a_window_are_those_of_the_whole_document(self, context, stride, monkeypatch) -> None:
        """E-08: what a memory knows at a window's start does not depend on the window."""
        host = tiny_host(PIECES)
        attachment = attach_heard(host, PIECES)
        read: list[np.ndarray] = []
        features_of = attachment.memory.features_of

        def spy(keys: torch.Tensor, layer: int = 0) -> torch.Tensor:
            read.append(keys.numpy().copy())
            return features_of(keys, layer)

        monkeypatch.setattr(attachment.memory, "features_of", spy)
        bits_per_byte(host, PIECES, self.TEXTS[:1], context, stride, batch_size=1)
        whole = attachment.hasher(np.concatenate(([PIECES.start_id], PIECES.encode(self.TEXTS[0]))))
        num_targets = len(whole) - 1
        begins = [
            begin for begin in range(0, num_targets, stride) if begin == 0 or begin + context - stride < num_targets
        ]
        assert len(read) == len(begins) > 2
        for keys in read:
            assert any(np.array_equal(keys[0], whole[begin : begin + context][: keys.shape[1]]) for begin in begins)
        assert sum(keys.shape[1] >= 1 and (keys[0, 0] >= 0).all() for keys in read) > 0  # a start with full history

    def test_a_memory_that_forgets_at_a_window_gives_another_result(self) -> None:
        """E-08: the true history is heard."""
        host = tiny_host(PIECES)
        attach_heard(host, PIECES)
        sequence = np.concatenate(([PIECES.start_id], PIECES.encode(self.TEXTS[0])))
        window = 4
        nats = 0.0
        with torch.no_grad():
            for begin in range(0, len(sequence) - 1, window):
                piece = torch.from_numpy(sequence[begin : begin + window + 1])
                logits = host(input_ids=piece[None, :-1], use_cache=False).logits[0]
                nats += float(torch.nn.functional.cross_entropy(logits, piece[1:], reduction="sum"))
        result = bits_per_byte(host, PIECES, self.TEXTS[:1], window)
        assert abs(result.total.nats - nats) > 1e-3

    def test_a_document_within_the_context_is_scored_as_the_host_itself_does(self) -> None:
        host = tiny_host(PIECES)
        attach_heard(host, PIECES)
        ids = torch.from_numpy(np.concatenate(([PIECES.start_id], PIECES.encode(self.TEXTS[0]))))[None]
        with torch.no_grad():
            loss = host(input_ids=ids, labels=ids, use_cache=False).loss
        result = bits_per_byte(host, PIECES, self.TEXTS[:1], 64)
        assert result.total.nats / result.total.num_tokens == pytest.approx(float(loss), rel=1e-5)

    @pytest.mark.parametrize("memory", [True, False], ids=["memory", "no memory"])
    def test_the_batch_size_does_not_matter(self, memory) -> None:
        host = tiny_host(PIECES)
        if memory:
            attach_heard(host, PIECES)
        one, three, all_at_once = (
            bits_per_byte(host, PIECES, self.TEXTS, 6, 3, batch_size=size).bits_per_byte for size in (1, 3, 99)
        )
        assert one == pytest.approx(three, abs=1e-6)
        assert one == pytest.approx(all_at_once, abs=1e-6)

    def test_a_host_in_half_precision_works(self) -> None:
        host = tiny_host(PIECES)
        attach_heard(host, PIECES)
        full = bits_per_byte(host, PIECES, self.TEXTS, 8).bits_per_byte
        half = bits_per_byte(host.to(torch.bfloat16), PIECES, self.TEXTS, 8).bits_per_byte
        assert half == pytest.approx(full, rel=0.05)

    def test_every_module_has_its_mode_again_even_after_an_error(self) -> None:
        host = tiny_host(PIECES)
        attach_heard(host, PIECES)
        host.train()
        host.model.layers[0].eval()
        modes = [module.training for module in host.modules()]
        bits_per_byte(host, PIECES, self.TEXTS, 64)
        assert [module.training for module in host.modules()] == modes
        with pytest.raises(CorpusError):
            bits_per_byte(host, PIECES, [b"\xff"], 64)
        assert [module.training for module in host.modules()] == modes

    def test_no_gradient_and_no_visit_is_left(self) -> None:
        host = tiny_host(PIECES).train()
        attachment = attach_heard(host, PIECES)
        bits_per_byte(host, PIECES, self.TEXTS, 64)
        assert all(parameter.grad is None for parameter in host.parameters())
        assert int(attachment.memory.visits[0].counts.sum()) == 0


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "match"),
        [
            ({"context": 0}, "context = 0"),
            ({"context": 8, "stride": 0}, "stride = 0"),
            ({"context": 8, "stride": 9}, "stride 9 with context 8"),
            ({"batch_size": 0}, "batch_size = 0"),
            ({"context": 4.0}, r"context = 4\.0"),
        ],
        ids=str,
    )
    def test_a_size_that_cannot_be_used(self, settings, match) -> None:
        with pytest.raises(InvalidValueError, match=match):
            bits_per_byte(uniform(), WITH_START, ["a"], **settings)

    def test_a_context_beyond_the_positions_of_the_model(self) -> None:
        with pytest.raises(InvalidValueError, match="context 65 for a model of 64 positions"):
            bits_per_byte(tiny_host(PIECES, 64), PIECES, ["a"], 65)

    @pytest.mark.parametrize("documents", [[], [""], ["", b""]], ids=["none", "empty", "two empty"])
    def test_no_text(self, documents) -> None:
        with pytest.raises(CorpusError):
            bits_per_byte(uniform(), WITH_START, documents)

    @pytest.mark.parametrize("row", [math.nan, -math.inf], ids=["nan", "impossible"])
    def test_a_model_without_a_finite_likelihood(self, row) -> None:
        logits = torch.zeros(256)
        logits[int(WITH_START.encode("x")[0])] = row
        with pytest.raises(HostError, match="document 1"):
            bits_per_byte(KnownModel(logits), WITH_START, ["a" if not math.isnan(row) else "", "x"])
