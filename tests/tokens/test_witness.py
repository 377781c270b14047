"""What a tokenizer invents or destroys is found by trying it out, and shown by the shortest text."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from tests.conftest import BUILDERS
from tokagnostic.tokens.alphabet import byte_symbols
from tokagnostic.tokens.cutting import split_text
from tokagnostic.tokens.effects import Effect, Observation, name_effect
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.fidelity import Fidelity
from tokagnostic.tokens.sources import load_tokenizer
from tokagnostic.tokens.token_bytes import TokenBytes
from tokagnostic.tokens.witness import Laboratory, Witness, find_witnesses

BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
TEXTS = st.text(max_size=20) | st.text(alphabet=" \n\tab▁éE\u0301日<s>/[]CLS", max_size=20)


def newline_map() -> normalizers.Precompiled:
    """A precompiled map of one entry, newline to space: a double array of one branch, then the new texts."""
    units = [0] * 512
    units[0] = 256 << 10
    units[256 ^ 0x0A] = 0x0A | 1 << 8 | 1 << 10
    units[256 ^ 0x0A ^ 1] = 1 << 31
    trie = struct.pack("<512I", *units)
    return normalizers.Precompiled(struct.pack("<I", len(trie)) + trie + b" \0")


def changed(
    family: str, *, normalizer: object = None, pre_tokenizer: object = None, added: tuple[AddedToken, ...] = ()
) -> Callable[[], Tokenizer]:
    """One of the toy tokenizers with another step in it."""

    def build() -> Tokenizer:
        tokenizer = BUILDERS[family]()
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        if pre_tokenizer is not None:
            tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.add_tokens(list(added))
        return tokenizer

    return build


def before_bytes(step: object) -> Callable[[], Tokenizer]:
    return changed("byte_level", pre_tokenizer=pre_tokenizers.Sequence([step, BYTES]))


def rewritten(step: object) -> Callable[[], Tokenizer]:
    return changed("byte_level", normalizer=step)


SQUEEZING = [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
TOYS: dict[str, Callable[[], Tokenizer]] = {
    **BUILDERS,
    "nfc": rewritten(normalizers.NFC()),
    "nfd": rewritten(normalizers.NFD()),
    "nfkc": rewritten(normalizers.NFKC()),
    "nfkd": rewritten(normalizers.NFKD()),
    "lower case": rewritten(normalizers.Lowercase()),
    "accents": rewritten(normalizers.StripAccents()),
    "nmt": rewritten(normalizers.Nmt()),
    "strip": rewritten(normalizers.Strip()),
    "replace": rewritten(normalizers.Replace("``", '"')),
    "prepend": rewritten(normalizers.Prepend("x")),
    "bert normalizer": rewritten(normalizers.BertNormalizer()),
    "whitespace": before_bytes(pre_tokenizers.Whitespace()),
    "whitespace split": before_bytes(pre_tokenizers.WhitespaceSplit()),
    "bert": before_bytes(pre_tokenizers.BertPreTokenizer()),
    "delimiter": before_bytes(pre_tokenizers.CharDelimiterSplit("w")),
    "spaces removed": before_bytes(pre_tokenizers.Split(" ", "removed")),
    "punctuation removed": before_bytes(pre_tokenizers.Punctuation("removed")),
    "digits": before_bytes(pre_tokenizers.Digits(individual_digits=True)),
    "prefix space": changed("byte_level", pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "first": changed("unigram", pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first")),
    "marked words": changed(
        "unigram",
        pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
    ),
    "gap": changed("byte_level", added=(AddedToken("<gap>", lstrip=True, normalized=False),)),
    "added after a mark": changed("unigram", added=(AddedToken("<gap>", normalized=False),)),
    "squeezing": changed("unigram", normalizer=normalizers.Sequence([newline_map(), *SQUEEZING])),
    "squeezing nfkc": changed(
        "unigram", normalizer=normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), *SQUEEZING])
    ),
    "refusing": lambda: Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 5})),
}
EXCEPTIONS = {Effect.INVENTS_LEADING_SPACE, Effect.READS_MARK, Effect.READS_BYTE_PIECE}
ALLOWED = {
    "exact": EXCEPTIONS,
    "nfc": EXCEPTIONS | {Effect.COMPOSES, Effect.REPLACES_TWINS},
    "lossy": set(Effect),
}
SHOWN_BY = {
    r"control characters are removed": {Effect.INVISIBLE_VANISH},
    r"unusual spaces made plain|newline to space": {Effect.PLAIN_SPACES},
    r"whitespace made plain|every part of the split text": {Effect.PLAIN_SPACES, Effect.DROPS_BETWEEN},
    r"spaces are put round Chinese": {Effect.INVENTS_SPACE, Effect.DROPS_BETWEEN},
    r"accents are removed": {Effect.REMOVES_ACCENTS},
    r"lower case": {Effect.LOWERS},
    r"\(NFD\)|NFKD": {Effect.DECOMPOSES},
    r"NFKC|NFKD": {Effect.REPLACES_COMPATIBILITY, Effect.PLAIN_SPACES},
    r"NFC first": {Effect.COMPOSES},
    r"left and right end": {Effect.DROPS_AT_START},
    r"is replaced by": {Effect.REWRITES, Effect.SQUEEZES},
    r"is put before each segment": {Effect.INVENTS},
    r"whitespace between words is dropped": {Effect.DROPS_BETWEEN, Effect.SQUEEZES},
    r"'w' is dropped|matches 'punctuation' is dropped": {Effect.VANISHES},
    r"matches ' ' is dropped": {Effect.DROPS_BETWEEN},
    r"own first leading space": {Effect.SWALLOWS_LEADING_SPACE},
    r"vocabulary become the unknown id": {Effect.UNKNOWN},
    r"refused with an error": {Effect.REFUSES},
    r"invented after an added token": {Effect.INVENTS_AFTER_ADDED_TOKEN},
    r"swallows the spaces": {Effect.ADDED_TOKEN_SWALLOWS},
    r"becomes a space": {Effect.READS_MARK},
    r"have no symbol and vanish": {Effect.INVISIBLE_VANISH, Effect.BYTES_VANISH},
}
"""Which effects bear out a declared loss; one of them is enough."""


@cache
def encoder_of(name: str) -> TextEncoder:
    return TextEncoder.from_tokenizer(TOYS[name](), name)


@cache
def found(name: str) -> dict[str, Witness]:
    return {witness.effect: witness for witness in find_witnesses(encoder_of(name))}


def shown(name: str) -> dict[str, tuple[str, bytes]]:
    return {effect: (witness.text, witness.joined) for effect, witness in found(name).items()}


def observer(encoder: TextEncoder) -> Callable[[str], Observation]:
    def observe(text: str) -> Observation:
        table, ids = encoder.token_bytes, encoder.encode(text)
        kinds = frozenset(table.kinds[ids].tolist())
        return Observation(text, tuple(ids.tolist()), table.join(ids), table.join(ids, strip=False), kinds)

    return observe


def declared(encoder: TextEncoder) -> Fidelity:
    assert encoder.token_bytes.fidelity is not None
    return encoder.token_bytes.fidelity


def check_against_declared(encoder: TextEncoder, effects: set[str]) -> None:
    fidelity = declared(encoder)
    assert effects <= ALLOWED[fidelity.level]
    for reason in fidelity.reasons:
        if "lower-case hex" not in reason and "spells a byte piece" not in reason:
            wanted = [effects_of for pattern, effects_of in SHOWN_BY.items() if re.search(pattern, reason)]
            assert wanted and all(effects & some for some in wanted), reason


@pytest.mark.parametrize("name", TOYS)
class TestEveryTokenizer:
    def test_what_is_found_is_declared_and_what_is_declared_is_found(self, name: str) -> None:
        check_against_declared(encoder_of(name), set(found(name)))

    def test_a_witness_is_what_the_tokenizer_makes_of_its_text(self, name: str) -> None:
        encoder = encoder_of(name)
        for effect, witness in found(name).items():
            assert witness.source == witness.text.encode()
            if effect != Effect.REFUSES:
                ids = encoder.encode(witness.text)
                assert list(witness.ids) == ids.tolist()
                assert witness.joined == encoder.token_bytes.join(ids)
                assert witness.kept == encoder.token_bytes.join(ids, strip=False)
                assert (witness.joined != witness.source) or effect == Effect.INVENTS_LEADING_SPACE

    def test_nothing_can_be_left_out_of_a_witness(self, name: str) -> None:
        observe = observer(encoder_of(name))
        for effect, witness in found(name).items():
            if effect != Effect.REFUSES:
                text = witness.text
                assert name_effect(observe(text), observe) == effect
                for i in range(len(text)):
                    assert name_effect(observe(text[:i] + text[i + 1 :]), observe) != effect

    def test_the_same_witnesses_every_time(self, name: str) -> None:
        assert find_witnesses(TextEncoder.from_tokenizer(TOYS[name]())) == tuple(found(name).values())


class TestWhatIsShown:
    @pytest.mark.parametrize("name", ["byte_level", "digits"])
    def test_nothing_of_a_tokenizer_that_keeps_every_byte(self, name: str) -> None:
        assert found(name) == {}

    def test_an_invented_space_although_it_is_taken_out_again(self) -> None:
        witness = found("metaspace")[Effect.INVENTS_LEADING_SPACE]
        assert (witness.text, witness.joined, witness.kept) == ("a", b"a", b" a")

    def test_the_mark_of_a_tokenizer_that_is_exact_but_for_it(self) -> None:
        assert shown("metaspace") == {
            Effect.INVENTS_LEADING_SPACE: ("a", b"a"),
            Effect.READS_MARK: ("\u2581", b" "),
        }

    def test_a_users_own_leading_space(self) -> None:
        """T-11: the witness is the field case itself; where a space is put before any text, there is none."""
        for name in ("unigram", "first", "prefix space", "marked words"):
            witness = found(name)[Effect.SWALLOWS_LEADING_SPACE]
            assert (witness.text, witness.joined, witness.kept) == (" a", b"a", b" a")
            assert list(witness.ids) == encoder_of(name).encode("a").tolist()
        assert Effect.SWALLOWS_LEADING_SPACE not in found("metaspace")

    def test_squeezed_spaces_and_newlines_that_become_spaces(self) -> None:
        """T-12: the default rules of SentencePiece, with a precompiled map, as a conversion writes them."""
        assert shown("squeezing") == {
            Effect.INVENTS_LEADING_SPACE: ("a", b"a"),
            Effect.SWALLOWS_LEADING_SPACE: (" a", b"a"),
            Effect.READS_MARK: ("a\u2581", b"a "),
            Effect.PLAIN_SPACES: ("a\na", b"a a"),
            Effect.DROPS_AT_START: ("  a", b"a"),
            Effect.DROPS_AT_END: ("a ", b"a"),
            Effect.SQUEEZES: ("a  b", b"a b"),
            Effect.UNKNOWN: ("j", b""),
        }

    def test_of_the_field_case_the_bytes_of_the_source_stand_beside_what_is_left(self) -> None:
        """T-12: byte counts come from the source, so a report can say how many are gone."""
        witness = found("squeezing nfkc")[Effect.SQUEEZES]
        assert (len(witness.source), len(witness.joined)) == (4, 3)

    def test_nfc_is_shown_by_an_accent_and_by_a_twin(self) -> None:
        """T-14: three source bytes, two token bytes."""
        assert shown("nfc") == {
            Effect.COMPOSES: ("a\u0300", "\u00e0".encode()),
            Effect.REPLACES_TWINS: ("\u2126", "\u03a9".encode()),
        }
        assert len(found("nfc")[Effect.COMPOSES].source) == 3

    def test_a_wordpiece_tokenizer_shows_all_that_it_throws_away(self) -> None:
        """T-16: case, accents, blanks; no space is invented between the pieces."""
        seen = shown("wordpiece")
        assert seen[Effect.LOWERS] == ("A", b"a")
        assert seen[Effect.REMOVES_ACCENTS] == ("\u00e0", b"a")
        assert seen[Effect.DROPS_BETWEEN] == ("a a", b"aa")
        assert seen[Effect.UNKNOWN][1] == b""
        assert Effect.INVENTS_SPACE not in seen and Effect.INVENTS_LEADING_SPACE not in seen

    def test_words_that_are_unknown_although_their_characters_are_not(self) -> None:
        witness = found("wordpiece")[Effect.UNKNOWN_WORD]
        encoder = encoder_of("wordpiece")
        assert len(witness.text) == 2
        assert all(encoder.token_bytes.join(encoder.encode(c)) == c.encode() for c in witness.text)

    @pytest.mark.parametrize("name", ["whitespace", "spaces removed", "bert", "wordpiece"])
    def test_what_follows_from_another_effect_has_no_witness_of_its_own(self, name: str) -> None:
        assert Effect.DROPS_BETWEEN in found(name)
        implied = {Effect.DROPS_BLANK, Effect.DROPS_AT_START, Effect.DROPS_AT_END, Effect.SQUEEZES}
        assert not implied & set(found(name))

    def test_a_mark_that_becomes_a_space_which_is_then_dropped_is_not_said_to_vanish(self) -> None:
        assert Effect.VANISHES not in found("squeezing nfkc")
        assert encoder_of("squeezing nfkc").encode("\u2581").tolist() == []

    @pytest.mark.parametrize(
        ("name", "effect", "text", "joined"),
        [
            ("replace", Effect.REWRITES, "``", b'"'),
            ("prepend", Effect.INVENTS, "a", b"xa"),
            ("delimiter", Effect.VANISHES, "w", b""),
            ("gap", Effect.ADDED_TOKEN_SWALLOWS, " <gap>", b"<gap>"),
            ("added after a mark", Effect.INVENTS_AFTER_ADDED_TOKEN, "<gap>a", b"<gap> a"),
            ("refusing", Effect.REFUSES, "d", b""),
            ("lower case", Effect.LOWERS, "A", b"a"),
            ("nmt", Effect.INVISIBLE_VANISH, "\x01", b""),
        ],
        ids=str,
    )
    def test_each_effect_by_a_text_that_a_reader_would_choose(
        self, name: str, effect: Effect, text: str, joined: bytes
    ) -> None:
        assert shown(name)[effect] == (text, joined)


class LyingEngine:
    """Gives a text's bytes as ids, after a change that nobody declared."""

    parts = staticmethod(split_text)

    def __init__(self, change: Callable[[str], str]) -> None:
        self.change = change

    def encode(self, texts: Sequence[str], *, follows: bool) -> list[np.ndarray]:
        return [np.array(list(self.change(text).encode()), dtype=np.int64) for text in texts]

    def spellings(self) -> list[str | None]:
        return [None] * 256

    def save(self, folder: Path, start_id: int | None) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("change", "effect", "text"),
    [
        (lambda text: text, None, ""),
        (lambda text: text.replace("q", ""), Effect.VANISHES, "q"),
        (lambda text: text.replace("quick", "slow"), Effect.REWRITES, "quick"),
        (lambda text: text.replace("<0x41>", "A"), Effect.READS_BYTE_PIECE, "<0x41>"),
        (lambda text: text.upper() if len(text) > 2 else text, Effect.REWRITES, "aaa"),
    ],
    ids=["nothing", "q", "quick", "byte piece", "long texts"],
)
def test_the_tokenizer_is_tried_and_not_believed(
    change: Callable[[str], str], effect: Effect | None, text: str
) -> None:
    table = TokenBytes.from_list([bytes((b,)) for b in range(256)], fidelity=Fidelity("exact"))
    witnesses = find_witnesses(TextEncoder(table, "liar", None, LyingEngine(change)))
    assert [(witness.effect, witness.text) for witness in witnesses] == ([(effect, text)] if effect else [])


@pytest.mark.parametrize("name", [*BUILDERS, "first"])
@given(text=TEXTS)
def test_what_is_observed_is_what_the_byte_table_joins(name: str, text: str) -> None:
    encoder = encoder_of(name)
    assert Laboratory(encoder).observe(text) == observer(encoder)(text)


@pytest.mark.parametrize("name", BUILDERS)
@given(text=TEXTS)
def test_an_effect_is_named_just_where_something_happened(name: str, text: str) -> None:
    observe = observer(encoder_of(name))
    seen = observe(text)
    nothing_happened = seen.joined == seen.kept == text.encode()
    assert (name_effect(seen, observe) is None) == (nothing_happened or text == "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama2", "qwen3", "smollm2", "cl100k_base.tiktoken"])
def test_real_tokenizers_show_what_they_declare(shared_folder: Path, name: str) -> None:
    encoder = load_tokenizer(str(shared_folder / "tokenizers" / name))
    check_against_declared(encoder, {witness.effect for witness in find_witnesses(encoder)})


def test_missing_byte_symbols_are_shown(shared_folder: Path) -> None:
    witnesses = find_witnesses(load_tokenizer(str(shared_folder / "tokenizers" / "smollm2")))
    assert [(witness.effect, witness.text, witness.joined) for witness in witnesses] == [
        (Effect.INVISIBLE_VANISH, "\x04", b""),
        (Effect.BYTES_VANISH, "\U00040000", b"\x80\x80\x80"),
    ]


@pytest.mark.parametrize("lost", [b"\xcc\x81", b"\xcc\x81\xcd\x88"], ids=["one mark", "several"])
def test_accents_that_have_no_bytes_are_no_rule_about_accents(lost: bytes) -> None:
    vocab = {symbol: v for v, (byte, symbol) in enumerate(enumerate(byte_symbols())) if byte not in lost}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = BYTES
    found = {witness.effect for witness in find_witnesses(TextEncoder.of(tokenizer))}
    assert Effect.REMOVES_ACCENTS not in found and found & {Effect.VANISHES, Effect.BYTES_VANISH}
