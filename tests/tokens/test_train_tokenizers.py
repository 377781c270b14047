from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokagnostic.tokens import TokenKind
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.train_tokenizers import BEGIN, END, train_byte_level_bpe, train_unigram

TEXTS = [
    "The river runs through the old stone town, and every spring it rises over the lower bridge.",
    "the internal walls are wet, the external ones are dry;\n\tand  nobody knows why, naïve readers!",
    "internal international internationalisation intern",
] * 4
TRAINED = {
    "byte-level BPE": TextEncoder.of(train_byte_level_bpe(TEXTS, 300)),
    "Unigram": TextEncoder.of(train_unigram(TEXTS, 320)),
}
both = pytest.mark.parametrize("encoder", TRAINED.values(), ids=TRAINED.keys())


@both
@settings(max_examples=50, deadline=None)
@given(text=st.text(max_size=40).filter(lambda text: "▁" not in text and "<0x" not in text))
def test_is_exact_on_any_text_but_for_the_mark(encoder, text) -> None:
    assert encoder.token_bytes.join(encoder.encode(text)) == text.encode()


@both
def test_invents_no_space(encoder) -> None:
    assert encoder.token_bytes.prefix == "none"


@pytest.mark.parametrize(("name", "start"), [("byte-level BPE", END), ("Unigram", BEGIN)])
def test_has_a_start_id_that_no_text_gives(name, start) -> None:
    encoder = TRAINED[name]
    assert encoder.token_bytes.kinds[encoder.start_id] == TokenKind.SPECIAL
    assert encoder.start_id not in encoder.encode(f"{start} text {start}").tolist()


def test_learns_what_comes_back() -> None:
    for encoder in TRAINED.values():
        assert len(encoder.encode(TEXTS[0])) < 0.7 * len(TEXTS[0])


def test_have_as_many_ids_as_asked_where_the_text_gives_as_many() -> None:
    assert len(TRAINED["byte-level BPE"].token_bytes) == 300
    assert 258 < len(TRAINED["Unigram"].token_bytes) <= 320


@pytest.mark.parametrize("train", [train_byte_level_bpe, train_unigram], ids=["byte-level BPE", "Unigram"])
def test_equal_texts_give_equal_tokenizers(train) -> None:
    """The Unigram trainer of the library gives other scores and another order of ids at every call."""
    descriptions = {train(TEXTS, 310).to_str() for _ in range(4)}
    assert len(descriptions) == 1


def test_a_unigram_prefers_pieces_that_are_more_likely_in_its_text() -> None:
    import json

    vocabulary = json.loads(train_unigram(TEXTS, 320).to_str())["model"]["vocab"]
    scores = {piece: score for piece, score in vocabulary[2:-256]}
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    assert scores["e"] > min(scores.values())
    assert all(score < 0 for score in scores.values())


@pytest.mark.slow
def test_the_embedded_text_gives_equal_unigrams_too() -> None:
    """The library's choice of pieces, unlike their scores, is the same at every call."""
    from tokagnostic.corpus import embedded_documents

    texts = [document.text for document in embedded_documents()[::3]]
    assert train_unigram(texts, 2_304).to_str() == train_unigram(texts, 2_304).to_str()
