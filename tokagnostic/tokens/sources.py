"""A tokenizer's name on a command line turned into an encoder: a hub, a file, a folder, a package, a config file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokagnostic.errors import SourceError
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.engine import Reading
from tokagnostic.tokens.packages import package_path

CONFIG_FOLDERS = (
    Path(__file__).resolve().parents[2] / "tokenizers_cfg",
    Path(__file__).resolve().parents[1] / "tokenizers_cfg",
)
"""Where named tokenizers are described: beside the package in a checkout, inside it once installed."""

_RANK_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")
_TEKKEN_KEYS = (b'"token_bytes"', b'"default_num_special_tokens"')
_FIRST_PIECE = b"\x0a"
"""Tag of the first piece, with which the protocol buffer of a SentencePiece model begins."""

FORMS = (
    "hf:NAME, file:PATH, a path that exists (tokenizer.json, .model, .tiktoken, tekken.json, .gguf, or a folder that "
    "holds one), package:NAME, tiktoken:NAME, mistral:VERSION"
)


def load_tokenizer(spec: str) -> TextEncoder:
    """Load a tokenizer.

    Args:
        spec: one of
            `hf:NAME`, a repository of the Hugging Face hub;
            `file:PATH`, or a path that exists: a tokenizer.json, a SentencePiece .model, a .tiktoken file of ranks, a
            tekken.json, a .gguf, or a folder that holds one of them;
            `package:NAME`, or `package:NAME/FILE`: likewise, in the folder of an installed package;
            `tiktoken:NAME`, an encoding of the tiktoken package;
            `mistral:VERSION`, a tokenizer that the mistral-common package carries, such as v1, v3 or tekken;
            the name of a file in `tokenizers_cfg/`, or the path of such a file, whose TOML holds such a `spec` and, if wanted, the `fingerprint`
            that the tokenizer must have. Its table `[ranks]` supplies what a file of ranks does not hold.

    Raises:
        SourceError: if there is no such tokenizer, or it cannot be read, or its fingerprint is another.
        TokenizerError: if its bytes cannot be read or do not pass the probe.
        MissingExtraError: if its format needs an optional package that is not installed.
    """
    named = _configs()
    scheme, _, rest = spec.partition(":")
    if scheme in _SCHEMES and rest:
        return TextEncoder.from_reading(_SCHEMES[scheme](rest), spec)
    if spec in named:
        return _from_config(named[spec])
    if spec.endswith(".toml") and Path(spec).is_file():
        return _from_config(Path(spec))
    if spec and Path(spec).exists():
        return TextEncoder.from_reading(_from_path(Path(spec)), spec)
    raise SourceError(
        f"tokenizer {spec!r}",
        expected=f"{FORMS}, or one of the names {', '.join(sorted(named)) or '(none)'}",
        remedy=f"Check the spelling, or describe it in {CONFIG_FOLDERS[0] / 'NAME.toml'}",
    )


def _configs() -> dict[str, Path]:
    paths = (path for folder in reversed(CONFIG_FOLDERS) for path in sorted(folder.glob("*.toml")))
    return {path.stem: path for path in paths}


def _from_config(path: Path) -> TextEncoder:
    settings = _settings_of(path)
    spec, fingerprint = settings.get("spec", ""), settings.get("fingerprint")
    scheme, _, rest = str(spec).partition(":")
    is_known = scheme in _SCHEMES and bool(rest) and settings.keys() <= {"spec", "fingerprint", "ranks"}
    if not is_known or not isinstance(fingerprint, str | None):
        raise SourceError(
            f"{path} holds {', '.join(f'{key} = {value!r}' for key, value in settings.items()) or 'nothing'}",
            expected=f'spec = "SCHEME:..." with one of {", ".join(_SCHEMES)} and at most a fingerprint and a table [ranks] beside it',
            remedy="Mend the file",
        )
    reading = _from_path(path.parent / rest, path) if scheme == "file" else _SCHEMES[scheme](rest)
    return TextEncoder.from_reading(_held_to(reading, path, str(spec), fingerprint), path.stem)


def _settings_of(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SourceError(
            f"{path} cannot be read ({error})", expected="a TOML file", remedy="Mend or remove the file"
        ) from error


def _held_to(reading: Reading, path: Path, spec: str, fingerprint: Any) -> Reading:
    """A reading that has the fingerprint which a TOML expects, if it expects one."""
    found = reading.token_bytes.fingerprint
    if fingerprint is not None and fingerprint != found:
        raise SourceError(
            f"the tokenizer {spec} has the fingerprint {found}",
            expected=f"{fingerprint}, as {path} says",
            remedy="Load the version that the file means, or write the new fingerprint into it",
        )
    return reading


def _from_path(path: Path, described_in: Path | None = None) -> Reading:
    """Read a file, or the one tokenizer of a folder; a TOML may describe it where it is a file of ranks."""
    if not path.is_dir():
        return _from_file(path, described_in)
    for pattern in ("tokenizer.json", "tokenizer.model", "tekken.json", "*.model", "*.tiktoken", "*.gguf"):
        found = sorted(path.glob(pattern))
        if len(found) > 1:
            raise SourceError(
                f"{path} holds {', '.join(file.name for file in found)}",
                expected="one tokenizer per folder",
                remedy="Name the file itself",
            )
        if found:
            return _from_file(found[0], described_in)
    raise SourceError(
        f"{path} holds no tokenizer",
        expected="a tokenizer.json, tekken.json, .model, .tiktoken or .gguf in it",
        remedy="Name the folder that the tokenizer was saved in; a run keeps its own in the folder `tokenizer`",
    )


def _from_file(path: Path, described_in: Path | None = None) -> Reading:
    """Choose the format by what the file begins with; names of tokenizer files promise little."""
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16)
    except FileNotFoundError as error:
        raise SourceError(
            f"{path} does not exist", expected=f"a tokenizer: {FORMS}", remedy="Check the path"
        ) from error
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read ({error.strerror})", expected=f"a tokenizer: {FORMS}", remedy="Check its rights"
        ) from error
    if head.startswith(b"GGUF") or path.suffix == ".gguf":
        from tokagnostic.tokens.gguf.reader import read_gguf_file

        return read_gguf_file(path)
    if _RANK_LINE.match(head) or path.suffix == ".tiktoken":
        from tokagnostic.tokens.tiktoken.files import read_tiktoken_file

        reading = read_tiktoken_file(path, CONFIG_FOLDERS, described_in)
        beside = path.with_suffix(".toml")
        if described_in is None and beside.is_file():
            return _held_to(reading, beside, str(path), _settings_of(beside).get("fingerprint"))
        return reading
    if any(key in head for key in _TEKKEN_KEYS):
        from tokagnostic.tokens.tiktoken.tekken import read_tekken_file

        return read_tekken_file(path)
    is_json = head.lstrip().startswith(b"{") or path.suffix == ".json"
    if not is_json and (head.startswith(_FIRST_PIECE) or ".model" in path.suffixes):
        from tokagnostic.tokens.sentencepiece.reader import read_sentencepiece_file

        return read_sentencepiece_file(path)
    from tokagnostic.tokens.huggingface.files import read_pipeline_file

    return read_pipeline_file(path)


def _from_hub(name: str) -> Reading:
    """Fetch a repository's tokenizer, or take it from the hub's local cache."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError
    from huggingface_hub.utils import logging as hub_logging

    def fetch(file: str) -> Path | None:
        try:
            return Path(hf_hub_download(name, file))
        except LocalEntryNotFoundError:
            raise
        except EntryNotFoundError:
            return None

    verbosity = hub_logging.get_verbosity()
    # The hub's own warnings about each retry would hide the one line that says what is wrong.
    hub_logging.set_verbosity_error()
    try:
        if (file := fetch("tokenizer.json")) is not None:
            fetch("tokenizer_config.json")
            return _from_file(file)
        for other in ("tokenizer.model", "tekken.json"):
            if (file := fetch(other)) is not None:
                return _from_file(file)
    except (OSError, HFValidationError) as error:
        offline = isinstance(error, LocalEntryNotFoundError)
        what = "is not in the local cache and the hub does not answer" if offline else "cannot be fetched from the hub"
        raise SourceError(
            f"tokenizer hf:{name} {what} ({' '.join(str(error).split())})",
            expected="a repository that holds a tokenizer",
            remedy=f"Check the name and the connection, or use file:PATH or a name of {', '.join(sorted(_configs()))}",
        ) from error
    finally:
        hub_logging.set_verbosity(verbosity)
    raise SourceError(
        f"the repository hf:{name} holds no tokenizer",
        expected="a tokenizer.json, tokenizer.model or tekken.json in it",
        remedy="Name another repository, or download the file and name its path",
    )


def _from_tiktoken(name: str) -> Reading:
    from tokagnostic.tokens.tiktoken.reader import read_tiktoken_name

    return read_tiktoken_name(name)


def _from_mistral(version: str) -> Reading:
    from tokagnostic.tokens.mistral import read_mistral

    return read_mistral(version)


_SCHEMES: dict[str, Callable[[str], Reading]] = {
    "hf": _from_hub,
    "file": lambda path: _from_path(Path(path)),
    "package": lambda name: _from_path(package_path(name)),
    "tiktoken": _from_tiktoken,
    "mistral": _from_mistral,
}
