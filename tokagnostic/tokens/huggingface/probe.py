"""A pipeline's reading put to the proof: what the pipeline declares, held against what the private copy encodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from tokenizers import Tokenizer

from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.alphabet import bytes_of_symbols
from tokagnostic.tokens.huggingface.expectation import Expectation
from tokagnostic.tokens.huggingface.pipeline import Pipeline, Step, library_errors
from tokagnostic.tokens.proof import excerpt, probe_texts, prove
from tokagnostic.tokens.token_bytes import TokenBytes, TokenKind


def probe(tokenizer: Tokenizer, description: Step, token_bytes: TokenBytes, spellings: Sequence[str]) -> None:
    """Encode probe texts and hold the joined bytes against the declared fidelity.

    Args:
        tokenizer: the private copy.
        description: what the private copy was built from.
        token_bytes: the table to prove, with its fidelity.
        spellings: what special and added tokens look like; text that spells them must stay text.

    Raises:
        TokenizerError: at the first difference; it names the id.
    """
    if token_bytes.fidelity is None:
        raise TypeError("a table without a declared fidelity cannot be probed")
    expectation = Expectation(tokenizer, description, token_bytes.fidelity.level)
    pipeline = expectation.pipeline
    texts = (*probe_texts(token_bytes, spellings), *_texts_of_symbols(pipeline, spellings))
    encoded = _encode_all(tokenizer, texts, may_refuse=pipeline.unknown_id is None and pipeline.model["type"] != "BPE")

    def encode(text: str) -> np.ndarray | None:
        ids = encoded[text]
        if ids is not None and expectation.misplaces_unknown:
            ids = ids[token_bytes.kinds[ids] != TokenKind.UNKNOWN]
        return ids

    strip = not expectation.misplaces_unknown
    prove(token_bytes, encode, expectation.bytes_of, texts, name=f"the pipeline {pipeline}", strip=strip)


def _encode_all(tokenizer: Tokenizer, texts: Sequence[str], *, may_refuse: bool) -> dict[str, np.ndarray | None]:
    """Encode all texts on the library's threads, or one by one where it refuses one of them."""
    try:
        with library_errors("encoding the probe texts"):
            encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    except TokenizerError:
        return {text: _encode_one(tokenizer, text, may_refuse=may_refuse) for text in texts}
    return {text: np.array(e.ids, dtype=np.int64) for text, e in zip(texts, encodings, strict=True)}


def _encode_one(tokenizer: Tokenizer, text: str, *, may_refuse: bool) -> np.ndarray | None:
    try:
        with library_errors(f"encoding the probe text {excerpt(text)}"):
            return np.array(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)
    except TokenizerError:
        if may_refuse:
            return None
        raise


def _texts_of_symbols(pipeline: Pipeline, spellings: Sequence[str]) -> Iterator[str]:
    """Texts that reach the model's own piece where an added token is spelled like one, if they are not its content."""
    if pipeline.is_byte_level:
        for spelling in filter(pipeline.vocab.__contains__, spellings):
            try:
                yield bytes_of_symbols(spelling).decode(errors="ignore")
            except KeyError:
                yield spelling
