"""Ids to canonical ids: one number for all tokens of the same normalised text, as the published Engram compresses them."""

from __future__ import annotations

import numpy as np
from tokenizers import Regex, normalizers

from tokagnostic.tokens.token_bytes import TokenBytes

_REPLACEMENT = "\ufffd"


def canonical_ids(token_bytes: TokenBytes) -> np.ndarray:
    """Merge the ids whose texts are equal once they are normalised (arXiv 2601.07372, section 2.2, and its code).

    Texts are normalised by NFKC, NFD, without accents, in lower case, with runs of blanks as one space and none at the
    ends; a text of which nothing is left stays as it is. Tokens that are no whole UTF-8 are compared by their bytes.
    An id without bytes is merged with no other: what a tokenizer calls special has no text here.

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
    ends = normalizers.Strip()
    numbers: dict[str | bytes | int, int] = {}
    found = np.empty(len(token_bytes), dtype=np.int32)
    for token_id in range(len(token_bytes)):
        data = token_bytes[token_id]
        key: str | bytes | int = token_id
        if data:
            text = data.decode("utf-8", errors="replace")
            normalised = normaliser.normalize_str(text)
            if normalised != " ":
                normalised = ends.normalize_str(normalised)
            key = data if _REPLACEMENT in text else normalised or text
        found[token_id] = numbers.setdefault(key, len(numbers))
    return found
