"""A pipeline turned into the statement of what its ids keep of a text, and what they invent or destroy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.alphabet import BYTES_OUTSIDE_UTF8, byte_symbols
from tokagnostic.tokens.fidelity import Fidelity, FidelityLevel
from tokagnostic.tokens.huggingface.pipeline import WHITESPACE_DROPPERS, Pipeline, Step

_LOSSLESS_NORMALIZERS = frozenset({"ByteLevel", "NFC"})
_LOSSLESS_PRE_TOKENIZERS = frozenset({"ByteLevel", "Metaspace", "Digits", "FixedLength"})
_LOSSY_NORMALIZERS = {
    "NFD": "characters are decomposed (NFD)",
    "NFKC": "compatibility characters are replaced (NFKC)",
    "NFKD": "compatibility characters are replaced and decomposed (NFKD)",
    "Lowercase": "letters are made lower case",
    "StripAccents": "accents are removed",
    "Nmt": "control characters are removed and unusual spaces made plain (Nmt)",
    "Precompiled": "characters are rewritten by a precompiled map (as NFKC, newline to space)",
}


def declare_fidelity(pipeline: Pipeline) -> Fidelity:
    """Say from the pipeline alone what is lost. The probe holds the tokenizer to it.

    Args:
        pipeline: the steps of the private copy.

    Raises:
        TokenizerError: if a step is of a kind whose effect is not known.
    """
    losses = [
        *_normalizer_losses(pipeline),
        *_pre_tokenizer_losses(pipeline),
        *_prefix_losses(pipeline),
        *_model_losses(pipeline),
        *_added_token_losses(pipeline),
    ]
    nfc = ["the text is put into NFC first"] if any(s["type"] == "NFC" for s in pipeline.normalizers) else []
    exceptions = list(_exceptions(pipeline))
    level: FidelityLevel = "lossy" if losses else "nfc" if nfc else "exact"
    return Fidelity(level, (*losses, *nfc, *exceptions))


def _normalizer_losses(pipeline: Pipeline) -> Iterator[str]:
    for step in pipeline.normalizers:
        kind = step["type"]
        if kind in _LOSSY_NORMALIZERS:
            yield _LOSSY_NORMALIZERS[kind]
        elif kind in _LOSS_OF_NORMALIZER:
            yield from _LOSS_OF_NORMALIZER[kind](step, pipeline.mark)
        elif kind not in _LOSSLESS_NORMALIZERS:
            raise _unknown_step("normalizer", step)


def _strip_loss(step: Step, mark: str | None) -> Iterator[str]:
    sides = [side for side in ("left", "right") if step[f"strip_{side}"]]
    if sides:
        yield f"spaces at the text's {' and '.join(sides)} end are removed"


def _replace_loss(step: Step, mark: str | None) -> Iterator[str]:
    if step["pattern"] != {"String": " "} or step["content"] != mark:
        yield f"{next(iter(step['pattern'].values()))!r} is replaced by {step['content']!r}"


def _prepend_loss(step: Step, mark: str | None) -> Iterator[str]:
    if step["prepend"] not in (" ", mark):
        yield f"{step['prepend']!r} is put before each segment"


def _bert_loss(step: Step, mark: str | None) -> Iterator[str]:
    effects = {
        "clean_text": "control characters are removed and whitespace made plain",
        "handle_chinese_chars": "spaces are put round Chinese characters",
        "strip_accents": "accents are removed",
        "lowercase": "letters are made lower case",
    }
    # An unset strip_accents follows lowercase.
    on = {**step, "strip_accents": step["lowercase"] if step["strip_accents"] is None else step["strip_accents"]}
    yield from (effect for name, effect in effects.items() if on[name])


_LOSS_OF_NORMALIZER: dict[str, Callable[[Step, str | None], Iterator[str]]] = {
    "BertNormalizer": _bert_loss,
    "Prepend": _prepend_loss,
    "Replace": _replace_loss,
    "Strip": _strip_loss,
}


def _pre_tokenizer_losses(pipeline: Pipeline) -> Iterator[str]:
    if pipeline.drops_whitespace:
        yield "whitespace between words is dropped"
    for step in pipeline.pre_tokenizers:
        kind = step["type"]
        if kind == "CharDelimiterSplit":
            yield f"the delimiter {step['delimiter']!r} is dropped"
        elif kind == "UnicodeScripts":
            yield "a space at the text's start, a text of nothing but spaces, and characters of no script are dropped"
        elif kind in ("Split", "Punctuation"):
            if step["behavior"] == "Removed":
                pattern = next(iter(step["pattern"].values())) if kind == "Split" else "punctuation"
                yield f"what {'does not match' if step.get('invert') else 'matches'} {pattern!r} is dropped"
        elif kind not in _LOSSLESS_PRE_TOKENIZERS and kind not in WHITESPACE_DROPPERS:
            raise _unknown_step("pre-tokenizer", step)


def _prefix_losses(pipeline: Pipeline) -> Iterator[str]:
    if pipeline.prepends_in_pre_tokenizer == "none":
        return
    first = pipeline.pre_tokenizers[0]
    if len(pipeline.pre_tokenizers) > 1 and not (first["type"] in ("Metaspace", "ByteLevel")):
        yield "every part of the split text gets a leading space if it has none"
    elif not pipeline.prepends_in_normalizer:
        yield "the text's own first leading space is taken for the invented one"


def _model_losses(pipeline: Pipeline) -> Iterator[str]:
    model, vocab = pipeline.model, pipeline.vocab
    if model["type"] in ("WordPiece", "WordLevel"):
        yield f"words outside the vocabulary {_fate(pipeline)}"
    elif pipeline.is_byte_level and model["type"] == "BPE":
        missing = [b for b, symbol in enumerate(byte_symbols()) if symbol not in vocab]
        if not BYTES_OUTSIDE_UTF8.issuperset(missing):
            listed = " ".join(f"{b:02X}" for b in missing)
            yield f"{len(missing)} of 256 bytes have no symbol and {_fate(pipeline)}: {listed}"
    elif pipeline.has_byte_fallback:
        if pipeline.lacks_byte_pieces:
            num_missing = len(pipeline.missing_byte_pieces)
            yield f"{num_missing} of 256 byte pieces are missing; characters that need them {_fate(pipeline)}"
            if model["type"] == "BPE" and pipeline.unknown_id is not None:
                yield "the unknown id may stand elsewhere than the character it stands for"
    else:
        yield f"characters outside the vocabulary {_fate(pipeline)}"


def _fate(pipeline: Pipeline) -> str:
    if pipeline.unknown_id is not None:
        return "become the unknown id"
    return "vanish" if pipeline.model["type"] == "BPE" else "are refused with an error"


def _added_token_losses(pipeline: Pipeline) -> Iterator[str]:
    ordinary = [t for t in pipeline.added if not t.special and t.id != pipeline.unknown_id]
    if not ordinary:
        return
    if pipeline.prefix == "always":
        yield f"a space is invented after an added token such as {ordinary[0].content!r}"
    for token in ordinary:
        if token.lstrip or token.rstrip:
            yield f"the added token {token.content!r} swallows the spaces beside it"
        if pipeline.prefix != "none" and pipeline.text_of(token.content).startswith(" "):
            yield f"the added token {token.content!r} loses a space at the start of a text"


def _exceptions(pipeline: Pipeline) -> Iterator[str]:
    """What is too rare to change the level, yet has to be said."""
    if pipeline.mark is not None:
        yield f"the character {pipeline.mark!r} (U+{ord(pipeline.mark):04X}) becomes a space"
    if pipeline.has_byte_fallback and not pipeline.is_byte_level:
        if pipeline.model["type"] == "Unigram":
            yield "text that spells a byte piece such as '<0x41>' may become that byte"
        odd = sorted(p for p in pipeline.vocab if re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", p) and p[3:5] != p[3:5].upper())
        if odd:
            yield f"{len(odd)} pieces such as {odd[0]!r} are in lower-case hex and are read as text"


def _unknown_step(role: str, step: Step) -> TokenizerError:
    return TokenizerError(
        f"a {role} of type {step['type']}",
        expected="a step whose effect on the text is known",
        remedy="Convert the tokenizer to the steps of the tokenizers library that this program knows",
    )
