from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from tokagnostic.hashing import HashCache
from tokagnostic.memory import MemoryConfig, NgramMemory, save_memory
from tokagnostic.tokens.token_bytes import TokenBytes


class ToyVocabulary:
    """All single bytes, some words, and one special id; encodes by the longest match."""

    def __init__(self, *words: bytes) -> None:
        self.tokens: list[bytes | None] = [*(bytes((byte,)) for byte in range(256)), *words, None]
        self.special = len(self.tokens) - 1
        self.cache = HashCache.build(TokenBytes.from_list(self.tokens))

    def encode(self, text: bytes) -> list[int]:
        ids = []
        while text:
            best = max((v for v, token in enumerate(self.tokens) if token and text.startswith(token)), key=self._length)
            ids.append(best)
            text = text[self._length(best) :]
        return ids

    def _length(self, token_id: int) -> int:
        return len(self.tokens[token_id] or b"")


@pytest.fixture(scope="session")
def vocabulary() -> ToyVocabulary:
    return ToyVocabulary(b"in", b"ter", b"nal", b" the", b" memory", "é".encode())


@pytest.fixture(scope="session")
def other_vocabulary() -> ToyVocabulary:
    return ToyVocabulary(b"inter", b"internal", b" th", b" mem", b"ory", b"e ")


@pytest.fixture(scope="session")
def cache(vocabulary: ToyVocabulary) -> HashCache:
    return vocabulary.cache


@pytest.fixture
def make_memory(cache: HashCache):
    """Builds a memory of any kind in a size for tests, with two tables unless said otherwise."""

    def make(kind: str = "joint", cache: HashCache = cache, **fields: object) -> NgramMemory:
        small = {"max_order": 3, "num_rows": 101, "num_heads": 3, "dim": 5, "num_tables": 2}
        config = MemoryConfig.from_dict({"kind": kind})
        known = {field.name for field in dataclasses.fields(config)}
        return dataclasses.replace(
            config, **{name: value for name, value in {**small, **fields}.items() if name in known}
        ).build(cache)

    return make


@pytest.fixture
def trained(make_memory) -> NgramMemory:
    """A small memory that has seen some ids."""
    memory = make_memory()
    memory.train()
    random = torch.Generator().manual_seed(1)
    for layer in range(2):
        memory(torch.randint(0, 260, (3, 40), generator=random), layer=layer)
    return memory


@pytest.fixture
def ids(vocabulary: ToyVocabulary) -> torch.Tensor:
    """Two rows of nine ids with a special one inside, int64 [2, 9]."""
    first = [*vocabulary.encode(b"internal the"), vocabulary.special, *vocabulary.encode(b"\x00\xffin!")]
    return torch.tensor([first, [7, 8, 9, 7, 8, 9, 7, 8, 9]])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.safetensors"


@pytest.fixture
def saved(trained: NgramMemory, path: Path) -> Path:
    """A small memory on disk."""
    save_memory(trained, path, trained_on={"tokenizer": "toy"}, layers=(1, 3))
    return path
