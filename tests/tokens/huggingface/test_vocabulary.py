"""What each family's ids mean, read from the pipeline and never guessed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from tests.tokens.naive_windows import windows_of
from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.token_bytes import TokenBytes, TokenKind

ByteToy = Callable[..., Tokenizer]
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]


def bytes_of(tokenizer: Tokenizer, piece: str) -> bytes | None:
    token_id = tokenizer.token_to_id(piece)
    assert token_id is not None
    return TokenBytes.from_tokenizer(tokenizer)[token_id]


def metaspace_bpe(pieces: list[str], *, byte_fallback: bool = True, unk: str | None = "<unk>") -> Tokenizer:
    vocab = {piece: v for v, piece in enumerate([*([unk] if unk else []), *pieces])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token=unk, byte_fallback=byte_fallback))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


class TestByteLevel:
    @pytest.mark.parametrize("content", ["zürich", "two words", "Ġx", "日本"])
    def test_an_added_token_is_its_content_and_not_byte_symbols(self, byte_toy: ByteToy, content: str) -> None:
        """T-01."""
        tokenizer = byte_toy(added=("zürich", "two words", "Ġx", "日本"))
        encoder = TextEncoder.of(tokenizer)
        token_id = tokenizer.token_to_id(content)
        assert encoder.token_bytes[token_id] == content.encode()
        assert encoder.token_bytes.kinds[token_id] == TokenKind.ADDED
        ids = encoder.encode(f"in {content}, out")
        assert token_id in ids.tolist()
        assert encoder.token_bytes.join(ids) == f"in {content}, out".encode()

    def test_an_added_token_that_the_model_reaches_by_other_text_is_refused(self, byte_toy: ByteToy) -> None:
        """T-01: `Ġx` cannot be both the two characters and a space with an x."""
        with pytest.raises(TokenizerError, match="at id 256"):
            TokenBytes.from_tokenizer(byte_toy(merges=(("Ġ", "x"),), added=("Ġx",)))

    def test_every_byte_has_one_id_and_parts_of_characters_stay_bytes(self, byte_toy: ByteToy) -> None:
        """T-03."""
        tokenizer = byte_toy(merges=(("â", "Ĥ"),))
        token_bytes = TokenBytes.from_tokenizer(tokenizer)
        assert sorted(token_bytes[v] or b"" for v in range(256)) == [bytes((byte,)) for byte in range(256)]
        assert bytes_of(tokenizer, "âĤ") == b"\xe2\x82"
        ids = TextEncoder.of(tokenizer).encode("€")
        assert [token_bytes[v] for v in ids] == [b"\xe2\x82", b"\xac"]

    def test_a_byte_that_looks_like_a_mark_is_only_a_byte(self, byte_toy: ByteToy) -> None:
        """T-32: FF is a token as any other, and a typed `<s>` is three bytes."""
        tokenizer = byte_toy()
        tokenizer.add_special_tokens(["<s>"])
        encoder = TextEncoder.of(tokenizer)
        assert bytes_of(tokenizer, "ÿ") == b"\xff"
        special = tokenizer.token_to_id("<s>")
        assert encoder.token_bytes[special] is None
        assert encoder.token_bytes.kinds[special] == TokenKind.SPECIAL
        ids = encoder.encode("<s>").tolist()
        assert [encoder.token_bytes[v] for v in ids] == [b"<", b"s", b">"]

    @pytest.mark.parametrize("where", ["pre-tokenizer", "in a sequence", "normalizer"])
    def test_the_byte_step_is_found_wherever_it_stands(self, byte_toy: ByteToy, where: str) -> None:
        tokenizer = byte_toy()
        if where == "in a sequence":
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
            )
        elif where == "normalizer":
            tokenizer.normalizer = normalizers.Sequence([normalizers.ByteLevel()])
            tokenizer.pre_tokenizer = None
        token_bytes = TokenBytes.from_tokenizer(tokenizer)
        assert token_bytes.fidelity is not None
        assert token_bytes.fidelity.line == "exact"

    def test_a_piece_outside_the_alphabet_is_unreachable(self, byte_toy: ByteToy) -> None:
        """T-27: no guess is made about what it might have meant."""
        description = json.loads(byte_toy().to_str())
        description["model"]["vocab"] |= {"日本": 256, "a b": 257}
        token_bytes = TokenBytes.from_tokenizer(Tokenizer.from_str(json.dumps(description)))
        assert token_bytes.kinds[256:].tolist() == [TokenKind.UNREACHABLE] * 2
        assert token_bytes[256] is None

    def test_a_prefix_space_is_a_rule_and_not_a_byte_of_the_text(self, byte_toy: ByteToy) -> None:
        tokenizer = byte_toy()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        encoder = TextEncoder.of(tokenizer)
        assert encoder.token_bytes.prefix == "always"
        assert encoder.token_bytes.join(encoder.encode("ab")) == b"ab"

    def test_missing_symbols_are_listed_and_what_needs_them_vanishes(self, byte_toy: ByteToy) -> None:
        description = json.loads(byte_toy().to_str())
        for symbol in "ñò":
            del description["model"]["vocab"][symbol]
        encoder = TextEncoder.of(Tokenizer.from_str(json.dumps(description)))
        assert encoder.token_bytes.fidelity is not None
        assert encoder.token_bytes.fidelity.line == "lossy: 2 of 256 bytes have no symbol and vanish: F1 F2"
        assert encoder.token_bytes.join(encoder.encode("a\U00050000b")) == b"a\x90\x80\x80b"


class TestMark:
    def test_byte_pieces_are_bytes_only_under_byte_fallback(self) -> None:
        """T-05."""
        pieces = ["▁", *"ABab", *BYTE_PIECES]
        assert bytes_of(metaspace_bpe(pieces), "<0x41>") == b"A"
        assert bytes_of(metaspace_bpe(pieces, byte_fallback=False), "<0x41>") == b"<0x41>"

    def test_a_partial_set_of_byte_pieces_is_reported(self) -> None:
        """T-05 and T-27: 200 of 256."""
        fidelity = TokenBytes.from_tokenizer(metaspace_bpe(["▁", *"ab", *BYTE_PIECES[:200]])).fidelity
        assert fidelity is not None
        assert fidelity.level == "lossy"
        assert (
            fidelity.reasons[0] == "56 of 256 byte pieces are missing; characters that need them become the unknown id"
        )

    def test_lower_case_hex_is_reported_and_read_as_text(self) -> None:
        """T-05."""
        tokenizer = metaspace_bpe(["▁", *"ab", *BYTE_PIECES, "<0x4a>"])
        token_bytes = TokenBytes.from_tokenizer(tokenizer)
        assert bytes_of(tokenizer, "<0x4a>") == b"<0x4a>"
        assert token_bytes.fidelity is not None
        assert "1 pieces such as '<0x4a>' are in lower-case hex" in token_bytes.fidelity.line

    def test_a_letter_and_its_byte_piece_share_bytes_and_keep_their_ids(self, metaspace: Tokenizer) -> None:
        """T-06."""
        token_bytes = TokenBytes.from_tokenizer(metaspace)
        pair = [metaspace.token_to_id("<0x61>"), metaspace.token_to_id("a")]
        assert pair in token_bytes.duplicates()
        assert [token_bytes[v] for v in pair] == [b"a", b"a"]
        assert [token_bytes.kinds[v] for v in pair] == [TokenKind.BYTE, TokenKind.TEXT]

    def test_a_word_start_keeps_its_space_wherever_it_is_used(self, metaspace: Tokenizer) -> None:
        """T-08."""
        encoder = TextEncoder.of(metaspace)
        assert bytes_of(metaspace, "▁s") == b" s"
        ids = encoder.encode("river stone")
        assert encoder.token_bytes.join(ids) == b"river stone"
        assert encoder.token_bytes.join(ids, strip=False) == b" river stone"

    def test_windows_at_a_text_start_equal_those_of_a_byte_level_tokenizer(
        self, metaspace: Tokenizer, byte_toy: ByteToy
    ) -> None:
        """T-09: the invented space is in no window."""
        text = "Genghis rode"
        target, reference = TextEncoder.of(metaspace), TextEncoder.of(byte_toy())
        ids = target.encode(text)
        bytewise = windows_of(reference.token_bytes, reference.encode(text), max_order=len(text))
        for order in range(1, len(ids) + 1):
            windows = windows_of(target.token_bytes, ids, max_order=order)
            assert windows <= bytewise
        assert text.encode() in windows

    @pytest.mark.parametrize("scheme", ["always", "first", "never"])
    def test_metaspace_as_a_pre_tokenizer_gives_the_rule_of_its_scheme(self, scheme: str) -> None:
        tokenizer = metaspace_bpe(["▁", *"abc", *BYTE_PIECES])
        tokenizer.normalizer = None
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
        encoder = TextEncoder.of(tokenizer)
        assert encoder.token_bytes.prefix == {"never": "none"}.get(scheme, scheme)
        assert encoder.token_bytes.join(encoder.encode("a b")) == b"a b"

    @pytest.mark.parametrize("byte_fallback", [True, False], ids=["fallback", "no fallback"])
    def test_a_vocabulary_without_the_mark_is_refused(self, byte_fallback: bool) -> None:
        """T-24: a space must not become E2 96 81."""
        with pytest.raises(TokenizerError, match="no piece for the mark '▁'") as caught:
            TokenBytes.from_tokenizer(metaspace_bpe([*"abc", *BYTE_PIECES], byte_fallback=byte_fallback))
        assert "\n" not in str(caught.value)

    def test_runs_of_marks_among_the_added_tokens_are_runs_of_spaces(self) -> None:
        """T-22, as Gemma's file lists them: the piece of the model and the added token are one id."""
        pieces = [*BYTE_PIECES, "▁", "▁▁", *"abx=:<>", "<a>", "\n\n", "▁▁▁"]
        vocab = {piece: v for v, piece in enumerate(pieces)}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[("▁", "▁")], byte_fallback=True))
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        added = [AddedToken(piece, normalized=False) for piece in ("▁▁", "▁▁▁", "<a>", "\n\n")]
        tokenizer.add_tokens(added)
        encoder = TextEncoder.of(tokenizer)
        assert [bytes_of(tokenizer, piece) for piece in ("▁▁", "▁▁▁", "<a>", "\n\n")] == [
            b"  ",
            b"   ",
            b"<a>",
            b"\n\n",
        ]
        text = "a:\n\n    b = <a>\n  x\n" + "".join(f"a{' ' * n}" for n in range(20))
        assert encoder.token_bytes.join(encoder.encode(text)) == text.encode()
        assert encoder.token_bytes.join(encoder.encode("a\u2581\u2581b")) == b"a  b"

    def test_a_space_after_an_added_token_is_declared_invented(self, metaspace: Tokenizer) -> None:
        tokenizer = Tokenizer.from_str(metaspace.to_str())
        tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
        fidelity = TokenBytes.from_tokenizer(tokenizer).fidelity
        assert fidelity is not None
        assert "a space is invented after an added token such as '<tool>'" in fidelity.reasons


class TestUnigram:
    @pytest.fixture
    def tiny(self) -> Tokenizer:
        pieces = [("<unk>", 0.0), ("▁", -2.0), ("a", -1.0), ("b", -1.0), ("▁a", -1.5), ("▁b", -1.5)]
        tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        return tokenizer

    def test_the_unknown_id_has_no_bytes_and_glues_nothing(self, tiny: Tokenizer) -> None:
        """T-15."""
        encoder = TextEncoder.of(tiny)
        assert encoder.token_bytes[0] is None
        assert encoder.token_bytes.kinds[0] == TokenKind.UNKNOWN
        ids = encoder.encode("a日b")
        assert 0 in ids.tolist()
        assert b"ab" not in windows_of(encoder.token_bytes, ids, max_order=3)
        assert b"ab" in windows_of(encoder.token_bytes, encoder.encode("ab"), max_order=3)

    def test_typed_names_of_specials_are_text(self, unigram: Tokenizer) -> None:
        """D-10 and T-32: Unigram's own search would take the pieces of its vocabulary."""
        encoder = TextEncoder.of(unigram)
        ids = encoder.encode("a </s> b <s>").tolist()
        assert not {unigram.token_to_id("<s>"), unigram.token_to_id("</s>")} & set(ids)
        assert unigram.token_to_id("</s>") in unigram.encode("a </s> b").ids

    def test_byte_fallback_gives_unigram_byte_pieces(self) -> None:
        pieces = [("<unk>", 0.0), ("▁", -2.0), ("a", -1.0), *((piece, -9.0) for piece in BYTE_PIECES)]
        tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        encoder = TextEncoder.of(tokenizer)
        assert encoder.token_bytes.fidelity is not None
        assert encoder.token_bytes.fidelity.level == "exact"
        assert encoder.token_bytes.join(encoder.encode("a 日")) == "a 日".encode()

    def test_t5_and_xlm_pipelines_pass_their_probe(self, tiny: Tokenizer) -> None:
        tokenizer = Tokenizer.from_str(tiny.to_str())
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.NFKC(), normalizers.Strip(left=False, right=True), normalizers.Replace(" {2,}", "▁")]
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
        )
        encoder = TextEncoder.of(tokenizer)
        assert encoder.token_bytes.join(encoder.encode("ab ba\nab")) == b"ab ba ab"
        assert encoder.token_bytes.fidelity is not None
        assert "whitespace between words is dropped" in encoder.token_bytes.fidelity.reasons


class TestWordPieceAndWordLevel:
    @pytest.fixture
    def cafe(self) -> Tokenizer:
        vocab = {piece: v for v, piece in enumerate(["[UNK]", "cafe", "##s", "(", ")", "##"])}
        tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        return tokenizer

    def test_pieces_hold_no_sign_and_no_invented_space(self, cafe: Tokenizer) -> None:
        """T-16."""
        token_bytes = TokenBytes.from_tokenizer(cafe)
        assert [token_bytes[v] for v in range(6)] == [None, b"cafe", b"s", b"(", b")", b"##"]
        assert token_bytes.fidelity is not None
        assert token_bytes.fidelity.level == "lossy"

    @pytest.mark.parametrize(
        ("text", "joined"), [("Cafés", b"cafes"), ("(cafe)", b"(cafe)"), ("cafe\tcafe", b"cafecafe")], ids=repr
    )
    def test_joined_pieces_are_what_the_losses_leave(self, cafe: Tokenizer, text: str, joined: bytes) -> None:
        """T-16: no space is counted that the source does not have."""
        encoder = TextEncoder.of(cafe)
        assert encoder.token_bytes.join(encoder.encode(text)) == joined

    def test_a_vocabulary_reaches_to_its_highest_id(self) -> None:
        """T-17: ids 0, 1 and 5; there is no unknown token either."""
        token_bytes = TokenBytes.from_tokenizer(Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 5})))
        assert len(token_bytes) == 6
        assert [token_bytes[v] for v in (0, 5, 3)] == [b"a", b"c", None]
        assert token_bytes.kinds.tolist() == [TokenKind.TEXT] * 2 + [TokenKind.HOLE] * 3 + [TokenKind.TEXT]

    def test_an_added_token_in_the_place_of_a_piece_is_refused(self) -> None:
        tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 5}))
        tokenizer.add_tokens(["x", "y", "z"])
        with pytest.raises(TokenizerError, match="id 5 is both the piece 'c' and the added token 'z'"):
            TokenBytes.from_tokenizer(tokenizer)

    def test_word_level_pieces_are_literal_text(self) -> None:
        tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "Ġcafé": 1, "<0x41>": 2}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        token_bytes = TokenBytes.from_tokenizer(tokenizer)
        assert [token_bytes[v] for v in range(3)] == [None, "Ġcafé".encode(), b"<0x41>"]


class TestNoGuessing:
    def test_a_wrapper_without_a_backend_is_refused(self) -> None:
        """T-27: byte symbols alone say nothing."""

        class SlowTokenizer:
            byte_encoder = {32: "Ġ"}  # noqa: RUF012

            def get_vocab(self) -> dict[str, int]:
                return {"Ġ": 0}

        with pytest.raises(TokenizerError, match="SlowTokenizer without a `backend_tokenizer`"):
            TokenBytes.from_tokenizer(SlowTokenizer())

    def test_byte_symbols_without_a_byte_step_are_refused(self, byte_toy: ByteToy) -> None:
        """T-27: the vocabulary is spelled in byte symbols, the pipeline never makes any."""
        tokenizer = byte_toy()
        tokenizer.pre_tokenizer = None
        with pytest.raises(TokenizerError, match="needs the symbol ' ' to spell a space"):
            TokenBytes.from_tokenizer(tokenizer)

    def test_a_byte_step_over_a_vocabulary_with_marks_is_refused(self) -> None:
        tokenizer = metaspace_bpe(["▁", *"abc"], byte_fallback=False)
        tokenizer.normalizer = None
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
        with pytest.raises(TokenizerError, match="needs the symbol 'Ġ' to spell a space"):
            TokenBytes.from_tokenizer(tokenizer)

    def test_a_class_that_overrides_the_file_is_caught(self, byte_level: Tokenizer, tmp_path: Path) -> None:
        """T-25: a config that names the Llama class puts a mark step over a byte-level vocabulary."""
        transformers = pytest.importorskip("transformers")
        byte_level.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer"}))
        overridden = transformers.LlamaTokenizer.from_pretrained(tmp_path)
        assert overridden("hello world")["input_ids"] != byte_level.encode("hello world").ids
        with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
            TokenBytes.from_tokenizer(overridden)
        assert TokenBytes.from_tokenizer(Tokenizer.from_file(str(tmp_path / "tokenizer.json"))).fidelity

    def test_an_undeclared_difference_names_the_id(self, byte_toy: ByteToy) -> None:
        """T-27: here the file says byte 0x61 where the symbol of `b` was meant."""
        tokenizer = byte_toy()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        with pytest.raises(TokenizerError, match=r"do not join back to it at id \d+: got b'"):
            TokenBytes.from_tokenizer(tokenizer)

    def test_an_unknown_model_names_the_pipeline(self, byte_toy: ByteToy) -> None:
        from tokagnostic.tokens.huggingface.pipeline import Pipeline
        from tokagnostic.tokens.huggingface.vocabulary import _choose_reader

        description = json.loads(byte_toy().to_str())
        description["model"]["type"] = "Neural"
        with pytest.raises(TokenizerError, match="ByteLevel > Neural: a model of type Neural"):
            _choose_reader(Pipeline.from_description(description))

    def test_steps_written_in_python_are_refused(self, byte_toy: ByteToy) -> None:
        class Steps:
            def pre_tokenize(self, text: object) -> None:
                return None

        tokenizer = byte_toy()
        tokenizer.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Steps())
        with pytest.raises(TokenizerError, match="describing the tokenizer failed"):
            TokenBytes.from_tokenizer(tokenizer)


@pytest.mark.slow
def test_a_large_vocabulary_is_read_in_seconds(byte_toy: ByteToy) -> None:
    """150,000 ids; the library's copy and the probe are most of it. Processor time, so that other work does not count."""
    description = json.loads(byte_toy().to_str())
    vocab = description["model"]["vocab"]
    for number in range(150_000 - len(vocab)):
        vocab[f"Ġ{number:x}"] = len(vocab)
    tokenizer = Tokenizer.from_str(json.dumps(description))
    start = time.process_time()
    token_bytes = TokenBytes.from_tokenizer(tokenizer)
    assert time.process_time() - start < 3
    assert len(token_bytes) == 150_000
    assert token_bytes[tokenizer.token_to_id("Ġ1f")] == b" 1f"
