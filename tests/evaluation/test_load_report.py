"""A text to the load of a memory's tables."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer

from tests import naive
from tokagnostic.errors import CorpusError
from tokagnostic.evaluation.load_report import measure_loads
from tokagnostic.evaluation.windows import WindowReader
from tokagnostic.memory.addressers import ModuloAddresser
from tokagnostic.tokens.encoder import TextEncoder

TEXTS = ["A river runs through the town, and the river rises.", "The town has a wall; the wall has a gate.", "the"]


@pytest.mark.parametrize("name", ["byte_level", "metaspace"])
@pytest.mark.parametrize("prefix", ["strip", "keep"])
def test_every_order_counts_the_different_byte_strings_of_its_windows(
    toy_tokenizers: dict[str, Tokenizer], name: str, prefix: str
) -> None:
    encoder = TextEncoder.from_tokenizer(toy_tokenizers[name])
    addresser = ModuloAddresser(53, 2, 2)
    report = measure_loads(TEXTS, WindowReader(encoder, 3, prefix), addresser, num_tables=2)
    tokens = [encoder.token_bytes[i] for i in range(len(encoder.token_bytes))]
    rule = encoder.token_bytes.prefix if prefix == "strip" else "none"
    keys = [naive.window_keys(tokens, encoder.encode(text).tolist(), None, 3, rule) for text in TEXTS]
    sets = [{found[n] for text in keys for found in text} - {-1} for n in range(3)]
    assert report.num_documents == 3 and len(report.tables) == 2
    for load, moduli in zip(report.tables, addresser.moduli, strict=True):
        assert [order.num_ngrams for order in load.orders] == [len(found) for found in sets]
        assert load.all_orders.num_ngrams == len(set().union(*sets))
        hit = [[len({key % modulus for key in found}) for modulus in moduli] for found in sets]
        assert [list(order.rows_hit) for order in load.orders] == hit


def test_the_table_shows_measured_and_expected_values_and_the_values_are_json(
    toy_tokenizers: dict[str, Tokenizer],
) -> None:
    encoder = TextEncoder.from_tokenizer(toy_tokenizers["byte_level"])
    report = measure_loads(TEXTS, WindowReader(encoder, 2), ModuloAddresser(53, 2))
    lines = report.to_text().splitlines()
    assert lines[0].startswith("load of 3 documents") and lines[1].startswith("2 heads of 56 rows")
    assert [line.split()[0] for line in lines[2:]] == ["order", "1", "2", "all"]
    assert len({len(line) for line in lines[2:]}) == 1
    first = report.tables[0].orders[0]
    assert f"({sum(first.expected_rows_hit) / 2:.0f})" in lines[3] and f" {first.num_ngrams} " in lines[3]
    assert json.loads(json.dumps(report.to_dict()))["tables"][0]["orders"][1]["num_ngrams"] > 0


def test_no_document_is_one_line(toy_tokenizers: dict[str, Tokenizer]) -> None:
    encoder = TextEncoder.from_tokenizer(toy_tokenizers["byte_level"])
    with pytest.raises(CorpusError):
        measure_loads([], WindowReader(encoder, 2), ModuloAddresser(53, 2))
    empty = measure_loads([""], WindowReader(encoder, 2), ModuloAddresser(53, 2))
    assert empty.tables[0].all_orders.num_ngrams == 0 and "0 (0)" in empty.to_text()
