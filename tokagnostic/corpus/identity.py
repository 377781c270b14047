"""A source to what tells it from a changed one, without reading all of it."""

from __future__ import annotations

import hashlib
import os

from tokagnostic.errors import SourceError

_SAMPLE = 1 << 16


def file_identity(path: str) -> str:
    """Size of a file and SHA-256, in lower-case hex, of 64 KiB from its begin, its middle and its end each.

    Not the time of its last change, which a copy to another machine does not keep. A change of other bytes that keeps
    the size goes unseen.

    Raises:
        SourceError: if it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            for begin in (0, (size - _SAMPLE) // 2, size - _SAMPLE):
                file.seek(max(begin, 0))
                digest.update(file.read(_SAMPLE))
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read ({error})", expected="a readable file", remedy="Check the file and its permissions"
        ) from error
    return f"{size} bytes, sha256 of samples {digest.hexdigest()}"
