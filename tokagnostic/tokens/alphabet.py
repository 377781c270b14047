"""The alphabet in which byte-level tokenizers write bytes as printable characters, both ways."""

from __future__ import annotations

from functools import cache

BYTES_OUTSIDE_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})
"""Bytes that no text holds."""


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
