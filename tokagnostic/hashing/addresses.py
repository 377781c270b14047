"""Keys to row numbers: each hash head takes the key modulo a prime of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing.polynomial import NO_WINDOW

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


def rows_of_keys(keys: np.ndarray, moduli: Sequence[int]) -> np.ndarray:
    """Address every key once per head: row_k = offset_k + key mod M_k.

    Args:
        keys: int64 [...]; -1 for no window.
        moduli: one prime per head.

    Returns:
        Rows of the joint table, int64 [..., K]; -1 where there is no key.
    """
    flat = np.ascontiguousarray(keys, dtype=np.int64).reshape(-1)
    rows = np.empty((len(flat), len(moduli)), dtype=np.int64)
    # floor((2 ** 64 - 1) / M) turns the division by M into a multiplication, see `_rows_of_keys`.
    reciprocals = np.array([(2**64 - 1) // modulus for modulus in moduli], dtype=np.int64)
    _rows_of_keys(
        flat, np.array(moduli, dtype=np.int64), np.array(head_offsets(moduli), dtype=np.int64), reciprocals, rows
    )
    return rows.reshape(*np.shape(keys), len(moduli))


@intrinsic
def _multiply_high(typing_context, a, b):
    """(a * b) >> 64 for non-negative 64-bit integers, by way of a 128-bit product."""

    def emit(context, builder, signature, arguments):
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.int64(types.int64, types.int64), emit


@njit(cache=True, nogil=True)
def _rows_of_keys(keys, moduli, offsets, reciprocals, rows):
    # Barrett reduction: with key < 2 ** 62 the estimate of the quotient falls short by at most 1, so that one
    # conditional subtraction makes the remainder exact.
    num_heads = len(moduli)
    for i in range(len(keys)):
        key = keys[i]
        if key < 0:
            for k in range(num_heads):
                rows[i, k] = NO_WINDOW
        else:
            for k in range(num_heads):
                modulus = moduli[k]
                rest = key - _multiply_high(key, reciprocals[k]) * modulus
                rows[i, k] = offsets[k] + (rest - modulus if rest >= modulus else rest)
