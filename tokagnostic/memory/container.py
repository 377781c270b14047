"""Named tensors to the layout of a safetensors file, and the bytes of such a file, mapped or copied, back to tensors."""

from __future__ import annotations

import json
import mmap
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokagnostic.errors import MemoryFileError

DTYPE_NAMES = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int8: "I8",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.uint32: "U32",
    torch.int32: "I32",
}
"""How safetensors calls the types that a memory file holds."""
NOT_FINITE: dict[torch.dtype, np.unsignedinteger] = {
    torch.float32: np.uint32(0x7F80_0000),
    torch.bfloat16: np.uint16(0x7F80),
    torch.float16: np.uint16(0x7C00),
    torch.float8_e4m3fn: np.uint8(0x7F),
}
"""The bits that are all set in infinity and in what is no number, and in nothing else."""
MAX_HEADER_BYTES = 100_000_000
"""What the safetensors library allows as well."""
ALIGNMENT = 8
"""The header is padded with spaces so that the data begin at a multiple of this."""
CHUNK_BYTES = 2**24

METADATA = "__metadata__"


@dataclass(frozen=True)
class Place:
    """Where in a file one tensor lies."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    """First byte, counted from the start of the file."""

    @property
    def num_bytes(self) -> int:
        """Size of the tensor."""
        return prod(self.shape) * self.dtype.itemsize


def write_layout(tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], metadata: Mapping[str, str]) -> bytes:
    """The header of a file whose tensors follow in the order given: length, JSON, padding.

    Args:
        tensors: dtype and shape per name; wider types should come first, so that every tensor is aligned.
        metadata: free text per key.
    """
    layout: dict[str, Any] = {METADATA: dict(metadata)}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + prod(shape) * dtype.itemsize
        layout[name] = {"dtype": DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(layout, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def read_layout(file: BufferedReader) -> tuple[dict[str, Any], dict[str, Place]]:
    """Metadata and places of a file's tensors, which must fill the file without gap or overlap.

    Raises:
        MemoryFileError: if this is not a whole safetensors file, or holds a type that no memory file has.
    """
    file_size = os.fstat(file.fileno()).st_size
    file.seek(0)
    header_size = int.from_bytes(file.read(8), "little")
    if file_size < 8 or not 2 <= header_size <= min(file_size - 8, MAX_HEADER_BYTES):
        raise _foreign(f"{file_size} bytes that do not begin with the length of a header")
    try:
        layout = json.loads(file.read(header_size))
    except (ValueError, RecursionError) as error:
        raise _foreign("a header that is no JSON") from error
    metadata = layout.pop(METADATA, {}) if isinstance(layout, dict) else None
    if not isinstance(metadata, dict):
        raise _foreign("a header that is no mapping")
    spans = sorted((_span(name, entry), name) for name, entry in layout.items())
    places, end = {}, 0
    for (begin, stop), name in spans:
        dtype, shape = _type_of(name, layout[name])
        places[name] = Place(dtype, shape, 8 + header_size + begin)
        if begin != end or stop - begin != places[name].num_bytes:
            raise _foreign(
                f"a tensor `{name}` at bytes {begin} to {stop} where its shape and its neighbours leave no room"
            )
        end = stop
    if 8 + header_size + end != file_size:
        raise _foreign(f"{file_size} bytes where its header says {8 + header_size + end}")
    return metadata, places


def map_tensors(file: BufferedReader, places: Mapping[str, Place]) -> dict[str, Tensor]:
    """Tensors that stay in the file: what is looked up is fetched, nothing else.

    Pages are private: writing to such a tensor leaves the file as it is. Where the system does not grant a private
    mapping, as for a file larger than memory, pages are read-only and writing to them ends the process.

    Raises:
        MemoryFileError: if the system refuses to map the file, or a tensor is not aligned.
    """
    for name, place in places.items():
        if place.begin % place.dtype.itemsize:
            raise MemoryFileError(
                f"the tensor `{name}` begins at byte {place.begin}",
                expected=f"a multiple of {place.dtype.itemsize} for rows that are mapped",
                remedy="Load the memory with mapped=False, or export it again",
            )
    try:
        mapping = _map(file)
    except OSError as error:
        raise MemoryFileError(
            f"the file cannot be mapped ({error.strerror or error})",
            expected="address space for the whole file",
            remedy="Raise the limit of address space, or load the memory with mapped=False",
        ) from error
    with warnings.catch_warnings():
        # torch warns of read-only memory; that it is so is said above.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return {
            name: torch.frombuffer(mapping, dtype=place.dtype, count=prod(place.shape), offset=place.begin).view(
                place.shape
            )
            for name, place in places.items()
        }


def copy_tensors(file: BufferedReader, places: Mapping[str, Place]) -> dict[str, Tensor]:
    """Tensors read into memory, each once.

    Raises:
        MemoryFileError: if the file has become shorter meanwhile.
    """
    tensors = {}
    for name, place in places.items():
        tensors[name] = torch.empty(place.shape, dtype=place.dtype)
        file.seek(place.begin)
        if file.readinto(bytes_of(tensors[name])) != place.num_bytes:
            raise _foreign(f"too few bytes for the tensor `{name}`")
    return tensors


def pieces_in(file: BufferedReader, place: Place) -> Iterator[bytes]:
    """A tensor's bytes as stored, a piece at a time; fewer than its own if the file has become shorter meanwhile."""
    file.seek(place.begin)
    left = place.num_bytes
    while left and (piece := file.read(min(left, CHUNK_BYTES))):
        yield piece
        left -= len(piece)


def are_finite(piece: bytes, dtype: torch.dtype) -> bool:
    """Whether bytes of a tensor, of whole numbers of its type, stand for finite numbers."""
    if dtype not in NOT_FINITE:
        return True
    pattern = NOT_FINITE[dtype]
    bits = np.frombuffer(piece, dtype=pattern.dtype, count=len(piece) // pattern.itemsize)
    return not bool(((bits & pattern) == pattern).any())


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU, without a copy."""
    return tensor.view(-1).view(torch.uint8).numpy().data


def _map(file: BufferedReader) -> mmap.mmap:
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _span(name: str, entry: Any) -> tuple[int, int]:
    """First byte of a tensor and one past its last, counted from the end of the header."""
    span = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(span, list) or len(span) != 2 or not all(type(bound) is int and bound >= 0 for bound in span):
        raise _foreign(f"a tensor `{name}` without data_offsets")
    return span[0], span[1]


def _type_of(name: str, entry: dict[str, Any]) -> tuple[torch.dtype, tuple[int, ...]]:
    shape, dtype_name = entry.get("shape"), entry.get("dtype")
    dtypes = [dtype for dtype, known in DTYPE_NAMES.items() if known == dtype_name]
    if not dtypes:
        raise _foreign(f"a tensor `{name}` of type {dtype_name!r}")
    if not isinstance(shape, list) or not all(type(size) is int and size > 0 for size in shape):
        raise _foreign(f"a tensor `{name}` of shape {shape!r}")
    return dtypes[0], tuple(shape)


def _foreign(found: str) -> MemoryFileError:
    return MemoryFileError(
        f"the file holds {found}",
        expected="a whole safetensors file written by save_memory",
        remedy="Get the file again from where it came, or export the memory again",
    )
