"""Plain text to ids: nothing added, nothing cut off, nothing special reached, at any length."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tokagnostic.errors import CorpusError, TokenizerError
from tokagnostic.tokens import cutting
from tokagnostic.tokens.cutting import split_text
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.huggingface.pipeline import describe
from tokagnostic.tokens.huggingface.private import private_description
from tokagnostic.tokens.sources import load_tokenizer
from tokagnostic.tokens.token_bytes import TokenKind

ByteToy = Callable[..., Tokenizer]


class TestPlainText:
    @pytest.mark.parametrize(
        "text", ["The marker <|endoftext|> ends a text.", "<s>a</s>", "[CLS] a [SEP]<unk>"], ids=repr
    )
    def test_text_that_spells_a_special_is_ordinary_text(self, toy_tokenizer: Tokenizer, text: str) -> None:
        """D-10, for all families; exact ones keep the bytes."""
        encoder = TextEncoder.of(toy_tokenizer)
        ids = encoder.encode(text)
        assert TokenKind.SPECIAL not in encoder.token_bytes.kinds[ids]
        if encoder.token_bytes.fidelity is not None and encoder.token_bytes.fidelity.level == "exact":
            assert encoder.token_bytes.join(ids) == text.encode()

    def test_not_even_the_hidden_names_of_specials_reach_them(self, toy_tokenizer: Tokenizer) -> None:
        encoder = TextEncoder.of(toy_tokenizer)
        names = [token["content"] for token in private_description(describe(toy_tokenizer))["added_tokens"]]
        assert TokenKind.SPECIAL not in encoder.token_bytes.kinds[encoder.encode("a".join(names))]

    def test_settings_of_the_given_tokenizer_are_left_behind_and_left_alone(self, byte_toy: ByteToy) -> None:
        tokenizer = byte_toy()
        tokenizer.add_special_tokens(["<s>"])
        start = tokenizer.token_to_id("<s>")
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", start)])
        tokenizer.enable_truncation(3)
        tokenizer.enable_padding(length=20)
        before = tokenizer.to_str()
        encoder = TextEncoder.of(tokenizer)
        assert encoder.token_bytes.join(encoder.encode("hello world")) == b"hello world"
        assert len(encoder.encode("hello world")) == 11
        assert tokenizer.to_str() == before
        assert encoder.start_id == start

    def test_dropout_is_off(self, byte_toy: ByteToy) -> None:
        tokenizer = byte_toy(merges=(("a", "b"),))
        tokenizer.model.dropout = 0.5
        encoder = TextEncoder.of(tokenizer)
        assert {tuple(encoder.encode("ab" * 20).tolist()) for _ in range(8)} == {(256,) * 20}

    def test_an_encoder_that_crossed_processes_still_reaches_no_special(self, byte_level: Tokenizer) -> None:
        encoder = pickle.loads(pickle.dumps(TextEncoder.of(byte_level)))
        assert 0 not in encoder.encode("<|endoftext|>").tolist()

    def test_the_tokenizer_keeps_its_ids(self, toy_tokenizer: Tokenizer) -> None:
        text = "The river (of stone), 1848: caf\u00e9s!\n\tx = 1"
        plain = toy_tokenizer.encode(text, add_special_tokens=False).ids
        assert TextEncoder.of(toy_tokenizer).encode(text).tolist() == plain

    def test_a_decode_clean_up_flag_changes_nothing(self, byte_level: Tokenizer) -> None:
        """T-29: no id goes through decode."""
        transformers = pytest.importorskip("transformers")
        text = "x != y , ok ."
        encoders = [
            TextEncoder.of(
                transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level, clean_up_tokenization_spaces=flag)
            )
            for flag in (True, False)
        ]
        assert encoders[0].token_bytes.fingerprint == encoders[1].token_bytes.fingerprint
        assert [encoder.token_bytes.join(encoder.encode(text)) for encoder in encoders] == [text.encode()] * 2

    @pytest.mark.parametrize("text", ["", " ", "\n", "\ufeff"], ids=repr)
    def test_nearly_nothing_gives_int64(self, toy_tokenizer: Tokenizer, text: str) -> None:
        """D-04."""
        ids = TextEncoder.of(toy_tokenizer).encode(text)
        assert ids.dtype == np.int64
        assert ids.ndim == 1
        assert text or len(ids) == 0

    def test_a_batch_equals_one_by_one(self, toy_tokenizer: Tokenizer) -> None:
        encoder = TextEncoder.of(toy_tokenizer)
        texts = ["the river", "", " stone", "\u65e5\u672c", "a" * 100]
        assert [ids.tolist() for ids in encoder.encode_batch(texts)] == [encoder.encode(t).tolist() for t in texts]
        assert encoder.encode_batch([]) == []

    def test_half_a_surrogate_pair_is_named_with_its_document(self, byte_level: Tokenizer) -> None:
        with pytest.raises(CorpusError, match=r"document 1 holds U\+D83D"):
            TextEncoder.of(byte_level).encode_batch(["fine", "broken \ud83d"])

    def test_a_refused_text_is_named_with_its_document(self) -> None:
        encoder = TextEncoder.of(Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 5})))
        assert encoder.encode("c").tolist() == [5]
        with pytest.raises(TokenizerError, match="document 2: encoding a text failed"):
            encoder.encode_batch(["a", "b", "d"])


class TestStart:
    @pytest.mark.parametrize(
        ("specials", "start"),
        [
            (["</s>", "<s>"], "<s>"),
            (["<|endoftext|>"], "<|endoftext|>"),
            (["[SEP]", "[CLS]"], "[CLS]"),
            (["[SEP]"], "[SEP]"),
            (["<pad>"], None),
        ],
        ids=str,
    )
    def test_a_bare_tokenizer_starts_with_the_first_known_name(
        self, byte_toy: ByteToy, specials: list[str], start: str | None
    ) -> None:
        tokenizer = byte_toy()
        tokenizer.add_special_tokens(specials)
        assert TextEncoder.of(tokenizer).start_id == (tokenizer.token_to_id(start) if start else None)

    def test_a_known_name_that_is_not_special_starts_nothing(self, byte_toy: ByteToy) -> None:
        assert TextEncoder.of(byte_toy(added=("<s>",))).start_id is None

    @pytest.mark.parametrize(
        ("roles", "start"),
        [
            ({"bos_token": "<b>", "eos_token": "<e>"}, "<b>"),
            ({"eos_token": "<e>"}, "<e>"),
            ({"cls_token": "<c>"}, "<c>"),
        ],
        ids=["bos", "eos", "cls"],
    )
    def test_a_transformers_tokenizer_says_it(self, byte_toy: ByteToy, roles: dict[str, str], start: str) -> None:
        transformers = pytest.importorskip("transformers")
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_toy(), **roles)
        encoder = TextEncoder.of(tokenizer)
        assert encoder.start_id == tokenizer.convert_tokens_to_ids(start)
        assert encoder.token_bytes[encoder.start_id] is None

    def test_an_encoder_is_its_own(self, byte_level: Tokenizer) -> None:
        encoder = TextEncoder.from_tokenizer(byte_level, name="toy")
        assert TextEncoder.of(encoder) is encoder
        assert encoder.name == "toy"


def test_a_saved_encoder_is_the_tokenizer_that_was_given(toy_tokenizer: Tokenizer, tmp_path: Path) -> None:
    encoder = TextEncoder.of(toy_tokenizer)
    encoder.save(tmp_path)
    loaded = load_tokenizer(str(tmp_path))
    assert loaded.token_bytes.fingerprint == encoder.token_bytes.fingerprint
    assert loaded.start_id == encoder.start_id
    saved = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert saved.get_vocab() == toy_tokenizer.get_vocab()


class TestLongDocuments:
    @pytest.fixture(autouse=True)
    def short_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cutting, "MAX_PART", 64)
        monkeypatch.setattr(cutting, "_CUT_SEARCH", 32)

    def test_parts_are_the_text_and_short(self) -> None:
        for text in ("", "a" * 64, "a" * 65, "a b" * 100, "\u0301" * 300, "\n" * 200, "\u65e5" * 129):
            parts = list(split_text(text))
            assert "".join(parts) == text
            assert max(map(len, parts)) <= 64

    @given(text=st.text(alphabet="ab \n\u0301\u1161.", max_size=500))
    def test_parts_are_the_text_for_any_text(self, text: str) -> None:
        assert "".join(split_text(text)) == text

    def test_a_cut_lies_between_words_and_ids_stay_the_same(self, byte_level: Tokenizer, metaspace: Tokenizer) -> None:
        """D-03: where words are near, the cut text has the ids of the whole one."""
        text = "the river runs through the old stone town " * 20
        for tokenizer in (byte_level, metaspace):
            whole = tokenizer.encode(text, add_special_tokens=False).ids
            assert TextEncoder.of(tokenizer).encode(text).tolist() == whole

    @pytest.mark.parametrize(
        "text",
        ["^" * 1000, " " * 333, "xa" + "a\u0301" * 200, "x" + "a\u0301" * 200, "\u65e5\u672c" * 100, "ab  \n" * 99],
        ids=["one sign", "spaces", "accents", "accents, odd", "no gaps", "double gaps"],
    )
    def test_a_cut_changes_no_byte_and_invents_no_space(
        self, byte_level: Tokenizer, metaspace: Tokenizer, text: str
    ) -> None:
        """D-03: also where there is no good place to cut, and under a prefix rule."""
        nfc = Tokenizer.from_str(byte_level.to_str())
        nfc.normalizer = normalizers.NFC()
        for tokenizer in (byte_level, metaspace):
            encoder = TextEncoder.of(tokenizer)
            assert encoder.token_bytes.join(encoder.encode(text)) == text.encode()
        encoder = TextEncoder.of(nfc)
        assert encoder.token_bytes.join(encoder.encode(text)) == normalizers.NFC().normalize_str(text).encode()

    @pytest.mark.parametrize("scheme", ["always", "first", "never"])
    def test_later_parts_get_no_prefix(self, unigram: Tokenizer, scheme: str) -> None:
        tokenizer = Tokenizer.from_str(unigram.to_str())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        encoder = TextEncoder.of(tokenizer)
        text = "riverstone" * 30
        assert encoder.token_bytes.join(encoder.encode(text)) == text.encode()

    def test_words_keep_their_marks_where_every_word_gets_one(self, unigram: Tokenizer) -> None:
        tokenizer = Tokenizer.from_str(unigram.to_str())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
        )
        encoder = TextEncoder.of(tokenizer)
        text = "the river runs " * 30
        assert encoder.token_bytes.join(encoder.encode(text)) == text.strip().encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["^" * 1_000_000, "a" * 200_000, "the old river town, " * 1_000_000], ids=["^", "a", "prose"]
)
def test_very_long_documents_take_less_than_a_minute(byte_level: Tokenizer, metaspace: Tokenizer, text: str) -> None:
    """D-03: one sign a million times, and 20 MB in one line."""
    for tokenizer in (byte_level, metaspace):
        encoder = TextEncoder.of(tokenizer)
        start = time.perf_counter()
        ids = encoder.encode(text)
        assert time.perf_counter() - start < 60
        assert encoder.token_bytes.join(ids) == text.encode()
