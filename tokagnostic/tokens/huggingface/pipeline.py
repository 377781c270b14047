"""A tokenizer's own description of itself, as the facts that decide what its ids mean: model, steps, added tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tokenizers
from tokenizers import Tokenizer, models

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.alphabet import BYTES_OUTSIDE_UTF8
from tokagnostic.tokens.token_bytes import PrefixRule

Step = dict[str, Any]
"""One normalizer, pre-tokenizer or model as the library writes it: a `type` and its settings."""

WHITESPACE_DROPPERS = frozenset({"BertPreTokenizer", "Whitespace", "WhitespaceSplit"})
"""Pre-tokenizers that throw the gaps between words away."""


_EMPTY_MODEL = {"type": "BPE", "vocab": {}, "merges": []}
_MODEL_DATA = frozenset({"type", "vocab", "merges"})
"""What a model holds beside its settings, which its constructor takes by the same names."""
_ADDED_TOKEN_SETTINGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True)
class AddedToken:
    """A token that stands beside the model's vocabulary and is matched in the text before the model runs."""

    id: int
    content: str
    special: bool
    normalized: bool
    """Matched in the normalized text, by its own normalized spelling."""
    single_word: bool
    lstrip: bool
    rstrip: bool


@dataclass(frozen=True)
class Pipeline:
    """The steps between a text and its ids. `Sequence` steps are flattened, in order."""

    model: Step
    normalizers: tuple[Step, ...]
    pre_tokenizers: tuple[Step, ...]
    added: tuple[AddedToken, ...]

    @classmethod
    def from_description(cls, description: Step) -> Pipeline:
        """Take the facts out of what `Tokenizer.to_str` writes, parsed."""
        fields = AddedToken.__dataclass_fields__
        return cls(
            model=description["model"],
            normalizers=tuple(_flatten(description.get("normalizer"), "normalizers")),
            pre_tokenizers=tuple(_flatten(description.get("pre_tokenizer"), "pretokenizers")),
            added=tuple(AddedToken(**{name: t[name] for name in fields}) for t in description["added_tokens"]),
        )

    def __str__(self) -> str:
        """The pipeline in one line, such as `NFC > ByteLevel > BPE`."""
        steps = [*self.normalizers, *self.pre_tokenizers, self.model]
        return " > ".join(str(step["type"]) for step in steps)

    @cached_property
    def vocab(self) -> dict[str, int]:
        """The model's pieces and their ids, added tokens aside."""
        vocab = self.model["vocab"]
        if isinstance(vocab, dict):
            return vocab
        return {piece: v for v, (piece, _) in enumerate(vocab)}

    @property
    def ids_and_pieces(self) -> tuple[list[int], list[str]]:
        """Every id of the model and its piece, in the same order, pieces that occur twice included."""
        vocab = self.model["vocab"]
        if isinstance(vocab, dict):
            return [*vocab.values()], [*vocab]
        return [*range(len(vocab))], [piece for piece, _ in vocab]

    @property
    def is_byte_level(self) -> bool:
        """Text passes through the byte alphabet before the model sees it."""
        return any(step["type"] == "ByteLevel" for step in (*self.normalizers, *self.pre_tokenizers))

    @cached_property
    def mark(self) -> str | None:
        """The character that stands for a space in the vocabulary, if there is one."""
        for step in self.pre_tokenizers:
            if step["type"] == "Metaspace":
                return str(step["replacement"])
        for step in self.normalizers:
            if step["type"] == "Replace" and step["pattern"] == {"String": " "} and len(step["content"]) == 1:
                return str(step["content"])
        return None

    def text_of(self, spelling: str) -> str:
        """The text that a spelling of the pipeline stands for: where there is a mark, it is read as a space."""
        return spelling.replace(self.mark, " ") if self.mark else spelling

    @property
    def has_byte_fallback(self) -> bool:
        """The model spells what it has no piece for in byte pieces such as `<0x0A>`."""
        return bool(self.model.get("byte_fallback"))

    @cached_property
    def missing_byte_pieces(self) -> tuple[int, ...]:
        """The bytes without a piece, under byte fallback."""
        return tuple(b for b in range(256) if f"<0x{b:02X}>" not in self.vocab) if self.has_byte_fallback else ()

    @property
    def lacks_byte_pieces(self) -> bool:
        """Byte fallback is on and cannot spell every text."""
        return not BYTES_OUTSIDE_UTF8.issuperset(self.missing_byte_pieces)

    @cached_property
    def unknown_id(self) -> int | None:
        """The id for what the model cannot spell, or None where it has none."""
        if self.model["type"] == "Unigram":
            unk_id = self.model.get("unk_id")
            return None if unk_id is None else int(unk_id)
        piece = self.model.get("unk_token")
        if piece in self.vocab:
            return self.vocab[piece]
        return next((token.id for token in self.added if token.content == piece), None)

    @property
    def drops_whitespace(self) -> bool:
        """A pre-tokenizer throws the gaps between words away."""
        return any(step["type"] in WHITESPACE_DROPPERS for step in self.pre_tokenizers)

    @property
    def prepends_in_normalizer(self) -> bool:
        """A normalizer puts a space before each segment, also before one that begins with a space."""
        return any(step["type"] == "Prepend" and step["prepend"] in (" ", self.mark) for step in self.normalizers)

    @property
    def prepends_in_pre_tokenizer(self) -> PrefixRule:
        """Where a pre-tokenizer puts a space before a segment that does not begin with one."""
        rules = {str(step.get("prepend_scheme")) for step in self.pre_tokenizers if step["type"] == "Metaspace"}
        if "always" in rules or any(step.get("add_prefix_space") for step in self.pre_tokenizers):
            return "always"
        return "first" if "first" in rules else "none"

    @property
    def prefix(self) -> PrefixRule:
        """Where a space is invented."""
        return "always" if self.prepends_in_normalizer else self.prepends_in_pre_tokenizer


@contextmanager
def library_errors(doing: str) -> Iterator[None]:
    """Turn whatever the tokenizers library throws into a TokenizerError that says what was being done.

    The library raises bare `Exception` for every refusal, and `PanicException`, which is no `Exception` at all, where
    its own code breaks; nothing narrower can be named.
    """
    try:
        yield
    except BaseException as error:
        if type(error) not in (Exception, TypeError, ValueError) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(
            f"{doing} failed in the tokenizers library: {' '.join(str(error).split())}",
            expected="a tokenizer that can do this",
            remedy="Check the tokenizer's file and its settings",
        ) from error


def describe(tokenizer: Any) -> Step:
    """Read the description of a `tokenizers.Tokenizer` or of a transformers fast tokenizer.

    Raises:
        TokenizerError: if it is neither, or holds steps written in Python, which have no description.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(backend, Tokenizer):
        raise TokenizerError(
            f"an object of type {type(tokenizer).__name__} without a `backend_tokenizer`",
            expected="a tokenizers.Tokenizer or a fast tokenizer of transformers",
            remedy="Load it with transformers.AutoTokenizer, or from its tokenizer.json with tokenizers.Tokenizer",
        )
    with library_errors("describing the tokenizer"):
        description: Step = json.loads(backend.to_str())
    return description


def load_description(description: Step) -> Tokenizer:
    """Build a tokenizer from a description.

    Large models are handed over as objects, which takes half the time of having them parsed and keeps every score to
    the last bit.
    """
    with library_errors("copying the tokenizer"):
        model = _build_model(description["model"])
        if model is None:
            return Tokenizer.from_str(json.dumps(description, ensure_ascii=False))
        shell = {**description, "model": _EMPTY_MODEL, "added_tokens": []}
        tokenizer = Tokenizer.from_str(json.dumps(shell, ensure_ascii=False))
        tokenizer.model = model
        tokenizer.add_tokens(
            [
                tokenizers.AddedToken(token["content"], **{name: token[name] for name in _ADDED_TOKEN_SETTINGS})
                for token in description["added_tokens"]
            ]
        )
        return tokenizer


def _build_model(model: Step) -> models.Model | None:
    """Build a model of one of the two kinds that come large; None for the others."""
    settings = {name: value for name, value in model.items() if name not in _MODEL_DATA and value is not None}
    match model["type"]:
        case "BPE":
            return models.BPE(vocab=model["vocab"], merges=list(map(tuple, model["merges"])), **settings)
        case "Unigram":
            return models.Unigram(vocab=list(map(tuple, model["vocab"])), **settings)
        case _:
            return None


def _flatten(step: Step | None, children: str) -> Iterator[Step]:
    if step is None:
        return
    if step["type"] == "Sequence":
        for child in step[children]:
            yield from _flatten(child, children)
    else:
        yield step
