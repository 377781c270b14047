"""Ranks and specials to a byte table, and what makes no vocabulary."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens import TokenKind
from tokagnostic.tokens.tiktoken.vocabulary import RankVocabulary
from tokagnostic.tokens.token_bytes import LARGEST_ID

EVERY_BYTE = {bytes((byte,)): byte for byte in range(256)}


def vocabulary(ids: dict[bytes, int], special: dict[str, int] | None = None) -> RankVocabulary:
    return RankVocabulary("toy", r"\s+|\S+", ids, special or {})


def test_an_id_is_its_rank_and_what_lies_between_is_a_hole() -> None:
    table = vocabulary({**EVERY_BYTE, b"\xe2\x82": 257, b"ab": 259}, {"<end>": 300, "<also end>": 300}).token_bytes()
    assert len(table) == 301
    assert [table[v] for v in (0, 0x61, 0xFF, 256, 257, 258, 259, 300)] == [
        *(b"\0", b"a", b"\xff"),
        *(None, b"\xe2\x82", None, b"ab", None),
    ]
    holes = {256, 258, *range(260, 300)}
    for v, kind in enumerate(table.kinds.tolist()):
        assert kind == (TokenKind.HOLE if v in holes else TokenKind.SPECIAL if v == 300 else TokenKind.TEXT)
    assert table.prefix == "none"
    assert table.fidelity.line == "exact"


def test_ids_need_no_order() -> None:
    forwards = vocabulary(EVERY_BYTE).token_bytes()
    backwards = vocabulary(dict(reversed(EVERY_BYTE.items()))).token_bytes()
    assert forwards.fingerprint == backwards.fingerprint


def test_people_read_the_byte_alphabet_and_the_names_of_specials() -> None:
    spelled = vocabulary({b" a": 0, b"\xe2\x82": 2, b"\n": 3}, {"<end>": 5, "<other name>": 5}).spellings()
    assert spelled == ["Ġa", None, "âĤ", "Ċ", None, "<end>"]


def test_bytes_that_no_text_holds_may_be_missing() -> None:
    ids = {token: v for token, v in EVERY_BYTE.items() if token not in (b"\xc0", b"\xff")}
    assert vocabulary(ids).token_bytes().fidelity.level == "exact"


def test_a_byte_without_a_rank_is_a_loss_and_is_told() -> None:
    ids = {token: v for token, v in EVERY_BYTE.items() if token not in (b"\xc0", b"\xe2")}
    assert vocabulary(ids).token_bytes().fidelity.line == (
        "lossy: 2 of 256 bytes have no rank; a text that needs one is refused: C0 E2"
    )
    assert vocabulary({b"a": 0}).token_bytes().fidelity.line.endswith("0E 0F ...")


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: vocabulary({}), "has no ranks"),
        (lambda: vocabulary({b"": 0}), "has an empty token"),
        (lambda: vocabulary({b"a": -1}), "has the id -1"),
        (lambda: vocabulary({b"a": LARGEST_ID + 1}), f"has the id {LARGEST_ID + 1}"),
        (lambda: vocabulary({b"a": 0}, {"<s>": 1 << 40}), f"has the id {1 << 40}"),
        (lambda: vocabulary({b"a": 7, b"b": 7}), "has two byte strings of the id 7"),
        (lambda: vocabulary({b"a": 7}, {"<s>": 7}), "has a byte string and a special token of the id 7"),
    ],
    ids=["nothing", "empty", "negative", "too large", "special too large", "twice", "special and not"],
)
def test_an_impossible_vocabulary_is_refused(make: Callable[[], RankVocabulary], fault: str) -> None:
    with pytest.raises(TokenizerError, match=f"the vocabulary 'toy' {fault}"):
        make()
