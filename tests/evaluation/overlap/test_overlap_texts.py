"""Texts that break things: each is counted by the stated rule, or refused with its place."""

from __future__ import annotations

import random
import time

import pytest

from tests.evaluation.naive_causes import naive_causes
from tests.evaluation.naive_overlap import naive_overlap
from tests.evaluation.overlap_tokenizers import lower_unigram, metaspace, trained_byte_level, word_piece
from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.errors import CorpusError
from tokagnostic.evaluation.overlap import count_overlap, ngram_overlap
from tokagnostic.evaluation.overlap.counts import MATRIX
from tokagnostic.evaluation.overlap.shares import CAUSES
from tokagnostic.tokens.encoder import TextEncoder

NAMES = ["bytes", "mark", "pieces", "unigram"]
WORDS = ["the", "internal", "window", "of", "bytes", "café", "日本", "RIVER", "\n", "  "]


@pytest.fixture(scope="module")
def encoders() -> dict[str, TextEncoder]:
    made = dict(zip(NAMES, (trained_byte_level(330), metaspace(340), word_piece(), lower_unigram()), strict=True))
    return {name: TextEncoder.from_tokenizer(tokenizer, name) for name, tokenizer in made.items()}


def prose(num_bytes: int) -> str:
    choice, words, size = random.Random(0), [], 0
    while size < num_bytes:
        words.append(choice.choice(WORDS))
        size += len(words[-1].encode()) + 1
    return " ".join(words)


SMALL = {
    "one line of prose": prose(1_500),
    "one sign many times": "^" * 300,
    "NUL": "a\0b\0\0c in\0ternal",
    "a byte order mark": "\ufeffinternal \ufeff in",
    "CR LF and lone CR": "in\r\nternal\r\n\rin",
    "separators of lines": "in\u2028ternal\u2029in\x85ternal\x0cin",
    "text that spells specials": "The <|end|> of <s> and <unk> and [UNK] and <0x41> ends.",
    "nothing but spaces": " " * 50,
}


@pytest.mark.parametrize("text", SMALL.values(), ids=SMALL.keys())
@pytest.mark.parametrize("reference", NAMES)
def test_a_hard_text_is_counted_as_its_definition_counts_it(encoders, text, reference) -> None:
    """D-03, D-07, D-10 at a size that plain Python can count too."""
    for target in ("bytes", "mark"):
        sides = encoders[target], encoders[reference]
        counts = count_overlap([text, ""], [sides[0]], [sides[1]], 2)[0][0]
        assert (counts.num_documents, counts.empty_documents, counts.num_bytes) == (2, 1, len(text.encode()))
        result = counts.finish()
        assert result.unique.to_dict() == naive_overlap([text], *sides, 2, unique=True)
        if len(text) <= 1_000:
            for unique, counted in zip((True, False), counts.totals, strict=True):
                causes = dict(zip(CAUSES, counted[:, MATRIX + 2 :].T.tolist(), strict=True))
                assert causes == naive_causes([text], *sides, 2, unique=unique)


def test_text_that_spells_specials_is_ordinary_text_on_both_sides(encoders) -> None:
    """D-10: no special id comes out of a text, so no window is cut and all bytes are there."""
    text = "The marker <|end|> ends a text, <s> and </s> too."
    result = ngram_overlap([text], encoders["bytes"], encoders["mark"], 3)
    assert result.target.num_bytes == result.reference.num_bytes == len(text)
    assert (result.target.lossy_documents, result.reference.lossy_documents) == (0, 0)


def test_empty_documents_are_counted_and_make_no_window(encoders) -> None:
    """D-04."""
    result = ngram_overlap(["", "in", "", "ternal"], encoders["bytes"], encoders["bytes"], 2)
    assert (result.num_documents, result.empty_documents) == (4, 2)
    assert "2 of the documents are empty" in result.to_text()


def test_bytes_are_counted_as_the_file_has_them(encoders, tmp_path) -> None:
    """D-07: line ends and separators are bytes of the documents, and the sum of bytes is the file's."""
    data = "in\r\nter\rnal\n \u2028 in\x85\n".encode()
    (tmp_path / "text.txt").write_bytes(data)
    result = ngram_overlap(Corpus(CorpusConfig((str(tmp_path / "text.txt"),))), *[encoders["bytes"]] * 2, 2)
    assert result.num_bytes == result.target.num_bytes == len(data)


def test_broken_text_is_refused_with_file_line_and_byte(encoders, tmp_path) -> None:
    """D-01."""
    (tmp_path / "text.txt").write_bytes(b"fine\ncaf\xe9\n")
    corpus = Corpus(CorpusConfig((str(tmp_path / "text.txt"),), documents="line"))
    with pytest.raises(CorpusError, match=r"text\.txt, line 2, byte offset 8"):
        ngram_overlap(corpus, encoders["bytes"], encoders["mark"], 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [prose(20_000_000).replace("\n", "-"), "^" * 1_000_000, "a" * 1_000_000, "\0" * 1_000_000],
    ids=["20 MB of prose in one line", "a million times ^", "a million times a", "a million times NUL"],
)
@pytest.mark.parametrize("reference", ["mark", "unigram"])
def test_a_huge_document_takes_time_by_its_length_alone(encoders, text, reference) -> None:
    """D-03: with tokens of one or two bytes, which are the worst case; all windows are found or have a cause."""
    ngram_overlap([text[:1000]], encoders["bytes"], encoders[reference], 7)
    seconds = []
    for part in (text[: len(text) // 10], text):
        begin = time.process_time()
        result = ngram_overlap([part], encoders["bytes"], encoders[reference], 7)
        seconds.append(time.process_time() - begin)
    assert seconds[1] < 30 * seconds[0], "ten times the text took more than ten times the time, by far"
    assert result.num_bytes == len(text.encode())
    total = result.unique.any_order + result.causes_unique.sum(axis=0)
    assert total == pytest.approx([100.0] * 7, abs=1e-9)
