"""A tekken.json, whose ids are ranks moved up by the number of specials, to a reading and back."""

from __future__ import annotations

import json
from base64 import b64encode
from binascii import a2b_base64
from pathlib import Path
from typing import Any

from tokagnostic.errors import SourceError, TokenizerError
from tokagnostic.tokens.engine import Reading
from tokagnostic.tokens.tiktoken.engine import RankEngine, read_engine
from tokagnostic.tokens.tiktoken.reader import vocabulary_of
from tokagnostic.tokens.tiktoken.vocabulary import RankVocabulary
from tokagnostic.tokens.token_bytes import LARGEST_ID

_LEGACY_SPECIAL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
"""The specials, by rank, of files that do not list their own."""


class TekkenEngine(RankEngine):
    """An engine that is saved as a tekken.json.

    Args:
        vocabulary: the ranks, moved up by the number of specials, and the specials.
        num_special: how many ids lie before the first rank.
        version: the version that the file states, such as `v3`.
    """

    def __init__(self, vocabulary: RankVocabulary, num_special: int, version: str) -> None:
        super().__init__(vocabulary)
        self._num_special = num_special
        self._version = version

    def __reduce__(self) -> tuple[Any, ...]:
        """As that of `RankEngine`."""
        return type(self), (self.vocabulary, self._num_special, self._version)

    def save(self, folder: Path, start_id: int | None) -> None:
        """Write a tekken.json, which mistral-common reads too; its key `start_id` is ours. See `Engine`."""
        vocabulary = self.vocabulary
        config = {
            "pattern": vocabulary.pattern,
            "num_vocab_tokens": len(vocabulary.ids),
            "default_vocab_size": vocabulary.num_ids,
            "default_num_special_tokens": self._num_special,
            "version": self._version,
        }
        ranks = sorted((v - self._num_special, token) for token, v in vocabulary.ids.items())
        special = sorted((v, name) for name, v in vocabulary.special.items())
        content = {
            "config": config,
            "start_id": start_id,
            "vocab": [{"rank": rank, "token_bytes": _coded(token), "token_str": _text(token)} for rank, token in ranks],
            "special_tokens": [{"rank": v, "token_str": name, "is_control": True} for v, name in special],
        }
        (folder / "tekken.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def read_tekken_file(path: Path) -> Reading:
    """Read a tekken.json.

    The id of a rank is the number of specials plus the rank; a special's id is its own rank. Bytes are those of
    `token_bytes` alone: `token_str` is null or another text where a token is no whole character. Ranks that
    `default_vocab_size` leaves no room for are dropped; specials that the file counts and does not list are there
    under names of their own.

    Raises:
        SourceError: if the file cannot be read, or lacks a part, or contradicts itself.
        TokenizerError: if the ids of a probe text do not join back to it.
        MissingExtraError: if tiktoken is not installed.
    """
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{path} cannot be read ({error})", expected="a tekken.json", remedy="Fetch the file again"
        ) from error
    try:
        engine = TekkenEngine(*_parts_of(content, path.stem))
        start_id = None if content.get("start_id") is None else int(content["start_id"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SourceError(
            f"{path} {f'has no {error}' if isinstance(error, KeyError) else f'is damaged: {error}'}",
            expected="a tekken.json: config with pattern and sizes, vocab with rank and token_bytes, special_tokens",
            remedy="Fetch the file again",
        ) from error
    return read_engine(engine, start_id)


def read_tekkenizer(tokenizer: Any) -> Reading:
    """Read a `Tekkenizer` of mistral-common.

    Raises:
        TokenizerError: if it keeps its parts elsewhere, as another version of the package might, or if the ids of a
            probe text do not join back to it.
    """
    try:
        inner = vocabulary_of(tokenizer._model)
        special = {token["token_str"]: int(token["rank"]) for token in tokenizer._all_special_tokens}
        num_special, version = int(tokenizer.num_special_tokens), tokenizer.version.value
    except (AttributeError, KeyError, TypeError) as error:
        raise TokenizerError(
            f"an object of type {type(tokenizer).__name__} without its parts ({error})",
            expected="a Tekkenizer of mistral-common",
            remedy="Load the tokenizer from its tekken.json",
        ) from error
    ids = {token: num_special + rank for token, rank in inner.ids.items()}
    return read_engine(TekkenEngine(RankVocabulary(inner.name, inner.pattern, ids, special), num_special, version))


def _parts_of(content: dict[str, Any], name: str) -> tuple[RankVocabulary, int, str]:
    """The vocabulary, the number of specials, and the version.

    Raises:
        KeyError, TypeError, AttributeError: if a part is missing or of another type.
        ValueError: if the parts contradict each other.
    """
    config = content["config"]
    for name, part, kind in (
        ("config", config, dict),
        ("vocab", content["vocab"], list),
        ("special_tokens", content.get("special_tokens"), list | None),
    ):
        if not isinstance(part, kind):
            raise ValueError(f"its {name} is {part!r:.40}")
    special = _special_of(content.get("special_tokens"), config)
    num_special = len(set(special.values()))
    ids = {token: num_special + rank for rank, token in _ranks_of(content["vocab"], config, num_special).items()}
    if not isinstance(config["pattern"], str):
        raise ValueError(f"the pattern is {config['pattern']!r}")
    return RankVocabulary(name, config["pattern"], ids, special), num_special, str(config.get("version", "v3"))


def _special_of(listed: list[dict[str, Any]] | None, config: dict[str, Any]) -> dict[str, int]:
    """The rank of each special by name; those that are counted and not listed get names of their own."""
    if listed is None:
        listed = [{"rank": rank, "token_str": name} for rank, name in enumerate(_LEGACY_SPECIAL)]
    special = {str(token["token_str"]): int(token["rank"]) for token in listed}
    taken = set(special.values())
    num_special = int(config.get("default_num_special_tokens", len(listed)))
    if num_special <= LARGEST_ID:
        special |= {f"<SPECIAL_{rank}>": rank for rank in range(num_special) if rank not in taken}
    if not len(taken) == len(listed) <= num_special == len(special) or set(special.values()) != set(range(num_special)):
        raise ValueError(f"{len(listed)} specials have not names and ranks of their own from 0 to {num_special - 1}")
    return special


def _ranks_of(vocab: list[dict[str, Any]], config: dict[str, Any], num_special: int) -> dict[int, bytes]:
    """The bytes of each rank below the declared size, in order."""
    ranks = {int(token["rank"]): a2b_base64(token["token_bytes"], strict_mode=True) for token in vocab}
    num_ranks = int(config.get("default_vocab_size", num_special + len(ranks))) - num_special
    kept = {rank: token for rank, token in sorted(ranks.items()) if 0 <= rank < num_ranks}
    if len(ranks) < len(vocab) or len(set(kept.values())) < len(kept):
        raise ValueError("two tokens have the same rank or the same bytes")
    if len(kept) < num_ranks:
        raise ValueError(f"{num_ranks} ranks are declared and {len(kept)} are there")
    return kept


def _coded(token: bytes) -> str:
    return b64encode(token).decode()


def _text(token: bytes) -> str | None:
    """The text of a token, or None if it is no whole character."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return None
