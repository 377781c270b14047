"""SentencePiece models of every make: exact bytes, declared losses, and the cases that other readers got wrong."""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokens.naive_windows import windows_of
from tests.tokens.sentencepiece.naive_wire import field
from tokagnostic.errors import CorpusError, SourceError, TokagnosticError, TokenizerError
from tokagnostic.hashing import HashCache, NgramHasher
from tokagnostic.tokens import TokenBytes, TokenKind
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sentencepiece.model import PieceType, SentencePieceModel
from tokagnostic.tokens.sentencepiece.reader import read_sentencepiece_proto
from tokagnostic.tokens.sources import load_tokenizer

sentencepiece = pytest.importorskip("sentencepiece", reason="the extra sentencepiece is not installed")

WORDS = ("river", "stone", "bridge", "town", "water", "wall", "winter", "spring", "north", "rode", "paid", "built")
BYTES = [(f"<0x{byte:02X}>", 0.0, PieceType.BYTE) for byte in range(256)]
SPECIALS = [("<unk>", 0.0, PieceType.UNKNOWN), ("<s>", 0.0, PieceType.CONTROL), ("</s>", 0.0, PieceType.CONTROL)]

Piece = tuple[str, float, PieceType]


def trained(**changes: object) -> bytes:
    """A model trained on a dozen words."""
    out = io.BytesIO()
    arguments = {"model_type": "bpe", "vocab_size": 330, "byte_fallback": True, "minloglevel": 2, **changes}
    arguments = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, **arguments}
    lines = [" ".join(WORDS), "River Stones!", *WORDS, "a b  c"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 3), model_writer=out, hard_vocab_limit=False, **arguments
    )
    return out.getvalue()


def by_hand(pieces: Sequence[Piece], *, model_type: int = 2, byte_fallback: bool = True, **rules: bool) -> bytes:
    """A model file put together from its pieces."""
    data = b""
    for piece, score, kind in pieces:
        inner = field(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + field(3, int(kind))
        data += field(1, inner)
    data += field(2, field(3, model_type) + field(35, int(byte_fallback)))
    numbers = {"adds_space": 3, "squeezes": 4, "marks_spaces": 5}
    chosen = {"adds_space": True, "squeezes": False, "marks_spaces": True, **rules}
    return data + field(3, field(1, b"identity") + b"".join(field(numbers[n], int(v)) for n, v in chosen.items()))


def normal(*pieces: str) -> list[Piece]:
    return [(piece, -float(i), PieceType.NORMAL) for i, piece in enumerate(pieces)]


def encoder_of(serialized: bytes) -> TextEncoder:
    return TextEncoder.from_reading(read_sentencepiece_proto(serialized))


def line(token_bytes: TokenBytes) -> str:
    assert token_bytes.fidelity is not None
    return token_bytes.fidelity.line


def id_of(encoder: TextEncoder, piece: str) -> int:
    return encoder.spellings().index(piece)


@pytest.fixture(scope="module")
def bpe() -> TextEncoder:
    return encoder_of(trained())


@pytest.fixture(scope="module")
def unigram() -> TextEncoder:
    return encoder_of(trained(model_type="unigram", vocab_size=60, byte_fallback=False))


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
@pytest.mark.parametrize("prefix", [True, False], ids=["prefix", "no_prefix"])
class TestExact:
    def test_any_text_joins_back(self, model_type: str, prefix: bool) -> None:
        encoder = encoder_of(trained(model_type=model_type, add_dummy_prefix=prefix))
        assert encoder.token_bytes.prefix == ("first" if prefix else "none")
        assert line(encoder.token_bytes) == "exact, except that the character '▁' (U+2581) becomes a space"

        @settings(max_examples=150, deadline=None)
        @given(st.text(max_size=40))
        def check(text: str) -> None:
            assert encoder.token_bytes.join(encoder.encode(text)) == text.replace("\u2581", " ").encode()

        check()

    @pytest.mark.parametrize(
        "text", ["", " ", "  ", " a", "a ", "\n", "\x00", "a\x00b", "\ufeff", "a\u2028b"], ids=repr
    )
    def test_nearly_nothing_joins_back(self, model_type: str, prefix: bool, text: str) -> None:
        """T-11: the user's own leading space is not the invented one."""
        encoder = encoder_of(trained(model_type=model_type, add_dummy_prefix=prefix))
        assert encoder.token_bytes.join(encoder.encode(text)) == text.encode()


class TestKinds:
    def test_a_letter_and_its_byte_piece_share_bytes_and_keep_their_ids(self, bpe: TextEncoder) -> None:
        """T-06."""
        pair = sorted((id_of(bpe, "a"), id_of(bpe, "<0x61>")))
        assert pair in bpe.token_bytes.duplicates()
        assert [bpe.token_bytes[v] for v in pair] == [b"a", b"a"]
        cache = HashCache.build(bpe.token_bytes)
        assert len({tuple(cache.steps[v]) for v in pair}) == 1

    def test_a_byte_piece_is_one_only_where_the_file_says_so(self) -> None:
        """T-05: the same spelling as a byte piece, as a piece, and in lower case."""
        pieces = [*SPECIALS, *BYTES, *normal("▁", "a", "<0x4a>")]
        lower = encoder_of(by_hand(pieces))
        assert lower.token_bytes[id_of(lower, "<0x41>")] == b"A"
        assert lower.token_bytes[id_of(lower, "<0x4a>")] == b"<0x4a>"
        plain = encoder_of(by_hand([*SPECIALS, *normal("▁", "a", "<0x41>")], byte_fallback=False))
        assert plain.token_bytes[id_of(plain, "<0x41>")] == b"<0x41>"

    def test_a_partial_set_of_byte_pieces_is_refused(self) -> None:
        """T-27: SentencePiece itself does not load one."""
        with pytest.raises(TokenizerError, match="its own library refuses"):
            read_sentencepiece_proto(by_hand([*SPECIALS, *BYTES[:200], *normal("▁", "a")]))

    def test_user_defined_pieces_are_their_text(self) -> None:
        """T-22: runs of spaces, with and without the mark, and tags."""
        encoder = encoder_of(trained(user_defined_symbols=["▁▁", "▁▁▁▁", "<br>", "\t"]))
        for piece, data in (("▁▁", b"  "), ("▁▁▁▁", b"    "), ("<br>", b"<br>"), ("\t", b"\t")):
            v = id_of(encoder, piece)
            assert (encoder.token_bytes[v], encoder.token_bytes.kinds[v]) == (data, TokenKind.ADDED)
        text = "def f():\n    river <br>\n\t  stone\n" + "".join(f"a{' ' * n}" for n in range(41))
        ids = encoder.encode(text)
        assert encoder.token_bytes.join(ids) == text.encode()
        assert {id_of(encoder, piece) for piece in ("▁▁▁▁", "<br>", "\t")} <= set(ids.tolist())

    def test_a_literal_space_in_a_user_defined_piece_is_a_space(self) -> None:
        """T-22: as some files hold them."""
        pieces = [*SPECIALS, *BYTES, *normal("▁", "a"), ("  ", 0.0, PieceType.USER_DEFINED)]
        encoder = encoder_of(by_hand(pieces))
        assert encoder.token_bytes[id_of(encoder, "  ")] == b"  "
        assert encoder.token_bytes.join(encoder.encode("a   a")) == b"a   a"

    def test_control_and_unused_pieces_have_no_bytes_and_their_spelling_is_text(self) -> None:
        """T-32: text that spells a control piece is hashed as its bytes, the id breaks the window."""
        pieces = [*SPECIALS, *BYTES, *normal("▁", "a"), ("old", 0.0, PieceType.UNUSED)]
        encoder = encoder_of(by_hand(pieces))
        ids = encoder.encode("a<s>a")
        assert encoder.token_bytes.join(ids) == b"a<s>a"
        assert TokenKind.SPECIAL not in encoder.token_bytes.kinds[ids]
        kinds = [encoder.token_bytes.kinds[id_of(encoder, piece)] for piece in ("<unk>", "<s>", "</s>", "old")]
        assert kinds == [TokenKind.UNKNOWN, TokenKind.SPECIAL, TokenKind.SPECIAL, TokenKind.UNREACHABLE]
        assert all(encoder.token_bytes[id_of(encoder, piece)] is None for piece in ("<unk>", "<s>", "old"))

    def test_a_word_start_keeps_its_space_wherever_it_is_used(self, bpe: TextEncoder) -> None:
        """T-08: no id is decoded alone."""
        assert bpe.token_bytes[id_of(bpe, "▁stone")] == b" stone"
        ids = bpe.encode("river stone")
        assert bpe.token_bytes.join(ids) == b"river stone"
        assert bpe.token_bytes.join(ids, strip=False) == b" river stone"


class TestWindows:
    def test_windows_at_a_text_start_equal_those_of_a_tokenizer_without_a_prefix(self, bpe: TextEncoder) -> None:
        """T-09."""
        text = "river rode"
        plain = encoder_of(trained(add_dummy_prefix=False))
        bytewise = {text.encode()[a:b] for a in range(len(text)) for b in range(a + 1, len(text) + 1)}
        for encoder in (bpe, plain):
            assert windows_of(encoder.token_bytes, encoder.encode(text), 12) <= bytewise
        assert text.encode() in windows_of(bpe.token_bytes, bpe.encode(text), 12)

    def test_an_unknown_id_is_no_text_and_no_glue(self, unigram: TextEncoder) -> None:
        """T-15: a window over it does not exist, so `xy` and `x<unk>y` cannot be one."""
        token_bytes = unigram.token_bytes
        assert "characters outside the vocabulary become the unknown id" in line(token_bytes)
        ids = unigram.encode("river日stone")
        unknown = np.flatnonzero(token_bytes.kinds[ids] == TokenKind.UNKNOWN)
        assert len(unknown) == 1
        keys = NgramHasher(HashCache.build(token_bytes), 3)(ids)
        assert (keys[unknown[0]] == -1).all()
        assert keys[unknown[0] + 1].tolist()[1:] == [-1, -1]
        assert b"river" in b"".join(windows_of(token_bytes, ids, 5))


class TestLosses:
    def test_squeezed_spaces_are_declared_and_the_later_parts_of_a_long_text_squeezed_too(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """T-12: default rules."""
        from tokagnostic.tokens import cutting

        encoder = encoder_of(trained(normalization_rule_name="nmt_nfkc", remove_extra_whitespaces=True))
        said = line(encoder.token_bytes)
        assert said.startswith("lossy: characters are rewritten by the rules 'nmt_nfkc', a newline to a space; ")
        assert "runs of spaces become one" in said
        for text, kept in (("  river", b"river"), ("river\nstone", b"river stone"), (" river ", b"river")):
            assert encoder.token_bytes.join(encoder.encode(text)) == kept
        monkeypatch.setattr(cutting, "MAX_PART", 64)
        monkeypatch.setattr(cutting, "_CUT_SEARCH", 32)
        text = "river   stone  " * 40
        assert encoder.token_bytes.join(encoder.encode(text)) == b" ".join([b"river stone"] * 40)

    def test_a_long_exact_text_is_cut_without_an_invented_space(
        self, bpe: TextEncoder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tokagnostic.tokens import cutting

        monkeypatch.setattr(cutting, "MAX_PART", 64)
        monkeypatch.setattr(cutting, "_CUT_SEARCH", 32)
        for text in ("river stone  " * 40, "riverstone" * 60):
            assert bpe.token_bytes.join(bpe.encode(text)) == text.encode()

    def test_rules_that_keep_newlines_do_not_say_otherwise(self) -> None:
        said = line(encoder_of(trained(normalization_rule_name="nfkc")).token_bytes)
        assert said.startswith("lossy: characters are rewritten by the rules 'nfkc'; ")

    @pytest.mark.parametrize("rules", ["identity", "nmt_nfkc", "nfkc_cf"])
    @pytest.mark.parametrize("own", [(), ("  ", "<br>")], ids=["plain", "user_defined"])
    @pytest.mark.parametrize("adds_space", [True, False], ids=["prefix", "no_prefix"])
    def test_where_spaces_are_squeezed_a_text_in_parts_is_the_text_whole(
        self, rules: str, own: tuple[str, ...], adds_space: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Blanks of every kind beside the cuts, runs longer than a part, and marks in the text."""
        from tokagnostic.tokens import cutting

        encoder = encoder_of(
            trained(
                normalization_rule_name=rules,
                remove_extra_whitespaces=True,
                user_defined_symbols=list(own),
                add_dummy_prefix=adds_space,
            )
        )
        bits = ("river", "stone", " ", "  ", "   ", "\n", "\u3000", "<br>", "\ufb01", "e\u0301", "\u65e5", "a\u2581b")
        chosen = np.random.default_rng(0)
        texts = ["".join(chosen.choice(bits, 90)) for _ in range(60)]
        runs = (" " * 150, "\n\u3000 " * 50, "\u2581" * 150, "- \u2581 - " * 30, "a\u2581 b" * 30)
        texts += [
            start + text + end for text, start, end in zip(texts, (*runs, *runs), (*runs[1:], *runs, ""), strict=False)
        ]
        whole = [encoder.token_bytes.join(ids) for ids in encoder.encode_batch(texts)]
        monkeypatch.setattr(cutting, "MAX_PART", 64)
        monkeypatch.setattr(cutting, "_CUT_SEARCH", 32)
        assert [encoder.token_bytes.join(ids) for ids in encoder.encode_batch(texts)] == whole

    def test_a_space_before_an_unknown_word_that_would_become_three_bytes_is_refused(self) -> None:
        """T-24, in a model of words with byte fallback."""
        with pytest.raises(TokenizerError, match=r"model of words with byte fallback, in which .* E2 96 81"):
            read_sentencepiece_proto(by_hand([*SPECIALS, *BYTES, *normal("▁", "▁river")], model_type=3))

    def test_a_space_that_would_become_three_bytes_is_refused(self) -> None:
        """T-24."""
        with pytest.raises(TokenizerError, match="would become the bytes E2 96 81"):
            read_sentencepiece_proto(by_hand([*SPECIALS, *BYTES, *normal("a", "b", "c")]))

    def test_a_model_that_does_not_mark_spaces_is_read_as_it_is(self) -> None:
        pieces = [*SPECIALS, *BYTES, *normal(" ", "a", "a ")]
        encoder = encoder_of(by_hand(pieces, marks_spaces=False))
        assert encoder.token_bytes.join(encoder.encode("a  a \u2581")) == "a  a \u2581".encode()


class TestFiles:
    def test_a_file_is_read_by_its_path_and_written_again(self, tmp_path: Path) -> None:
        path = tmp_path / "odd name"
        path.write_bytes(trained())
        encoder = load_tokenizer(str(path))
        assert encoder.start_id == id_of(encoder, "<s>")
        encoder.save(tmp_path / "saved")
        again = load_tokenizer(str(tmp_path / "saved"))
        assert again.token_bytes.fingerprint == encoder.token_bytes.fingerprint
        assert again.start_id == encoder.start_id

    def test_another_start_is_found_again(self, tmp_path: Path) -> None:
        reading = read_sentencepiece_proto(trained())
        end = reading.engine.spellings().index("</s>")
        TextEncoder.from_reading(reading, start_id=end).save(tmp_path)
        assert load_tokenizer(str(tmp_path)).start_id == end

    def test_a_live_processor_is_read(self) -> None:
        serialized = trained()
        live = sentencepiece.SentencePieceProcessor(model_proto=serialized)
        assert TokenBytes.from_tokenizer(live).fingerprint == encoder_of(serialized).token_bytes.fingerprint

    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: data[: len(data) // 2],
            lambda data: b"\x0a\xff\xff\xff\xff\x7f" + data,
            lambda data: b"\x0a",
            lambda data: by_hand([]),
            lambda data: data.replace(b"<unk>", b"<un\xff>"),
            lambda data: by_hand([*SPECIALS, *normal("▁", "a", "a")], byte_fallback=False),
            lambda data: by_hand([*SPECIALS, *normal("▁", "a", "")], byte_fallback=False),
            lambda data: by_hand(normal("▁", "a"), byte_fallback=False),
        ],
        ids=["half", "long length", "one byte", "no pieces", "no text", "twice", "empty piece", "no unknown"],
    )
    def test_a_damaged_file_is_one_line_that_names_it(self, tmp_path: Path, damage: object) -> None:
        """T-31 for the empty piece, which the library refuses too."""
        path = tmp_path / "damaged.model"
        path.write_bytes(damage(trained()))
        with pytest.raises((SourceError, TokagnosticError)) as caught:
            load_tokenizer(str(path))
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("pieces", "said"),
        [
            (normal("▁", "a", "b", "a"), "ids 4 and 6 are both the piece 'a'"),
            (normal("▁", "a", ""), "the piece of id 5 is empty"),
            (normal("▁", "a\x00b"), "the piece of id 4 is a text with a NUL"),
        ],
        ids=["twice", "empty", "NUL"],
    )
    def test_a_piece_that_cannot_be_told_from_others_is_named(self, pieces: list[Piece], said: str) -> None:
        """T-31."""
        with pytest.raises(TokenizerError, match=said):
            read_sentencepiece_proto(by_hand([*SPECIALS, *pieces], byte_fallback=False))

    def test_an_encoder_crosses_processes(self, bpe: TextEncoder) -> None:
        again = pickle.loads(pickle.dumps(bpe))
        assert again.encode("river stone").tolist() == bpe.encode("river stone").tolist()

    def test_half_a_surrogate_pair_is_named_with_its_document(self, bpe: TextEncoder) -> None:
        with pytest.raises(CorpusError, match="document 1 holds U"):
            bpe.encode_batch(["river", "x\ud800"])

    def test_the_facts_are_those_of_the_file(self) -> None:
        model = SentencePieceModel.parse(trained(user_defined_symbols=["<br>"]))
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.serialized)
        num = processor.get_piece_size()
        assert list(model.pieces) == [processor.id_to_piece(v) for v in range(num)]
        assert [kind == PieceType.BYTE for kind in model.types] == [processor.is_byte(v) for v in range(num)]
        assert [kind == PieceType.CONTROL for kind in model.types] == [processor.is_control(v) for v in range(num)]
        assert (model.byte_fallback, model.adds_space, model.squeezes, model.rewrites) == (True, True, False, False)
