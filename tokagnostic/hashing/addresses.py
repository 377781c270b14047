"""A row count to the primes of the hash heads: each head takes the key modulo a prime of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tokagnostic.errors import InvalidValueError

MAX_ROWS = 2**31 - 1
"""Largest row count of one head."""


def head_moduli(num_rows: int, num_heads: int, taken: Collection[int] = ()) -> list[int]:
    """The first K primes from `num_rows` on that no earlier table has taken.

    Args:
        num_rows: rows asked for per head.
        num_heads: K.
        taken: primes of earlier tables of the same memory.

    Raises:
        InvalidValueError: if the row count is not a whole number from 2 to 2 ** 31 - 1, or there is no head.
    """
    for name, number, least in (("num_rows", num_rows, 2), ("num_heads", num_heads, 1)):
        if type(number) is not int or not least <= number <= MAX_ROWS:
            raise InvalidValueError(
                f"{name} = {number!r}",
                expected=f"a whole number from {least} to {MAX_ROWS}",
                remedy=f"Set {name} to such a number",
            )
    moduli: list[int] = []
    candidate = num_rows
    while len(moduli) < num_heads:
        if candidate not in taken and is_prime(candidate):
            moduli.append(candidate)
        candidate += 1
    return moduli


def is_prime(number: int) -> bool:
    """Whether a number below 2 ** 32 is prime, by Miller-Rabin with bases that decide it there for certain."""
    if number < 2 or any(number % small == 0 for small in (2, 3, 5, 7)):
        return number in (2, 3, 5, 7)
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for witness in (2, 7, 61):
        if witness % number == 0:
            continue
        residue = pow(witness, odd, number)
        if residue in (1, number - 1):
            continue
        if all((residue := residue * residue % number) != number - 1 for _ in range(twos - 1)):
            return False
    return True


def head_offsets(moduli: Sequence[int]) -> list[int]:
    """First row of each head in the table that all heads share."""
    return [sum(moduli[:k]) for k in range(len(moduli))]
