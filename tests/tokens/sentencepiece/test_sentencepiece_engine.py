"""SentencePiece models put to work: processors of any make, model types, long texts, and what no text may do."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

from tokagnostic.errors import MissingExtraError, TokenizerError
from tokagnostic.hashing import HashCache, NgramHasher
from tokagnostic.tokens import TokenKind
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sentencepiece.reader import read_sentencepiece_proto

sentencepiece = pytest.importorskip("sentencepiece", reason="the extra sentencepiece is not installed")

LINES = ("the river ran past the stone wall", "a bridge was built in the north", "winter rode into the town", "a b  c")


def trained(model_type: str = "bpe", **changes: object) -> bytes:
    out = io.BytesIO()
    settings = {
        "vocab_size": 320,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        **changes,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 3),
        model_writer=out,
        model_type=model_type,
        hard_vocab_limit=False,
        minloglevel=2,
        **settings,
    )
    return out.getvalue()


def encoder_of(serialized: bytes) -> TextEncoder:
    return TextEncoder.from_reading(read_sentencepiece_proto(serialized))


def fidelity_line(encoder: TextEncoder) -> str:
    assert encoder.token_bytes.fidelity is not None
    return encoder.token_bytes.fidelity.line


class TestModelTypes:
    def test_characters_with_byte_fallback_are_exact(self) -> None:
        encoder = encoder_of(trained("char"))
        text = "the  river\n日本 \U0001f600"
        assert fidelity_line(encoder).startswith("exact")
        assert encoder.token_bytes.join(encoder.encode(text)) == text.encode()

    def test_words_keep_their_spaces_and_a_word_outside_is_unknown(self) -> None:
        """T-15: nothing of the unknown word is hashed, its neighbours are kept."""
        encoder = encoder_of(trained("word", byte_fallback=False))
        table, ids = encoder.token_bytes, encoder.encode("the river zebra stone")
        assert fidelity_line(encoder).startswith("lossy: words outside the vocabulary become the unknown id")
        assert [table[v] for v in ids.tolist()] == [b" the", b" river", None, b" stone"]
        assert table.join(ids) == b"the river stone"

    def test_a_space_invented_behind_a_text_is_refused_with_the_setting_to_change(self) -> None:
        with pytest.raises(TokenizerError, match="Train it without treat_whitespace_as_suffix"):
            read_sentencepiece_proto(trained(treat_whitespace_as_suffix=True))

    def test_spaces_at_the_ends_of_words_are_read_where_none_is_invented(self) -> None:
        encoder = encoder_of(trained(treat_whitespace_as_suffix=True, add_dummy_prefix=False))
        text = " the river  "
        assert encoder.token_bytes.prefix == "none"
        assert b"the " in {encoder.token_bytes[v] for v in range(len(encoder.token_bytes))}
        assert encoder.token_bytes.join(encoder.encode(text)) == text.encode()


class TestProcessors:
    def test_settings_of_a_live_processor_do_not_reach_the_ids(self) -> None:
        """A private copy neither samples nor adds begin and end; the processor that was given goes on as it was."""
        live = sentencepiece.SentencePieceProcessor(
            model_proto=trained("unigram"), add_bos=True, add_eos=True, enable_sampling=True, alpha=0.1, nbest_size=-1
        )
        encoder = TextEncoder.of(live)
        ids = encoder.encode("the river ran past the stone wall").tolist()
        assert all(encoder.encode("the river ran past the stone wall").tolist() == ids for _ in range(20))
        assert TokenKind.SPECIAL not in encoder.token_bytes.kinds[ids]
        assert live.encode("the river")[0] == live.bos_id()

    def test_a_subclass_of_a_processor_is_one(self) -> None:
        own = type("Own", (sentencepiece.SentencePieceProcessor,), {})
        serialized = trained()
        assert TextEncoder.of(own(model_proto=serialized)).token_bytes.fingerprint == (
            encoder_of(serialized).token_bytes.fingerprint
        )

    @pytest.mark.parametrize(
        ("changes", "start"),
        [({}, "<s>"), ({"bos_id": -1}, "</s>"), ({"bos_id": -1, "eos_id": -1}, None), ({"bos_piece": "[B]"}, "[B]")],
        ids=["begin", "end", "none", "own name"],
    )
    def test_the_start_is_the_begin_else_the_end(self, changes: dict[str, object], start: str | None) -> None:
        encoder = encoder_of(trained(**changes))
        assert encoder.start_id == (None if start is None else encoder.spellings().index(start))

    def test_without_the_package_one_line_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        serialized = trained()
        monkeypatch.setitem(sys.modules, "sentencepiece", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'tokagnostic\[sentencepiece\]'"):
            read_sentencepiece_proto(serialized)


class TestTexts:
    def test_an_unknown_id_between_two_texts_does_not_hash_as_if_it_were_not_there(self) -> None:
        """T-15: `x<unk>y` and `xy`."""
        encoder = encoder_of(trained("unigram", vocab_size=60, byte_fallback=False, add_dummy_prefix=False))
        hasher = NgramHasher(HashCache.build(encoder.token_bytes), 2)
        apart, together = encoder.encode("a日b"), encoder.encode("ab")
        assert encoder.token_bytes.kinds[apart].tolist() == [TokenKind.TEXT, TokenKind.UNKNOWN, TokenKind.TEXT]
        assert hasher(together)[-1, 1] not in hasher(apart)[:, 1]
        assert (hasher(apart)[1:, 1] == -1).all()

    @pytest.mark.parametrize("model_type", ["bpe", "unigram", "char"])
    @pytest.mark.parametrize(
        "sign", ["^", "a", " ", "\n", "\u65e5"], ids=["caret", "letter", "space", "newline", "unknown"]
    )
    def test_a_long_run_of_one_sign_takes_no_time_to_speak_of(self, model_type: str, sign: str) -> None:
        encoder = encoder_of(trained(model_type))
        assert encoder.token_bytes.join(encoder.encode(sign * 300_000)) == (sign * 300_000).encode()

    def test_many_texts_are_what_each_is_alone(self) -> None:
        encoder = encoder_of(trained())
        texts = [line[i:] for line in LINES for i in range(len(line))]
        assert list(map(np.ndarray.tolist, encoder.encode_batch(texts))) == [
            encoder.encode(text).tolist() for text in texts
        ]

    @pytest.mark.parametrize("spelling", ["<s>", "</s>", "<unk>", "<0x41>", "<0xE2><0x96><0x81>"])
    @pytest.mark.parametrize("model_type", ["bpe", "unigram"])
    def test_text_that_spells_a_piece_without_text_is_text(self, model_type: str, spelling: str) -> None:
        """T-05, T-32, D-10."""
        encoder = encoder_of(trained(model_type))
        text = f"{spelling} the river{spelling}"
        ids = encoder.encode(text)
        assert encoder.token_bytes.join(ids) == text.encode()
        assert set(encoder.token_bytes.kinds[ids].tolist()) <= {TokenKind.TEXT, TokenKind.BYTE}
