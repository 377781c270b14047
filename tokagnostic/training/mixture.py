"""Several texts to one, each with its share of the tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tokagnostic.errors import InvalidValueError, TrainingError
from tokagnostic.training.blocks import Blocks, Text, TextCounts

_DRAWS = 1 << 64


class Mixture:
    """Texts whose blocks are dealt by weight (see `Text`): a block holds documents of one text alone.

    Args:
        texts: the texts by name.
        weights: their shares of the tokens, as multiples of each other.

    Raises:
        InvalidValueError: if there is not one weight above 0 for each text.
    """

    def __init__(self, texts: Mapping[str, Text], weights: Sequence[float]) -> None:
        if len(weights) != len(texts) or not all(weight > 0 and math.isfinite(weight) for weight in weights):
            raise InvalidValueError(
                f"weights {', '.join(map(str, weights))} for {len(texts)} sources ({', '.join(texts)})",
                expected="a finite number above 0 for each source",
                remedy="Name as many weights as sources, in the same order, and each source once",
            )
        self._texts = texts
        self._weights = tuple(weights)

    @property
    def identity(self) -> dict[str, Any]:
        """The texts' own, and the weights."""
        texts = {name: text.identity for name, text in self._texts.items()}
        return {"texts": texts, "weights": list(self._weights)}

    @property
    def counts(self) -> TextCounts:
        """Those of all texts together."""
        counts = [text.counts for text in self._texts.values()]
        return TextCounts(
            sum(part.documents for part in counts),
            sum(part.bytes for part in counts),
            sum(part.tokens for part in counts),
        )

    def blocks(self, block_length: int, seed: tuple[int, ...]) -> MixedBlocks:
        """See `Text.blocks`."""
        parts = [text.blocks(block_length, (*seed, i)) for i, text in enumerate(self._texts.values())]
        return MixedBlocks(parts, list(self._texts), self._weights, seed)


class MixedBlocks:
    """Blocks of several texts, dealt so that after any number of them no text is a block away from its share of those
    that were not dealt to texts before it (see `Blocks`).

    Of g blocks the first text has had floor(g s + d), with its share s of all weights and a draw d in [0, 1) by the
    seed; the others share the rest in the same way. So which block a number stands for is a function of seed and number,
    and every text's own blocks come without a gap.
    """

    def __init__(
        self, parts: Sequence[Blocks], names: Sequence[str], weights: Sequence[float], seed: tuple[int, ...]
    ) -> None:
        exact = [Fraction(weight) for weight in weights]
        self._parts = parts
        self._names = names
        self._shares = [weight / sum(exact[i:]) for i, weight in enumerate(exact)]
        draws = np.random.PCG64(np.random.SeedSequence(seed)).random_raw(len(parts)).tolist()
        self._draws = [Fraction(draw, _DRAWS) for draw in draws[:-1]] + [Fraction(0)]

    def dealt(self, number: int) -> list[int]:
        """How many of the blocks before `number` are each text's."""
        counts = []
        for share, draw in zip(self._shares, self._draws, strict=True):
            counts.append(math.floor(number * share + draw))
            number -= counts[-1]
        return counts

    def _own(self, number: int) -> tuple[int, int]:
        """Which text a block is of, and its number there."""
        before, after = self.dealt(number), self.dealt(number + 1)
        part = next(i for i, (one, other) in enumerate(zip(before, after, strict=True)) if one != other)
        return part, before[part]

    def read(self, numbers: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """See `Blocks.read`."""
        own: list[list[int]] = [[] for _ in self._parts]
        rows: list[list[int]] = [[] for _ in self._parts]
        for row, number in enumerate(numbers):
            part, before = self._own(number)
            own[part].append(before)
            rows[part].append(row)
        read = [(rows[i], *self._parts[i].read(own[i])) for i in range(len(self._parts)) if own[i]]
        order = np.argsort(np.concatenate([places for places, _, _ in read]))
        input_ids = np.concatenate([ids for _, ids, _ in read])[order]
        return input_ids, np.concatenate([starts for _, _, starts in read])[order]

    def cursor(self, number: int) -> list[Any] | None:
        """Those of all texts; None where none needs one."""
        cursors = [part.cursor(count) for part, count in zip(self._parts, self.dealt(number), strict=True)]
        return None if all(cursor is None for cursor in cursors) else cursors

    def documents(self, number: int) -> list[str]:
        """See `Blocks.documents`."""
        part, own = self._own(number)
        documents = self._parts[part].documents(own)
        return [name if name.startswith(self._names[part]) else f"{self._names[part]}: {name}" for name in documents]

    def go_to(self, number: int, cursor: Any) -> None:
        """See `Blocks.go_to`."""
        cursors = [None] * len(self._parts) if cursor is None else cursor
        if not isinstance(cursors, list) or len(cursors) != len(self._parts):
            raise TrainingError(
                "a cursor of another mixture of texts",
                expected=f"one for each of {len(self._parts)} texts",
                remedy="Resume with the settings that the run was started with",
            )
        for part, count, own in zip(self._parts, self.dealt(number), cursors, strict=True):
            part.go_to(count, own)
