"""Tokenizers written in Python: the guess of their spelling is proven, or refused with the id at which it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokagnostic.errors import CorpusError, TokenizerError
from tokagnostic.tokens import TokenBytes, TokenKind
from tokagnostic.tokens.alphabet import byte_symbols
from tokagnostic.tokens.encoder import TextEncoder

transformers = pytest.importorskip("transformers")

BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]


class Slow(transformers.PreTrainedTokenizer):
    """The least that a slow tokenizer is: a vocabulary and a way to cut a text."""

    def __init__(self, vocab: dict[str, int], **changes: Any) -> None:
        self.vocab = vocab
        self.spelled = {v: token for token, v in vocab.items()}
        super().__init__(**changes)

    @property
    def vocab_size(self) -> int:
        return len(self.vocab)

    def get_vocab(self) -> dict[str, int]:
        return {**self.vocab, **self.added_tokens_encoder}

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        raise NotImplementedError

    def _convert_token_to_id(self, token: str) -> int | None:
        return self.vocab.get(token, self.vocab.get(self.unk_token))

    def _convert_id_to_token(self, index: int) -> str:
        return self.spelled[index]


class ShowsSymbols(Slow):
    """A tiktoken model in a wrapper that shows byte symbols and has no backend."""

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        return [byte_symbols()[byte] for byte in text.encode()]


class Marks(Slow):
    """Characters with a mark for the space, a space before a text, and byte pieces for the rest."""

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        tokens = []
        for character in "\u2581" + text.replace(" ", "\u2581") if text else "":
            if character in self.vocab:
                tokens.append(character)
            else:
                tokens += [f"<0x{byte:02X}>" for byte in character.encode()]
        return tokens


def symbols(**added: Any) -> ShowsSymbols:
    return ShowsSymbols({symbol: v for v, symbol in enumerate(byte_symbols())}, **added)


def marks(num_byte_pieces: int = 256) -> Marks:
    pieces = ["<unk>", "\u2581", *"abcdefgh", *BYTE_PIECES[:num_byte_pieces]]
    return Marks({piece: v for v, piece in enumerate(pieces)}, unk_token="<unk>")


@pytest.mark.parametrize("make", [symbols, marks, transformers.ByT5Tokenizer], ids=["symbols", "marks", "ByT5"])
def test_any_text_joins_back(make: Any) -> None:
    """T-27, and byte vocabularies whose ids are shifted."""
    encoder = TextEncoder.of(make())

    @settings(max_examples=60, deadline=None)
    @given(st.text(max_size=30))
    def check(text: str) -> None:
        assert encoder.token_bytes.join(encoder.encode(text)) == text.encode()

    if make is not marks:
        check()
    for text in ("", " ", " a", "a  b", "</s>", "<unk>", "caf\u00e9 \u65e5\u672c \U0001f600\n"):
        assert encoder.token_bytes.join(encoder.encode(text)) == text.encode()
    assert encoder.token_bytes.fidelity is not None


def test_an_invented_space_is_found_out() -> None:
    """T-09."""
    encoder = TextEncoder.of(marks())
    assert encoder.token_bytes.prefix == "first"
    assert encoder.token_bytes.join(encoder.encode("ab"), strip=False) == b" ab"


def test_added_tokens_outside_the_alphabet_are_their_text_and_specials_none() -> None:
    """T-27: two percent of the ids are no byte symbols. T-01: an added token is its content."""
    tokenizer = symbols(bos_token="<s>")
    tokenizer.add_tokens(["\u65e5\u672c", "two words", "z\u00fcrich", "\u0120x", "\U0001f600"])
    token_bytes = TokenBytes.from_tokenizer(tokenizer)
    assert [token_bytes[256 + i] for i in range(1, 6)] == [
        content.encode() for content in ("\u65e5\u672c", "two words", "z\u00fcrich", "\u0120x", "\U0001f600")
    ]
    assert (token_bytes[256], token_bytes.kinds[256]) == (None, TokenKind.SPECIAL)
    assert len(tokenizer) == 262


def test_specials_in_a_text_stay_text_and_the_given_tokenizer_is_left_alone() -> None:
    """T-32."""
    tokenizer = symbols(bos_token="<s>")
    encoder = TextEncoder.of(tokenizer)
    assert TokenKind.SPECIAL not in encoder.token_bytes.kinds[encoder.encode("a<s>b")]
    assert 256 in tokenizer("a<s>b", add_special_tokens=False)["input_ids"]
    assert encoder.start_id == 256


def test_a_partial_set_of_byte_pieces_is_a_declared_loss() -> None:
    """T-27: 200 of 256; what needs the others is unknown, and never other bytes."""
    encoder = TextEncoder.of(marks(200))
    assert encoder.token_bytes.fidelity is not None
    assert encoder.token_bytes.fidelity.line == "lossy: characters outside the vocabulary become the unknown id"
    ids = encoder.encode("ab\U0001f600c")
    assert TokenKind.UNKNOWN in encoder.token_bytes.kinds[ids]


def test_a_vocabulary_that_fits_no_spelling_is_refused_with_the_id() -> None:
    """T-27."""

    class Upper(ShowsSymbols):
        def _tokenize(self, text: str, **_: Any) -> list[str]:
            return super()._tokenize(text.upper())

    tokenizer = Upper({symbol: v for v, symbol in enumerate(byte_symbols())})
    with pytest.raises(TokenizerError, match=r"of type Upper.*at id \d+") as caught:
        TokenBytes.from_tokenizer(tokenizer)
    assert "\n" not in str(caught.value)


def test_it_is_not_saved_where_nobody_could_read_it(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="ShowsSymbols, which is written in Python, cannot be saved"):
        TextEncoder.of(symbols()).save(tmp_path)


def test_half_a_surrogate_pair_is_named() -> None:
    with pytest.raises(CorpusError, match="document 0 holds U"):
        TextEncoder.of(symbols()).encode("x\ud800")


class Characters(Slow):
    """Characters as they are."""

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        return list(text)


PRINTABLE = {chr(c): v for v, c in enumerate(range(32, 127))}


def without_unknown() -> Slow:
    class Known(Characters):
        def _convert_token_to_id(self, token: str) -> int | None:
            return self.vocab.get(token)

    return Known(PRINTABLE)


def beyond() -> Slow:
    class Beyond(Characters):
        def _convert_token_to_id(self, token: str) -> int:
            return self.vocab.get(token, 10_000)

    return Beyond(PRINTABLE)


def breaking() -> Slow:
    class Breaking(Characters):
        def _tokenize(self, text: str, **_: Any) -> list[str]:
            raise RuntimeError("the dictionary\nis not there")

    return Breaking(PRINTABLE, unk_token=" ")


def unique() -> Slow:
    tokenizer = Characters(PRINTABLE, unk_token=" ")
    tokenizer.handle = (number for number in range(3))  # a generator has no copy
    return tokenizer


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (without_unknown, "encoding a text failed in the tokenizer's own class Known"),
        (beyond, "of type Beyond that turns a text into the id 10000"),
        (breaking, r"own class Breaking \(RuntimeError: the dictionary is not there\)"),
        (unique, "reading the vocabulary failed in the tokenizer's own class Characters"),
        (lambda: Characters({**PRINTABLE, "\n": -1}, unk_token=" "), "with the id -1"),
        (lambda: Characters({**PRINTABLE, "\n": 2**40}, unk_token=" "), f"with the id {2**40}"),
        (lambda: Characters({}), "with no id"),
    ],
    ids=["no unknown", "beyond", "breaks", "no copy", "negative", "huge", "empty"],
)
def test_what_a_class_of_strangers_does_wrong_is_one_line(make: Any, said: str) -> None:
    """T-27."""
    with pytest.raises(TokenizerError, match=said) as caught:
        TextEncoder.of(make())
    assert "\n" not in str(caught.value)


def test_a_text_that_cannot_be_cut_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    from tokagnostic.tokens import cutting

    encoder = TextEncoder.of(marks())
    monkeypatch.setattr(cutting, "MAX_PART", 8)
    with pytest.raises(TokenizerError, match=r"document 0: a long text.*Load the fast tokenizer"):
        encoder.encode("abcdefgh" * 4)


def test_halves_of_surrogate_pairs_in_a_vocabulary_are_no_text() -> None:
    """As CANINE has it: every code point is a token."""
    vocab = {chr(c): v for v, c in enumerate((*range(0x80), *range(0xD7F0, 0xD810)))}
    encoder = TextEncoder.of(Characters(vocab, unk_token="\x01"))
    assert encoder.token_bytes.kinds[vocab["\ud800"]] == TokenKind.UNREACHABLE
    assert encoder.token_bytes[vocab["\ud7f0"]] == "\ud7f0".encode()
