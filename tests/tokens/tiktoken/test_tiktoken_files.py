"""A file of ranks and its description, from a path to an encoder and back."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tokagnostic.errors import SourceError
from tokagnostic.tokens import sources
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer
from tokagnostic.tokens.tiktoken.description import RankDescription, write_description
from tokagnostic.tokens.tiktoken.engine import RankEngine, read_engine
from tokagnostic.tokens.tiktoken.rank_lines import write_rank_lines
from tokagnostic.tokens.tiktoken.vocabulary import RankVocabulary

pytest.importorskip("tiktoken")


@pytest.fixture
def config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "named"
    folder.mkdir()
    monkeypatch.setattr(sources, "CONFIG_FOLDERS", (folder,))
    return folder


@pytest.fixture
def toy(toy_vocabulary: RankVocabulary) -> TextEncoder:
    return TextEncoder.from_reading(read_engine(RankEngine(toy_vocabulary)))


@pytest.fixture
def description(toy_vocabulary: RankVocabulary) -> str:
    content = write_rank_lines(toy_vocabulary.ids)
    made = RankDescription.of(content, toy_vocabulary.pattern, toy_vocabulary.special, None)
    return write_description(made, "elsewhere/ranks.bin")


@pytest.fixture
def rank_file(toy_vocabulary: RankVocabulary, tmp_path: Path) -> Path:
    """A file of ranks whose name says nothing."""
    path = tmp_path / "elsewhere" / "ranks.bin"
    path.parent.mkdir()
    path.write_bytes(write_rank_lines(toy_vocabulary.ids))
    return path


@pytest.mark.parametrize("start_id", [None, 10], ids=["by name", "given"])
def test_a_saved_folder_is_the_same_tokenizer(
    toy_vocabulary: RankVocabulary, tmp_path: Path, start_id: int | None
) -> None:
    encoder = TextEncoder.from_reading(read_engine(RankEngine(toy_vocabulary)), start_id=start_id)
    encoder.save(tmp_path / "saved")
    again = load_tokenizer(str(tmp_path / "saved"))
    assert again.token_bytes.fingerprint == encoder.token_bytes.fingerprint
    assert again.start_id == encoder.start_id == (300 if start_id is None else start_id)
    assert again.encode("hello <|endoftext|>").tolist() == encoder.encode("hello <|endoftext|>").tolist()
    assert again.spellings() == encoder.spellings()
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["toy.tiktoken", "toy.toml"]


def test_a_name_that_is_no_file_name_is_saved_too(toy_vocabulary: RankVocabulary, tmp_path: Path) -> None:
    for name in ("../a/b", "gpt.4", "..", "a b"):
        vocabulary = RankVocabulary(name, toy_vocabulary.pattern, toy_vocabulary.ids, toy_vocabulary.special)
        folder = tmp_path / name.replace("/", "_")
        TextEncoder.from_reading(read_engine(RankEngine(vocabulary))).save(folder / "saved")
        assert len(load_tokenizer(str(folder / "saved")).token_bytes) == 301


def test_a_named_description_is_found_by_the_digest(
    toy: TextEncoder, rank_file: Path, config_folder: Path, description: str
) -> None:
    with pytest.raises(SourceError, match=hashlib.sha256(rank_file.read_bytes()).hexdigest()):
        load_tokenizer(str(rank_file))
    (config_folder / "any.toml").write_text(description)
    assert load_tokenizer(str(rank_file)).token_bytes.fingerprint == toy.token_bytes.fingerprint
    renamed = rank_file.rename(rank_file.with_name("tokenizer.model"))
    assert load_tokenizer(str(renamed.parent)).token_bytes.fingerprint == toy.token_bytes.fingerprint


def test_the_description_beside_a_file_may_expect_a_fingerprint(
    toy: TextEncoder, rank_file: Path, description: str
) -> None:
    beside = rank_file.with_suffix(".toml")
    beside.write_text(f"fingerprint = '{toy.token_bytes.fingerprint}'\n{description}")
    load_tokenizer(str(rank_file))
    beside.write_text(f"fingerprint = '{'0' * 64}'\n{description}")
    with pytest.raises(SourceError, match="has the fingerprint"):
        load_tokenizer(str(rank_file))


def test_a_name_may_describe_the_file_that_it_stands_for(
    toy: TextEncoder, rank_file: Path, config_folder: Path, description: str
) -> None:
    lines = [line for line in description.splitlines() if not line.startswith(("spec", "sha256"))]
    head = ["spec = 'file:../elsewhere/ranks.bin'", f"fingerprint = '{toy.token_bytes.fingerprint}'"]
    (config_folder / "mine.toml").write_text("\n".join(head + lines))
    encoder = load_tokenizer("mine")
    assert encoder.name == "mine"
    assert encoder.start_id == 300
    rank_file.write_bytes(b"IQ== 0\n")
    with pytest.raises(SourceError, match="has the fingerprint"):
        load_tokenizer("mine")


def test_a_description_of_another_file_is_refused(rank_file: Path, config_folder: Path, description: str) -> None:
    (config_folder / "mine.toml").write_text(description.replace("file:", "file:../"))
    load_tokenizer("mine")
    rank_file.write_bytes(rank_file.read_bytes() + b"aGVsbG8= 270\n")
    with pytest.raises(SourceError, match="has the SHA-256"):
        load_tokenizer("mine")


def test_a_damaged_line_is_named_with_its_file(rank_file: Path) -> None:
    damaged = rank_file.with_name("toy.tiktoken")
    damaged.write_bytes(b"?\n" + rank_file.read_bytes())
    with pytest.raises(SourceError, match=r"line 1 of .*toy\.tiktoken"):
        load_tokenizer(str(damaged))
    rank_file.write_bytes(rank_file.read_bytes()[:-4])
    with pytest.raises(SourceError, match=r"line 258 of .*ranks.bin"):
        load_tokenizer(str(rank_file))
