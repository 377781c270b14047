from __future__ import annotations

import random

import pytest

from tokagnostic.corpus import CorpusConfig, Document, documents_digest
from tokagnostic.errors import CorpusError
from tokagnostic.studies.division import divide_text

DOCUMENTS = [Document(f"document {i} {'x' * (i % 7)}".encode(), f"file:{i}") for i in range(400)]
CONFIG = CorpusConfig()


def test_the_target_is_part_of_the_source_and_the_held_out_text_of_neither() -> None:
    text = divide_text(DOCUMENTS, CONFIG, 0.1)
    held_out, source, target = (
        {document.data for document in part} for part in (text.held_out, text.source, text.target)
    )
    assert target < source
    assert not held_out & source
    assert held_out | source == {document.data for document in DOCUMENTS}
    assert set(text.watched) < set(text.held_out)


def test_the_parts_have_about_the_promised_shares() -> None:
    text = divide_text(DOCUMENTS, CONFIG, 0.1)
    assert 20 <= len(text.held_out) <= 65
    assert 0.25 <= len(text.target) / len(text.source) <= 0.42
    assert len(text.watched) == -(-len(text.held_out) // 3)


def test_a_document_is_in_the_same_part_whatever_else_there_is() -> None:
    text = divide_text(DOCUMENTS, CONFIG, 0.1)
    shuffled = random.Random(1).sample(DOCUMENTS, 300)
    again = divide_text(shuffled, CONFIG, 0.1)
    assert set(again.held_out) == set(text.held_out) & set(shuffled)
    assert set(again.target) == set(text.target) & set(shuffled)


def test_equal_documents_never_stand_on_both_sides() -> None:
    text = divide_text([*DOCUMENTS, *(Document(document.data, "copy") for document in DOCUMENTS)], CONFIG, 0.1)
    assert not {document.data for document in text.held_out} & {document.data for document in text.source}


def test_the_facts_are_sizes_of_the_parts_and_the_digest_of_all() -> None:
    text = divide_text(DOCUMENTS, CONFIG, 0.1)
    facts = text.facts
    assert facts["documents"] == 400
    assert facts["bytes"] == facts["held_out_bytes"] + facts["source_bytes"] == sum(len(d.data) for d in DOCUMENTS)
    assert facts["target_documents"] == len(text.target)
    assert facts["digest"] == documents_digest(DOCUMENTS)


@pytest.mark.parametrize("count", [1, 2])
def test_too_little_text_is_refused_with_the_way_out(count) -> None:
    with pytest.raises(CorpusError, match=r"--corpus\.documents paragraph"):
        divide_text(DOCUMENTS[:count], CONFIG, 0.1)
