"""What a memory file says of the way from windows to rows, and windows by which that is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tokagnostic.hashing.addresses import head_offsets
from tokagnostic.hashing.polynomial import LAW, hash_bytes

GOLDEN_WINDOWS: tuple[bytes, ...] = (
    b"a",
    b"internal",
    b" the",
    b"of the ",
    b"\n",
    b"\x00",
    b"\x00\x00a",
    b"\xff",
    bytes(range(128, 256)),
    bytes(range(256)),
    "é".encode(),
    "日本語".encode(),
    "😀".encode(),
    "€".encode()[:2],
    b" " * 16,
    b"x" * 1000,
)
"""Windows whose rows every file of a memory of bytes states: letters, NUL, high bytes, a cut character, long ones."""

NUM_GOLDEN = len(GOLDEN_WINDOWS)


class Law(Protocol):
    """How the windows of a kind of memory reach their rows, by plain integers."""

    window_field: ClassVar[str]
    """What the windows of a file are called in it."""

    @property
    def min_order(self) -> int:
        """Smallest order whose windows have rows."""

    @property
    def window_form(self) -> str:
        """How such a window is written, in words."""

    @property
    def stated(self) -> dict[str, Any]:
        """What a file says of the law."""

    @property
    def windows(self) -> Sequence[Any]:
        """The windows whose rows a file states, as it writes them."""

    def golden(self, window: Any, moduli: Sequence[Sequence[int]]) -> dict[str, Any]:
        """What a file states of a window.

        Args:
            window: as a file writes it.
            moduli: of each table.

        Raises:
            TypeError: if the window is of another type.
            ValueError: if it is no such window.
        """


class ByteLaw:
    """`poly31x2`: the key of a window is the hash of its bytes, whatever tokens they came in."""

    window_field: ClassVar[str] = "bytes"
    min_order = 1

    @property
    def window_form(self) -> str:
        """How a window is written, in words."""
        return "bytes in hex"

    @property
    def stated(self) -> dict[str, Any]:
        """The constants of the hash."""
        return LAW

    @property
    def windows(self) -> Sequence[str]:
        """The windows whose rows a file states, in hex."""
        return [window.hex() for window in GOLDEN_WINDOWS]

    def golden(self, window: Any, moduli: Sequence[Sequence[int]]) -> dict[str, Any]:
        """The key of bytes in hex, and their rows in each table."""
        key = hash_bytes(bytes.fromhex(window))
        return {"bytes": window, "key": str(key), "rows": [rows_of(key, table) for table in moduli]}


@dataclass(frozen=True)
class XorLaw:
    """Engram's: each head takes the mix of a window's canonical ids modulo its own prime."""

    multipliers: tuple[tuple[int, ...], ...]
    """Of each table, one per place in a window, the newest id first."""
    num_ids: int
    """Canonical ids, the pad id among them."""
    pad_id: int
    """What stands before a document's first id."""
    min_order: int
    """Smallest order with rows."""

    window_field: ClassVar[str] = "ids"

    @property
    def window_form(self) -> str:
        """How a window is written, in words."""
        return f"{len(self.multipliers[0])} canonical ids below {self.num_ids}"

    @property
    def stated(self) -> dict[str, Any]:
        """The constants of the mix; numbers above 2 ** 53 as decimal strings, like all multipliers."""
        return {
            "law": "multiplicative_xor",
            "multipliers": [[str(number) for number in numbers] for numbers in self.multipliers],
            "num_ids": self.num_ids,
            "pad_id": self.pad_id,
            "min_order": self.min_order,
        }

    @property
    def windows(self) -> Sequence[list[int]]:
        """The windows whose rows a file states, the newest id first: small ids, large ones, the pad id, some between."""
        places, last = range(len(self.multipliers[0])), self.num_ids - 1
        edges = [[0 for _ in places], [last for _ in places], [last if i else 0 for i in places]]
        edges += [[0 if i else last for i in places], [self.pad_id if i else last // 2 for i in places]]
        steps = range(NUM_GOLDEN - len(edges))
        return edges + [[(step + 1) * (i + 1) * 7919 % self.num_ids for i in places] for step in steps]

    def golden(self, window: Any, moduli: Sequence[Sequence[int]]) -> dict[str, Any]:
        """The rows of canonical ids in each table, all orders and heads one after another."""
        order = len(self.multipliers[0])
        if not isinstance(window, list) or len(window) != order:
            raise TypeError(f"no list of {order} ids")
        if not all(type(token_id) is int and 0 <= token_id < self.num_ids for token_id in window):
            raise ValueError(f"no ids below {self.num_ids}")
        tables = zip(self.multipliers, moduli, strict=True)
        return {"ids": window, "rows": [self._rows(window, numbers, table) for numbers, table in tables]}

    def _rows(self, window: Sequence[int], multipliers: Sequence[int], moduli: Sequence[int]) -> list[int]:
        mixes, mix = [], 0
        for token_id, multiplier in zip(window, multipliers, strict=True):
            mix ^= token_id * multiplier
            mixes.append(mix)
        mixes = mixes[self.min_order - 1 :]
        num_heads, offsets = len(moduli) // len(mixes), head_offsets(moduli)
        return [offsets[i] + mixes[i // num_heads] % modulus for i, modulus in enumerate(moduli)]


def rows_of(key: int, moduli: Sequence[int]) -> list[int]:
    """A key's row in the part of each head, by plain integers, [K]."""
    return [offset + key % modulus for offset, modulus in zip(head_offsets(moduli), moduli, strict=True)]
