"""What two tokenizers share is what sets of bytes, of strings and of places say."""

from __future__ import annotations

import json
import random
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from tests.conftest import FAMILIES, TRAINING_TEXT
from tokagnostic.corpus import Document
from tokagnostic.errors import CorpusError
from tokagnostic.studies.tokenizer_comparison import compare_tokenizers
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.token_bytes import TokenKind

DOCUMENTS = (*TRAINING_TEXT, " a", "  a b", "a", "\n", "Caf\u00e9s e\u0301 \u65e5\u672c \U0001f600", "x" * 63, "\u2581")


def pieces_of(encoder: TextEncoder, text: str) -> list[bytes]:
    """Bytes per position, one leading space of the document's first id with bytes taken out, position by position."""
    table, pieces, at_start = encoder.token_bytes, [], encoder.token_bytes.prefix != "none"
    for v in encoder.encode(text).tolist():
        piece = table[v] or b""
        if piece and at_start:
            piece, at_start = piece.removeprefix(b" "), False
        elif not piece and table.prefix == "always":
            at_start = True
        pieces.append(piece)
    return pieces


def naive_cuts(encoder: TextEncoder, text: str) -> set[int]:
    return set(accumulate(map(len, pieces_of(encoder, text)))) - {0, len(text.encode())}


def trimmed(pieces: list[bytes]) -> list[bytes]:
    while pieces and not pieces[0]:
        pieces = pieces[1:]
    while pieces and not pieces[-1]:
        pieces = pieces[:-1]
    return pieces


def naive_shared(first: set[Any], second: set[Any]) -> dict[str, Any]:
    def percent(whole: set[Any]) -> float | None:
        return 100 * len(first & second) / len(whole) if whole else None

    return {
        "num_shared": len(first & second),
        "percent_of_first": percent(first),
        "percent_of_second": percent(second),
        "percent_of_union": percent(first | second),
    }


def naive_comparison(sides: list[TextEncoder], texts: list[str]) -> dict[str, Any]:
    made = [[pieces_of(encoder, text) for text in texts] for encoder in sides]
    counted = [d for d, text in enumerate(texts) if all(b"".join(pieces[d]) == text.encode() for pieces in made)]
    cuts = [{(d, place) for d in counted for place in naive_cuts(encoder, texts[d])} for encoder in sides]
    return {
        "num_tokens": [sum(map(len, pieces)) for pieces in made],
        "cuts": {
            "num_documents": len(counted),
            "num_left_out": len(texts) - len(counted),
            "num_first": len(cuts[0]),
            "num_second": len(cuts[1]),
            **naive_shared(*cuts),
        },
        "num_documents_alike": sum(trimmed(made[0][d]) == trimmed(made[1][d]) for d in range(len(texts))),
    }


@pytest.fixture(scope="module")
def encoders(toy_tokenizers: dict[str, Tokenizer]) -> dict[str, TextEncoder]:
    first = Tokenizer.from_str(toy_tokenizers["unigram"].to_str())
    first.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    nfc = Tokenizer.from_str(toy_tokenizers["byte_level"].to_str())
    nfc.normalizer = normalizers.NFC()
    tokenizers = {**toy_tokenizers, "first": first, "nfc": nfc}
    return {name: TextEncoder.from_tokenizer(tokenizer, name) for name, tokenizer in tokenizers.items()}


@pytest.mark.parametrize("second", [*FAMILIES, "first", "nfc"])
@pytest.mark.parametrize("first", ["byte_level", "metaspace", "first"])
def test_cut_points_and_tokens_are_those_of_a_walk_over_positions(
    encoders: dict[str, TextEncoder], first: str, second: str
) -> None:
    sides = [encoders[first], encoders[second]]
    comparison, naive = compare_tokenizers(*sides, DOCUMENTS), naive_comparison(sides, list(DOCUMENTS))
    assert comparison["cuts"] == naive["cuts"]
    assert comparison["num_documents_alike"] == naive["num_documents_alike"]
    assert [comparison[role]["num_tokens"] for role in ("first", "second")] == naive["num_tokens"]


@given(texts=st.lists(st.text(alphabet=" \nabé▁the", max_size=12), min_size=1, max_size=5))
def test_cut_points_are_right_for_any_texts(encoders: dict[str, TextEncoder], texts: list[str]) -> None:
    sides = [encoders["metaspace"], encoders["unigram"]]
    comparison, naive = compare_tokenizers(*sides, texts), naive_comparison(sides, texts)
    assert comparison["cuts"] == naive["cuts"]
    assert comparison["num_documents_alike"] == naive["num_documents_alike"]


@pytest.mark.parametrize("second", ["metaspace", "unigram", "wordpiece"])
def test_shared_tokens_are_those_of_sets(encoders: dict[str, TextEncoder], second: str) -> None:
    sides = [encoders["byte_level"], encoders[second]]
    shared = compare_tokenizers(*sides, ["a"])["shared"]
    tables = [encoder.token_bytes for encoder in sides]
    of_bytes = [{piece for v in range(len(table)) if (piece := table[v])} for table in tables]
    assert shared["bytes"] == naive_shared(*of_bytes)
    of_strings = [{piece for piece in encoder.spellings() if piece} for encoder in sides]
    assert shared["strings"] == naive_shared(*of_strings)
    assert shared["bytes"]["num_shared"] > shared["strings"]["num_shared"]


def test_strings_are_those_of_the_vocabulary(byte_level: Tokenizer, metaspace: Tokenizer) -> None:
    shared = compare_tokenizers(byte_level, metaspace, ["a"])["shared"]["strings"]
    assert shared["num_shared"] == len(byte_level.get_vocab().keys() & metaspace.get_vocab().keys())


def test_a_tokenizer_is_like_itself(encoders: dict[str, TextEncoder]) -> None:
    for encoder in encoders.values():
        comparison = compare_tokenizers(encoder, encoder, DOCUMENTS)
        assert comparison["same_table"] and comparison["same_windows"]
        assert comparison["shared"]["bytes"]["percent_of_union"] == 100
        if comparison["cuts"]["num_first"]:
            assert comparison["cuts"]["percent_of_union"] == 100


def test_equal_tables_may_cut_a_text_in_other_places(byte_toy: Any) -> None:
    plain, digits = byte_toy(merges=(("1", "2"),)), byte_toy(merges=(("1", "2"),))
    digits.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    comparison = compare_tokenizers(plain, digits, ["12", "1a"])
    assert comparison["same_table"] and not comparison["same_windows"]
    assert comparison["num_documents_alike"] == 1


def test_an_invented_space_makes_no_other_windows(byte_toy: Any) -> None:
    """T-09: with and without a prefix the tokens of a text have the same bytes."""
    plain, prefixed = byte_toy(), byte_toy(merges=(("\u0120", "a"),))
    prefixed.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    comparison = compare_tokenizers(plain, prefixed, ["ab", "a"])
    assert not comparison["same_table"] and comparison["same_windows"]


def test_fertility_is_tokens_by_the_bytes_words_and_characters_of_the_source(byte_toy: Any) -> None:
    """T-14: the source of a composed accent has a byte more than its tokens."""
    nfc = byte_toy()
    nfc.normalizer = normalizers.NFC()
    comparison = compare_tokenizers(byte_toy(), nfc, ["cafe\u0301 x"])
    assert comparison["text"] == {"num_documents": 1, "num_bytes": 8, "num_characters": 7, "num_words": 2}
    assert [comparison[role]["num_tokens"] for role in ("first", "second")] == [8, 7]
    assert comparison["second"]["tokens_per_byte"] == 7 / 8
    assert comparison["second"]["bytes_per_token"] == 8 / 7
    assert comparison["second"]["tokens_per_word"] == 3.5
    assert comparison["second"]["tokens_per_1000_characters"] == 1000
    assert comparison["cuts"]["num_left_out"] == comparison["second"]["num_lossy_documents"] == 1
    assert comparison["first"]["num_lossy_documents"] == 0


def test_documents_that_a_side_does_not_give_back_are_counted(encoders: dict[str, TextEncoder]) -> None:
    """T-11, T-16: ` a` loses its space under one tokenizer, capitals go under the other; both are left out."""
    unigram = compare_tokenizers(encoders["byte_level"], encoders["unigram"], [" a", "a"])
    assert (unigram["cuts"]["num_documents"], unigram["cuts"]["num_left_out"]) == (1, 1)
    wordpiece = compare_tokenizers(encoders["byte_level"], encoders["wordpiece"], ["The", "the", "a b"])
    assert wordpiece["second"]["num_lossy_documents"] == 2


def test_of_lines_that_begin_with_spaces_those_that_lose_one_are_counted(encoders: dict[str, TextEncoder]) -> None:
    """T-11: 100 lines; bytes and words are counted in the source all the same (T-12)."""
    draw = random.Random(0)
    lines = [" " * draw.randrange(3) + "the river" for _ in range(100)]
    spaced = sum(line.startswith(" ") for line in lines)
    comparison = compare_tokenizers(encoders["metaspace"], encoders["unigram"], lines)
    assert comparison["first"]["num_lossy_documents"] == 0
    assert comparison["second"]["num_lossy_documents"] == comparison["cuts"]["num_left_out"] == spaced > 50
    assert comparison["text"]["num_bytes"] == sum(map(len, lines))
    assert comparison["second"]["tokens_per_byte"] == comparison["second"]["num_tokens"] / sum(map(len, lines))


def test_unknown_ids_are_counted(encoders: dict[str, TextEncoder]) -> None:
    encoder, texts = encoders["unigram"], ["a\u65e5b", "\U0001f600", "the"]
    num_unknown = sum(
        int((encoder.token_bytes.kinds[encoder.encode(text)] == TokenKind.UNKNOWN).sum()) for text in texts
    )
    comparison = compare_tokenizers(encoders["byte_level"], encoder, texts)
    assert comparison["second"]["num_unknown"] == num_unknown > 0
    assert comparison["first"]["num_unknown"] == 0


def test_many_small_batches_add_up(encoders: dict[str, TextEncoder], monkeypatch: pytest.MonkeyPatch) -> None:
    sides = (encoders["metaspace"], encoders["unigram"])
    whole = compare_tokenizers(*sides, iter(DOCUMENTS))
    monkeypatch.setattr("tokagnostic.evaluation.windows.BATCH_BYTES", 64)
    assert compare_tokenizers(*sides, iter(DOCUMENTS)) == whole


def test_documents_without_anything_are_documents(encoders: dict[str, TextEncoder]) -> None:
    comparison = compare_tokenizers(encoders["metaspace"], encoders["byte_level"], ["", Document(b"", "x")])
    assert comparison["text"]["num_documents"] == comparison["num_documents_alike"] == 2
    assert comparison["cuts"]["percent_of_union"] is comparison["first"]["bytes_per_token"] is None
    json.dumps(comparison, allow_nan=False)


def test_no_document_is_refused(encoders: dict[str, TextEncoder]) -> None:
    with pytest.raises(CorpusError, match="no document"):
        compare_tokenizers(encoders["metaspace"], encoders["byte_level"], [])


def test_broken_text_is_named(encoders: dict[str, TextEncoder]) -> None:
    with pytest.raises(CorpusError, match="breaks UTF-8"):
        compare_tokenizers(encoders["metaspace"], encoders["byte_level"], [Document(b"\xff", "x")])
