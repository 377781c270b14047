"""A tokenizer or a memory file to the facts that a user asks for first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokagnostic.tokens import TokenKind
from tokagnostic.tokens.sources import load_tokenizer


def inspect_tokenizer(spec: str) -> dict[str, Any]:
    """Ids per kind, duplicates, prefix rule, fidelity and fingerprint.

    Raises:
        SourceError: if there is no such tokenizer.
        TokenizerError: if its bytes cannot be read.
    """
    encoder = load_tokenizer(spec)
    token_bytes = encoder.token_bytes
    kinds = Counter(TokenKind(kind).name.lower() for kind in token_bytes.kinds.tolist())
    return {
        "tokenizer": encoder.name,
        "ids": len(token_bytes),
        **{f"ids of kind {kind}": count for kind, count in sorted(kinds.items())},
        "byte strings with several ids": len(token_bytes.duplicates()),
        "longest token in bytes": int(token_bytes.lengths.max(initial=0)),
        "invented leading space": token_bytes.prefix,
        "start id": encoder.start_id,
        "fidelity": None if token_bytes.fidelity is None else token_bytes.fidelity.line,
        "fingerprint": token_bytes.fingerprint,
    }


def inspect_memory(path: str, verify: bool) -> dict[str, Any]:
    """What a memory file says of itself, after its header was checked.

    Args:
        path: the file.
        verify: also hash every tensor against its digest.

    Raises:
        SourceError: if there is no such file.
        MemoryFileError: if it is damaged, foreign or newer than this program.
    """
    from tokagnostic.memory.file import read_recipe, verify_memory

    recipe = read_recipe(path)
    if verify:
        verify_memory(path)
    return {
        "memory": path,
        "identity": recipe.identity,
        "bytes": Path(path).stat().st_size,
        "config": recipe.config.to_dict(),
        "row format": recipe.row_format,
        "rows": [table.num_rows for table in recipe.tables],
        "trained at layers": [list(table.layers) for table in recipe.tables],
        "prefix policy": recipe.prefix,
        "trained on": recipe.trained_on,
        "digests": "verified" if verify else "not verified (add --verify)",
    }


def facts_text(facts: Mapping[str, Any]) -> str:
    """Facts as aligned lines, one each; a group of facts is indented under its name."""
    return "\n".join(_lines(facts, ""))


def _lines(facts: Mapping[str, Any], indent: str) -> Iterator[str]:
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            yield f"{indent}{name}"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{name:<{width}}  {_plain(value)}".rstrip()


def _plain(value: object) -> str:
    if value is None or value in ((), [], {}, ""):
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
