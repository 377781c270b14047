"""Texts to a trained tokenizer, one function per family."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"
BEGIN, UNKNOWN = "<s>", "<unk>"
ESTIMATIONS = 6
"""Rounds of segmenting and counting by which a Unigram's scores are found."""


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


def train_unigram(texts: Sequence[str], num_ids: int) -> Tokenizer:
    """Unigram with the space mark and byte fallback, as SentencePiece has it, without an invented space: exact too.

    The library's trainer chooses the pieces. The scores that it gives them differ from run to run, because it sums in
    the random order of a hash table, so they are estimated anew: from equal texts come equal tokenizers.

    Args:
        texts: what to learn pieces from.
        num_ids: V, the begin and unknown tokens and the 256 byte pieces included.
    """
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    specials = [BEGIN, UNKNOWN]
    trainer = trainers.UnigramTrainer(
        vocab_size=num_ids - 256, special_tokens=specials, unk_token=UNKNOWN, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    description = json.loads(tokenizer.to_str())
    learnt = sorted(piece for piece, _ in description["model"]["vocab"] if piece not in specials)
    scores = dict.fromkeys(learnt, -1.0)  # at first the segmentation of the fewest pieces
    for _ in range(ESTIMATIONS):
        scores = _estimate(_with_scores(description, specials, scores), learnt, texts)
    tokenizer = _with_scores(description, specials, scores)
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never"), decoders.Fuse()]
    )
    return tokenizer


def _with_scores(description: dict[str, Any], specials: Sequence[str], scores: dict[str, float]) -> Tokenizer:
    """The tokenizer whose pieces have these scores, most likely first, and the byte pieces after them.

    The score of a byte piece never decides anything: fallback spells out what no piece covers.
    """
    least = min(scores.values())
    vocabulary = [
        *((special, 0.0) for special in specials),
        *sorted(scores.items(), key=lambda item: (-item[1], item[0])),
        *((f"<0x{byte:02X}>", least) for byte in range(256)),
    ]
    model = {**description["model"], "vocab": vocabulary, "byte_fallback": True}
    return Tokenizer.from_str(json.dumps({**description, "model": model}))


def _estimate(tokenizer: Tokenizer, pieces: Sequence[str], texts: Sequence[str]) -> dict[str, float]:
    """Log shares of the pieces in the most likely segmentation of the texts; one that is in none counts half."""
    counts: Counter[int] = Counter()
    for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False):
        counts.update(encoding.ids)
    ids = tokenizer.get_vocab()
    used = {piece: max(counts[ids[piece]], 0.5) for piece in pieces}
    total = math.fsum(used.values())
    return {piece: math.log(count / total) for piece, count in used.items()}
