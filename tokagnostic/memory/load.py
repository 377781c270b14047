"""Different keys and what addresses them to the load of a table: rows hit and rows shared, measured and expected."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokagnostic.memory.base import Addresser

CHUNK = 1 << 18
"""Keys that are addressed together."""


def expected_share(num_rows: int, num_keys: float) -> float:
    """Share of rows that are hit if each key draws one of them by lot: 1 - (1 - 1 / R) ** k (balls into bins).

    It is also the probability that a key shares its row with one of k others.

    Args:
        num_rows: R, at least 2.
        num_keys: k, at least 0.
    """
    return -math.expm1(num_keys * math.log1p(-1 / num_rows))


@dataclass(frozen=True)
class OrderLoad:
    """What the different n-grams of one order do to a table that holds those of all orders; shares from 0 to 1, of them.

    An n-gram shares a row if another n-gram of the text, of whatever order, has the same row of the same head. Expected values
    are those of rows drawn by lot, by each n-gram once for each head.
    """

    num_ngrams: int
    """Different ones, by their bytes."""
    rows_hit: tuple[int, ...]
    """Different rows that they have, per head."""
    expected_rows_hit: tuple[float, ...]
    """R (1 - (1 - 1 / R) ** n) for n of them and R rows of the head."""
    sharing: tuple[float, ...]
    """Share of them that share their row, per head; 0 of none."""
    expected_sharing: tuple[float, ...]
    """1 - (1 - 1 / R) ** (k - 1) for k n-grams of all orders."""
    in_all_heads: float
    """Share of them that share their row in every head, with whichever others: what they read is never theirs alone."""
    expected_in_all_heads: float
    """The product of the heads' expected shares."""
    with_the_same: float
    """Share of them that share all their rows with one and the same other, and so cannot be told from it."""
    expected_with_the_same: float
    """The same as that of one head, with the product of the heads' rows for R."""


@dataclass(frozen=True)
class Load:
    """The load that a text puts on one table."""

    num_rows: tuple[int, ...]
    """R of each head."""
    orders: tuple[OrderLoad, ...]
    """Of each order, from 1."""
    all_orders: OrderLoad
    """Of all of them, an n-gram that comes in several counted once."""


def measure_load(orders: Sequence[Tensor], every: Tensor, addresser: Addresser, table: int = 0) -> Load:
    """Address all keys of a text and see which meet. Beside the keys this takes 5 bytes per row of the table.

    Args:
        orders: the different keys of each order, int64 [S] each.
        every: the different keys of all orders, int64 [k].
        addresser: keys to rows.
        table: which table.
    """
    held = torch.zeros(addresser.num_rows[table], dtype=torch.int32)
    for _, rows in _addressed(every, addresser, table):
        held.index_add_(0, rows.flatten(), torch.ones(rows.numel(), dtype=torch.int32))
    meeting = [keys[(held[rows] > 1).all(dim=1)] for keys, rows in _addressed(every, addresser, table)]
    twins = _twins(torch.cat([every[:0], *meeting]), addresser, table)
    found = [_order_load(keys, len(every), held, twins, addresser, table) for keys in (*orders, every)]
    return Load(tuple(addresser.moduli[table]), tuple(found[:-1]), found[-1])


def _order_load(
    keys: Tensor, num_every: int, held: Tensor, twins: Tensor, addresser: Addresser, table: int
) -> OrderLoad:
    """Of some of a text's keys.

    Args:
        keys: different ones, int64 [S].
        num_every: how many the text has.
        held: by how many of these each row is held, int32 [R].
        twins: those that have all their rows in common with another, int64.
        addresser: keys to rows.
        table: which table.
    """
    moduli, offsets = addresser.moduli[table], addresser.offsets[table]
    hit = torch.zeros(len(held), dtype=torch.bool)
    sharing, num_in_all = torch.zeros(len(moduli), dtype=torch.int64), 0
    for _, rows in _addressed(keys, addresser, table):
        hit[rows.flatten()] = True
        meets = held[rows] > 1  # [S, K]
        sharing += meets.sum(dim=0)
        num_in_all += int(meets.all(dim=1).sum())
    num_ngrams, num_others = len(keys), max(0, num_every - 1)
    chances = [expected_share(modulus, num_others) for modulus in moduli]
    heads = [slice(offset, offset + modulus) for offset, modulus in zip(offsets, moduli, strict=True)]
    return OrderLoad(
        num_ngrams=num_ngrams,
        rows_hit=tuple(int(hit[head].sum()) for head in heads),
        expected_rows_hit=tuple(modulus * expected_share(modulus, num_ngrams) for modulus in moduli),
        sharing=tuple(_share(count, num_ngrams) for count in sharing.tolist()),
        expected_sharing=tuple(chances),
        in_all_heads=_share(num_in_all, num_ngrams),
        expected_in_all_heads=math.prod(chances),
        with_the_same=_share(int(torch.isin(keys, twins).sum()), num_ngrams),
        expected_with_the_same=expected_share(math.prod(moduli), num_others),
    )


def _addressed(keys: Tensor, addresser: Addresser, table: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Keys, int64 [S], and their rows, int64 [S, K], a part at a time."""
    for part in keys.split(CHUNK):
        yield part, addresser(part, table)


def _twins(keys: Tensor, addresser: Addresser, table: int) -> Tensor:
    """Those of some different keys that have all their rows in common with another, int64 [S]."""
    if len(keys) == 0:
        return keys
    groups = torch.zeros_like(keys)
    for head, (modulus, offset) in enumerate(zip(addresser.moduli[table], addresser.offsets[table], strict=True)):
        rows = torch.cat([rows[:, head] for _, rows in _addressed(keys, addresser, table)])
        # Keys that agree in all heads so far and in this one; numbered anew each time, so that no product grows too large.
        groups = torch.unique(groups * modulus + rows - offset, return_inverse=True)[1]
    return keys[torch.bincount(groups)[groups] > 1]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
