"""The setups of training as fixtures: built anew each time, or trained once for all that only look at them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch
from setups import FIT, HOST, LINES, MEMORY, RUN_FIT, SENTENCES, Setup
from tokenizers import AddedToken, Tokenizer
from torch import Tensor

from tokagnostic.corpus import CorpusConfig, Document
from tokagnostic.hashing import HashCache
from tokagnostic.host import attach
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.training.config import AttachConfig, HostConfig, PretrainConfig
from tokagnostic.training.hosts import fresh_llama, seeded
from tokagnostic.training.packing import TokenStream
from tokagnostic.training.pretrain import pretrain


@pytest.fixture(scope="session")
def byte_tokenizer(byte_toy: Callable[..., Tokenizer]) -> Tokenizer:
    """256 bytes, some merges, a special token for the start of a document."""
    return byte_toy((("t", "h"), ("th", "e"), ("r", "i")), (AddedToken("<|endoftext|>", special=True),))


@pytest.fixture(scope="session")
def encoder(byte_tokenizer: Tokenizer) -> TextEncoder:
    return TextEncoder.from_tokenizer(byte_tokenizer, "bytes and three merges")


@pytest.fixture(scope="session")
def stream(encoder: TextEncoder) -> TokenStream:
    """Three sentences, nine times each, every one a document."""
    documents = [Document(sentence.encode(), str(i)) for i in range(9) for sentence in SENTENCES]
    return TokenStream.from_documents(documents, encoder)


@pytest.fixture(scope="session")
def make_setup(encoder: TextEncoder, stream: TokenStream) -> Callable[..., Setup]:
    """Builds the same setup every time."""

    def make(layers: tuple[int, ...] = (1,), frozen: bool = False, train_host: bool = True, **changes: Any) -> Setup:
        model = fresh_llama(HOST, len(encoder.token_bytes), FIT.block_length, seed=0)
        model.requires_grad_(train_host)
        cache = HashCache.build(encoder.token_bytes)
        memory = dataclasses.replace(MEMORY, **changes).build(cache)
        if frozen:
            memory.freeze()
        with seeded(0):
            attachment = attach(model, cache, memory, layers)
        return Setup(model, memory, attachment, stream, encoder)

    return make


@pytest.fixture
def setup(make_setup: Callable[..., Setup]) -> Setup:
    """A host and a memory, both to be trained."""
    return make_setup()


@pytest.fixture
def token_lengths(encoder: TextEncoder) -> Tensor:
    return torch.from_numpy(encoder.token_bytes.lengths).to(torch.int64)


@pytest.fixture(scope="session")
def tokenizer_file(byte_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    byte_tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def other_tokenizer_file(wordpiece: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("other") / "tokenizer.json"
    wordpiece.save(str(path))
    return path


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same documents as plain text, JSON lines and a table."""
    folder = tmp_path_factory.mktemp("texts")
    paths = {form: folder / f"text.{form}" for form in ("txt", "jsonl", "parquet")}
    paths["txt"].write_text("\n".join(LINES))
    paths["jsonl"].write_text("".join(json.dumps({"text": line}) + "\n" for line in LINES))
    pyarrow.parquet.write_table(pyarrow.table({"text": LINES}), paths["parquet"])
    return paths


@pytest.fixture
def config(tokenizer_file: Path, texts: dict[str, Path], tmp_path: Path) -> PretrainConfig:
    return PretrainConfig(
        tokenizer=str(tokenizer_file),
        output=str(tmp_path / "run"),
        corpus=CorpusConfig(data=(str(texts["jsonl"]),)),
        host=HOST,
        memory=MEMORY,
        fit=RUN_FIT,
    )


@pytest.fixture(scope="session")
def source_run(tokenizer_file: Path, texts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose memory others read. Do not change it."""
    folder = tmp_path_factory.mktemp("source") / "run"
    corpus = CorpusConfig(data=(str(texts["jsonl"]),))
    pretrain(PretrainConfig(str(tokenizer_file), str(folder), corpus, HOST, MEMORY, fit=RUN_FIT))
    return folder


@pytest.fixture
def attach_config(other_tokenizer_file: Path, source_run: Path, config: PretrainConfig, tmp_path: Path) -> AttachConfig:
    """A reader and a host under another tokenizer."""
    return AttachConfig(
        tokenizer=str(other_tokenizer_file),
        output=str(tmp_path / "attached"),
        corpus=config.corpus,
        host=HostConfig(width=24, num_layers=2, num_heads=2),
        memory_file=str(source_run / "attachment" / "memory.safetensors"),
        train_host=True,
        fit=RUN_FIT,
    )


@pytest.fixture(autouse=True)
def fresh_accelerate_state() -> Iterator[None]:
    """Accelerate keeps one precision per process: let no test see that of another."""
    yield
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state()
    GradientState._reset_state()
