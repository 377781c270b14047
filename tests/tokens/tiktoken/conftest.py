"""A toy of 256 bytes, two merges and a special, and the way to real ones."""

from __future__ import annotations

import pytest

from tokagnostic.tokens.tiktoken.vocabulary import RankVocabulary

TOY_PATTERN = r"'s|\s?\p{L}+|\s?\p{N}+|\s?[^\s\p{L}\p{N}]+|\s+"


@pytest.fixture
def toy_vocabulary() -> RankVocabulary:
    """Ids 0 to 255 are the bytes, 256 `he`, 258 `hel`, 300 a special; the rest are holes."""
    ids = {bytes((byte,)): byte for byte in range(256)} | {b"he": 256, b"hel": 258}
    return RankVocabulary("toy", TOY_PATTERN, ids, {"<|endoftext|>": 300})
