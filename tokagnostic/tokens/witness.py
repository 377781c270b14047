"""A tokenizer to the shortest texts that show what it invents or destroys, found by experiment and not by what it says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.effects import IMPLIED_BY, Effect, Observation, explains, name_effect
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.token_bytes import TokenBytes
from tokagnostic.tokens.witness_texts import candidate_texts

_NUM_SHRUNK = 8
"""Of the texts that show an effect, how many are cut down; the shortest ones."""


@dataclass(frozen=True)
class Witness:
    """A text that shows one thing that a tokenizer invents or destroys; nothing can be left out of it."""

    effect: str
    """What happens, in words."""
    text: str
    source: bytes
    """The bytes of the text."""
    joined: bytes
    """The bytes that its ids stand for, the invented leading space taken out."""
    kept: bytes
    """The same with that space left in."""
    ids: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, bytes in hex."""
        return {
            "effect": str(self.effect),
            "text": self.text,
            "source_hex": self.source.hex(),
            "joined_hex": self.joined.hex(),
            "kept_hex": self.kept.hex(),
            "ids": list(self.ids),
        }


def find_witnesses(encoder: TextEncoder) -> tuple[Witness, ...]:
    """Find what a tokenizer does to texts, and for each effect the shortest text that shows it alone.

    Some thousand texts are encoded and their joined bytes held against their own. Of those that show an effect the
    shortest are cut down, character by character, for as long as they show it. The shortest of these wins; among
    equals the one whose characters are plainest (`a` to `z`, other printable ASCII, other letters, other printable
    characters, the rest), then the first by code points.

    Returns:
        One witness per effect, in the order of `Effect`. The leading space that a tokenizer invents is among them
        although it is taken out again. An effect that follows from another one found is left out.
    """
    laboratory = Laboratory(encoder)
    texts = sorted(candidate_texts(encoder), key=_plainness)
    showing: dict[Effect, list[str]] = {}
    for seen in laboratory.observe_all(texts):
        effect = name_effect(seen, laboratory.observe)
        if effect is not None:
            showing.setdefault(effect, []).append(seen.text)
    known = frozenset(showing) - {Effect.REWRITES}
    found = {}
    for effect in Effect:
        if effect in showing and not IMPLIED_BY.get(effect, frozenset()) & known:
            candidates = showing[effect]
            if effect is Effect.REWRITES:
                candidates = [text for text in candidates if laboratory.shows(text, effect, known)]
            if candidates:
                shrunk = (laboratory.shrink(text, effect, known) for text in candidates[:_NUM_SHRUNK])
                found[effect] = laboratory.observe(min(shrunk, key=_plainness))
    return tuple(
        Witness(effect, seen.text, seen.text.encode(), seen.joined, seen.kept, seen.ids)
        for effect, seen in found.items()
    )


def _plainness(text: str) -> tuple[int, list[int], str]:
    return len(text), [_class_of(c) for c in text], text


def _class_of(c: str) -> int:
    if "a" <= c <= "z":
        return 0
    if " " <= c <= "~":
        return 1
    return 2 if c.isalpha() else 3 if c.isprintable() and c != "\ufffd" else 4


@dataclass
class Laboratory:
    """A tokenizer and what is known of texts that it was given."""

    encoder: TextEncoder
    seen: dict[str, Observation] = field(default_factory=dict)

    def observe(self, text: str) -> Observation:
        """What a text becomes; each is encoded once."""
        if text not in self.seen:
            self.observe_all([text])
        return self.seen[text]

    def observe_all(self, texts: Sequence[str]) -> list[Observation]:
        """What many texts become."""
        try:
            encoded: Iterable[Sequence[int] | None] = [ids.tolist() for ids in self.encoder.encode_batch(texts)]
        except TokenizerError:
            encoded = map(self._encode, texts)
        for text, ids in zip(texts, encoded, strict=True):
            self.seen[text] = _observation(self.encoder.token_bytes, text, ids)
        return [self.seen[text] for text in texts]

    def shows(self, text: str, effect: Effect, known: frozenset[Effect]) -> bool:
        """Whether a text shows an effect alone; what several known effects explain together is no effect of its own."""
        seen = self.observe(text)
        return name_effect(seen, self.observe) is effect and not (
            effect is Effect.REWRITES and explains(known, seen, self.observe)
        )

    def shrink(self, text: str, effect: Effect, known: frozenset[Effect]) -> str:
        """Cut a text down until nothing can be left out of it (delta debugging)."""
        size = len(text)
        while size:
            starts = range(0, len(text), size)
            shorter = (text[:start] + text[start + size :] for start in starts)
            less = next((part for part in shorter if self.shows(part, effect, known)), None)
            if less is not None:
                text = less
                size = min(size, len(text))
            else:
                size //= 2
        return text

    def _encode(self, text: str) -> list[int] | None:
        try:
            return list(map(int, self.encoder.encode(text)))
        except TokenizerError:
            return None


def _observation(table: TokenBytes, text: str, ids: Sequence[int] | None) -> Observation:
    if ids is None:
        return Observation(text, is_refused=True)
    kept = b"".join(table[v] or b"" for v in ids)
    if table.prefix == "none":
        joined = kept
    elif table.lengths[ids].all():
        # Every id has bytes, so the text is one segment: its first space is the invented one.
        joined = kept.removeprefix(b" ")
    else:
        joined = table.join(ids)
    return Observation(text, tuple(ids), joined, kept, frozenset(table.kinds[ids].tolist()))
