"""The pieces of a SentencePiece model turned into bytes, and its rules into the statement of what they lose."""

from __future__ import annotations

import re
from collections.abc import Iterator

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


def read_vocabulary(model: SentencePieceModel) -> TokenBytes:
    """Read every piece.

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
    data: list[bytes | None] = []
    for v, (piece, kind) in enumerate(zip(model.pieces, model.types, strict=True)):
        if kind in (PieceType.NORMAL, PieceType.USER_DEFINED):
            data.append(model.text_of(piece).encode())
        else:
            data.append(_byte_of(v, piece) if kind is PieceType.BYTE else None)
    kinds = [_KINDS[kind] for kind in model.types]
    prefix: PrefixRule = "first" if model.adds_space else "none"
    return TokenBytes.from_list(data, kinds=kinds, prefix=prefix, fidelity=declare_fidelity(model))


def declare_fidelity(model: SentencePieceModel) -> Fidelity:
    """Say from the model's rules what is lost."""
    losses = [*_losses(model)]
    exceptions = []
    if model.marks_spaces:
        exceptions.append(f"the character {SPACE_MARK!r} (U+2581) becomes a space")
    return Fidelity("lossy" if losses else "exact", (*losses, *exceptions))


def _losses(model: SentencePieceModel) -> Iterator[str]:
    if model.rewrites:
        yield f"characters are rewritten by the rules {model.normalizer or 'of the model'!r}"
    if model.squeezes:
        yield "runs of spaces become one, and spaces at the text's ends are removed"
    if model.model_type is ModelType.WORD:
        yield "words outside the vocabulary become the unknown id"
    elif not model.byte_fallback:
        yield "characters outside the vocabulary become the unknown id"


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
    mark = SPACE_MARK if model.marks_spaces else " "
    spelled = [p for p, kind in zip(model.pieces, model.types, strict=True) if kind in (1, 4) and mark in p]
    if mark in spelled or (spelled and not model.byte_fallback):
        return
    instead = "would become the bytes E2 96 81" if model.byte_fallback and model.marks_spaces else "would be lost"
    raise TokenizerError(
        f"a SentencePiece model without the piece {mark!r}, so a space {instead}",
        expected="a piece that is the mark alone",
        remedy="Add the mark to the vocabulary",
    )
