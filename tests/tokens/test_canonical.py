"""Canonical ids against Python's own Unicode."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests import naive_xor
from tokagnostic.tokens.canonical import canonical_ids
from tokagnostic.tokens.sources import load_tokenizer
from tokagnostic.tokens.token_bytes import TokenBytes, TokenKind

TEXTS = st.text(st.characters(max_codepoint=0x24FF, exclude_categories=("Cn", "Cs")), max_size=4)
"""Of blocks that have not changed for long: the versions of Unicode here and there need not be equal."""


def canonical(tokens) -> list[int]:
    return canonical_ids(TokenBytes.from_list(tokens)).tolist()


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        pytest.param([b"The", b" the", b"THE\n", b"he"], [0, 0, 0, 1], id="case and blanks at the ends"),
        pytest.param(["é".encode(), b"e", "É".encode(), "e\u0301".encode()], [0, 0, 0, 0], id="accents"),
        pytest.param(["\ufb01".encode(), b"fi", "①".encode(), b"1"], [0, 0, 1, 1], id="compatible characters"),
        pytest.param([b" ", b"  ", b"\n", b" \t\r\n"], [0, 0, 0, 0], id="blanks alone are one space"),
        pytest.param([b"a  b", b"a b", b"ab"], [0, 0, 1], id="runs of blanks"),
        pytest.param([b"\xc3", b"\xc4", b"\xc3", b"\xa9"], [0, 1, 0, 2], id="cut characters stay apart"),
        pytest.param(["\u0301".encode(), "\u0300".encode(), b"a"], [0, 1, 2], id="of which nothing is left"),
        pytest.param([b"\xa2", "\xa2".encode(), b" \xc2\xa2"], [0, 0, 0], id="a cut character and its symbol"),
        pytest.param([None, b"a", None, b"A"], [0, 1, 2, 1], id="ids without bytes"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_tokens_of_one_text_have_one_id(tokens, expected):
    assert canonical(tokens) == expected
    assert naive_xor.canonical_ids(tokens) == expected


def test_byte_pieces_are_written_in_hex():
    kinds = np.array([TokenKind.BYTE, TokenKind.TEXT, TokenKind.TEXT, TokenKind.BYTE], dtype=np.uint8)
    tokens = TokenBytes.from_list([b"\xe2", b"<0xE2>", "â".encode(), b"A"])
    assert canonical_ids(dataclasses.replace(tokens, kinds=kinds)).tolist() == [0, 1, 2, 2]


@settings(max_examples=120, deadline=None)
@given(st.lists(TEXTS.map(str.encode) | st.binary(max_size=3) | st.none(), max_size=12))
def test_they_are_those_of_the_oracle(tokens):
    assert canonical(tokens) == naive_xor.canonical_ids(tokens)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "qwen3"])
def test_a_published_vocabulary_has_the_ids_of_the_published_code(name, shared_folder):
    """Id for id: what the tokenizer itself decodes, or writes where that is no whole character, specials among them."""
    path = shared_folder / "tokenizers" / name / "tokenizer.json"
    tokenizer, numbers, expected = Tokenizer.from_file(str(path)), {}, []
    for token_id in range(tokenizer.get_vocab_size()):
        text = tokenizer.decode([token_id], skip_special_tokens=False)
        key = tokenizer.id_to_token(token_id) if "\ufffd" in text else naive_xor.canonical_text(text) or text
        expected.append(numbers.setdefault(key, len(numbers)))
    assert load_tokenizer(str(path.parent)).token_bytes.canonical_ids.tolist() == expected
