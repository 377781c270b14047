"""Keys, or token ids at once, on the CPU to row numbers, by vector instructions and without a division.

The remainder of a key of up to 63 bits by a modulus M takes a multiplication in double precision and one of 32 bits. Let
x be the key as a double and y the true quotient key / M. Then `x * (1 / M) + 2 ** 52` is rounded to a whole number, which
stands in the low bits of the double: q with |q - y| <= 1/2 + e, where the errors of x, 1 / M and their product make
e < 3.01 * 2 ** -53 * y. For M >= 2 ** 13 that is below 0.4, so the rest r = key - q * M lies within -0.9 M .. 0.9 M and
is the remainder or M less than it. Its low 32 bits are enough to tell: of r and r + M, as unsigned numbers, the smaller
one is the remainder, as long as 1.9 * M < 2 ** 32. Smaller moduli, which no real table has, are divided by.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing.addresses import head_offsets
from tokagnostic.hashing.cache import HashCache
from tokagnostic.hashing.polynomial import NO_WINDOW
from tokagnostic.hashing.windows_numba import BLOCK, RULES, block_keys, block_scratch, kernel_inputs, unknown_id

WIDTH = 8
"""Heads that are addressed at once."""
LEAST_FAST = 2**13
"""Smallest modulus whose remainders take no division."""
LARGEST = 2**31 + 2**26
"""Largest modulus; the primes of any row count up to 2 ** 31 - 1 are below it, however many heads there are."""


class HeadArrays:
    """What kernels know of the heads of one table.

    Args:
        moduli: M_k per head.
        first_row: where the rows of the first head begin.

    Raises:
        InvalidValueError: if there is no head, or a modulus is not a whole number from 2 to `LARGEST`.
    """

    def __init__(self, moduli: Sequence[int], first_row: int = 0) -> None:
        wrong = [modulus for modulus in moduli if type(modulus) is not int or not 2 <= modulus <= LARGEST]
        if wrong or not moduli:
            raise InvalidValueError(
                f"modulus {wrong[0]!r}" if wrong else "no moduli",
                expected=f"a whole number from 2 to {LARGEST} per head",
                remedy="Use the primes of head_moduli",
            )
        self.num_heads = len(moduli)
        # Padded to whole vectors, with heads whose rows are never stored.
        padded = [*moduli, *[LEAST_FAST] * (-len(moduli) % WIDTH)]
        self.table = np.array([padded, head_offsets(padded), [0] * len(padded)], dtype=np.int64)
        """M_k, offset_k, and 1 / M_k as the bits of a double, int64 [3, whole vectors]."""
        self.table[1] += first_row
        self.table[2] = (1.0 / self.table[0]).view(np.int64)
        self.fast = min(moduli) >= LEAST_FAST


def rows_of_keys(keys: np.ndarray, heads: HeadArrays) -> np.ndarray:
    """Address every key once per head: row_k = offset_k + key mod M_k.

    Args:
        keys: int64 [...]; -1 for no window.
        heads: of one table.

    Returns:
        Rows of the table that all heads share, int64 [..., K]; -1 where there is no key.
    """
    flat = np.ascontiguousarray(keys, dtype=np.int64).reshape(1, -1)
    rows = np.empty(flat.size * heads.num_heads, dtype=np.int64)
    fill_rows(flat, heads.table, heads.num_heads, heads.fast, rows, 0)
    return rows.reshape(*np.shape(keys), heads.num_heads)


def window_rows(
    input_ids: np.ndarray, starts: np.ndarray | None, cache: HashCache, max_order: int, heads: HeadArrays
) -> np.ndarray:
    """Address every window of 1..N tokens that ends at each position, without ever storing its key.

    Args:
        input_ids: token ids, integer [T] or [B, T]; an id below 0 is masked and breaks windows.
        starts: True at the first position of each document, bool, same shape; by default position 0 of every row.
        cache: the tokenizer's hash cache.
        max_order: N.
        heads: of one table.

    Returns:
        Rows of the table that all heads share, int64 [..., N, K]; -1 where no window exists.

    Raises:
        InvalidValueError: for an id that the cache does not have, ids that are no integers, or starts of another shape.
    """
    ids, flags = kernel_inputs(input_ids, starts)
    rows = np.empty(ids.size * max_order * heads.num_heads, dtype=np.int64)
    bad = _window_rows(
        ids,
        flags,
        cache.steps,
        cache.start_steps,
        RULES[cache.prefix],
        max_order,
        heads.table,
        heads.num_heads,
        heads.fast,
        rows,
    )
    if bad >= 0:
        raise unknown_id(ids, bad, cache)
    return rows.reshape(*np.shape(input_ids), max_order, heads.num_heads)


@njit(cache=True, nogil=True)
def _window_rows(ids, starts, steps, start_steps, rule, max_order, heads, num_heads, fast, rows):
    """Fill rows, flat [B * T * N * K]; returns where the first id is that the cache does not have, or -1."""
    num_positions = ids.shape[1]
    scratch = block_scratch(max_order)
    orders = scratch[0]
    for b in range(len(ids)):
        orders[:, 0] = NO_WINDOW
        at_start = False
        for begin in range(0, num_positions, BLOCK):
            end = min(begin + BLOCK, num_positions)
            bad, at_start = block_keys(
                ids[b, begin:end], starts[b, begin:end], steps, start_steps, rule, at_start, scratch
            )
            first = b * num_positions + begin
            if bad >= 0:
                return first + bad
            fill_rows(orders[:, 1 : end - begin + 1], heads, num_heads, fast, rows, first * max_order * num_heads)
            orders[:, 0] = orders[:, end - begin]
    return -1


@njit(cache=True, nogil=True)
def fill_rows(keys, heads, num_heads, fast, rows, place):
    """Fill rows, flat [.., T * N * K, ..] from `place` on, for the keys [N, T]."""
    max_order, num_positions = keys.shape
    num_padded = heads.shape[1]
    rest = np.empty(WIDTH, dtype=np.int64)
    heads_at, rest_at, rows_at = heads.ctypes.data, rest.ctypes.data, rows.ctypes.data
    # Heads outside, keys inside: what belongs to a vector of heads stays in registers.
    for head in range(0, num_heads, WIDTH):
        width = min(WIDTH, num_heads - head)
        at = place + head
        for i in range(num_positions):
            for n in range(max_order):
                key = keys[n, i]
                if key < 0:
                    for k in range(width):
                        rows[at + k] = NO_WINDOW
                elif not fast:
                    for k in range(width):
                        rows[at + k] = heads[1, head + k] + key % heads[0, head + k]
                elif width == WIDTH:
                    _vector_of_rows(key, heads_at, num_padded, head, rows_at, at)
                else:
                    # A vector of which not all heads exist must not be stored among the rows.
                    _vector_of_rows(key, heads_at, num_padded, head, rest_at, 0)
                    for k in range(width):
                        rows[at + k] = rest[k]
                at += num_heads


@intrinsic
def _vector_of_rows(typing_context, key, heads, num_padded, head, rows, place):
    """Store the rows of heads `head` .. `head + WIDTH - 1` from `rows[place]` on, as derived at the top of this file.

    Arrays come as addresses: passed as arrays they would be counted in and out again for every key.
    """
    signature = types.void(types.int64, types.uintp, types.intp, types.intp, types.uintp, types.intp)
    return signature, _emit_vector_of_rows


def _emit_vector_of_rows(context, builder, signature, arguments):
    key, heads, num_padded, head, rows, place = arguments
    wide, narrow = ir.VectorType(ir.IntType(64), WIDTH), ir.VectorType(ir.IntType(32), 2 * WIDTH)
    real = ir.VectorType(ir.DoubleType(), WIDTH)
    low_bits = ir.Constant(wide, [2**32 - 1] * WIDTH)

    def pointer(address, index, vector):
        numbers = builder.inttoptr(address, ir.IntType(64).as_pointer())
        return builder.bitcast(builder.gep(numbers, [index]), vector.as_pointer())

    def of_heads(line, vector):
        index = builder.add(builder.mul(num_padded, ir.Constant(ir.IntType(64), line)), head)
        line = builder.load(pointer(heads, index, vector), align=8)
        line.set_metadata("invariant.load", builder.module.add_metadata([]))  # no row is stored among the heads
        return line

    def everywhere(value, vector):
        unset = ir.Constant(vector, ir.Undefined)
        one = builder.insert_element(unset, value, ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(one, unset, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH))

    number = everywhere(builder.sitofp(key, ir.DoubleType()), real)
    modulus, offset, reciprocal = of_heads(0, wide), of_heads(1, wide), of_heads(2, real)
    quotient = builder.fmul(number, reciprocal, flags=["contract"])
    quotient = builder.fadd(quotient, ir.Constant(real, [2.0**52] * WIDTH), flags=["contract"])
    quotient = builder.and_(builder.bitcast(quotient, wide), low_bits)
    product = builder.mul(quotient, builder.and_(modulus, low_bits))
    below = builder.bitcast(builder.sub(everywhere(key, wide), product), narrow)
    above = builder.add(below, builder.bitcast(modulus, narrow))
    remainder = builder.select(builder.icmp_unsigned("<", below, above), below, above)
    remainder = builder.and_(builder.bitcast(remainder, wide), low_bits)
    builder.store(builder.add(remainder, offset), pointer(rows, place, wide), align=8)
    return context.get_dummy_value()
