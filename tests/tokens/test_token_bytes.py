"""The byte table itself: joining, masks, the prefix rule, the fingerprint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tokagnostic.errors import InvalidValueError
from tokagnostic.tokens.token_bytes import PrefixRule, TokenBytes, TokenKind


def naive_join(token_bytes: TokenBytes, ids: list[int]) -> bytes:
    """The prefix rule read out of its definition, one id at a time."""
    pieces, at_start = [], token_bytes.prefix != "none"
    for v in ids:
        piece = token_bytes[v] if v >= 0 else None
        if piece is None:
            at_start = at_start or token_bytes.prefix == "always"
            continue
        pieces.append(piece[1:] if at_start and piece[:1] == b" " else piece)
        at_start = False
    return b"".join(pieces)


@given(
    pieces=st.lists(
        st.none() | st.sampled_from([b"", b" ", b"  ", b" a", b"a", b"\x00", b"\xe2\x82", b"\xff"]), min_size=1
    ),
    ids=st.lists(st.integers(-2, 100)),
    prefix=st.sampled_from(["none", "first", "always"]),
)
def test_joining_follows_the_prefix_rule_for_any_ids(
    pieces: list[bytes | None], ids: list[int], prefix: PrefixRule
) -> None:
    token_bytes = TokenBytes.from_list(pieces, prefix=prefix)
    ids = [v % len(pieces) if v >= 0 else v for v in ids]
    assert token_bytes.join(ids) == naive_join(token_bytes, ids)
    assert token_bytes.join(ids, strip=False) == b"".join(pieces[v] or b"" for v in ids if v >= 0)


def test_an_empty_piece_has_no_bytes_and_a_nul_piece_has_one() -> None:
    """T-31."""
    token_bytes = TokenBytes.from_list([b"", b"\x00", "\u200b".encode()])
    assert [token_bytes[v] for v in range(3)] == [None, b"\x00", b"\xe2\x80\x8b"]
    assert token_bytes.lengths.tolist() == [0, 1, 3]


def test_one_space_is_removed_at_a_start_and_never_more() -> None:
    token_bytes = TokenBytes.from_list([None, b" ", b"  a", b"b"], prefix="always")
    assert token_bytes.join([2, 3]) == b" ab"
    assert token_bytes.join([1, 2]) == b"  a"
    assert token_bytes.join([3, 0, 2]) == b"b a"


def test_an_id_outside_the_vocabulary_is_refused_by_name() -> None:
    with pytest.raises(InvalidValueError, match="id 7 in a vocabulary of 2 ids"):
        TokenBytes.from_list([b"a", b"b"]).join([0, 7])


def test_joining_nothing_gives_no_bytes() -> None:
    assert TokenBytes.from_list([]).join([]) == b""
    assert TokenBytes.from_list([]).join([-1, -100]) == b""


def test_duplicates_are_listed_and_keep_their_own_ids() -> None:
    """T-06."""
    token_bytes = TokenBytes.from_list([b"a", None, b"b", b"a", b"", b""])
    assert token_bytes.duplicates() == [[0, 3]]


def test_the_fingerprint_tells_kinds_lengths_and_prefix_apart() -> None:
    tables = [
        TokenBytes.from_list([b"ab", b"c"]),
        TokenBytes.from_list([b"a", b"bc"]),
        TokenBytes.from_list([b"ab", b"c"], prefix="first"),
        TokenBytes.from_list([b"ab", b"c"], kinds=[TokenKind.TEXT, TokenKind.ADDED]),
        TokenBytes.from_list([b"ab", b"c", None]),
    ]
    assert len({table.fingerprint for table in tables}) == len(tables)


def test_the_fingerprint_is_the_written_law() -> None:
    import hashlib

    law = bytes([1]) + (2).to_bytes(4, "little") + b"ab" + bytes([4]) + (0).to_bytes(4, "little") + b"none"
    assert TokenBytes.from_list([b"ab", None]).fingerprint == hashlib.sha256(law).hexdigest()


@pytest.mark.parametrize(
    "arrays",
    [([0, 2], [1]), ([1, 3], [1]), ([0, 4, 3], [1, 1]), ([0, 3], [1, 1])],
    ids=["short", "not from zero", "falling", "kinds"],
)
def test_arrays_that_are_no_table_are_refused(arrays: tuple[list[int], list[int]]) -> None:
    offsets, kinds = arrays
    with pytest.raises(InvalidValueError):
        TokenBytes(np.zeros(3, dtype=np.uint8), np.array(offsets), np.array(kinds, dtype=np.uint8))


def test_the_fingerprint_is_the_same_in_every_process(metaspace: Tokenizer, tmp_path: Path) -> None:
    """H-07: three processes, three hash seeds."""
    file = tmp_path / "tokenizer.json"
    metaspace.save(str(file))
    program = (
        "import sys; from tokenizers import Tokenizer; from tokagnostic.tokens.token_bytes import TokenBytes;"
        "print(TokenBytes.from_tokenizer(Tokenizer.from_file(sys.argv[1])).fingerprint)"
    )
    root = Path(__file__).resolve().parents[2]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(file)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1", "random")
    ]
    fingerprints = {run.communicate(timeout=60)[0].strip() for run in runs}
    assert fingerprints == {TokenBytes.from_tokenizer(metaspace).fingerprint}
