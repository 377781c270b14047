"""A tokenizer of transformers that is written in Python to a reading: its spelling is guessed, and the guess proven.

Such a tokenizer has no description of itself. It has a vocabulary of strings, and it encodes; what the strings stand for
is tried out, the most likely spelling first, on texts whose ids have to join back to their bytes.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.alphabet import bytes_of_symbols
from tokagnostic.tokens.cutting import split_text
from tokagnostic.tokens.engine import Reading
from tokagnostic.tokens.fidelity import Fidelity
from tokagnostic.tokens.proof import probe_texts, prove
from tokagnostic.tokens.token_bytes import LARGEST_ID, PrefixRule, TokenBytes, TokenKind

Spelling = Callable[[str], bytes | None]
"""Turns a string of the vocabulary into its bytes; None where it does not stand for any."""

_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
_MARK = "\u2581"


def read_python_tokenizer(tokenizer: Any) -> Reading:
    """Read a tokenizer that has `get_vocab` and encodes when it is called.

    Raises:
        TokenizerError: if no spelling passes the proof; it names the id at which the most likely one fails.
    """
    engine = PythonEngine(tokenizer)
    first_error: TokenizerError | None = None
    for spelling in _spellings(engine.tokenizer):
        for prefix in _PREFIXES:
            table = _table(engine, spelling, prefix)
            try:
                knows_all = _prove(table, engine)
            except TokenizerError as error:
                first_error = first_error or error
                continue
            reason = "characters outside the vocabulary become the unknown id"
            fidelity = Fidelity("exact") if knows_all else Fidelity("lossy", (reason,))
            proven = TokenBytes(table.data, table.offsets, table.kinds, prefix, fidelity)
            engine.adds_space = prefix != "none"
            return Reading(proven, engine, _start_id(tokenizer), str(getattr(tokenizer, "name_or_path", "")))
    name = type(tokenizer).__name__
    raise TokenizerError(
        f"a tokenizer of type {name}, written in Python, whose ids join back to no text under any known spelling"
        f" ({first_error.given if first_error else 'it has no spelling'})",
        expected="a vocabulary of byte symbols, of pieces with a mark for the space, of single bytes, or of text",
        remedy="Load the fast tokenizer of the same model, or its own tokenizer.json or .model",
    ) from first_error


class PythonEngine:
    """A private copy of a tokenizer written in Python, which takes specials and added tokens in a text for text.

    Args:
        tokenizer: a tokenizer of transformers without a backend.
    """

    parts = staticmethod(split_text)

    def __init__(self, tokenizer: Any) -> None:
        with _errors_of(tokenizer, "reading the vocabulary"):
            self.tokenizer = copy.deepcopy(tokenizer)
            self.vocab: Mapping[str, int] = dict(self.tokenizer.get_vocab())
            self.added: Mapping[int, Any] = dict(self.tokenizer.added_tokens_decoder)
        self.adds_space = False
        ids = [*self.vocab.values(), *self.added]
        odd = next((v for v in ids if type(v) is not int or not 0 <= v <= LARGEST_ID), None)
        if odd is not None or not ids:
            raise TokenizerError(
                f"a tokenizer of type {type(tokenizer).__name__} with " + ("no id" if not ids else f"the id {odd!r}"),
                expected=f"ids from 0 to {LARGEST_ID}",
                remedy="Mend what its get_vocab gives",
            )
        self.num_ids = 1 + max(ids)

    def encode(self, texts: Sequence[str], *, follows: bool) -> list[np.ndarray]:
        """Encode texts one by one; see `Engine`."""
        return [self._encode_one(text, follows) for text in texts]

    def _encode_one(self, text: str, follows: bool) -> np.ndarray:
        text.encode()  # a lone surrogate is an error of its own
        if follows and self.adds_space:
            if not text.startswith(" "):
                raise TokenizerError(
                    "a long text that can only be cut where no space is, under a tokenizer that puts one at each start",
                    expected="a space somewhere in a quarter of a million characters",
                    remedy="Load the fast tokenizer of the same model",
                )
            text = text[1:]
        with _errors_of(self.tokenizer, "encoding a text"):
            given = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
            ids = np.array(given, dtype=np.int64)
        odd = ids[(ids < 0) | (ids >= self.num_ids)]
        if len(odd):
            raise TokenizerError(
                f"a tokenizer of type {type(self.tokenizer).__name__} that turns a text into the id {odd[0]}",
                expected=f"ids of its own vocabulary, from 0 to {self.num_ids - 1}",
                remedy="Mend its get_vocab, or load the fast tokenizer of the same model",
            )
        return ids

    def spellings(self) -> list[str | None]:
        """The strings of the vocabulary; see `Engine`."""
        spelled = {**{v: token for token, v in self.vocab.items()}, **{v: str(t) for v, t in self.added.items()}}
        return [spelled.get(v) for v in range(self.num_ids)]

    def save(self, folder: Path, start_id: int | None) -> None:
        """Refuse: whoever reads the folder would need the same class.

        Raises:
            TokenizerError: always.
        """
        raise TokenizerError(
            f"a tokenizer of type {type(self.tokenizer).__name__}, which is written in Python, cannot be saved into {folder}",
            expected="a tokenizer that a file describes",
            remedy="Use the fast tokenizer of the same model",
        )


@contextmanager
def _errors_of(tokenizer: Any, doing: str) -> Iterator[None]:
    """Turn whatever a class of strangers throws into a TokenizerError that says what was being done."""
    try:
        yield
    except _THROWN as error:
        raise TokenizerError(
            f"{doing} failed in the tokenizer's own class {type(tokenizer).__name__} ({type(error).__name__}: "
            f"{' '.join(str(error).split())})",
            expected="a tokenizer that encodes any text",
            remedy="Give it an unknown token or mend its class, or load the fast tokenizer of the same model",
        ) from error


_THROWN = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
_PREFIXES: tuple[PrefixRule, ...] = ("none", "first")


def _spellings(tokenizer: Any) -> Iterator[Spelling]:
    """The spellings to try: what the tokenizer declares first, then what is met most often."""
    if hasattr(tokenizer, "byte_decoder") or hasattr(tokenizer, "byte_encoder"):
        yield _byte_symbols
    yield from (_marked_with_bytes, _byte_symbols, _single_bytes, _literal)


def _byte_symbols(token: str) -> bytes | None:
    try:
        return bytes_of_symbols(token)
    except KeyError:
        return None


def _marked_with_bytes(token: str) -> bytes | None:
    match = _BYTE_PIECE.fullmatch(token)
    return bytes((int(match[1], 16),)) if match else _literal(token.replace(_MARK, " "))


def _single_bytes(token: str) -> bytes | None:
    """Vocabularies without merges write byte b as the character of that number."""
    return bytes((ord(token),)) if len(token) == 1 and ord(token) < 0x100 else None


def _literal(token: str) -> bytes | None:
    """The text itself; half a surrogate pair is no text."""
    try:
        return token.encode()
    except UnicodeEncodeError:
        return None


def _table(engine: PythonEngine, spelling: Spelling, prefix: PrefixRule) -> TokenBytes:
    tokenizer, added = engine.tokenizer, engine.added
    data: list[bytes | None] = [None] * engine.num_ids
    kinds = [TokenKind.HOLE] * engine.num_ids
    for token, v in engine.vocab.items():
        data[v] = spelling(token)
        kinds[v] = TokenKind.UNREACHABLE if data[v] is None else TokenKind.TEXT
    special = set(getattr(tokenizer, "all_special_ids", ()))
    for v, token in added.items():
        is_special = v in special or bool(getattr(token, "special", False))
        data[v] = None if is_special else str(token).encode()
        kinds[v] = TokenKind.SPECIAL if is_special else TokenKind.ADDED
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is not None and unknown < engine.num_ids:
        data[unknown], kinds[unknown] = None, TokenKind.UNKNOWN
    return TokenBytes.from_list(data, kinds=kinds, prefix=prefix)


def _prove(table: TokenBytes, engine: PythonEngine) -> bool:
    """Hold the table against the engine; whether no text had an unknown id."""
    knows_all = True

    def encode(text: str) -> np.ndarray:
        nonlocal knows_all
        ids = engine.encode([text], follows=False)[0]
        knows_all = knows_all and TokenKind.UNKNOWN not in table.kinds[ids]
        return ids

    spelled = [str(token) for token in engine.added.values()]
    name = f"the tokenizer of type {type(engine.tokenizer).__name__}"
    prove(table, encode, str.encode, probe_texts(table, spelled[:64]), name=name)
    return knows_all


def _start_id(tokenizer: Any) -> int | None:
    ids = (getattr(tokenizer, f"{role}_token_id", None) for role in ("bos", "eos", "cls", "sep"))
    return next((int(v) for v in ids if v is not None), None)
