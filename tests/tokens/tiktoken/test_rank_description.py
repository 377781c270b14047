"""The TOML that says of a file of ranks what the file does not."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokagnostic.errors import SourceError
from tokagnostic.tokens.tiktoken.description import (
    RankDescription,
    find_description,
    read_description,
    write_description,
)

DIGEST = "ab" * 32
DESCRIPTION = RankDescription(r"\s+|\S+", {"<end>": 300}, DIGEST)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    return tmp_path / "toy.tiktoken"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "named"
    path.mkdir()
    return path


def write(path: Path, description: RankDescription = DESCRIPTION) -> None:
    path.write_text(write_description(description, "toy.tiktoken"), encoding="utf-8")


@given(pattern=TEXTS, special=st.dictionaries(TEXTS, st.integers(0, 1 << 20)), start_id=st.none() | st.integers(0, 9))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, pattern: str, special: dict[str, int], start_id: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "described.toml"
    description = RankDescription.of(b"IQ== 0\n", pattern, special, start_id)
    write(path, description)
    assert read_description(path) == description
    assert tomllib.loads(path.read_text(encoding="utf-8"))["spec"] == "file:toy.tiktoken"


def test_one_beside_the_file_comes_before_the_named_ones(ranks: Path, folder: Path) -> None:
    write(folder / "any.toml")
    assert find_description(ranks, DIGEST, [folder]).special == {"<end>": 300}
    ranks.with_suffix(".toml").write_text("[ranks]\npattern = '.'\n")
    beside = find_description(ranks, DIGEST, [folder])
    assert (beside.pattern, beside.special, beside.sha256, beside.start_id) == (".", {}, None, None)


def test_a_toml_beside_the_file_about_something_else_is_passed_over(ranks: Path, folder: Path) -> None:
    write(folder / "any.toml")
    ranks.with_suffix(".toml").write_text("[tool]\n")
    assert find_description(ranks, DIGEST, [folder]) == DESCRIPTION


def test_the_first_folder_wins_and_a_damaged_file_about_another_does_not_matter(ranks: Path, folder: Path) -> None:
    first = folder / "first"
    first.mkdir()
    write(first / "one.toml", RankDescription("first", {}, DIGEST))
    write(folder / "two.toml", RankDescription("second", {}, DIGEST))
    (first / "broken.toml").write_text("[ranks")
    assert find_description(ranks, DIGEST, [first, folder]).pattern == "first"
    assert find_description(ranks, DIGEST, [folder, first]).pattern == "second"


def test_a_digest_may_be_in_capitals_and_one_in_a_comment_does_not_count(ranks: Path, folder: Path) -> None:
    (folder / "other.toml").write_text(f"# unlike {DIGEST}\n[ranks]\npattern = '.'\nsha256 = '{'cd' * 32}'\n")
    (folder / "this.toml").write_text(f"[ranks]\npattern = 'this'\nsha256 = '{DIGEST.upper()}'\n")
    assert find_description(ranks, DIGEST, [folder]).pattern == "this"


def refusal(ranks: Path, folder: Path) -> str:
    with pytest.raises(SourceError) as caught:
        find_description(ranks, DIGEST, [folder])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_one_the_refusal_says_what_to_write(ranks: Path, folder: Path) -> None:
    write(folder / "another.toml", RankDescription(".", {}, "cd" * 32))
    message = refusal(ranks, folder)
    for part in (str(ranks), f"SHA-256 {DIGEST}", "[ranks] with pattern", "[ranks.special]", "toy.toml beside it"):
        assert part in message


def test_one_that_means_another_file_is_refused(ranks: Path, folder: Path) -> None:
    write(ranks.with_suffix(".toml"), RankDescription(".", {}, "cd" * 32))
    assert f"has the SHA-256 {DIGEST}; expected {'cd' * 32}" in refusal(ranks, folder)


def test_two_of_one_file_are_refused(ranks: Path, folder: Path) -> None:
    write(folder / "one.toml")
    write(folder / "two.toml")
    assert "both describe" in refusal(ranks, folder)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[ranks", "cannot be read"),
        ("ranks = 1", "is 1"),
        ("[ranks]", "has no pattern"),
        ("[ranks]\npattern = ''", "has no pattern"),
        ("[ranks]\npattern = 1", "has no pattern"),
        ("[ranks]\npattern = '.'\nspecials = {}", "holds the key 'specials'"),
        ("[ranks]\npattern = '.'\nsha256 = 1", "of another type"),
        ("[ranks]\npattern = '.'\nstart_id = true", "of another type"),
        ("[ranks]\npattern = '.'\nspecial = 1", "special tokens whose ids are not numbers"),
        ("[ranks]\npattern = '.'\n[ranks.special]\na = 'b'", "special tokens whose ids are not numbers"),
    ],
    ids=repr,
)
def test_a_damaged_one_is_named(ranks: Path, folder: Path, text: str, fault: str) -> None:
    ranks.with_suffix(".toml").write_text(text)
    message = refusal(ranks, folder)
    assert "toy.toml" in message
    assert fault in message
