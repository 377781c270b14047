"""What a file of ranks does not hold, its pattern and its specials: from a TOML, found by the file's SHA-256."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tokagnostic.errors import SourceError

_FORM = "a table [ranks] with pattern = '...' and a table [ranks.special] with names = ids"


@dataclass(frozen=True)
class RankDescription:
    """The table `[ranks]` of a TOML."""

    pattern: str
    """The regular expression that splits a text."""
    special: dict[str, int]
    """The id of each special token."""
    sha256: str | None = None
    """SHA-256 of the file that is meant, in hex; None for the one beside the TOML."""
    start_id: int | None = None
    """The id put before a document, where the names of the specials do not say it."""

    @classmethod
    def of(cls, content: bytes, pattern: str, special: dict[str, int], start_id: int | None) -> RankDescription:
        """Describe a file by its content."""
        return cls(pattern, special, hashlib.sha256(content).hexdigest(), start_id)


def find_description(path: Path, sha256: str, folders: Iterable[Path]) -> RankDescription:
    """Find the description of a file of ranks: beside it under its own name, else by its digest in the folders.

    Args:
        path: the file.
        sha256: its digest, in hex.
        folders: where TOML files are looked for, the first that has one wins.

    Raises:
        SourceError: if there is none, or two, or it is damaged, or the one beside the file means another.
    """
    beside = path.with_suffix(".toml")
    if beside.is_file() and (found := read_description(beside)) is not None:
        check_digest(found, sha256, path, beside)
        return found
    for folder in folders:
        # Asked for its text first: a damaged file about another tokenizer is none of this one's business.
        matches = [toml for toml in sorted(folder.glob("*.toml")) if sha256.encode() in toml.read_bytes().lower()]
        described = {toml: found for toml in matches if (found := read_description(toml)) and found.sha256 == sha256}
        if len(described) > 1:
            raise SourceError(
                f"{' and '.join(map(str, described))} both describe {path}",
                expected="one description per file of ranks",
                remedy="Remove the sha256 from all but one",
            )
        if described:
            return next(iter(described.values()))
    raise SourceError(
        f"{path} holds nothing but ranks, and no TOML describes it (SHA-256 {sha256})",
        expected=f"{_FORM}, in {beside.name} beside it, or in tokenizers_cfg/ with its sha256",
        remedy="Write it, with the pattern and the specials from the tokenizer's own source",
    )


def check_digest(description: RankDescription, sha256: str, path: Path, toml: Path) -> None:
    """Refuse a description that means another file.

    Raises:
        SourceError: if the digests differ.
    """
    if description.sha256 not in (None, sha256):
        raise SourceError(
            f"{path} has the SHA-256 {sha256}",
            expected=f"{description.sha256}, as {toml} says",
            remedy="Fetch the file that is meant, or write its own digest there",
        )


def read_description(toml: Path) -> RankDescription | None:
    """Read the table `[ranks]` of a TOML; None if it has none.

    Raises:
        SourceError: if the file cannot be read, or the table holds something else.
    """
    try:
        table = tomllib.loads(toml.read_text(encoding="utf-8")).get("ranks")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SourceError(
            f"{toml} cannot be read ({error})", expected="a TOML file", remedy="Mend or remove the file"
        ) from error
    if table is None:
        return None
    fault = _fault_of(table)
    if fault is not None:
        raise SourceError(f"the table [ranks] of {toml} {fault}", expected=_FORM, remedy="Mend the file")
    digest = table.get("sha256")
    return RankDescription(**{"special": {}, **table, "sha256": digest and digest.lower()})


def write_description(description: RankDescription, file: str) -> str:
    """A TOML that describes a file of ranks which lies beside it."""
    lines = [f"spec = {_quoted(f'file:{file}')}", "", "[ranks]"]
    lines += [f'sha256 = "{description.sha256}"', f"pattern = {_quoted(description.pattern)}"]
    lines += [] if description.start_id is None else [f"start_id = {description.start_id}"]
    lines += ["", "[ranks.special]"]
    lines += [f"{_quoted(name)} = {v}" for name, v in description.special.items()]
    return "\n".join(lines) + "\n"


def _fault_of(table: Any) -> str | None:
    if not isinstance(table, dict):
        return f"is {table!r}"
    if unknown := table.keys() - {field.name for field in fields(RankDescription)}:
        return f"holds the key {min(unknown)!r}"
    if not isinstance(table.get("pattern"), str) or not table["pattern"]:
        return "has no pattern"
    if not isinstance(table.get("sha256", ""), str) or not _is_id(table.get("start_id", 0)):
        return "has a sha256 or a start_id of another type"
    special = table.get("special", {})
    if not isinstance(special, dict) or not all(map(_is_id, special.values())):
        return "has special tokens whose ids are not numbers"
    return None


def _is_id(value: Any) -> bool:
    return type(value) is int


def _quoted(text: str) -> str:
    """A basic string of TOML: as in JSON, and DEL is escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
