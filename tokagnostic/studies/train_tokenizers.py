"""Texts to a trained tokenizer, one function per family."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"
BEGIN, UNKNOWN = "<s>", "<unk>"


def train_byte_level_bpe(texts: Iterable[str], num_ids: int) -> Tokenizer:
    """Byte-level BPE, as GPT-2 has it: exact on any text.

    Args:
        texts: what to learn merges from.
        num_ids: V, the 256 byte symbols and the end token included.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=num_ids,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def train_unigram(texts: Iterable[str], num_ids: int) -> Tokenizer:
    """Unigram with the space mark and byte fallback, as SentencePiece has it, without an invented space: exact too.

    Args:
        texts: what to learn pieces from.
        num_ids: V, the begin and unknown tokens and the 256 byte pieces included.
    """
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = trainers.UnigramTrainer(
        vocab_size=num_ids - 256, special_tokens=[BEGIN, UNKNOWN], unk_token=UNKNOWN, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    # The trainer knows no byte pieces, so they are appended to what it learnt. Their score never decides anything:
    # fallback spells out what no piece covers.
    description = json.loads(tokenizer.to_str())
    least = min(score for _, score in description["model"]["vocab"])
    description["model"]["vocab"] += [[f"<0x{byte:02X}>", least] for byte in range(256)]
    description["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(description))
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never"), decoders.Fuse()]
    )
    return tokenizer
