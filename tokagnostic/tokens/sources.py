"""A tokenizer's name on a command line turned into an encoder: a hub, a file, a folder, or a name from the config folder."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tokagnostic.errors import SourceError, TokenizerError
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.pipeline import library_errors

CONFIG_FOLDERS = (
    Path(__file__).resolve().parents[2] / "tokenizers_cfg",
    Path(__file__).resolve().parents[1] / "tokenizers_cfg",
)
"""Where named tokenizers are described: beside the package in a checkout, inside it once installed."""


def load_tokenizer(spec: str) -> TextEncoder:
    """Load a tokenizer.

    Args:
        spec: `hf:NAME` for a repository of the Hugging Face hub; `file:PATH`, or a path that exists, for a
            `tokenizer.json` or a folder that holds one; or the name of a file in `tokenizers_cfg/`, whose TOML holds
            such a `spec` and, if wanted, the `fingerprint` that the tokenizer must have.

    Raises:
        SourceError: if there is no such tokenizer, or it cannot be read, or its fingerprint is another.
        TokenizerError: if its bytes cannot be read or do not pass the probe.
    """
    named = _configs()
    if spec.startswith("hf:"):
        return _from_hub(spec)
    if spec.startswith("file:"):
        return _from_path(Path(spec.removeprefix("file:")), spec)
    if spec in named:
        return _from_config(named[spec])
    if spec and Path(spec).exists():
        return _from_path(Path(spec), spec)
    raise SourceError(
        f"tokenizer {spec!r}",
        expected=f"hf:NAME, file:PATH, a path that exists, or one of the names {', '.join(sorted(named)) or '(none)'}",
        remedy="Check the spelling, or add a file to tokenizers_cfg/",
    )


def _configs() -> dict[str, Path]:
    return {path.stem: path for folder in reversed(CONFIG_FOLDERS) for path in sorted(folder.glob("*.toml"))}


def _from_config(path: Path) -> TextEncoder:
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SourceError(
            f"{path} cannot be read ({error})", expected="a TOML file", remedy="Mend or remove the file"
        ) from error
    spec, fingerprint = settings.get("spec", ""), settings.get("fingerprint")
    is_known = str(spec).startswith(("hf:", "file:")) and settings.keys() <= {"spec", "fingerprint"}
    if not is_known or not isinstance(fingerprint, str | None):
        raise SourceError(
            f"{path} holds {', '.join(f'{key} = {value!r}' for key, value in settings.items()) or 'nothing'}",
            expected='spec = "hf:NAME" or "file:PATH" and at most a fingerprint beside it',
            remedy="Mend the file",
        )
    if spec.startswith("file:"):
        encoder = _from_path(path.parent / spec.removeprefix("file:"), path.stem)
    else:
        encoder = _from_hub(spec)
    found = encoder.token_bytes.fingerprint
    if fingerprint is not None and fingerprint != found:
        raise SourceError(
            f"the tokenizer {spec} has the fingerprint {found}",
            expected=f"{fingerprint}, as {path} says",
            remedy="Load the version that the file means, or write the new fingerprint into it",
        )
    return encoder


def _from_path(path: Path, name: str) -> TextEncoder:
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise SourceError(
            f"{file} does not exist",
            expected="a tokenizer.json or a folder that holds one",
            remedy="Check the path, or save the tokenizer with save_pretrained",
        )
    return _read(file, file.parent / "tokenizer_config.json", name)


def _from_hub(spec: str) -> TextEncoder:
    """Fetch the two files of a repository, or take them from the hub's local cache."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError
    from huggingface_hub.utils import logging as hub_logging

    name = spec.removeprefix("hf:")
    verbosity = hub_logging.get_verbosity()
    # The hub's own warnings about each retry would hide the one line that says what is wrong.
    hub_logging.set_verbosity_error()
    try:
        file = Path(hf_hub_download(name, "tokenizer.json"))
        try:
            config: Path | None = Path(hf_hub_download(name, "tokenizer_config.json"))
        except EntryNotFoundError:
            config = None
    except (OSError, EntryNotFoundError, HFValidationError) as error:
        offline = isinstance(error, LocalEntryNotFoundError)
        what = "is not in the local cache and the hub does not answer" if offline else "cannot be fetched from the hub"
        raise SourceError(
            f"tokenizer {spec} {what} ({' '.join(str(error).split())})",
            expected="a repository that holds a tokenizer.json",
            remedy=f"Check the name and the connection, or use file:PATH or a name of {', '.join(sorted(_configs()))}",
        ) from error
    finally:
        hub_logging.set_verbosity(verbosity)
    return _read(file, config, spec)


def _read(file: Path, config: Path | None, name: str) -> TextEncoder:
    try:
        with library_errors(f"reading {file}"):
            tokenizer = Tokenizer.from_str(file.read_bytes().decode())
    except (OSError, UnicodeDecodeError, TokenizerError) as error:
        raise SourceError(
            f"{file} cannot be read as a tokenizer ({error})",
            expected="a tokenizer.json of the tokenizers library",
            remedy="Save the tokenizer again with save_pretrained; other formats have to be converted first",
        ) from error
    return TextEncoder.from_tokenizer(tokenizer, name, _configured_start_id(tokenizer, config))


def _configured_start_id(tokenizer: Tokenizer, config: Path | None) -> int | None:
    """The id of the begin, else end, else classifier or separator token that a tokenizer_config.json names."""
    if config is None or not config.is_file():
        return None
    try:
        settings: Any = json.loads(config.read_bytes())
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{config} cannot be read ({error})", expected="a JSON file", remedy="Mend or remove the file"
        ) from error
    for role in ("bos", "eos", "cls", "sep"):
        token = settings.get(f"{role}_token") if isinstance(settings, dict) else None
        content = token.get("content") if isinstance(token, dict) else token
        token_id = tokenizer.token_to_id(content) if isinstance(content, str) else None
        if token_id is not None:
            return token_id
    return None
