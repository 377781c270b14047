"""A text turned into the bytes that its ids should stand for: the library's own steps up to the model, then its law."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from tokenizers import Tokenizer
from tokenizers.normalizers import NFC

from tokagnostic.tokens.alphabet import bytes_of_symbols
from tokagnostic.tokens.fidelity import FidelityLevel
from tokagnostic.tokens.huggingface.pipeline import AddedToken, Pipeline, Step
from tokagnostic.tokens.huggingface.private import continuation_copy

_WHITESPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
"""What the library calls whitespace; Python adds four control characters to it."""
_WORD_START = re.compile(r"\w")
_WORD_END = re.compile(r"\w\Z")


class Expectation:
    """What the joined bytes of a text's ids must be, as sharply as the declared level lets one say.

    Under `exact` this is the text itself, under `nfc` its NFC form, both with the mark read as a space. Under `lossy`
    it is what the library's normalizer and pre-tokenizer make of the text between added tokens, less the characters
    that the model drops without a trace. What the model calls unknown is left to the comparison.

    Args:
        tokenizer: the private copy.
        description: what the private copy was built from.
        level: the declared level.
    """

    def __init__(self, tokenizer: Tokenizer, description: Step, level: FidelityLevel) -> None:
        self.tokenizer = tokenizer
        self.description = description
        self.pipeline = Pipeline.from_description(description)
        self.level = level

    def bytes_of(self, text: str) -> bytes:
        """The bytes that the ids of one document must join to, the invented leading space taken out."""
        if self.level != "lossy":
            form = NFC().normalize_str(text) if self.level == "nfc" else text
            return self.pipeline.text_of(form).encode()
        data = b"".join(self._parts(text))
        return data if self.pipeline.prefix == "none" or self.misplaces_unknown else data.removeprefix(b" ")

    @cached_property
    def misplaces_unknown(self) -> bool:
        """Whether unknown ids may stand elsewhere than what they stand for.

        The library's BPE holds an unknown id back while characters are spelled in byte pieces, so where only some of
        the byte pieces exist its place says nothing. Such ids are left out of the comparison, and the invented space
        is left in.
        """
        return self.pipeline.model["type"] == "BPE" and self.pipeline.lacks_byte_pieces

    def _parts(self, text: str) -> Iterator[bytes]:
        """The bytes of each added token and of each stretch of text between them."""
        at_text_start = True
        for stretch, token in _split(text, self._raw_added):
            if token is not None:
                yield self.pipeline.text_of(token.content).encode()
            else:
                for part, inner in _split(self._normalize(stretch), self._normalized_added):
                    if inner is not None:
                        yield self.pipeline.text_of(inner.content).encode()
                    else:
                        yield b"".join(map(self._model_bytes, self._pre_tokenize(part, at_text_start)))
                    at_text_start = False
            at_text_start = False

    def _normalize(self, text: str) -> str:
        normalizer = self.tokenizer.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def _pre_tokenize(self, text: str, at_text_start: bool) -> list[str]:
        follows = not at_text_start and self.pipeline.prepends_in_pre_tokenizer == "first"
        pre_tokenizer = (self._continuation if follows else self.tokenizer).pre_tokenizer
        return [text] if pre_tokenizer is None else [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]

    def _model_bytes(self, pre_token: str) -> bytes:
        if self.pipeline.model["type"] == "BPE" and (self.pipeline.unknown_id is None or self.misplaces_unknown):
            pre_token = self._without_dropped(pre_token)
        if self.pipeline.is_byte_level:
            return bytes_of_symbols(pre_token)
        return self.pipeline.text_of(pre_token).encode()

    def _without_dropped(self, pre_token: str) -> str:
        """Take out the characters for which BPE has neither a symbol nor byte pieces: it drops them."""
        vocab = self.pipeline.vocab
        if self.pipeline.model.get("ignore_merges") and pre_token in vocab:
            return pre_token
        fallback = self.pipeline.has_byte_fallback
        return "".join(
            c for c in pre_token if c in vocab or (fallback and all(f"<0x{b:02X}>" in vocab for b in c.encode()))
        )

    @cached_property
    def _continuation(self) -> Tokenizer:
        return continuation_copy(self.description) or self.tokenizer

    @cached_property
    def _raw_added(self) -> tuple[re.Pattern[str], list[AddedToken]]:
        return _matcher([(t, t.content) for t in self._ordinary if not t.normalized])

    @cached_property
    def _normalized_added(self) -> tuple[re.Pattern[str], list[AddedToken]]:
        return _matcher([(t, self._normalize(t.content)) for t in self._ordinary if t.normalized])

    @property
    def _ordinary(self) -> list[AddedToken]:
        return [t for t in self.pipeline.added if not t.special and t.id != self.pipeline.unknown_id]


def _matcher(spelled: list[tuple[AddedToken, str]]) -> tuple[re.Pattern[str], list[AddedToken]]:
    """One pattern with a group per added token; at one place the longest spelling wins, as in the library."""
    spelled = sorted(((token, spelling) for token, spelling in spelled if spelling), key=lambda pair: -len(pair[1]))
    groups = [f"({re.escape(spelling)})" for _, spelling in spelled]
    return re.compile("|".join(groups) or "(?!)"), [token for token, _ in spelled]


def _split(text: str, matcher: tuple[re.Pattern[str], list[AddedToken]]) -> Iterator[tuple[str, AddedToken | None]]:
    """Cut a text at the added tokens in it, as the library does; stretches between them are never empty."""
    pattern, tokens = matcher
    done = 0
    for match in pattern.finditer(text):
        token = tokens[(match.lastindex or 1) - 1]
        start, stop = match.span()
        if token.single_word and (_WORD_END.search(text, 0, start) or _WORD_START.match(text, stop)):
            continue
        if token.lstrip:
            start = max(done, len(text[:start].rstrip(_WHITESPACE)))
        if token.rstrip:
            stop += len(text[stop:]) - len(text[stop:].lstrip(_WHITESPACE))
        if start > done:
            yield text[done:start], None
        yield text[start:stop], token
        done = stop
    if done < len(text):
        yield text[done:], None
