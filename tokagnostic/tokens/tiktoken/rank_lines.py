"""The lines of a .tiktoken file, each a byte string in base64 and its rank, turned into ranks and back."""

from __future__ import annotations

from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Mapping

from tokagnostic.errors import SourceError
from tokagnostic.tokens.token_bytes import LARGEST_ID


def read_rank_lines(content: bytes, source: str) -> dict[bytes, int]:
    """Read every line; nothing is repaired.

    Args:
        content: the whole file.
        source: what the file is called in an error.

    Returns:
        The rank of each byte string, in the order of the lines.

    Raises:
        SourceError: at the first line that holds something else, or that says again what an earlier one said.
    """
    ranks: dict[bytes, int] = {}
    tokens: dict[int, bytes] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line:
            continue
        coded, _, digits = line.partition(b" ")
        try:
            token = a2b_base64(coded, strict_mode=True)
        except ValueError as error:
            raise _fault(source, number, line, f"is not base64 ({error})") from error
        if not token:
            raise _fault(source, number, line, "has no bytes")
        if not digits.isdigit() or int(digits) > LARGEST_ID:
            raise _fault(source, number, line, "has no rank" if not digits else "has an impossible rank")
        rank = int(digits)
        if token in ranks or rank in tokens:
            twice = f"repeats the {'bytes' if token in ranks else 'rank'} of an earlier line"
            raise _fault(source, number, line, twice)
        ranks[token], tokens[rank] = rank, token
    if not ranks:
        raise _fault(source, 1, b"", "is all there is")
    return ranks


def write_rank_lines(ranks: Mapping[bytes, int]) -> bytes:
    """The lines of a file, in the order of the ranks."""
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    return b"".join(b"%b %d\n" % (b64encode(token), rank) for token, rank in ordered)


def _fault(source: str, number: int, line: bytes, what: str) -> SourceError:
    shown = line if len(line) <= 40 else line[:37] + b"..."
    return SourceError(
        f"line {number} of {source}, {shown.decode(errors='replace')!r}, {what}",
        expected=f"a byte string in base64, a space, and a rank from 0 to {LARGEST_ID}, none of them twice",
        remedy="Fetch the file again",
    )
