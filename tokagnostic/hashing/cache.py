"""The hash cache: a vocabulary's bytes to two numbers per id, after which nothing knows about tokenizers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.hashing.polynomial import BASES, CHECK_BASES, LANE_BITS, LAW, hash_tokens, power_table
from tokagnostic.tokens.token_bytes import PrefixRule, TokenBytes

PrefixPolicy = Literal["strip", "keep"]
"""What happens to the space that a tokenizer invents at a segment start: it is taken out, or kept."""

SPACE = 0x20
METADATA_KEY = "hash_cache"


@dataclass(frozen=True, eq=False)
class HashCache:
    """C(t) and B(|t|) of every id (Eq. 5 and 6 of arXiv 2607.29065), twice where a leading space may be invented.

    Both lanes of a value stand in one 62-bit number, `lane_0 << 31 | lane_1`, and so do both lanes of a power. A step
    is the pair (C, B) that extends a window by one token; (0, 0) marks an id without bytes, which breaks it.
    """

    steps: np.ndarray
    """C(t) and B(|t|) of each id, int64 [V, 2]."""
    start_steps: np.ndarray
    """The same at a segment start, where one leading space was invented, int64 [V, 2]; `steps` itself if never."""
    prefix: PrefixRule
    """Where segment starts are: the tokenizer's rule, or "none" under the policy "keep"."""
    token_fingerprint: str
    """Fingerprint of the byte table that this cache was built from."""
    policy: PrefixPolicy = "strip"
    """What was done with an invented space; a memory file states it, and its readers must have done the same."""
    bases: tuple[int, int] = BASES
    """Of the two lanes: those of the law, or `CHECK_BASES`."""
    tokens: TokenBytes | None = None
    """The vocabulary itself, for memories that are addressed by ids; None in a cache that was read from a file."""

    @classmethod
    def build(cls, token_bytes: TokenBytes, num_ids: int | None = None, prefix: PrefixPolicy = "strip") -> HashCache:
        """Hash every token of a vocabulary once.

        Args:
            token_bytes: the vocabulary.
            num_ids: ids that the host model can produce; those beyond the vocabulary are without bytes.
            prefix: "strip" takes an invented leading space out of a segment's first token, "keep" leaves it.

        Raises:
            InvalidValueError: if the host has fewer ids than the vocabulary, or the policy is unknown.
        """
        if prefix not in get_args(PrefixPolicy):
            raise InvalidValueError(
                f"prefix policy {prefix!r}", expected="strip or keep", remedy="Name one of these policies"
            )
        num_ids = len(token_bytes) if num_ids is None else num_ids
        if num_ids < len(token_bytes):
            raise InvalidValueError(
                f"a vocabulary of {len(token_bytes)} ids for a host of {num_ids} embedding rows",
                expected="at least as many embedding rows as ids",
                remedy="Resize the host's embeddings, or use the tokenizer that belongs to it",
            )
        return cls._build(token_bytes, num_ids, prefix, BASES)

    @classmethod
    def build_check(cls, token_bytes: TokenBytes) -> HashCache:
        """A cache under `CHECK_BASES`: its keys check those of `build` where the bytes are no longer at hand.

        It is of another law than memory files are, and is for counting within one process or job; it is never saved.

        Args:
            token_bytes: the vocabulary; invented spaces are taken out.
        """
        return cls._build(token_bytes, len(token_bytes), "strip", CHECK_BASES)

    @classmethod
    def _build(cls, token_bytes: TokenBytes, num_ids: int, prefix: PrefixPolicy, bases: tuple[int, int]) -> HashCache:
        data, offsets = token_bytes.data, token_bytes.offsets
        powers = power_table(int(token_bytes.lengths.max(initial=0)), bases)
        steps = _steps(data, offsets[:-1], offsets[1:], powers, num_ids, bases)
        rule: PrefixRule = token_bytes.prefix if prefix == "strip" else "none"
        if rule == "none":
            return cls(steps, steps, rule, token_bytes.fingerprint, prefix, bases, token_bytes)
        has_bytes = token_bytes.lengths > 0
        skipped = np.zeros(len(token_bytes), dtype=np.int64)
        skipped[has_bytes] = data[offsets[:-1][has_bytes]] == SPACE
        start_steps = _steps(data, offsets[:-1] + skipped, offsets[1:], powers, num_ids, bases)
        return cls(steps, start_steps, rule, token_bytes.fingerprint, prefix, bases, token_bytes)

    @classmethod
    def of(cls, source: Any, prefix: PrefixPolicy = "strip") -> HashCache:
        """The cache of whatever stands for a tokenizer: a cache itself, a byte table, an encoder, or a tokenizer.

        Args:
            source: what there is.
            prefix: policy of the cache; one that is given must have it.

        Raises:
            InvalidValueError: if the source is a cache of the other policy or of another law.
            TokenizerError: if it is a tokenizer whose bytes cannot be read.
        """
        if isinstance(source, cls):
            if source.bases != BASES:
                raise InvalidValueError(
                    f"a hash cache under the bases {source.bases}",
                    expected=f"the bases {BASES} of the law {LAW['law']}, by which memories are addressed",
                    remedy="Build the cache with HashCache.build",
                )
            if source.policy != prefix:
                raise InvalidValueError(
                    f"a hash cache with the prefix policy {source.policy!r}",
                    expected=f"the policy {prefix!r}, by which the memory was trained",
                    remedy=f"Build the cache with prefix={prefix!r}",
                )
            return source
        if isinstance(source, TokenBytes):
            return cls.build(source, prefix=prefix)
        from tokagnostic.tokens.encoder import TextEncoder

        return cls.build(TextEncoder.of(source).token_bytes, prefix=prefix)

    @property
    def num_ids(self) -> int:
        """V: ids below this one may be looked up."""
        return len(self.steps)

    @property
    def canonical_ids(self) -> np.ndarray:
        """What ids have in common once their texts are normalised, see `tokens.canonical`, int32, for the vocabulary's ids.

        Raises:
            InvalidValueError: in a cache that was read from a file, which holds no texts.
        """
        if self.tokens is None:
            raise InvalidValueError(
                "a hash cache without its tokens, as one that was read from a file is",
                expected="a cache built from a tokenizer, for a memory whose rows are named by ids",
                remedy="Build the cache with HashCache.build or HashCache.of",
            )
        return self.tokens.canonical_ids

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in lower-case hex, of the steps and the prefix rule: equal caches give equal keys."""
        digest = hashlib.sha256(f"{LAW['law']} {self.prefix} {self.num_ids} ".encode())
        digest.update(np.ascontiguousarray(self.steps, dtype="<i8").tobytes())
        digest.update(np.ascontiguousarray(self.start_steps, dtype="<i8").tobytes())
        return digest.hexdigest()

    def padded(self, num_ids: int) -> HashCache:
        """The same cache with ids without bytes appended until there are `num_ids`; itself if there are already.

        Raises:
            InvalidValueError: if it has more ids than that.
        """
        if num_ids < self.num_ids:
            raise InvalidValueError(
                f"num_ids = {num_ids} for a cache of {self.num_ids} ids",
                expected="at least as many ids as the cache has",
                remedy="Use the cache of the tokenizer that belongs to the host",
            )
        if num_ids == self.num_ids:
            return self
        surplus = np.zeros((num_ids - self.num_ids, 2), dtype=np.int64)
        steps = np.concatenate((self.steps, surplus))
        same = self.start_steps is self.steps
        start_steps = steps if same else np.concatenate((self.start_steps, surplus))
        return dataclasses.replace(self, steps=steps, start_steps=start_steps)

    def save(self, path: str | Path) -> None:
        """Write the cache as a safetensors file that states its law and its fingerprint. Equal caches are equal files."""
        from safetensors.numpy import save_file

        metadata = {
            "law": str(LAW["law"]),
            "prefix": self.prefix,
            "policy": self.policy,
            "token_fingerprint": self.token_fingerprint,
            "fingerprint": self.fingerprint,
        }
        # One key: safetensors writes several in an order that changes from process to process.
        text = json.dumps(metadata, sort_keys=True)
        save_file({"steps": self.steps, "start_steps": self.start_steps}, path, metadata={METADATA_KEY: text})

    @classmethod
    def load(cls, path: str | Path) -> HashCache:
        """Read a cache that `save` wrote.

        Raises:
            SourceError: if the file is missing, damaged, of another law, or does not have its own fingerprint.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                metadata = dict(json.loads((file.metadata() or {})[METADATA_KEY]))
                steps, start_steps = file.get_tensor("steps"), file.get_tensor("start_steps")
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise SourceError(
                f"hash cache {path} cannot be read ({error})",
                expected="a file written by HashCache.save",
                remedy="Build the cache again from the tokenizer",
            ) from error
        prefix, policy = metadata.get("prefix", "none"), metadata.get("policy", "")
        cache = cls(steps, start_steps, prefix, metadata.get("token_fingerprint", ""), policy)
        if metadata.get("law") != LAW["law"] or metadata.get("fingerprint") != cache.fingerprint:
            raise SourceError(
                f"hash cache {path} has law {metadata.get('law')!r} and a fingerprint that is not that of its arrays",
                expected=f"law {LAW['law']!r} and an undamaged file",
                remedy="Build the cache again from the tokenizer",
            )
        if policy not in get_args(PrefixPolicy):
            raise SourceError(
                f"hash cache {path} has the prefix policy {policy!r}",
                expected="strip or keep",
                remedy="Build the cache again from the tokenizer",
            )
        return dataclasses.replace(cache, start_steps=steps) if prefix == "none" else cache


def _steps(
    data: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    powers: np.ndarray,
    num_ids: int,
    bases: tuple[int, int],
) -> np.ndarray:
    """(C, B) of the byte strings data[begins[v] : ends[v]], int64 [num_ids, 2]; (0, 0) where there are no bytes."""
    steps = np.zeros((num_ids, 2), dtype=np.int64)
    lengths = ends - begins
    steps[: len(begins), 0] = hash_tokens(data, begins, ends, bases)
    steps[: len(begins), 1] = powers[lengths, 0] << LANE_BITS | powers[lengths, 1]
    steps[: len(begins)][lengths == 0] = 0
    return steps
