"""Token ids on a GPU to the keys and the rows of all windows that end at each position, in one launch.

Every lane works for one position and walks back from it, token by token. A window grows at its front, where
`hash(u + v) = hash(u) * base ** |v| + hash(v)` asks for no more than the power of what is there already; so lanes need
nothing of each other, and blocks of positions need no overlap.

Whether a token opens a segment depends on an unbounded past: under the rule "first", ids without bytes are passed over
until a document start or an id with bytes decides. The lane walks on until then. That is exact however long it takes,
costs one step per id passed over, which in texts are one or two, and saves the launches and the arrays over all
positions that a cumulative maximum outside the kernel would take.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokagnostic.hashing import polynomial
from tokagnostic.tokens.token_bytes import PrefixRule

BLOCK = 128
"""Positions per program."""

PRIME = tl.constexpr(polynomial.PRIME)
LANE_BITS = tl.constexpr(polynomial.LANE_BITS)
NO_WINDOW = tl.constexpr(polynomial.NO_WINDOW)


def window_keys(
    input_ids: Tensor,
    starts: Tensor | None,
    steps: Tensor,
    start_steps: Tensor,
    num_unknown: Tensor,
    prefix: PrefixRule,
    max_order: int,
) -> Tensor:
    """Hash every window of 1..N tokens that ends at each position.

    Args:
        input_ids: token ids, integer [T] or [B, T]; ids below 0, and ids that the cache does not have, break windows.
        starts: True at the first position of each document, bool, same shape; by default position 0 of every row.
        steps: C(t) and B(|t|) of each id, int64 [V, 2], on the device of the ids.
        start_steps: the same at a segment start, int64 [V, 2].
        num_unknown: int64 [1], to which the number of ids that the cache does not have is added.
        prefix: where segment starts are.
        max_order: N.

    Returns:
        Keys, int64 [..., N]; -1 where no window exists.
    """
    keys = torch.empty((*input_ids.shape, max_order), dtype=torch.int64, device=input_ids.device)
    _launch(input_ids, starts, steps, start_steps, num_unknown, prefix, max_order, keys, None, None)
    return keys


def window_rows(
    input_ids: Tensor,
    starts: Tensor | None,
    steps: Tensor,
    start_steps: Tensor,
    num_unknown: Tensor,
    prefix: PrefixRule,
    max_order: int,
    heads: Tensor,
) -> tuple[Tensor, Tensor]:
    """Hash and address every window of 1..N tokens that ends at each position.

    Args:
        input_ids: as for `window_keys`, and so are the arguments up to `max_order`.
        starts: likewise.
        steps: likewise.
        start_steps: likewise.
        num_unknown: likewise.
        prefix: likewise.
        max_order: likewise.
        heads: M_k, offset_k and floor((2 ** 64 - 1) / M_k) of each head, int64 [3, K], on the device of the ids.

    Returns:
        keys: int64 [..., N]; -1 where no window exists.
        rows: row_k = offset_k + key mod M_k, int64 [..., N, K]; -1 likewise.
    """
    keys = torch.empty((*input_ids.shape, max_order), dtype=torch.int64, device=input_ids.device)
    rows = torch.empty((*keys.shape, heads.shape[1]), dtype=torch.int64, device=input_ids.device)
    _launch(input_ids, starts, steps, start_steps, num_unknown, prefix, max_order, keys, heads, rows)
    return keys, rows


def _launch(
    input_ids: Tensor,
    starts: Tensor | None,
    steps: Tensor,
    start_steps: Tensor,
    num_unknown: Tensor,
    prefix: PrefixRule,
    max_order: int,
    keys: Tensor,
    heads: Tensor | None,
    rows: Tensor | None,
) -> None:
    if input_ids.numel() == 0:
        return
    num_heads = 0 if heads is None else heads.shape[1]
    _windows[(triton.cdiv(input_ids.numel(), BLOCK),)](
        input_ids.contiguous(),
        None if starts is None else starts.contiguous(),
        steps,
        start_steps,
        heads,
        keys,
        rows,
        num_unknown,
        input_ids.numel(),
        input_ids.shape[-1],
        len(steps),
        MAX_ORDER=max_order,
        NUM_HEADS=num_heads,
        HEADS=triton.next_power_of_2(num_heads),
        PREFIX=prefix,
        BLOCK=BLOCK,
    )


@triton.jit
def _windows(
    ids,
    starts,
    steps,
    start_steps,
    heads,
    keys,
    rows,
    num_unknown,
    num_all,
    num_positions,
    num_ids,
    MAX_ORDER: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    HEADS: tl.constexpr,
    PREFIX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < num_all
    position = place % num_positions
    num_beyond = tl.sum((tl.load(ids + place, mask=inside, other=-1) >= num_ids).to(tl.int64), 0)
    if num_beyond > 0:
        tl.atomic_add(num_unknown, num_beyond)
    lane_0 = tl.zeros([BLOCK], tl.int64)
    lane_1 = tl.zeros([BLOCK], tl.int64)
    power_0 = tl.full([BLOCK], 1, tl.int64)
    power_1 = tl.full([BLOCK], 1, tl.int64)
    open_ended = inside
    for n in range(MAX_ORDER):
        here = open_ended & (position >= n)
        token = _known_id(ids, place - n, here, num_ids)
        value = tl.load(steps + 2 * token, mask=token >= 0, other=0)
        power = tl.load(steps + 2 * token + 1, mask=token >= 0, other=0)
        here = here & (power != 0)
        starts_here = _is_start(starts, place - n, position - n, here)
        if PREFIX != "none":
            first = here & _opens_segment(
                ids, starts, steps, place - n, position - n, here, starts_here, num_ids, PREFIX
            )
            value = tl.where(first, tl.load(start_steps + 2 * token, mask=first, other=0), value)
            power = tl.where(first, tl.load(start_steps + 2 * token + 1, mask=first, other=0), power)
            here = here & (power != 0)
        lane_0 = _mod_prime((value >> LANE_BITS) * power_0 + lane_0)
        lane_1 = _mod_prime((value & PRIME) * power_1 + lane_1)
        power_0 = _mod_prime((power >> LANE_BITS) * power_0)
        power_1 = _mod_prime((power & PRIME) * power_1)
        key = tl.where(here, (lane_0 << LANE_BITS) | lane_1, NO_WINDOW)
        window = place * MAX_ORDER + n
        tl.store(keys + window, key, mask=inside)
        if NUM_HEADS > 0:
            _store_rows(rows, heads, window, key, inside, NUM_HEADS, HEADS)
        open_ended = here & (starts_here == 0)


@triton.jit
def _known_id(ids, place, wanted, num_ids):
    """The id, or -1 where it is masked, unknown or not wanted."""
    token = tl.load(ids + place, mask=wanted, other=-1).to(tl.int64)
    return tl.where((token >= 0) & (token < num_ids), token, -1)


@triton.jit
def _is_start(starts, place, position, wanted):
    """Whether a document starts here."""
    if starts is None:
        return wanted & (position == 0)
    else:
        return wanted & (tl.load(starts + place, mask=wanted, other=0) != 0)


@triton.jit
def _opens_segment(ids, starts, steps, place, position, wanted, starts_here, num_ids, PREFIX: tl.constexpr):
    """Whether an id with bytes is the first of its segment: decided by a start, else by what stands before it."""
    opens = starts_here
    undecided = wanted & (starts_here == 0)
    back = 1
    while tl.max(undecided.to(tl.int32), 0) > 0:
        undecided = undecided & (position >= back)
        token = _known_id(ids, place - back, undecided, num_ids)
        has_bytes = tl.load(steps + 2 * token + 1, mask=token >= 0, other=0) != 0
        undecided = undecided & (has_bytes == 0)
        if PREFIX == "always":
            opens = opens | undecided
            undecided = undecided & (opens == 0)
        else:
            start_there = _is_start(starts, place - back, position - back, undecided)
            opens = opens | start_there
            undecided = undecided & (start_there == 0)
        back += 1
    return opens


@triton.jit
def _store_rows(rows, heads, window, key, inside, NUM_HEADS: tl.constexpr, HEADS: tl.constexpr):
    """Barrett's reduction: a key below 2 ** 62 makes the quotient too small by 1 at most."""
    head = tl.arange(0, HEADS)
    exists = head < NUM_HEADS
    modulus = tl.load(heads + head, mask=exists, other=1)[None, :]
    offset = tl.load(heads + NUM_HEADS + head, mask=exists, other=0)[None, :]
    reciprocal = tl.load(heads + 2 * NUM_HEADS + head, mask=exists, other=0)[None, :]
    key = key[:, None]
    rest = key - tl.umulhi(key, reciprocal) * modulus
    row = tl.where(key >= 0, offset + tl.where(rest >= modulus, rest - modulus, rest), NO_WINDOW)
    tl.store(rows + (window * NUM_HEADS)[:, None] + head[None, :], row, mask=inside[:, None] & exists[None, :])


@triton.jit
def _mod_prime(x):
    """`x mod P` for 0 <= x < 2 ** 62."""
    folded = (x & PRIME) + (x >> LANE_BITS)
    return tl.where(folded >= PRIME, folded - PRIME, folded)
