"""Fixtures for tests of attached memories."""

from __future__ import annotations

import pytest
from hosts import FAMILIES, USUAL, make_host, make_memory
from torch import Tensor
from transformers import PreTrainedModel

from tokagnostic.memory import NgramMemory


@pytest.fixture(
    params=[name if name in USUAL else pytest.param(name, marks=pytest.mark.slow) for name in sorted(FAMILIES)]
)
def family(request: pytest.FixtureRequest) -> str:
    """Every family of hosts in turn."""
    return request.param


@pytest.fixture
def family_host(family: str) -> PreTrainedModel:
    """A host of every family in turn."""
    return make_host(family)


@pytest.fixture
def host() -> PreTrainedModel:
    """One host, for what does not depend on its family."""
    return make_host()


@pytest.fixture
def memory() -> NgramMemory:
    """A trainable memory."""
    return make_memory()


@pytest.fixture
def keys_read(memory: NgramMemory, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The keys of every read of the memory, as they come."""
    seen: list[Tensor] = []
    features_of = memory.features_of

    def spy(keys: Tensor, layer: int = 0) -> Tensor:
        seen.append(keys)
        return features_of(keys, layer)

    monkeypatch.setattr(memory, "features_of", spy)
    return seen
