"""A tokenizer or a memory file to the facts that a user asks for first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tokagnostic.errors import SourceError
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer
from tokagnostic.tokens.token_bytes import TokenBytes, TokenKind
from tokagnostic.tokens.witness import find_witnesses

NUM_EXAMPLES = 3

PREFIX_IN_WORDS = {
    "none": "none is invented",
    "first": "one is put before a text that has none, and taken out of the bytes again",
    "always": "one is put before every stretch of text between special tokens, and taken out of the bytes again",
}
WHY_WITHOUT_BYTES = {
    "special": "special or control tokens, which no text spells",
    "unknown": "what stands for all that the vocabulary cannot spell",
    "hole": "ids that no token has",
    "unreachable": "pieces that no text can produce",
    "empty": "tokens that spell the empty text",
}


def inspect_tokenizer(tokenizer: Any) -> dict[str, Any]:
    """What a tokenizer is, and what it invents or destroys.

    Args:
        tokenizer: a spec as `load_tokenizer` takes it, or whatever `TextEncoder.of` takes.

    Returns:
        Plain JSON values. `tokenizer` is its name, `num_ids` the number of ids and `kinds` how many are of each kind.
        A token in it is `{"id", "spelling", "hex", "text"}`: how the tokenizer writes it (or None), its bytes in hex,
        and as text where they are UTF-8, else None.

        `duplicates`: `num_byte_strings` that have several ids, `num_ids` that share theirs, and `examples`, each
        `{"hex", "text", "ids", "spellings"}`. `without_bytes`: `num_ids`, and `reasons`, by name (`special`,
        `unknown`, `hole`, `unreachable`, `empty`), each `{"why", "num_ids", "examples": [token]}`. `longest_token`: a
        token with its `num_bytes`, or None. `num_ids_by_bytes`: how many ids have 0, 1, 2, ... bytes. `prefix`:
        `{"rule", "in_words"}`. `start`: a token or None. `fidelity`: `{"level", "reasons", "line"}`. `fingerprint`.

        `witnesses`: each `{"effect", "text", "source_hex", "joined_hex", "kept_hex", "ids"}`, see `Witness`.

    Raises:
        SourceError: if there is no such tokenizer.
        TokenizerError: if its bytes cannot be read.
    """
    encoder = as_encoder(tokenizer)
    table = encoder.token_bytes
    spellings = encoder.spellings()
    counts = np.bincount(table.kinds, minlength=len(TokenKind)).tolist()
    fidelity = table.fidelity
    return {
        "tokenizer": encoder.name,
        "num_ids": len(table),
        "kinds": {kind.name.lower(): counts[kind] for kind in TokenKind if counts[kind]},
        "duplicates": _duplicates(table, spellings),
        "without_bytes": _without_bytes(table, spellings),
        "longest_token": _longest(table, spellings),
        "num_ids_by_bytes": np.bincount(table.lengths, minlength=1).tolist(),
        "prefix": {"rule": table.prefix, "in_words": PREFIX_IN_WORDS[table.prefix]},
        "start": None if encoder.start_id is None else _token(table, spellings, encoder.start_id),
        "fidelity": None
        if fidelity is None
        else {"level": fidelity.level, "reasons": list(fidelity.reasons), "line": fidelity.line},
        "fingerprint": table.fingerprint,
        "witnesses": [witness.to_dict() for witness in find_witnesses(encoder)],
    }


def as_encoder(tokenizer: Any) -> TextEncoder:
    """The encoder of a spec or of a tokenizer.

    Raises:
        SourceError: if there is no such tokenizer; a folder that is a run is told where its tokenizer lies.
        TokenizerError: if its bytes cannot be read.
    """
    if not isinstance(tokenizer, str | Path):
        return TextEncoder.of(tokenizer)
    folder = Path(tokenizer)
    if (folder / "tokenizer").is_dir() and not (folder / "tokenizer.json").exists():
        memories = [f"`tokagnostic inspect {path}`" for path in sorted(folder.glob("*.safetensors"))]
        raise SourceError(
            f"{folder} is a run, which holds a tokenizer and a memory",
            expected="one of both",
            remedy=f"For its tokenizer run `tokagnostic inspect {folder / 'tokenizer'}`, for its memory "
            + (memories[0] if memories else f"`tokagnostic export --run {folder} --output memory.safetensors`"),
        )
    return load_tokenizer(str(tokenizer))


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
        "num_bytes": Path(path).stat().st_size,
        "config": recipe.config.to_dict(),
        "row_format": recipe.row_format,
        "num_rows": [table.num_rows for table in recipe.tables],
        "trained_at_layers": [list(table.layers) for table in recipe.tables],
        "prefix_policy": recipe.prefix,
        "trained_on": recipe.trained_on,
        "digests": "verified" if verify else "not verified (add --verify)",
    }


def _duplicates(table: TokenBytes, spellings: list[str | None]) -> dict[str, Any]:
    groups = table.duplicates()
    return {
        "num_byte_strings": len(groups),
        "num_ids": sum(map(len, groups)),
        "examples": [
            {**_bytes(table[ids[0]] or b""), "ids": ids, "spellings": [_spelling(spellings, v) for v in ids]}
            for ids in groups[:NUM_EXAMPLES]
        ],
    }


def _without_bytes(table: TokenBytes, spellings: list[str | None]) -> dict[str, Any]:
    bare = table.lengths == 0
    reasons = {
        kind.name.lower(): np.flatnonzero(bare & (table.kinds == kind))
        for kind in (TokenKind.SPECIAL, TokenKind.UNKNOWN, TokenKind.HOLE, TokenKind.UNREACHABLE)
    }
    reasons["empty"] = np.flatnonzero(bare & np.isin(table.kinds, (TokenKind.TEXT, TokenKind.BYTE, TokenKind.ADDED)))
    return {
        "num_ids": int(bare.sum()),
        "reasons": {
            name: {
                "why": WHY_WITHOUT_BYTES[name],
                "num_ids": len(ids),
                "examples": [_token(table, spellings, v) for v in ids[:NUM_EXAMPLES].tolist()],
            }
            for name, ids in reasons.items()
            if len(ids)
        },
    }


def _longest(table: TokenBytes, spellings: list[str | None]) -> dict[str, Any] | None:
    if not table.lengths.any():
        return None
    v = int(table.lengths.argmax())
    return {**_token(table, spellings, v), "num_bytes": int(table.lengths[v])}


def _token(table: TokenBytes, spellings: list[str | None], v: int) -> dict[str, Any]:
    return {"id": v, "spelling": _spelling(spellings, v), **_bytes(table[v] or b"")}


def _spelling(spellings: list[str | None], v: int) -> str | None:
    return spellings[v] if v < len(spellings) else None


def _bytes(data: bytes) -> dict[str, Any]:
    try:
        return {"hex": data.hex(), "text": data.decode()}
    except UnicodeDecodeError:
        return {"hex": data.hex(), "text": None}
