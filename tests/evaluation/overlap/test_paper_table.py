"""The paper's own pairs of tokenizers on the paper's own text: the recipe's numbers against Python sets of bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.evaluation.naive_overlap import naive_overlap
from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.evaluation.overlap import ngram_overlap
from tokagnostic.tokens.sources import load_tokenizer

MAX_ORDER = 7
TARGETS = {"mistral": "mistral-v1.model", "smollm2": "smollm2"}
DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture(scope="module")
def articles(shared_folder: Path) -> list[str]:
    folder = shared_folder / "corpora" / "wikitext2"
    data = (str(folder / "valid.txt"), str(folder / "test.txt"))
    return [document.text for document in Corpus(CorpusConfig(data=data, documents="article"))]


@pytest.fixture(scope="module")
def published() -> dict[str, dict[str, object]]:
    """What docs/ says, by a word of the target's name."""
    pairs = json.loads((DOCS / "overlap.json").read_text(encoding="utf-8"))["pairs"]
    return {next(name for name in TARGETS if name in pair["target"]): pair for pair in pairs}


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_python_sets_give_the_published_shares(
    shared_folder: Path, articles: list[str], published: dict[str, dict[str, object]], name: str
) -> None:
    folder = shared_folder / "tokenizers"
    target, reference = (load_tokenizer(str(folder / file)) for file in (TARGETS[name], "cl100k_base.tiktoken"))
    overlap = ngram_overlap(articles, target, reference, MAX_ORDER)
    for counting, shares in (("unique", overlap.unique), ("weighted", overlap.weighted)):
        by_sets = naive_overlap(articles, target, reference, MAX_ORDER, unique=counting == "unique")
        assert shares.to_dict() == by_sets
        assert published[name][counting] == by_sets


def test_the_published_table_is_of_this_text(articles: list[str], published: dict[str, dict[str, object]]) -> None:
    assert set(published) == set(TARGETS)
    for pair in published.values():
        assert pair["num_documents"] == len(articles)
        assert pair["num_bytes"] == sum(len(text.encode()) for text in articles)
        assert pair["orders"] == list(range(1, MAX_ORDER + 1))


def test_the_table_in_the_docs_is_that_of_the_numbers(published: dict[str, dict[str, object]]) -> None:
    text = (DOCS / "overlap.md").read_text(encoding="utf-8")
    mistral, smollm2 = (published[name] for name in ("mistral", "smollm2"))
    for n in range(MAX_ORDER):
        cells = [str(n + 1)]
        for pair in (mistral, smollm2):
            low, high = pair["intervals"]["unique"]["any_order"][n]
            cells.append(f"{pair['unique']['any_order'][n]:.1f} ({low:.1f} to {high:.1f})")
            cells.append(f"{pair['unique']['same_order'][n]:.1f}")
        assert f"| {' | '.join(cells)} |" in text
