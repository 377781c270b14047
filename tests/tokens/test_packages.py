"""Files that an installed package carries, found without running it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tokagnostic.errors import SourceError
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.packages import package_path
from tokagnostic.tokens.sources import load_tokenizer


@pytest.fixture
def package(metaspace: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that cannot be imported, for what it needs is missing, and that carries a tokenizer."""
    folder = tmp_path / "carries_a_tokenizer"
    folder.mkdir()
    (folder / "__init__.py").write_text("import surely_not_installed\n")
    metaspace.save(str(folder / "tokenizer.json"))
    monkeypatch.syspath_prepend(tmp_path)
    return folder


@pytest.mark.parametrize("name", ["carries_a_tokenizer", "carries_a_tokenizer/tokenizer.json"])
def test_a_package_gives_its_tokenizer_without_being_run(package: Path, metaspace: Tokenizer, name: str) -> None:
    assert package_path(name) == package / name.partition("/")[2]
    encoder = load_tokenizer(f"package:{name}")
    assert encoder.token_bytes.fingerprint == TextEncoder.of(metaspace).token_bytes.fingerprint
    assert encoder.name == f"package:{name}"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("surely_not_installed", "package 'surely_not_installed', which is not installed"),
        ("carries_a_tokenizer/absent.gguf", "which carries no 'absent.gguf'"),
        ("carries_a_tokenizer.part", "which is not installed"),
        ("../secret", "package '..'"),
        ("", "package ''"),
        ("time", "package 'time'"),
    ],
    ids=["absent", "file", "dots", "path", "nothing", "no folder"],
)
def test_what_is_not_there_is_one_line(package: Path, name: str, told: str) -> None:
    with pytest.raises(SourceError, match=told):
        package_path(name)
