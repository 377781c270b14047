"""The alphabet in which byte-level tokenizers write bytes as printable characters, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

BYTES_OUTSIDE_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})
"""Bytes that no text holds."""
_OUTSIDE = 0x200
"""A character code that no symbol has, standing for all such codes."""


@cache
def byte_symbols() -> tuple[str, ...]:
    """The character that GPT-2's alphabet gives to each of the 256 bytes, by byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    surplus = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(surplus)) for byte in range(256))


@cache
def byte_of_symbol() -> dict[str, int]:
    """The byte that each character of GPT-2's alphabet stands for."""
    return {symbol: byte for byte, symbol in enumerate(byte_symbols())}


def bytes_of_symbols(symbols: str) -> bytes:
    """Read a string of byte symbols back.

    Raises:
        KeyError: if a character is outside the alphabet.
    """
    return bytes(map(byte_of_symbol().__getitem__, symbols))


def bytes_of_many(pieces: Sequence[str]) -> list[bytes | None]:
    """Read many strings of byte symbols at once; None where a character is outside the alphabet.

    A large vocabulary is a million symbols, so they are looked up in one array.
    """
    text = "".join(pieces)
    codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    values = _byte_of_code()[np.minimum(codes, _OUTSIDE)]
    ends = np.cumsum([0, *map(len, pieces)])
    num_outside = np.concatenate(([0], np.cumsum(values > 0xFF)))[ends]
    data, bounds = values.astype(np.uint8).tobytes(), ends.tolist()
    are_whole = (np.diff(num_outside) == 0).tolist()
    return [data[bounds[i] : bounds[i + 1]] if whole else None for i, whole in enumerate(are_whole)]


@cache
def _byte_of_code() -> np.ndarray:
    """The byte of each character code up to `_OUTSIDE`, uint16 [513]; `_OUTSIDE` where there is none."""
    values = np.full(_OUTSIDE + 1, _OUTSIDE, dtype=np.uint16)
    values[[ord(symbol) for symbol in byte_symbols()]] = np.arange(256)
    return values
