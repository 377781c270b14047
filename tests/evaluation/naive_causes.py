"""Alignment and causes of misses by their definitions, in plain Python: slow, and hard to get wrong."""

from __future__ import annotations

from collections.abc import Sequence

from tokagnostic.evaluation.overlap.shares import CAUSES
from tokagnostic.tokens.encoder import TextEncoder

WHITE = b" \t\n\v\f\r"
NEAR, NEAR_RUN, FAR_RUN = 16, 4, 8


def naive_align(text: bytes, source: bytes) -> list[int | None]:
    """Rules 1 to 6 of `overlap_alignment`."""
    places: list[int | None] = [None] * len(text)
    i = j = 0
    while i < len(text) and j < len(source):
        step = easy_step(text[i], source[j])
        if step is None:
            step = near_skip(text, source, i, j) or far_skip(text, source, i, j)
            if step is None:
                break
        elif text[i] == source[j]:
            places[i] = j
        i, j = i + step[0], j + step[1]
    return places


def easy_step(byte: int, source_byte: int) -> tuple[int, int] | None:
    if byte == source_byte:
        return 1, 1
    if source_byte in WHITE and byte not in WHITE:
        return 0, 1
    both = bytes([byte]), bytes([source_byte])
    if all(one.isalpha() for one in both) and both[0].lower() == both[1].lower():
        return 1, 1
    return None


def near_skip(text: bytes, source: bytes, i: int, j: int) -> tuple[int, int] | None:
    for distance in range(1, NEAR + 1):
        for skip in range(distance + 1):
            if follows(text[i:], source[j:], skip, distance - skip):
                return skip, distance - skip
    return None


def follows(text: bytes, source: bytes, i: int, j: int) -> bool:
    if i > len(text) or j > len(source):
        return False
    copied = dropped = 0
    while i < len(text) and j < len(source):
        step = easy_step(text[i], source[j])
        dropped += step == (0, 1)
        if step is None or dropped > NEAR:
            return False
        copied += text[i] == source[j]
        if copied == NEAR_RUN:
            return True
        i, j = i + step[0], j + step[1]
    return i == len(text) and j == len(source)


def far_skip(text: bytes, source: bytes, i: int, j: int) -> tuple[int, int] | None:
    window = 32
    while True:
        for skip in range(window):
            run = text[i + skip : i + skip + FAR_RUN]
            if len(run) == FAR_RUN:
                found = source.find(run, j, j + window - 1 + FAR_RUN)
                if found >= 0:
                    return skip, found - j
        if window >= len(text) - i and window >= len(source) - j:
            return None
        window *= 2


class Side:
    """One document as one tokenizer makes it."""

    def __init__(self, encoder: TextEncoder, text: str) -> None:
        table = encoder.token_bytes
        self.pieces: list[bytes] = []  # what each position contributes
        self.bare: list[bool] = []
        self.taken: list[bool] = []
        begins = table.prefix != "none"
        for token_id in encoder.encode(text).tolist():
            piece = table[token_id]
            self.bare.append(piece is None)
            self.taken.append(piece is not None and begins and piece[:1] == b" ")
            self.pieces.append((piece or b"")[self.taken[-1] :])
            begins = (begins or table.prefix == "always") if piece is None else False
        self.starts = [sum(map(len, self.pieces[:t])) for t in range(len(self.pieces) + 1)]
        self.text = b"".join(self.pieces)
        self.source = text.encode()
        self.places = naive_align(self.text, self.source)

    def windows(self, order: int) -> list[tuple[int, int]]:
        """First and last position of every window, in order of the last."""
        ends = range(order - 1, len(self.pieces))
        return [(t - order + 1, t) for t in ends if all(self.pieces[t - order + 1 : t + 1])]

    def bytes_of(self, first: int, last: int) -> bytes:
        return self.text[self.starts[first] : self.starts[last + 1]]

    def kept_windows(self, max_order: int) -> set[bytes]:
        """The bytes of all windows of orders 1..N when nothing is taken."""
        kept = [b" " + piece if taken else piece for piece, taken in zip(self.pieces, self.taken, strict=True)]
        windows = [kept[t : t + n] for n in range(1, max_order + 1) for t in range(len(kept) - n + 1)]
        return {b"".join(window) for window in windows if all(window)}

    def end_before(self, x: int) -> int:
        return max((place + 1 for place in self.places[:x] if place is not None), default=0)

    def start_after(self, x: int) -> int:
        return min((place for place in self.places[x:] if place is not None), default=len(self.source))


def naive_cause(target: Side, reference: Side, first: int, last: int, max_order: int) -> str:
    """The cause of one miss, tried in the order of the definitions."""
    own = target.places[target.starts[first] : target.starts[last + 1]]
    begin = own[0] if own[0] is not None else target.end_before(target.starts[first])
    end = own[-1] + 1 if own[-1] is not None else target.start_after(target.starts[last + 1])
    copies = {place: x for x, place in enumerate(reference.places) if place is not None}
    taken = set()
    for t, is_taken in enumerate(reference.taken):
        place = reference.start_after(reference.starts[t]) - 1
        if is_taken and place >= 0 and target.source[place] == 0x20 and place not in copies:
            taken.add(place)
    for t, is_bare in enumerate(reference.bare):
        low, high = reference.end_before(reference.starts[t]), reference.start_after(reference.starts[t])
        high -= high > low and high - 1 in taken
        lost = set(range(low, high)) & set(range(begin, end))
        if is_bare and (lost or (low == high and begin < low < end)):
            return "special"
    if own != list(range(begin, end)):
        return "normalisation"
    copied = list(range(begin + (begin in taken), end))
    offsets = [copies.get(place) for place in copied]
    if copied and (None in offsets or offsets != list(range(offsets[0], offsets[0] + len(copied)))):
        return "normalisation"
    kept = b" " * target.taken[first] + target.bytes_of(first, last)
    if kept in reference.kept_windows(max_order):
        return "prefix"
    borders = set(reference.starts)
    starts = begin in taken or offsets[0] in borders
    ends = bool(copied) and offsets[-1] + 1 in borders
    return "more_tokens" if starts and ends else "cut_points"


def naive_causes(
    texts: Sequence[str], target: TextEncoder, reference: TextEncoder, max_order: int, *, unique: bool
) -> dict[str, list[int]]:
    """Misses by cause and target order."""
    counts = {cause: [0] * max_order for cause in CAUSES}
    for text in texts:
        own, other = Side(target, text), Side(reference, text)
        made = {other.bytes_of(*window) for n in range(1, max_order + 1) for window in other.windows(n)}
        for n in range(1, max_order + 1):
            seen = set()
            for window in own.windows(n):
                wanted = own.bytes_of(*window)
                if wanted not in made and not (unique and wanted in seen):
                    counts[naive_cause(own, other, *window, max_order)][n - 1] += 1
                seen.add(wanted)
    return counts
