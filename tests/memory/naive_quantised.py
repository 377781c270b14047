"""Quantised rows by plain arithmetic: what the bytes stand for, and which bytes stand nearest."""

from __future__ import annotations

import numpy as np

LARGEST = {"int8": 127, "fp8_e4m3": 448}


def code_value(code: int, row_format: str) -> float:
    """What a byte stands for before its scale: a signed number, or sign, 4 bits of exponent, 3 of fraction."""
    if row_format == "int8":
        return float(code - 256 if code >= 128 else code)
    sign, exponent, fraction = -1.0 if code >= 128 else 1.0, code // 8 % 16, code % 8
    if (exponent, fraction) == (15, 7):
        return float("nan")
    if exponent == 0:
        return sign * fraction * 2.0**-9
    return sign * (8 + fraction) * 2.0 ** (exponent - 10)


def unpacked_rows(codes: np.ndarray, scales: np.ndarray, row_format: str) -> np.ndarray:
    """Rows of bytes [R, dim]: each number its code times the scale of its block, rounded once to float32."""
    values = np.array([code_value(code, row_format) for code in range(256)], dtype=np.float32)
    return values[codes] * np.repeat(scales, codes.shape[1] // scales.shape[1], axis=1)


def quantised_rows(rows: np.ndarray, row_format: str, block_size: int) -> tuple[list[list[float]], list[list[float]]]:
    """What each number's nearest code stands for, of two as near the even one, and the scale of each block."""
    known = [code for code in range(256) if abs(code_value(code, row_format)) <= LARGEST[row_format]]
    values, scales = [], []
    for row in rows:
        values.append([])
        scales.append([])
        for block in row.reshape(-1, block_size):
            scale = np.abs(block).max() / np.float32(LARGEST[row_format])
            scales[-1].append(float(scale))
            for number in block:
                wanted = float(number / scale) if scale else 0.0
                code = min(known, key=lambda c: (abs(code_value(c, row_format) - wanted), c % 2))
                values[-1].append(code_value(code, row_format))
    return values, scales
