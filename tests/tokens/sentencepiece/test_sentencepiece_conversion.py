"""The same model as a SentencePiece file and as a tokenizer.json: equal tables, equal windows, whatever the prefix policy."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from tests.tokens.naive_windows import windows_of
from tokagnostic.tokens import TokenBytes, TokenKind
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sentencepiece.model import ModelType, PieceType, SentencePieceModel
from tokagnostic.tokens.sentencepiece.reader import read_sentencepiece_proto
from tokagnostic.tokens.sources import load_tokenizer

sentencepiece = pytest.importorskip("sentencepiece", reason="the extra sentencepiece is not installed")

LINES = ("the river ran past the stone wall", "a bridge was built in the north", "winter rode into the town", "a b  c")
TEXTS = ("river stone", "the bridge", "a", "x = [1,\t2]\n", "日本 river")


def trained(model_type: str, byte_fallback: bool) -> bytes:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 3),
        model_writer=out,
        model_type=model_type,
        vocab_size=320 if byte_fallback else 60,
        byte_fallback=byte_fallback,
        user_defined_symbols=["<br>", "▁▁▁"],
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return out.getvalue()


def metaspace(scheme: str) -> Callable[[Tokenizer], None]:
    def give(tokenizer: Tokenizer) -> None:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)

    return give


def legacy(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


POLICIES = {
    "legacy": legacy,
    "prepend always": metaspace("always"),
    "prepend first": metaspace("first"),
    "prepend never": metaspace("never"),
}


def converted(serialized: bytes, give_policy: Callable[[Tokenizer], None], *, added: bool = True) -> Tokenizer:
    """The model as the tokenizers library has it, put together as the world's converters do."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=serialized)
    ids = range(processor.get_piece_size())
    pieces, scores = [processor.id_to_piece(v) for v in ids], [processor.get_score(v) for v in ids]
    has_bytes = any(processor.is_byte(v) for v in ids)
    facts = SentencePieceModel.parse(serialized)
    if facts.model_type is ModelType.BPE:
        vocab = {piece: v for v, piece in enumerate(pieces)}
        model: Any = models.BPE(
            vocab, _merges(vocab, scores), unk_token="<unk>", fuse_unk=True, byte_fallback=has_bytes
        )
    else:
        model = models.Unigram(list(zip(pieces, scores, strict=True)), processor.unk_id(), byte_fallback=has_bytes)
    tokenizer = Tokenizer(model)
    give_policy(tokenizer)
    tokenizer.add_special_tokens(
        [p for v, p in enumerate(pieces) if processor.is_control(v) or processor.is_unknown(v)]
    )
    if added:
        own = [pieces[v] for v in np.flatnonzero(np.equal(facts.types, PieceType.USER_DEFINED))]
        tokenizer.add_tokens([AddedToken(piece, normalized=False, special=False) for piece in own])
    return tokenizer


def _merges(vocab: dict[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    found = []
    for piece, v in vocab.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocab and right in vocab:
                found.append((-scores[v], vocab[left], vocab[right], left, right))
    return [(left, right) for *_, left, right in sorted(found)]


def same_table(one: TokenBytes, other: TokenBytes) -> bool:
    arrays = ((one.data, other.data), (one.offsets, other.offsets), (one.kinds, other.kinds))
    return all(np.array_equal(a, b) for a, b in arrays)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def model_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("byte_fallback", [True, False], ids=["byte_fallback", "unknown"])
def test_both_files_of_a_model_have_one_table(model_type: str, byte_fallback: bool) -> None:
    """T-05: bytes, kinds and prefix of every id, and so the fingerprint."""
    serialized = trained(model_type, byte_fallback)
    from_model = read_sentencepiece_proto(serialized).token_bytes
    from_json = TokenBytes.from_tokenizer(converted(serialized, POLICIES["prepend first"]))
    assert same_table(from_model, from_json)
    assert from_model.fingerprint == from_json.fingerprint
    assert (TokenKind.BYTE in from_model.kinds) == byte_fallback
    assert np.count_nonzero(from_model.kinds == TokenKind.ADDED) == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_windows_are_those_of_the_model_file_under_every_prefix_policy(model_type: str, policy: str) -> None:
    """T-09: no window at the start of a text holds a byte that the text does not have."""
    serialized = trained(model_type, True)
    ours = TextEncoder.from_reading(read_sentencepiece_proto(serialized))
    theirs = TextEncoder.of(converted(serialized, POLICIES[policy], added=False))
    assert theirs.token_bytes.prefix == {"prepend never": "none", "prepend first": "first"}.get(policy, "always")
    for text in TEXTS:
        source = text.encode()
        substrings = {source[a:b] for a in range(len(source)) for b in range(a + 1, len(source) + 1)}
        for encoder in (ours, theirs):
            ids = encoder.encode(text)
            windows = windows_of(encoder.token_bytes, ids, 32)
            assert encoder.token_bytes.join(ids) == source
            assert source in windows
            assert windows <= substrings
        if policy != "prepend never":
            assert windows_of(ours.token_bytes, ours.encode(text), 32) == windows


def test_the_first_space_of_a_text_is_kept_by_one_file_and_not_by_the_other(model_type: str) -> None:
    """T-11: SentencePiece puts its own space before it; the step of the tokenizers library takes it for its own."""
    serialized = trained(model_type, True)
    from_model = TextEncoder.from_reading(read_sentencepiece_proto(serialized))
    from_json = TextEncoder.of(converted(serialized, POLICIES["prepend first"], added=False))
    assert from_model.token_bytes.join(from_model.encode(" river")) == b" river"
    assert from_json.token_bytes.join(from_json.encode(" river")) == b"river"
    assert from_model.token_bytes.fidelity is not None
    assert from_json.token_bytes.fidelity is not None
    assert from_model.token_bytes.fidelity.level == "exact"
    assert "the text's own first leading space" in from_json.token_bytes.fidelity.line


def test_the_model_of_mistral_and_its_conversion_have_one_table(shared_folder: Path) -> None:
    """T-05, with 32,000 pieces."""
    path = shared_folder / "tokenizers" / "mistral-v1.model"
    from_model = load_tokenizer(str(path))
    from_json = TextEncoder.of(converted(path.read_bytes(), POLICIES["prepend first"]))
    assert len(from_model.token_bytes) == 32_000
    assert from_model.token_bytes.fingerprint == from_json.token_bytes.fingerprint
    for text in TEXTS:
        assert from_model.encode(text).tolist() == from_json.encode(text).tolist()
