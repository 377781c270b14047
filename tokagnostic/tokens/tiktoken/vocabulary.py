"""Ranks of byte strings and the ids of specials turned into a byte table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.alphabet import BYTES_OUTSIDE_UTF8, byte_symbols
from tokagnostic.tokens.fidelity import Fidelity
from tokagnostic.tokens.token_bytes import LARGEST_ID, TokenBytes, TokenKind

_NUM_LISTED = 16


@dataclass(frozen=True, eq=False)
class RankVocabulary:
    """All that encoding by ranks takes. A text is split by the pattern; in a part the pair of lowest rank merges first.

    Raises:
        TokenizerError: if an id is out of range or stands for two things.
    """

    name: str
    """What the encoding calls itself."""
    pattern: str
    """The regular expression that splits a text, in the dialect of the Rust crate `fancy-regex`."""
    ids: dict[bytes, int]
    """The id of each byte string. Ids rise with ranks."""
    special: dict[str, int]
    """The id of each special token; several names may share one."""

    def __post_init__(self) -> None:
        odd = [v for v in (*self.ids.values(), *self.special.values()) if not 0 <= v <= LARGEST_ID]
        twice = [v for v, count in Counter(self.ids.values()).items() if count > 1]
        shared = sorted(set(self.ids.values()).intersection(self.special.values()))
        faults = (
            (not self.ids, "has no ranks"),
            (b"" in self.ids, "has an empty token"),
            (odd, f"has the id {next(iter(odd), None)}"),
            (twice, f"has two byte strings of the id {next(iter(twice), None)}"),
            (shared, f"has a byte string and a special token of the id {next(iter(shared), None)}"),
        )
        for found, fault in faults:
            if found:
                raise TokenizerError(
                    f"the vocabulary {self.name!r} {fault}",
                    expected=f"byte strings and special tokens with ids of their own from 0 to {LARGEST_ID}",
                    remedy="Take the ranks and the specials from one release of the tokenizer",
                )

    @property
    def missing_bytes(self) -> list[int]:
        """Single bytes without an id."""
        return [byte for byte in range(256) if bytes((byte,)) not in self.ids]

    @property
    def num_ids(self) -> int:
        """The highest id plus one."""
        return 1 + max(*self.ids.values(), *self.special.values(), -1)

    def token_bytes(self) -> TokenBytes:
        """The byte table; ids that nothing has are holes."""
        pieces: list[bytes | None] = [None] * self.num_ids
        kinds = [int(TokenKind.HOLE)] * self.num_ids
        for piece, v in self.ids.items():
            pieces[v], kinds[v] = piece, TokenKind.TEXT
        for v in self.special.values():
            kinds[v] = TokenKind.SPECIAL
        return TokenBytes.from_list(pieces, kinds=kinds, fidelity=self._fidelity())

    def spellings(self) -> list[str | None]:
        """How people write each id, [V]: byte strings in the byte alphabet, specials by their first name."""
        spelled: list[str | None] = [None] * self.num_ids
        alphabet = dict(enumerate(byte_symbols()))
        for piece, v in self.ids.items():
            spelled[v] = piece.decode("latin-1").translate(alphabet)
        for name, v in self.special.items():
            spelled[v] = spelled[v] or name
        return spelled

    def _fidelity(self) -> Fidelity:
        missing = self.missing_bytes
        if BYTES_OUTSIDE_UTF8.issuperset(missing):
            return Fidelity("exact")
        listed = " ".join(f"{byte:02X}" for byte in missing[:_NUM_LISTED])
        more = " ..." if len(missing) > _NUM_LISTED else ""
        return Fidelity(
            "lossy", (f"{len(missing)} of 256 bytes have no rank; a text that needs one is refused: {listed}{more}",)
        )
