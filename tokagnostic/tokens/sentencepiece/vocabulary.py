"""The pieces of a SentencePiece model turned into bytes, and its rules into the statement of what they lose."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.fidelity import Fidelity
from tokagnostic.tokens.sentencepiece.model import SPACE_MARK, ModelType, PieceType, SentencePieceModel
from tokagnostic.tokens.token_bytes import PrefixRule, TokenBytes, TokenKind

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_KINDS = {
    PieceType.NORMAL: TokenKind.TEXT,
    PieceType.UNKNOWN: TokenKind.UNKNOWN,
    PieceType.CONTROL: TokenKind.SPECIAL,
    PieceType.USER_DEFINED: TokenKind.ADDED,
    PieceType.UNUSED: TokenKind.UNREACHABLE,
    PieceType.BYTE: TokenKind.BYTE,
}

Normalize = Callable[[str], str]
"""What a model makes of a text before it is cut into pieces."""


def read_vocabulary(model: SentencePieceModel, normalize: Normalize) -> TokenBytes:
    """Read every piece.

    Args:
        model: the pieces and the rules.
        normalize: what the rules do to a text.

    Raises:
        TokenizerError: if a space cannot be spelled, is invented behind a text, or a byte piece is not spelled as one.
    """
    if model.space_as_suffix and model.adds_space:
        raise TokenizerError(
            "a SentencePiece model that puts its invented space behind each text",
            expected="a model that puts it before, or none",
            remedy="Train it without treat_whitespace_as_suffix",
        )
    _check_mark(model)
    # No piece holds a NUL, so all of them are read in one go.
    data: list[bytes | None] = [*model.text_of("\0".join(model.pieces)).encode().split(b"\0")]
    for v in np.flatnonzero(~model.is_text).tolist():
        data[v] = _byte_of(v, model.pieces[v]) if model.types[v] == PieceType.BYTE else None
    kinds = [_KINDS[kind] for kind in model.types.tolist()]
    prefix: PrefixRule = "first" if model.adds_space else "none"
    return TokenBytes.from_list(data, kinds=kinds, prefix=prefix, fidelity=declare_fidelity(model, normalize))


def declare_fidelity(model: SentencePieceModel, normalize: Normalize) -> Fidelity:
    """Say from the model's rules what is lost.

    Args:
        model: the pieces and the rules.
        normalize: what the rules do to a text.
    """
    losses = [*_losses(model, normalize)]
    exceptions = []
    if model.marks_spaces:
        exceptions.append(f"the character {SPACE_MARK!r} (U+2581) becomes a space")
    return Fidelity("lossy" if losses else "exact", (*losses, *exceptions))


def _losses(model: SentencePieceModel, normalize: Normalize) -> Iterator[str]:
    if model.rewrites:
        newline = "" if "\n" in normalize("a\nb") else ", a newline to a space"
        yield f"characters are rewritten by the rules {model.normalizer or 'of the model'!r}{newline}"
    if model.squeezes:
        yield "runs of spaces become one, and spaces at the text's ends are removed"
    if not model.byte_fallback:
        units = "words" if model.model_type is ModelType.WORD else "characters"
        yield f"{units} outside the vocabulary become the unknown id"


def _byte_of(v: int, piece: str) -> bytes:
    match = _BYTE_PIECE.fullmatch(piece)
    if match is None:
        raise TokenizerError(
            f"id {v} of a SentencePiece model is the byte piece {piece!r}",
            expected="a byte piece spelled like <0x41>",
            remedy="Fetch the model again, or mend it",
        )
    return bytes((int(match[1], 16),))


def _check_mark(model: SentencePieceModel) -> None:
    """Refuse a vocabulary in which a space would be spelled by the three bytes of the mark, or not at all."""
    if model.model_type is ModelType.WORD and model.byte_fallback and model.marks_spaces:
        raise TokenizerError(
            "a SentencePiece model of words with byte fallback, in which the space before a word outside the "
            "vocabulary becomes the bytes E2 96 81",
            expected="a model of words without byte fallback, or one of word parts",
            remedy="Train it with another model_type",
        )
    mark = SPACE_MARK if model.marks_spaces else " "
    spelled = {model.pieces[v] for v in np.flatnonzero(model.is_text).tolist() if mark in model.pieces[v]}
    if mark in spelled or (spelled and not model.byte_fallback):
        return
    instead = "would become the bytes E2 96 81" if model.byte_fallback and model.marks_spaces else "would be lost"
    raise TokenizerError(
        f"a SentencePiece model without the piece {mark!r}, so a space {instead}",
        expected="a piece that is the mark alone",
        remedy="Add the mark to the vocabulary",
    )
