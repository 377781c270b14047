"""Rows and what a reader will take them for to the size of the difference."""

from __future__ import annotations

import torch

from tokagnostic.errors import InvalidValueError
from tokagnostic.memory.stored import Piece


class Rounding:
    """What storing changes, summed over all pieces of all tables."""

    def __init__(self) -> None:
        self.largest = 0.0
        """Largest absolute difference."""
        self._square_of_error = 0.0
        self._square = 0.0

    @property
    def relative(self) -> float:
        """Relative root mean square error."""
        return (self._square_of_error / self._square) ** 0.5 if self._square_of_error else 0.0

    def add(self, name: str, piece: Piece, row_format: str) -> None:
        """Account for one piece of one tensor; a piece that holds no rows counts for nothing.

        Raises:
            InvalidValueError: if a number is not finite, or not any more.
        """
        if piece.numbers is None or piece.read is None:
            return
        finite = torch.isfinite(piece.read)
        if not bool(finite.all()):
            limit = piece.read.dtype if piece.stored.dtype.itemsize == 1 else piece.stored.dtype
            raise InvalidValueError(
                f"`{name}` holds {float(piece.numbers[~finite][0])!r}, which {row_format} cannot store",
                expected=f"finite numbers within {torch.finfo(limit).max:.6g} of zero",
                remedy="Store the rows as fp32 or bf16 if the number is finite; else train the memory again",
            )
        if piece.read is piece.numbers or piece.read.dtype == piece.numbers.dtype == piece.stored.dtype:
            return
        exact = piece.numbers.to(torch.float64)
        error = exact - piece.read.to(torch.float64)
        self.largest = max(self.largest, float(error.abs().max()))
        self._square_of_error += float(error.square().sum())
        self._square += float(exact.square().sum())
