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
    may_refuse = pipeline.unknown_id is None and pipeline.model["type"] != "BPE"

    def encode(text: str) -> np.ndarray | None:
        try:
            with library_errors(f"encoding the probe text {excerpt(text)}"):
                ids = np.array(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)
        except TokenizerError:
            if may_refuse:
                return None
            raise
        return ids[token_bytes.kinds[ids] != TokenKind.UNKNOWN] if expectation.misplaces_unknown else ids

    texts = (*probe_texts(token_bytes, spellings), *_texts_of_symbols(pipeline, spellings))
    strip = not expectation.misplaces_unknown
    prove(token_bytes, encode, expectation.bytes_of, texts, name=f"the pipeline {pipeline}", strip=strip)


def _texts_of_symbols(pipeline: Pipeline, spellings: Sequence[str]) -> Iterator[str]:
    """Texts that reach the model's own piece where an added token is spelled like one, if they are not its content."""
    if pipeline.is_byte_level:
        for spelling in filter(pipeline.vocab.__contains__, spellings):
            try:
                yield bytes_of_symbols(spelling).decode(errors="ignore")
            except KeyError:
                yield spelling
