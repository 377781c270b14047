"""Counts of some documents to counts of more documents, by addition, and in the end to an overlap in percent.

Everything here is a sum of whole numbers over documents, so counts of disjoint parts of a corpus add up to those of the
corpus in whatever grouping, on however many processes or machines, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tokagnostic.errors import CorpusError, InvalidValueError
from tokagnostic.evaluation.overlap.report import Overlap
from tokagnostic.evaluation.overlap.resampling import interval_of, resampled_sums
from tokagnostic.evaluation.overlap.shares import CAUSES, MIN_DOCUMENTS, Intervals, Shares, SideReport

LARGEST_ORDER = 31
"""An entry of the counting table keeps one bit per order and side in one signed 64-bit number."""

UNIQUE, WEIGHTED = 0, 1
WINDOWS, ANY_ORDER, MATRIX = 0, 1, 2
"""Columns of a count: windows; found in any order; found in order 1, 2, ... N; then one column per cause of a miss."""

LIMB_BITS = 30
"""A document's share is added up as a whole multiple of 2 ** -60, in two parts of this many bits."""
VERSION = 1


def num_columns(max_order: int) -> int:
    """Columns of a count for orders 1..N."""
    return MATRIX + max_order + len(CAUSES)


def check_order(max_order: Any) -> int:
    """The largest order, if it is one.

    Raises:
        InvalidValueError: if it is no whole number from 1 to 31.
    """
    if type(max_order) is not int or not 1 <= max_order <= LARGEST_ORDER:
        raise InvalidValueError(
            f"max_order = {max_order!r}",
            expected=f"a whole number from 1 to {LARGEST_ORDER}",
            remedy="Set max_order to such a number",
        )
    return max_order


@dataclass(eq=False)
class OverlapCounts:
    """What was counted for one target and one reference in some documents of a corpus."""

    target: SideReport
    reference: SideReport
    max_order: int
    """N."""
    seed: int
    """Of the resampling."""
    totals: np.ndarray
    """Sums over documents, int64 [2, N, 2 + N + causes]: unique and weighted, target order, columns as named above."""
    counted: np.ndarray
    """Documents with a window of each order, int64 [2, N]."""
    share_sums: np.ndarray
    """Sums over documents of found / windows in any order and in order 1..N, int64 [2, 2, N, 1 + N]: the first axis is
    the upper and the lower part, worth 2 ** -30 and 2 ** -60."""
    resampled: np.ndarray
    """Sums over the documents of each resample, int64 [R, 2, N, 3]: windows, found in any order, in the same order."""
    num_documents: int = 0
    num_bytes: int = 0
    """Of the source text."""
    empty_documents: int = 0
    """Documents of no bytes. They are counted as documents and make no window."""
    key_collisions: int = 0

    @classmethod
    def none(
        cls, target: SideReport, reference: SideReport, max_order: int, *, resamples: int, seed: int
    ) -> OverlapCounts:
        """The counts of no document.

        Args:
            target: its name and fingerprint, with nothing counted yet.
            reference: likewise.
            max_order: N.
            resamples: R; 0 for no intervals.
            seed: of the resampling.
        """
        shape = (2, max_order)
        return cls(
            target,
            reference,
            check_order(max_order),
            seed,
            totals=np.zeros((*shape, num_columns(max_order)), dtype=np.int64),
            counted=np.zeros(shape, dtype=np.int64),
            share_sums=np.zeros((2, *shape, 1 + max_order), dtype=np.int64),
            resampled=np.zeros((resamples, *shape, 3), dtype=np.int64),
        )

    def add(self, counts: np.ndarray, sizes: np.ndarray, first_document: int) -> None:
        """Take in documents that follow one another in the corpus.

        Args:
            counts: of each document, int64 [D, 2, N, 2 + N + causes].
            sizes: bytes of each document, int64 [D].
            first_document: the place of the first of them in the whole corpus, from 0.
        """
        windows = counts[..., WINDOWS]
        self.totals += counts.sum(axis=0)
        self.counted += (windows > 0).sum(axis=0)
        self.share_sums += _fixed_point_sums(counts[..., ANY_ORDER : MATRIX + self.max_order], windows)
        self.resampled += resampled_sums(self._compared(counts), len(self.resampled), self.seed, first_document)
        self.num_documents += len(counts)
        self.num_bytes += int(sizes.sum())
        self.empty_documents += int((sizes == 0).sum())

    def merge(self, other: OverlapCounts) -> OverlapCounts:
        """The counts of both parts of a corpus; `other` holds the later documents, whose order only names examples.

        Raises:
            InvalidValueError: if they were counted for other tokenizers, orders or resamples.
        """
        for what, own, its in (
            ("target", self.target.fingerprint, other.target.fingerprint),
            ("reference", self.reference.fingerprint, other.reference.fingerprint),
            ("largest order", self.max_order, other.max_order),
            ("number of resamples", len(self.resampled), len(other.resampled)),
            ("seed", self.seed, other.seed),
        ):
            if own != its:
                raise InvalidValueError(
                    f"counts of the {what} {own} and of the {what} {its}",
                    expected="counts of one pair of tokenizers under the same settings",
                    remedy="Merge only the parts of one measurement",
                )
        return OverlapCounts(
            self.target.merge(other.target),
            self.reference.merge(other.reference),
            self.max_order,
            self.seed,
            totals=self.totals + other.totals,
            counted=self.counted + other.counted,
            share_sums=self.share_sums + other.share_sums,
            resampled=self.resampled + other.resampled,
            num_documents=self.num_documents + other.num_documents,
            num_bytes=self.num_bytes + other.num_bytes,
            empty_documents=self.empty_documents + other.empty_documents,
            key_collisions=self.key_collisions + other.key_collisions,
        )

    def finish(self) -> Overlap:
        """The shares of all these documents.

        Raises:
            CorpusError: if none of them has a window.
        """
        if self.totals[:, :, WINDOWS].sum() == 0:
            raise CorpusError(
                f"{self.num_documents} documents of which {self.target.name} makes no window",
                expected="a text that is not empty",
                remedy="Name a source with text in it",
            )
        return Overlap(
            target=self.target,
            reference=self.reference,
            max_order=self.max_order,
            num_documents=self.num_documents,
            num_bytes=self.num_bytes,
            empty_documents=self.empty_documents,
            unique=self._pooled(UNIQUE),
            weighted=self._pooled(WEIGHTED),
            mean_unique=self._mean(UNIQUE),
            mean_weighted=self._mean(WEIGHTED),
            causes_unique=self._causes(UNIQUE),
            causes_weighted=self._causes(WEIGHTED),
            intervals=self._intervals(),
            key_collisions=self.key_collisions,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, from which `from_dict` makes equal counts."""
        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        sides = {"target": self.target.to_dict(), "reference": self.reference.to_dict()}
        return {"version": VERSION, **sides, **numbers, "resamples": len(self.resampled), **arrays}

    @classmethod
    def from_dict(cls, values: Any) -> OverlapCounts:
        """Counts from what `to_dict` gave.

        Raises:
            InvalidValueError: if the values are not those of counts.
        """
        try:
            if values["version"] != VERSION or any(type(values[name]) is not int for name in _NUMBERS):
                raise ValueError("no counts of this version")
            target, reference = SideReport.from_dict(values["target"]), SideReport.from_dict(values["reference"])
            settings = {"resamples": values["resamples"], "seed": values["seed"]}
            made = cls.none(target, reference, values["max_order"], **settings)
            for name in _ARRAYS:
                array = getattr(made, name)
                given = np.array(values[name], dtype=np.int64).reshape(array.shape if array.size == 0 else -1)
                array[...] = given.reshape(array.shape)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidValueError(
                f"values that are no counts of an overlap ({error!r})",
                expected="what OverlapCounts.to_dict gave",
                remedy="Count these documents again",
            ) from error
        for name in ("num_documents", "num_bytes", "empty_documents", "key_collisions"):
            setattr(made, name, values[name])
        return made

    def _compared(self, counts: np.ndarray) -> np.ndarray:
        """Windows, found in any order, found in the same order: int64 [D, 2, N, 3]."""
        orders = np.arange(self.max_order)
        same = counts[:, :, orders, MATRIX + orders]
        return np.stack((counts[..., WINDOWS], counts[..., ANY_ORDER], same), axis=-1)

    def _pooled(self, counting: int) -> Shares:
        totals = self.totals[counting]
        found = totals[:, ANY_ORDER : MATRIX + self.max_order]
        windows = totals[:, WINDOWS]
        shares = _percent(found, windows)
        all_orders = _percent(totals[:, ANY_ORDER].sum()[None, None], windows.sum()[None])[0, 0]
        return Shares(windows, shares[:, 0], shares[:, 1:], float(all_orders))

    def _mean(self, counting: int) -> Shares:
        upper, lower = self.share_sums[:, counting].tolist()
        shares = np.array(
            [
                [
                    100 * ((high << LIMB_BITS) + low) / (number << 2 * LIMB_BITS) if number else np.nan
                    for high, low in zip(highs, lows, strict=True)
                ]
                for highs, lows, number in zip(upper, lower, self.counted[counting].tolist(), strict=True)
            ]
        )
        return Shares(self.totals[counting][:, WINDOWS], shares[:, 0], shares[:, 1:], float("nan"))

    def _causes(self, counting: int) -> np.ndarray:
        totals = self.totals[counting]
        return _percent(totals[:, MATRIX + self.max_order :], totals[:, WINDOWS]).T

    def _intervals(self) -> Intervals | None:
        if len(self.resampled) == 0 or self.num_documents - self.empty_documents < MIN_DOCUMENTS:
            return None
        bounds = interval_of(self.resampled)
        return Intervals(len(self.resampled), self.seed, bounds[UNIQUE], bounds[WEIGHTED])


_NUMBERS = ("max_order", "seed", "num_documents", "num_bytes", "empty_documents", "key_collisions")
_ARRAYS = ("totals", "counted", "share_sums", "resampled")


def _percent(found: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Percent of int64 [N, C] by int64 [N]; NaN where there is no window."""
    shares = np.full(found.shape, np.nan)
    np.divide(100.0 * found, windows[:, None], out=shares, where=windows[:, None] > 0)
    return shares


def _fixed_point_sums(found: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """Sums over documents of found / windows as whole multiples of 2 ** -30 and 2 ** -60, int64 [2, 2, N, 1 + N].

    Args:
        found: int64 [D, 2, N, 1 + N], below 2 ** 33.
        windows: int64 [D, 2, N].
    """
    divisors = np.maximum(windows, 1)[..., None]
    upper, rest = np.divmod(found << LIMB_BITS, divisors)
    lower = (rest << LIMB_BITS) // divisors
    return np.stack((upper.sum(axis=0), lower.sum(axis=0)))
