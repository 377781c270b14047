"""Packed files to their bytes, by the ending of their name."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from tokagnostic.errors import SourceError

_SKIPPED_AT_ONCE = 1 << 20


def without_packing(name: str) -> str:
    """A file's name in lower case, without the ending of its packing."""
    lower = name.lower()
    return next((lower.removesuffix(ending) for ending in UNPACKERS if lower.endswith(ending)), lower)


@contextmanager
def open_bytes(path: str, position: int = 0) -> Iterator[IO[bytes]]:
    """Open a file as bytes, unpacked if its name ends in one of `UNPACKERS`.

    Args:
        path: the file.
        position: where to begin in the unpacked bytes; a packed file is unpacked up to there.

    Raises:
        SourceError: if it cannot be opened, read or unpacked.
    """
    ending = next((ending for ending in UNPACKERS if path.lower().endswith(ending)), None)
    try:
        with open(path, "rb") as packed:
            if ending is None:
                packed.seek(position)
                yield packed
            else:
                with UNPACKERS[ending](packed) as file:
                    _skip(file, position)
                    yield file
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise SourceError(
            f"{path} cannot be read ({error})",
            expected="a readable file" if ending is None else f"a readable and whole {ending.removeprefix('.')} file",
            remedy="Check the file and its permissions",
        ) from error


def _xz(packed: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], lzma.LZMAFile(packed))


def _zstd(packed: IO[bytes]) -> IO[bytes]:
    # Python 3.11 to 3.13 cannot unpack Zstandard, and pyarrow is there for the tables.
    import pyarrow

    # A buffer of Python's around it: only that reads line by line.
    return io.BufferedReader(cast(Any, pyarrow.CompressedInputStream(packed, "zstd")))


def _skip(file: IO[bytes], count: int) -> None:
    """Read so many bytes away, with no more of them in memory than `_SKIPPED_AT_ONCE`."""
    while count > 0:
        skipped = len(file.read(min(count, _SKIPPED_AT_ONCE)))
        if skipped == 0:
            return
        count -= skipped


UNPACKERS: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {
    ".gz": lambda packed: cast(IO[bytes], gzip.GzipFile(fileobj=packed)),
    ".bz2": lambda packed: cast(IO[bytes], bz2.BZ2File(packed)),
    ".xz": _xz,
    ".zst": _zstd,
}
"""What unpacks a file, by the ending of its name."""
