"""Ids to canonical ids: one number for all tokens of the same normalised text, as the published Engram compresses them."""

from __future__ import annotations

import numpy as np
from tokenizers import Regex, normalizers

from tokagnostic.tokens.alphabet import byte_symbols
from tokagnostic.tokens.token_bytes import TokenBytes, TokenKind

_REPLACEMENT = "\ufffd"


def canonical_ids(token_bytes: TokenBytes) -> np.ndarray:
    """Merge the ids whose texts are equal once they are normalised (arXiv 2601.07372, section 2.2, and its code).

    Texts are normalised by NFKC, NFD, without accents, in lower case, with runs of blanks as one space and none at the
    ends; a text of which nothing is left stays as it is. A token that is no whole UTF-8 has
    the text that a tokenizer writes for it, `<0xNN>` or symbols of the byte alphabet, as it is: by that law the lone byte
    of a symbol is one with the symbol itself. An id without bytes is merged with no other: specials have no text here.

    Args:
        token_bytes: the vocabulary.

    Returns:
        Canonical ids, numbered in the order of their first id, int32 [V].
    """
    normaliser = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
        ]
    )
    ends, symbols = normalizers.Strip(), byte_symbols()
    numbers: dict[str | int, int] = {}
    found = np.empty(len(token_bytes), dtype=np.int32)
    for token_id in range(len(token_bytes)):
        data = token_bytes[token_id]
        key: str | int = token_id
        if data:
            text = data.decode("utf-8", errors="replace")
            if _REPLACEMENT in text:
                is_byte = token_bytes.kinds[token_id] == TokenKind.BYTE
                key = f"<0x{data[0]:02X}>" if is_byte else "".join(symbols[byte] for byte in data)
            else:
                key = normaliser.normalize_str(text)
                key = (key if key == " " else ends.normalize_str(key)) or text
        found[token_id] = numbers.setdefault(key, len(numbers))
    return found
