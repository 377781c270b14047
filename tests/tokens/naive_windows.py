"""The joined bytes of every window of a document, by the plainest program: the oracle for what a window holds."""

from __future__ import annotations

from collections.abc import Iterable

from tokagnostic.tokens.token_bytes import TokenBytes


def windows_of(token_bytes: TokenBytes, token_ids: Iterable[int], max_order: int) -> set[bytes]:
    """Bytes of all windows of 1 to `max_order` positions, none over a position without bytes."""
    starts, stops = token_bytes.spans(list(token_ids))
    pieces = [token_bytes.data[a:b].tobytes() for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    windows = set()
    for t in range(len(pieces)):
        for order in range(1, min(max_order, t + 1) + 1):
            window = pieces[t - order + 1 : t + 1]
            if all(window):
                windows.add(b"".join(window))
    return windows
