"""A tokenizer's description turned into the private copy that encodes plain text: nothing added, cut, or reached."""

from __future__ import annotations

import hashlib
from copy import copy
from typing import Any

from tokenizers import Tokenizer

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.huggingface.pipeline import Pipeline, Step, load_description


def private_description(description: Step) -> Step:
    """Describe a tokenizer with the same ids that turns every text into ordinary tokens.

    It has no padding, truncation, post-processor or dropout. Special tokens and the unknown token get names that
    nobody types, in the vocabulary and among the added tokens, so that text which spells one stays text. (The
    library's own switch for this does not survive pickling and does not reach pieces of the vocabulary.)
    """
    pipeline = Pipeline.from_description(description)
    hidden = {token.content for token in pipeline.added if token.special or token.id == pipeline.unknown_id}
    if pipeline.unknown_id is not None:
        hidden |= {piece for v, piece in zip(*pipeline.ids_and_pieces, strict=True) if v == pipeline.unknown_id}
    names = {content: _untypable(content) for content in hidden}
    return {
        **description,
        "truncation": None,
        "padding": None,
        "post_processor": None,
        "model": _rename_pieces(description["model"], names),
        "added_tokens": [{**t, "content": names.get(t["content"], t["content"])} for t in description["added_tokens"]],
    }


def private_copy(copied: Step) -> Tokenizer:
    """Build the tokenizer that encodes plain text.

    Args:
        copied: what `private_description` made.

    Raises:
        TokenizerError: if the copy would not have the ids that its description names.
    """
    tokenizer = load_description(copied)
    tokenizer.encode_special_tokens = True
    for token in Pipeline.from_description(copied).added:
        if tokenizer.token_to_id(token.content) != token.id:
            raise TokenizerError(
                f"added token {token.content!r} has id {token.id}, which its own file does not give it when loaded",
                expected="added tokens numbered as the tokenizers library numbers them",
                remedy="Save the tokenizer again with the library that uses it",
            )
    return tokenizer


def continuation_copy(copied: Step) -> Tokenizer | None:
    """Build the tokenizer for the later parts of a text that was cut: it puts no space before a part.

    Args:
        copied: what `private_description` made.

    Returns:
        The tokenizer, or None if the private copy itself will do.
    """
    continued = copy(copied)
    continued["normalizer"] = _without_prefix(copied.get("normalizer"))
    continued["pre_tokenizer"] = _without_prefix(copied.get("pre_tokenizer"))
    if continued == copied:
        return None
    tokenizer = load_description(continued)
    tokenizer.encode_special_tokens = True
    return tokenizer


def _untypable(content: str) -> str:
    # The space keeps the name from the model wherever spaces are dropped, spelled by a mark, or turned into symbols.
    return f"\U0010ffff {hashlib.sha256(content.encode()).hexdigest()}"


def _rename_pieces(model: Step, names: dict[str, str]) -> Step:
    renamed: Step = {**model}
    if "dropout" in model:
        renamed["dropout"] = None
    if "unk_token" in model:
        renamed["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    vocab = model["vocab"]
    if isinstance(vocab, list):
        renamed["vocab"] = [[names.get(piece, piece), score] for piece, score in vocab]
        return renamed
    in_vocab = names.keys() & vocab.keys()
    if in_vocab:
        renamed["vocab"] = {names.get(piece, piece): v for piece, v in vocab.items()}
        if "merges" in model:
            skip = len(model.get("continuing_subword_prefix") or "")
            renamed["merges"] = [
                pair for pair in model["merges"] if in_vocab.isdisjoint((*pair, pair[0] + pair[1][skip:]))
            ]
    return renamed


def _without_prefix(step: Any) -> Any:
    """Take out of a normalizer or pre-tokenizer what it does at the start of a text."""
    if step is None:
        return None
    match step["type"]:
        case "Sequence":
            key = "normalizers" if "normalizers" in step else "pretokenizers"
            first, *later = step[key] or [None]
            # After another pre-tokenizer the prefix belongs to every word, not to the start of the text.
            later = [_without_prefix(s) if key == "normalizers" or _is_first_only(s) else s for s in later]
            return {**step, key: [s for s in (_without_prefix(first), *later) if s is not None]}
        case "Prepend":
            return None
        case "Metaspace":
            return {**step, "prepend_scheme": "never"}
        case "ByteLevel":
            return {**step, "add_prefix_space": False}
        case "Strip":
            return {**step, "strip_left": False}
        case _:
            return step


def _is_first_only(step: Step) -> bool:
    return bool(step.get("prepend_scheme") == "first")
