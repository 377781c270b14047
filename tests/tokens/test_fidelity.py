"""What a tokenizer keeps of a text is said in advance, and any text bears it out."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.normalizers import NFC

from tokagnostic.errors import InvalidValueError
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.fidelity import Fidelity, joins_back
from tokagnostic.tokens.token_bytes import TokenKind

ByteToy = Callable[..., Tokenizer]
TEXTS = st.text(max_size=40) | st.text(alphabet=" \n\tab▁éE\u0301日<s>/[]CLS", max_size=40)


@pytest.fixture(scope="module")
def encoders(toy_tokenizers: dict[str, Tokenizer]) -> dict[str, TextEncoder]:
    return {family: TextEncoder.of(tokenizer) for family, tokenizer in toy_tokenizers.items()}


def level_of(tokenizer: Tokenizer) -> str:
    fidelity = TextEncoder.of(tokenizer).token_bytes.fidelity
    assert fidelity is not None
    return fidelity.level


class TestAnyText:
    """For all texts, joined ids relate to the text as the fidelity says."""

    @given(text=TEXTS)
    def test_byte_level_gives_back_the_text(self, encoders: dict[str, TextEncoder], text: str) -> None:
        encoder = encoders["byte_level"]
        assert encoder.token_bytes.join(encoder.encode(text)) == text.encode()

    @given(text=TEXTS)
    def test_a_mark_with_byte_fallback_gives_back_all_but_the_mark(
        self, encoders: dict[str, TextEncoder], text: str
    ) -> None:
        encoder = encoders["metaspace"]
        assert encoder.token_bytes.join(encoder.encode(text)) == text.replace("▁", " ").encode()

    @given(text=TEXTS)
    def test_unigram_gives_back_what_is_known_in_its_order(self, encoders: dict[str, TextEncoder], text: str) -> None:
        token_bytes, ids = encoders["unigram"].token_bytes, encoders["unigram"].encode(text)
        plain = text.replace("▁", " ").encode()
        if TokenKind.UNKNOWN not in token_bytes.kinds[ids]:
            assert token_bytes.join(ids) == plain.removeprefix(b" ")
        remaining = iter(plain)
        assert all(byte in remaining for byte in token_bytes.join(ids))

    @given(text=TEXTS)
    def test_wordpiece_gives_back_the_normalized_words(self, encoders: dict[str, TextEncoder], text: str) -> None:
        token_bytes, ids = encoders["wordpiece"].token_bytes, encoders["wordpiece"].encode(text)
        words = "".join(normalizers.BertNormalizer().normalize_str(text).split()).encode()
        if TokenKind.UNKNOWN not in token_bytes.kinds[ids]:
            assert token_bytes.join(ids) == words
        remaining = iter(words)
        assert all(byte in remaining for byte in token_bytes.join(ids))

    @pytest.mark.parametrize("family", ["byte_level", "metaspace", "unigram", "wordpiece"])
    @given(text=TEXTS)
    def test_no_text_reaches_a_special_id(self, encoders: dict[str, TextEncoder], family: str, text: str) -> None:
        encoder = encoders[family]
        assert TokenKind.SPECIAL not in encoder.token_bytes.kinds[encoder.encode(text)]


class TestLevels:
    def test_lines_of_the_four_families(self, encoders: dict[str, TextEncoder]) -> None:
        lines = {
            family: str(encoder.token_bytes.fidelity and encoder.token_bytes.fidelity.line)
            for family, encoder in encoders.items()
        }
        assert lines["byte_level"] == "exact"
        assert lines["metaspace"] == "exact, except that the character '▁' (U+2581) becomes a space"
        assert lines["unigram"].startswith("lossy: the text's own first leading space is taken for the invented one; ")
        assert "characters outside the vocabulary become the unknown id" in lines["unigram"]
        assert "whitespace between words is dropped" in lines["wordpiece"]
        assert "letters are made lower case" in lines["wordpiece"]

    def test_a_users_own_leading_space_is_lost_and_counted(self, unigram: Tokenizer) -> None:
        """T-11: both texts give the same ids, so the second document does not join back."""
        encoder = TextEncoder.of(unigram)
        assert encoder.encode("a").tolist() == encoder.encode(" a").tolist()
        assert joins_back(encoder.token_bytes, "a", encoder.encode("a"))
        assert not joins_back(encoder.token_bytes, " a", encoder.encode(" a"))

    def test_lines_that_begin_with_spaces_are_counted_one_by_one(
        self, unigram: Tokenizer, metaspace: Tokenizer
    ) -> None:
        """T-11: 100 lines; one space is swallowed by one tokenizer, none by the other."""
        draw = random.Random(0)
        lines = [" " * draw.randrange(3) + "the river" for _ in range(100)]
        spaced = sum(line.startswith(" ") for line in lines)
        for tokenizer, num_lost in [(unigram, spaced), (metaspace, 0)]:
            encoder = TextEncoder.of(tokenizer)
            ids = encoder.encode_batch(lines)
            lost = [not joins_back(encoder.token_bytes, a, b) for a, b in zip(lines, ids, strict=True)]
            assert sum(lost) == num_lost

    @pytest.mark.parametrize(
        ("text", "joined"), [("  river", b"river"), ("river\nstone", b"river stone"), (" river ", b"river")], ids=repr
    )
    def test_squeezed_spaces_are_declared_with_their_reason(self, unigram: Tokenizer, text: str, joined: bytes) -> None:
        """T-12: the default rules of SentencePiece, as the steps that a conversion writes."""
        tokenizer = Tokenizer.from_str(unigram.to_str())
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(" {2,}", " ")]
        )
        encoder = TextEncoder.of(tokenizer)
        assert encoder.token_bytes.fidelity is not None
        assert encoder.token_bytes.fidelity.level == "lossy"
        assert "spaces at the text's left and right end are removed" in encoder.token_bytes.fidelity.reasons
        ids = encoder.encode(text)
        assert encoder.token_bytes.join(ids) == joined
        assert not joins_back(encoder.token_bytes, text, ids)

    def test_nfc_is_a_level_of_its_own(self, byte_toy: ByteToy) -> None:
        """T-14: six source bytes, five token bytes."""
        tokenizer = byte_toy()
        tokenizer.normalizer = NFC()
        encoder = TextEncoder.of(tokenizer)
        assert encoder.token_bytes.fidelity is not None
        assert encoder.token_bytes.fidelity.line == "exact up to NFC: the text is put into NFC first"
        decomposed = "cafe\u0301"
        assert len(decomposed.encode()) == 6
        ids = encoder.encode(decomposed)
        assert encoder.token_bytes.join(ids) == "caf\u00e9".encode()
        assert not joins_back(encoder.token_bytes, decomposed, ids)

    @pytest.mark.parametrize(
        "step",
        [
            normalizers.NFD(),
            normalizers.NFKC(),
            normalizers.NFKD(),
            normalizers.Lowercase(),
            normalizers.StripAccents(),
            normalizers.Nmt(),
            normalizers.Strip(),
            normalizers.Replace("``", '"'),
            normalizers.BertNormalizer(),
        ],
        ids=lambda step: type(step).__name__,
    )
    def test_every_rewriting_normalizer_is_lossy(self, byte_toy: ByteToy, step: object) -> None:
        tokenizer = byte_toy()
        tokenizer.normalizer = step
        assert level_of(tokenizer) == "lossy"

    @pytest.mark.parametrize(
        "step",
        [
            pre_tokenizers.Whitespace(),
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.BertPreTokenizer(),
            pre_tokenizers.CharDelimiterSplit("w"),
            pre_tokenizers.Split(" ", "removed"),
            pre_tokenizers.Punctuation("removed"),
        ],
        ids=lambda step: type(step).__name__,
    )
    def test_every_dropping_pre_tokenizer_is_lossy(self, byte_toy: ByteToy, step: object) -> None:
        tokenizer = byte_toy()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([step, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        assert level_of(tokenizer) == "lossy"

    @pytest.mark.parametrize(
        "step",
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Punctuation(),
            pre_tokenizers.Split("e", "isolated"),
        ],
        ids=lambda step: type(step).__name__,
    )
    def test_a_pre_tokenizer_that_only_cuts_is_exact(self, byte_toy: ByteToy, step: object) -> None:
        tokenizer = byte_toy()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([step, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        assert level_of(tokenizer) == "exact"

    def test_a_prefix_space_that_takes_the_users_is_lossy(self, byte_toy: ByteToy) -> None:
        tokenizer = byte_toy()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        assert level_of(tokenizer) == "lossy"

    def test_an_added_token_that_swallows_spaces_is_named(self, byte_toy: ByteToy) -> None:
        tokenizer = byte_toy(added=(AddedToken("<gap>", lstrip=True, normalized=False),))
        encoder = TextEncoder.of(tokenizer)
        assert encoder.token_bytes.fidelity is not None
        assert encoder.token_bytes.fidelity.reasons == ("the added token '<gap>' swallows the spaces beside it",)
        assert encoder.token_bytes.join(encoder.encode("a  <gap> b")) == b"a<gap> b"

    def test_a_vocabulary_that_refuses_texts_says_so(self) -> None:
        encoder = TextEncoder.of(Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 5})))
        assert encoder.token_bytes.fidelity is not None
        assert encoder.token_bytes.fidelity.reasons == ("words outside the vocabulary are refused with an error",)


@pytest.mark.parametrize(("level", "reasons"), [("nfc", ()), ("lossy", ()), ("good", ("because",))], ids=str)
def test_a_promise_without_its_reason_is_refused(level: str, reasons: tuple[str, ...]) -> None:
    with pytest.raises(InvalidValueError, match="nfc or lossy with a reason"):
        Fidelity(level, reasons)
