"""Rows to codes of eight bits with a scale per block of a row, and such codes, where they are looked up, back to rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from tokagnostic.errors import InvalidValueError

CodeFormat = Literal["int8", "fp8_e4m3"]
"""Whole numbers from -127 to 127, or the 8-bit floats with 4 bits of exponent of arXiv 2209.05433, up to 448."""

CODE_DTYPES: dict[str, torch.dtype] = {"int8": torch.int8, "fp8_e4m3": torch.float8_e4m3fn}
LARGEST_CODES = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
USUAL_BLOCK = 32
"""Numbers per scale, or fewer where the width of a row is no multiple."""


@dataclass(frozen=True, eq=False)
class QuantisedRows:
    """The rows of one table in eight bits a number: each number is its code times its block's scale, in float32."""

    codes: Tensor
    """int8 or float8_e4m3fn [R, dim]."""
    scales: Tensor
    """float32 [R, dim / block]."""

    def __post_init__(self) -> None:
        num_rows, dim = self.codes.shape
        blocks = self.scales.shape[1] if self.scales.ndim == 2 else 0
        if self.codes.dtype not in LARGEST_CODES or self.scales.dtype != torch.float32:
            raise InvalidValueError(
                f"codes in {self.codes.dtype} with scales in {self.scales.dtype}",
                expected="codes in int8 or float8_e4m3fn with scales in float32",
                remedy="Make both with QuantisedRows.of",
            )
        if self.scales.shape[0] != num_rows or not blocks or dim % blocks:
            raise InvalidValueError(
                f"scales of shape {list(self.scales.shape)} for codes of shape {[num_rows, dim]}",
                expected="one scale per row and block, and blocks that divide the row",
                remedy="Make both with QuantisedRows.of",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # As bytes: torch does not read 8-bit floats back from every kind of pickle.
        return _from_bytes, (self.codes.view(torch.uint8), self.codes.dtype, self.scales)

    @classmethod
    def of(cls, rows: Tensor, code_dtype: torch.dtype, block_size: int) -> QuantisedRows:
        """Quantise rows, float [R, dim]. The largest number of a block, in absolute value, gets the largest code.

        Args:
            rows: finite numbers.
            code_dtype: int8 or float8_e4m3fn; numbers between two codes go to the nearer, to the even one of two as near.
            block_size: numbers per scale; divides dim.
        """
        scales = scales_of(rows, code_dtype, block_size)
        largest = LARGEST_CODES[code_dtype]
        blocks = rows.to(torch.float32).view(*scales.shape, block_size)
        # A block of zeros, or of numbers too small for a scale, has the scale zero.
        quotients = (blocks / scales.unsqueeze(-1)).masked_fill_((scales == 0).unsqueeze(-1), 0)
        if code_dtype == torch.int8:
            quotients = quotients.round_()
        codes = quotients.clamp_(-largest, largest).to(code_dtype)
        return cls(codes.view(rows.shape), scales)

    @property
    def num_rows(self) -> int:
        """R."""
        return self.codes.shape[0]

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return self.codes.shape[1]

    @property
    def block_size(self) -> int:
        """Numbers per scale."""
        return self.dim // self.scales.shape[1]

    def at(self, rows: Tensor) -> Tensor:
        """The rows of these numbers, which the table has, int64 [...]: float32 [..., dim]."""
        flat = rows.reshape(-1)
        # No backend gathers numbers of 8-bit floats, and each of them bytes.
        codes = self.codes.view(torch.uint8).index_select(0, flat).view(self.codes.dtype)
        return _numbers(codes, self.scales.index_select(0, flat)).view(*rows.shape, self.dim)

    def part(self, begin: int, end: int) -> QuantisedRows:
        """The rows from one number to before another, without a copy."""
        return QuantisedRows(self.codes[begin:end], self.scales[begin:end])

    def numbers(self) -> Tensor:
        """All rows, float32 [R, dim]."""
        return _numbers(self.codes, self.scales)

    def to(self, device: torch.device) -> QuantisedRows:
        """The same rows on a device."""
        return QuantisedRows(self.codes.to(device), self.scales.to(device))


def scales_of(rows: Tensor, code_dtype: torch.dtype, block_size: int) -> Tensor:
    """The scale of each block: its largest absolute number over the largest code, float32 [R, dim / block]."""
    blocks = rows.to(torch.float32).view(rows.shape[0], -1, block_size)
    return blocks.abs().amax(dim=-1) / LARGEST_CODES[code_dtype]


def block_size_of(row_format: str, dim: int, asked: int | None = None) -> int | None:
    """Numbers per scale of rows in a format: what was asked for, or the largest divisor of dim up to 32; else None.

    Args:
        row_format: how rows are stored.
        dim: numbers per row.
        asked: numbers per scale, if anybody said.

    Raises:
        InvalidValueError: if the block does not divide the row, or the format has no scales.
    """
    if row_format not in get_args(CodeFormat):
        if asked is not None:
            raise InvalidValueError(
                f"block_size = {asked!r} for rows in {row_format}",
                expected=f"a block size only for {' or '.join(get_args(CodeFormat))}, whose blocks have scales",
                remedy="Leave the block size out, or name such a row format",
            )
        return None
    if asked is None:
        return max(block for block in range(1, USUAL_BLOCK + 1) if dim % block == 0)
    if type(asked) is not int or asked < 1 or dim % asked:
        raise InvalidValueError(
            f"block_size = {asked!r} for rows of {dim} numbers",
            expected=f"a divisor of {dim}",
            remedy="Set block_size to one, or leave it out",
        )
    return asked


def _from_bytes(codes: Tensor, code_dtype: torch.dtype, scales: Tensor) -> QuantisedRows:
    return QuantisedRows(codes.view(code_dtype), scales)


def _numbers(codes: Tensor, scales: Tensor) -> Tensor:
    numbers = codes.to(torch.float32).view(*scales.shape, codes.shape[1] // scales.shape[1]) * scales.unsqueeze(-1)
    return numbers.view(codes.shape)
