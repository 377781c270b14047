"""The bytes and the kind of every id of one vocabulary, as one flat buffer: what a tokenizer is to this project."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from tokagnostic.errors import InvalidValueError

if TYPE_CHECKING:
    from tokagnostic.tokens.fidelity import Fidelity

LARGEST_ID = (1 << 24) - 1
"""The highest id that is believed. A damaged one must not make a table of gigabytes."""

PrefixRule = Literal["none", "first", "always"]
"""Where a tokenizer puts a space that the text does not have: nowhere, before the text's first segment, or before
every segment between ids without bytes."""


class TokenKind(IntEnum):
    """What an id stands for. The numbers are part of the fingerprint and never change."""

    HOLE = 0
    """No token has this id."""
    TEXT = 1
    """A piece of the vocabulary."""
    BYTE = 2
    """A byte-fallback piece such as `<0x41>`: one byte."""
    ADDED = 3
    """A token added after training that is ordinary text: the bytes of its content."""
    SPECIAL = 4
    """A special or control token: no bytes."""
    UNKNOWN = 5
    """The id that stands for whatever the vocabulary cannot spell: no bytes."""
    UNREACHABLE = 6
    """A piece that no text can produce, such as one outside the byte alphabet: no bytes."""


@dataclass(frozen=True, eq=False)
class TokenBytes:
    """The bytes of every id of one vocabulary. An id without bytes breaks every window that holds it.

    Raises:
        InvalidValueError: if the arrays do not describe one vocabulary.
    """

    data: np.ndarray
    """Token bytes of all ids one after another, uint8 [L]."""
    offsets: np.ndarray
    """Id v has the bytes data[offsets[v] : offsets[v + 1]], int64 [V + 1]."""
    kinds: np.ndarray
    """A `TokenKind` per id, uint8 [V]. Kinds are kept apart from bytes: no byte value is reserved as a mark."""
    prefix: PrefixRule = "none"
    """Where the tokenizer invents a leading space."""
    fidelity: Fidelity | None = field(default=None, repr=False)
    """What the tokenizer invents or destroys; `None` for a table that was given and not read from a tokenizer."""

    def __post_init__(self) -> None:
        num_ids = len(self.offsets) - 1
        if (
            num_ids < 0
            or self.offsets[0] != 0
            or self.offsets[-1] != len(self.data)
            or np.any(np.diff(self.offsets) < 0)
        ):
            raise InvalidValueError(
                "the offsets of a byte table do not partition its data",
                expected=f"a rising sequence from 0 to {len(self.data)}",
                remedy="Build the table with TokenBytes.from_tokenizer or TokenBytes.from_list",
            )
        if len(self.kinds) != num_ids:
            raise InvalidValueError(
                f"{len(self.kinds)} kinds were given for {num_ids} ids",
                expected="one kind per id",
                remedy="Pass kinds of the same length as offsets[:-1]",
            )
        if self.prefix not in get_args(PrefixRule):
            raise InvalidValueError(
                f"prefix rule {self.prefix!r}",
                expected=f"one of {', '.join(get_args(PrefixRule))}",
                remedy="Name one of these rules",
            )

    @classmethod
    def from_tokenizer(cls, tokenizer: Any) -> TokenBytes:
        """Read a tokenizer, and prove the reading by joining the ids of probe texts back to their bytes.

        Args:
            tokenizer: whatever `TextEncoder.of` takes.

        Raises:
            TokenizerError: if its pipeline is of no known family, or if the probe finds a difference that its
                fidelity does not declare.
        """
        from tokagnostic.tokens.encoder import TextEncoder

        return TextEncoder.of(tokenizer).token_bytes

    @classmethod
    def from_list(
        cls,
        tokens: Iterable[bytes | None],
        *,
        kinds: Sequence[int] | None = None,
        prefix: PrefixRule = "none",
        fidelity: Fidelity | None = None,
    ) -> TokenBytes:
        """Make a table from the bytes of each id in order; `None` is an id without bytes.

        Args:
            tokens: bytes per id, or None.
            kinds: a kind per id; by default ids with bytes are TEXT and ids without are SPECIAL.
            prefix: where a leading space is invented.
            fidelity: what is known of the tokenizer's losses.
        """
        pieces = list(tokens)
        if kinds is None:
            kinds = [TokenKind.SPECIAL if piece is None else TokenKind.TEXT for piece in pieces]
        lengths = [len(piece) if piece is not None else 0 for piece in pieces]
        offsets = np.zeros(len(pieces) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = np.frombuffer(b"".join(piece for piece in pieces if piece is not None), dtype=np.uint8)
        return cls(data, offsets, np.array(kinds, dtype=np.uint8), prefix, fidelity)

    def __len__(self) -> int:
        """The number of ids, holes included: the highest id plus one."""
        return len(self.offsets) - 1

    def __getitem__(self, token_id: int) -> bytes | None:
        """The bytes of one id, or None where it has none (an empty byte string counts as none)."""
        if not 0 <= token_id < len(self):
            raise IndexError(f"id {token_id} is outside the vocabulary of {len(self)} ids")
        piece = self.data[self.offsets[token_id] : self.offsets[token_id + 1]].tobytes()
        return piece or None

    @cached_property
    def lengths(self) -> np.ndarray:
        """Bytes per id, int64 [V]; 0 marks an id without bytes."""
        return np.diff(self.offsets)

    def spans(self, token_ids: Iterable[int] | np.ndarray, *, strip: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Where the bytes of each position of one document lie in `data`, the invented leading space taken out.

        Args:
            token_ids: the ids of one document, int [T]; a negative id is masked and has no bytes.
            strip: apply the prefix rule; False keeps the invented spaces.

        Returns:
            Starts and stops, int64 [T] each; they are equal where a position has no bytes.

        Raises:
            InvalidValueError: if an id is outside the vocabulary.
        """
        ids = np.asarray(token_ids if isinstance(token_ids, np.ndarray) else list(token_ids), dtype=np.int64)
        if ids.size and ids.max() >= len(self):
            raise InvalidValueError(
                f"id {ids.max()} in a vocabulary of {len(self)} ids",
                expected="ids below the size of the vocabulary",
                remedy="Join the ids with the table of the tokenizer that made them",
            )
        starts, stops = np.zeros(ids.shape, dtype=np.int64), np.zeros(ids.shape, dtype=np.int64)
        unmasked = ids >= 0
        starts[unmasked], stops[unmasked] = self.offsets[ids[unmasked]], self.offsets[ids[unmasked] + 1]
        if strip and self.prefix != "none":
            with_bytes = np.flatnonzero(stops > starts)
            at_start = with_bytes[:1] if self.prefix == "first" else with_bytes[np.diff(with_bytes, prepend=-2) > 1]
            starts[at_start] += self.data[starts[at_start]] == ord(" ")
        return starts, stops

    def join(self, token_ids: Iterable[int] | np.ndarray, *, strip: bool = True) -> bytes:
        """The bytes that a document's ids stand for, the invented leading space taken out.

        This is the check of a tokenizer against its source, one document per call.

        Args:
            token_ids: the ids of one document, int [T].
            strip: apply the prefix rule; False keeps the invented spaces.

        Raises:
            InvalidValueError: if an id is outside the vocabulary.
        """
        starts, stops = self.spans(token_ids, strip=strip)
        lengths = stops - starts
        skipped = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        return self.data[skipped + np.arange(len(skipped))].tobytes()

    def duplicates(self) -> list[list[int]]:
        """Groups of ids with equal bytes, such as `a` and the byte piece `<0x61>`; each keeps its own place."""
        groups: dict[bytes, list[int]] = {}
        data, offsets = self.data.tobytes(), self.offsets.tolist()
        for v in np.flatnonzero(self.lengths).tolist():
            groups.setdefault(data[offsets[v] : offsets[v + 1]], []).append(v)
        return [ids for ids in groups.values() if len(ids) > 1]

    @cached_property
    def canonical_ids(self) -> np.ndarray:
        """One number for all ids of the same normalised text, see `tokens.canonical`, int32 [V]."""
        # Here, for only memories that are addressed by ids pay for it: a large vocabulary takes some tenths of a second.
        from tokagnostic.tokens.canonical import canonical_ids

        return canonical_ids(self)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in lower-case hex, of the table as it is; names, paths and padding state play no part.

        It covers for every id its kind (one byte), its length (uint32, little-endian) and its bytes; then the prefix
        rule.
        """
        digest = hashlib.sha256()
        data, offsets = self.data.tobytes(), self.offsets.tolist()
        for v, kind in enumerate(self.kinds.tolist()):
            start, stop = offsets[v], offsets[v + 1]
            digest.update(bytes((kind,)) + (stop - start).to_bytes(4, "little") + data[start:stop])
        digest.update(self.prefix.encode())
        return digest.hexdigest()
