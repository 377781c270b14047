"""A file of ranks and its description to a reading."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from tokagnostic.errors import SourceError
from tokagnostic.tokens.engine import Reading
from tokagnostic.tokens.tiktoken.description import check_digest, find_description, read_description
from tokagnostic.tokens.tiktoken.engine import RankEngine, read_engine
from tokagnostic.tokens.tiktoken.rank_lines import read_rank_lines
from tokagnostic.tokens.tiktoken.vocabulary import RankVocabulary


def read_tiktoken_file(path: Path, config_folders: Iterable[Path], described_in: Path | None = None) -> Reading:
    """Read a .tiktoken file, such as those of OpenAI, and the `tokenizer.model` of Llama 3.

    Args:
        path: the file.
        config_folders: where its TOML is looked for by its SHA-256, after the one beside the file.
        described_in: the TOML that supplies the pattern and the specials, if it is known and has a table `[ranks]`.

    Raises:
        SourceError: if a line is damaged, or no TOML supplies the pattern and the specials.
        TokenizerError: if the ids of a probe text do not join back to it.
        MissingExtraError: if tiktoken is not installed.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read ({error})", expected="a file of ranks", remedy="Check the path and its rights"
        ) from error
    ids = read_rank_lines(content, str(path))
    sha256 = hashlib.sha256(content).hexdigest()
    description = None if described_in is None else read_description(described_in)
    if described_in is not None and description is not None:
        check_digest(description, sha256, path, described_in)
    else:
        description = find_description(path, sha256, config_folders)
    vocabulary = RankVocabulary(path.stem, description.pattern, ids, description.special)
    return read_engine(RankEngine(vocabulary), description.start_id)
