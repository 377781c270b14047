"""Overlap by Python sets of byte strings, one definition after another: slow, and hard to get wrong."""

from __future__ import annotations

from collections.abc import Sequence

from tokagnostic.tokens import TokenBytes
from tokagnostic.tokens.encoder import TextEncoder

Windows = list[bytes]


def naive_windows(token_bytes: TokenBytes, ids: Sequence[int], order: int) -> Windows:
    """The byte strings of all windows of one order in one document; an id without bytes is in none."""
    pieces: list[bytes | None] = []
    at_segment_start = token_bytes.prefix != "none"
    for token_id in ids:
        piece = token_bytes[int(token_id)]
        if piece is None:
            at_segment_start = at_segment_start or token_bytes.prefix == "always"
        elif at_segment_start:
            at_segment_start = False
            piece = piece.removeprefix(b" ") or None
        pieces.append(piece)
    windows = []
    for end in range(order, len(pieces) + 1):
        window = pieces[end - order : end]
        if None not in window:
            windows.append(b"".join(piece for piece in window if piece is not None))
    return windows


def naive_counts(
    texts: Sequence[str], target: TextEncoder, reference: TextEncoder, max_order: int, *, unique: bool
) -> list[tuple[list[int], list[int], list[list[int]]]]:
    """Of each document: windows per order, found in any order, found in each reference order."""
    orders = range(1, max_order + 1)
    counts = []
    for text in texts:
        target_ids, reference_ids = target.encode(text), reference.encode(text)
        found_in = [set(naive_windows(reference.token_bytes, reference_ids, m)) for m in orders]
        found_anywhere = set().union(*found_in)
        windows: list[int] = []
        any_order: list[int] = []
        matrix: list[list[int]] = []
        for n in orders:
            wanted = naive_windows(target.token_bytes, target_ids, n)
            if unique:
                wanted = list(set(wanted))
            windows.append(len(wanted))
            any_order.append(sum(window in found_anywhere for window in wanted))
            matrix.append([sum(window in found for window in wanted) for found in found_in])
        counts.append((windows, any_order, matrix))
    return counts


def percent(hits: int, windows: int) -> float | None:
    """A share in percent, None of nothing."""
    return 100.0 * hits / windows if windows else None


def naive_overlap(
    texts: Sequence[str], target: TextEncoder, reference: TextEncoder, max_order: int, *, unique: bool
) -> dict[str, object]:
    """The pooled shares as the JSON holds them: hits summed over documents, by windows summed over documents."""
    counts = naive_counts(texts, target, reference, max_order, unique=unique)
    orders = range(max_order)
    windows = [sum(document[0][n] for document in counts) for n in orders]
    any_order = [sum(document[1][n] for document in counts) for n in orders]
    matrix = [[sum(document[2][n][m] for document in counts) for m in orders] for n in orders]
    return {
        "num_windows": windows,
        "any_order": [percent(any_order[n], windows[n]) for n in orders],
        "same_order": [percent(matrix[n][n], windows[n]) for n in orders],
        "matrix": [[percent(matrix[n][m], windows[n]) for m in orders] for n in orders],
    }


def naive_mean(
    texts: Sequence[str], target: TextEncoder, reference: TextEncoder, max_order: int, *, unique: bool
) -> list[float | None]:
    """The mean over documents of the any-order share, documents without a window of an order left out."""
    counts = naive_counts(texts, target, reference, max_order, unique=unique)
    means: list[float | None] = []
    for n in range(max_order):
        shares = [100.0 * any_order[n] / windows[n] for windows, any_order, _ in counts if windows[n]]
        means.append(sum(shares) / len(shares) if shares else None)
    return means


def naive_corpus_overlap(
    texts: Sequence[str], target: TextEncoder, reference: TextEncoder, max_order: int, *, unique: bool
) -> dict[str, object]:
    """The shares as the JSON holds them, with all texts as one document whose windows do not cross texts."""
    orders = range(1, max_order + 1)
    ids = [(target.encode(text), reference.encode(text)) for text in texts]
    found_in = [{window for _, its in ids for window in naive_windows(reference.token_bytes, its, m)} for m in orders]
    found_anywhere = set().union(*found_in)
    windows, any_order, matrix = [], [], []
    for n in orders:
        wanted = [window for own, _ in ids for window in naive_windows(target.token_bytes, own, n)]
        if unique:
            wanted = list(set(wanted))
        windows.append(len(wanted))
        any_order.append(percent(sum(window in found_anywhere for window in wanted), len(wanted)))
        matrix.append([percent(sum(window in found for window in wanted), len(wanted)) for found in found_in])
    same_order = [matrix[n][n] for n in range(max_order)]
    return {"num_windows": windows, "any_order": any_order, "same_order": same_order, "matrix": matrix}
