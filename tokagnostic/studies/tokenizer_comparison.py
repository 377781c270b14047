"""Two tokenizers and a text to what they share: byte strings, spellings, cut points, and how many tokens each makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tokagnostic.corpus import Document
from tokagnostic.evaluation.windows import AnyDocument, document_batches
from tokagnostic.studies.inspection import as_encoder
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.token_bytes import TokenBytes, TokenKind

_ROLES = ("first", "second")


def compare_tokenizers(first: Any, second: Any, documents: Iterable[AnyDocument]) -> dict[str, Any]:
    """Compare two tokenizers by their vocabularies and by what they make of a text, in one pass over it.

    Invented leading spaces are taken out. A cut point is a place inside a document, in bytes of its source, at which a
    token with bytes ends. Cut points are counted in the documents that both tokenizers give back byte for byte.

    Args:
        first: a spec as `load_tokenizer` takes it, or whatever `TextEncoder.of` takes.
        second: likewise.
        documents: the text; it is read once and never held in memory.

    Returns:
        Plain JSON values; what has no value, such as a share of nothing, is None. Under `first` and `second`:
        `tokenizer`, `num_ids`, `num_byte_strings` (distinct), `num_strings` (distinct spellings),
        `mean_token_bytes` (over the byte strings of the vocabulary), `prefix`, `fidelity` (its line), `fingerprint`,
        `num_tokens`, `num_unknown`, `bytes_per_token`, `tokens_per_byte`, `tokens_per_word`,
        `tokens_per_1000_characters`, `num_lossy_documents`.

        `shared`: `bytes` and `strings`, each `num_shared`, `percent_of_first`, `percent_of_second`,
        `percent_of_union`. `cuts`: the same of cut points, with `num_first`, `num_second`, `num_documents` and
        `num_left_out`. `text`: `num_documents`, `num_bytes`, `num_characters`, `num_words` (between white space).

        `same_table`: whether the fingerprints are equal. `same_windows`: whether both make the same tokens, byte for
        byte, of every document, and so the same windows, keys and rows under any one memory;
        `num_documents_alike`: of how many documents they do.

    Raises:
        SourceError: if there is no such tokenizer.
        TokenizerError: if the bytes of one cannot be read, or it refuses a text.
        CorpusError: if there is no document, or one is not UTF-8.
    """
    encoders = (as_encoder(first), as_encoder(second))
    counts = (_Counts(), _Counts())
    text, cuts = _Text(), _Cuts()
    for batch in document_batches(documents):
        text.add(batch)
        sides = [_Side.read(encoder, batch) for encoder in encoders]
        for side, count in zip(sides, counts, strict=True):
            count.add(side)
        cuts.add(batch, *sides)
    byte_strings = [_byte_strings(encoder.token_bytes) for encoder in encoders]
    strings = [frozenset(filter(None, encoder.spellings())) for encoder in encoders]
    return {
        **{
            role: {**_facts(encoders[i], byte_strings[i], strings[i]), **counts[i].to_dict(text)}
            for i, role in enumerate(_ROLES)
        },
        "shared": {"bytes": _shared_of_sets(*byte_strings), "strings": _shared_of_sets(*strings)},
        "cuts": cuts.to_dict(),
        "text": asdict(text),
        "same_table": encoders[0].token_bytes.fingerprint == encoders[1].token_bytes.fingerprint,
        "same_windows": cuts.num_alike == text.num_documents,
        "num_documents_alike": cuts.num_alike,
    }


@dataclass
class _Text:
    """How long the text is."""

    num_documents: int = 0
    num_bytes: int = 0
    num_characters: int = 0
    num_words: int = 0

    def add(self, documents: Iterable[Document]) -> None:
        for document in documents:
            text = document.text
            self.num_documents += 1
            self.num_bytes += len(document.data)
            self.num_characters += len(text)
            self.num_words += len(text.split())


@dataclass(frozen=True, eq=False)
class _Side:
    """What one tokenizer makes of some documents, each with one position without bytes after its last."""

    joined: bytes
    """The bytes of all documents' tokens."""
    ends: np.ndarray
    """Position t has the bytes joined[ends[t] : ends[t + 1]], int64 [T + 1]."""
    bounds: np.ndarray
    """Document d holds the positions bounds[d] .. bounds[d + 1] - 1, int64 [D + 1]."""
    exact: np.ndarray
    """Whether a document's tokens stand for exactly its bytes, bool [D]."""
    num_unknown: int

    @classmethod
    def read(cls, encoder: TextEncoder, documents: Sequence[Document]) -> _Side:
        """Tokenize and spell some documents."""
        table = encoder.token_bytes
        closed = [np.append(ids, -1) for ids in encoder.encode_batch([document.text for document in documents])]
        if table.prefix == "first":
            starts, stops = map(np.concatenate, zip(*map(table.spans, closed), strict=True))
        else:
            # Under the other rules the masked position after a document begins another segment.
            starts, stops = table.spans(np.concatenate(closed))
        ends = _running(stops - starts)
        places = np.repeat(starts - ends[:-1], stops - starts) + np.arange(ends[-1])
        joined = table.data[places].tobytes()
        bounds = _running([len(ids) for ids in closed])
        borders = ends[bounds].tolist()
        exact = [joined[a:b] == document.data for document, (a, b) in zip(documents, pairwise(borders), strict=True)]
        is_unknown = np.append(table.kinds == TokenKind.UNKNOWN, False)  # the last stands for a masked position
        num_unknown = sum(int(np.count_nonzero(is_unknown[ids])) for ids in closed)
        return cls(joined, ends, bounds, np.array(exact, dtype=np.bool_), num_unknown)

    def cuts(self, counted: np.ndarray, borders: np.ndarray) -> np.ndarray:
        """Where tokens end inside the counted documents.

        Args:
            counted: which documents, all of them exact, bool [D].
            borders: where each document begins in the source of all, int64 [D + 1].

        Returns:
            Whether a place of the source is a cut point, bool [L].
        """
        document_of = np.repeat(np.arange(len(counted)), np.diff(self.bounds))
        places = self.ends[1:] + (borders[:-1] - self.ends[self.bounds[:-1]])[document_of]
        is_cut = np.zeros(borders[-1] + 1, dtype=np.bool_)
        is_cut[places[counted[document_of]]] = True
        is_cut[borders] = False
        return is_cut

    def is_like(self, other: _Side, d: int) -> bool:
        """Whether both make the same tokens of one document, byte for byte, those without bytes at its ends aside."""
        (joined, lengths), (other_joined, other_lengths) = self._document(d), other._document(d)
        return joined == other_joined and np.array_equal(lengths, other_lengths)

    def _document(self, d: int) -> tuple[bytes, np.ndarray]:
        ends = self.ends[self.bounds[d] : self.bounds[d + 1]]
        return self.joined[ends[0] : ends[-1]], np.trim_zeros(np.diff(ends))


@dataclass
class _Counts:
    """How many tokens one tokenizer makes of the text."""

    num_tokens: int = 0
    num_unknown: int = 0
    num_lossy_documents: int = 0

    def add(self, side: _Side) -> None:
        self.num_tokens += int(side.bounds[-1]) - len(side.exact)
        self.num_unknown += side.num_unknown
        self.num_lossy_documents += int(np.count_nonzero(~side.exact))

    def to_dict(self, text: _Text) -> dict[str, Any]:
        return {
            **asdict(self),
            "bytes_per_token": _ratio(text.num_bytes, self.num_tokens),
            "tokens_per_byte": _ratio(self.num_tokens, text.num_bytes),
            "tokens_per_word": _ratio(self.num_tokens, text.num_words),
            "tokens_per_1000_characters": _ratio(1000 * self.num_tokens, text.num_characters),
        }


@dataclass
class _Cuts:
    """Where both tokenizers cut, and how many documents they cut alike."""

    num_documents: int = 0
    num_left_out: int = 0
    num_first: int = 0
    num_second: int = 0
    num_shared: int = 0
    num_alike: int = 0

    def add(self, documents: Sequence[Document], first: _Side, second: _Side) -> None:
        counted = first.exact & second.exact
        borders = _running([len(document.data) for document in documents])
        of_first, of_second = first.cuts(counted, borders), second.cuts(counted, borders)
        self.num_documents += int(np.count_nonzero(counted))
        self.num_left_out += int(np.count_nonzero(~counted))
        self.num_first += int(np.count_nonzero(of_first))
        self.num_second += int(np.count_nonzero(of_second))
        self.num_shared += int(np.count_nonzero(of_first & of_second))
        self.num_alike += sum(first.is_like(second, d) for d in range(len(documents)))

    def to_dict(self) -> dict[str, Any]:
        return {
            "num_documents": self.num_documents,
            "num_left_out": self.num_left_out,
            "num_first": self.num_first,
            "num_second": self.num_second,
            **_shared(self.num_first, self.num_second, self.num_shared),
        }


def _facts(encoder: TextEncoder, byte_strings: frozenset[bytes], strings: frozenset[str]) -> dict[str, Any]:
    table = encoder.token_bytes
    return {
        "tokenizer": encoder.name,
        "num_ids": len(table),
        "num_byte_strings": len(byte_strings),
        "num_strings": len(strings),
        "mean_token_bytes": _ratio(sum(map(len, byte_strings)), len(byte_strings)),
        "prefix": table.prefix,
        "fidelity": None if table.fidelity is None else table.fidelity.line,
        "fingerprint": table.fingerprint,
    }


def _byte_strings(table: TokenBytes) -> frozenset[bytes]:
    data, offsets = table.data.tobytes(), table.offsets.tolist()
    return frozenset(data[a:b] for a, b in pairwise(offsets) if b > a)


def _shared_of_sets(first: frozenset[Any], second: frozenset[Any]) -> dict[str, Any]:
    return _shared(len(first), len(second), len(first & second))


def _shared(num_first: int, num_second: int, num_shared: int) -> dict[str, Any]:
    return {
        "num_shared": num_shared,
        "percent_of_first": _ratio(100 * num_shared, num_first),
        "percent_of_second": _ratio(100 * num_shared, num_second),
        "percent_of_union": _ratio(100 * num_shared, num_first + num_second - num_shared),
    }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _running(sizes: Any) -> np.ndarray:
    """Sums of the first 0, 1, 2, ... sizes, int64 [K + 1]."""
    sums = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=sums[1:])
    return sums
