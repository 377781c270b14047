"""The key-value section of a GGUF file turned into checked values; what lies behind it is never read."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokagnostic.errors import SourceError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_HEADER = struct.Struct("<4sIQQ")
_COUNT = struct.Struct("<Q")
_TYPE = struct.Struct("<I")
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {
    **{0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", _BOOL: "<u1"},
    **{10: "<u8", 11: "<i8", 12: "<f8"},
}
"""The numpy type of each kind of number, by the number that the format gives to the kind."""
_MAX_KEYS = 1 << 16
_MAX_ELEMENTS = 1 << 24
"""Entries of one array; a vocabulary has some hundred thousand."""

Value = str | bool | int | float | np.ndarray | list[bytes]
"""What a key holds. Strings in arrays stay bytes; an array of numbers is a numpy array of its own type."""


def read_metadata(path: Path, is_wanted: Callable[[str], bool]) -> dict[str, Value]:
    """Read the keys of a GGUF file.

    The layout is that of versions 2 and 3 of the format: little-endian, a header with counts, then keys with typed
    values, then tensors. Every length is held against the size of the file before it is believed.

    Args:
        path: the file.
        is_wanted: which keys to read; the values of the others are stepped over.

    Raises:
        SourceError: if the file cannot be opened, is truncated, is of another format, or states what cannot be true.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Section(data, path).read(is_wanted)
    except (OSError, ValueError) as error:
        # An empty file cannot be mapped, which is a ValueError.
        raise _broken(path, f"cannot be opened ({error})") from error


@dataclass
class _Section:
    """A place in the file, moving forward."""

    data: mmap.mmap
    path: Path
    position: int = 0

    def read(self, is_wanted: Callable[[str], bool]) -> dict[str, Value]:
        if len(self.data) < _HEADER.size:
            raise _broken(self.path, f"ends after {len(self.data)} bytes")
        magic, version, _, num_keys = _HEADER.unpack_from(self.data)
        if magic != _MAGIC:
            raise _broken(self.path, f"begins with {magic!r}")
        if version not in _VERSIONS:
            is_big_endian = version & 0xFFFF == 0 and version >> 24 in _VERSIONS
            raise _broken(self.path, "is big-endian" if is_big_endian else f"is of version {version}")
        if num_keys > _MAX_KEYS:
            raise _broken(self.path, f"states {num_keys} keys")
        self.position = _HEADER.size
        values: dict[str, Value] = {}
        seen: set[str] = set()
        for _ in range(num_keys):
            key = self._text(self._string("a key"), "a key")
            if key in seen:
                raise _broken(self.path, f"has the key {key!r} twice")
            seen.add(key)
            value = self._value(key, is_wanted(key))
            if value is not None:
                values[key] = value
        return values

    def _value(self, key: str, wanted: bool) -> Value | None:
        kind = self._number(_TYPE, key)
        if kind == _STRING:
            text = self._string(key)
            return self._text(text, key) if wanted else None
        if kind == _ARRAY:
            return self._array(key, wanted)
        array = self._numbers(kind, 1, key)
        if kind == _BOOL:
            return bool(array[0])
        number: int | float = array[0].item()
        return number

    def _array(self, key: str, wanted: bool) -> Value | None:
        kind, count = self._number(_TYPE, key), self._number(_COUNT, key)
        if count > _MAX_ELEMENTS:
            raise _broken(self.path, f"states {count} elements for {key}")
        if kind == _STRING:
            return self._strings(count, key, wanted)
        numbers = self._numbers(kind, count, key)
        return numbers if wanted else None

    def _strings(self, count: int, key: str, wanted: bool) -> list[bytes] | None:
        data, size, position, unpack = self.data, len(self.data), self.position, _COUNT.unpack_from
        self._check(count * _COUNT.size, key)
        strings: list[bytes] = []
        for _ in range(count):
            start = position + 8
            if start > size:
                raise self._truncated(key)
            position = start + unpack(data, position)[0]
            if position > size:
                raise self._truncated(key)
            if wanted:
                strings.append(data[start:position])
        self.position = position
        return strings if wanted else None

    def _numbers(self, kind: int, count: int, key: str) -> np.ndarray:
        if kind not in _SCALARS:
            raise _broken(self.path, f"holds a value of type {kind} under {key}")
        dtype = np.dtype(_SCALARS[kind])
        self._check(count * dtype.itemsize, key)
        numbers = np.frombuffer(self._take(count * dtype.itemsize), dtype=dtype)
        return numbers != 0 if kind == _BOOL else numbers

    def _string(self, key: str) -> bytes:
        length = self._number(_COUNT, key)
        self._check(length, key)
        return self._take(length)

    def _number(self, layout: struct.Struct, key: str) -> int:
        self._check(layout.size, key)
        number: int = layout.unpack_from(self.data, self.position)[0]
        self.position += layout.size
        return number

    def _take(self, length: int) -> bytes:
        taken = self.data[self.position : self.position + length]
        self.position += length
        return taken

    def _check(self, length: int, key: str) -> None:
        if self.position + length > len(self.data):
            raise self._truncated(key)

    def _truncated(self, key: str) -> SourceError:
        return _broken(self.path, f"ends inside {key} or states a wrong length for it")

    def _text(self, data: bytes, key: str) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise _broken(self.path, f"holds bytes that are no UTF-8 in {key}") from error


def _broken(path: Path, what: str) -> SourceError:
    return SourceError(
        f"{path} {what}",
        expected="a whole GGUF file of version 2 or 3, little-endian",
        remedy="Download or convert the file again",
    )


def as_type(values: dict[str, Value], key: str, kind: Any, path: Path) -> Any:
    """Take one value out, of the type that the key must have; None where the key is absent.

    Raises:
        SourceError: if it has another type.
    """
    value = values.get(key)
    # A flag is an int to Python, but not to the format.
    if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
        return value
    raise SourceError(
        f"{path} holds {_type_name(value)} under {key}",
        expected=f"a value of type {kind.__name__}",
        remedy="Convert the model again",
    )


def _type_name(value: Value) -> str:
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a value of type {type(value).__name__}"
