"""Small tokenizers of several families, made in memory."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = [
    "The internal window of a tokenizer is only its bytes.",
    "Internal, external: the same bytes, other cuts!  Two  spaces.",
    "naïve café, 日本語 and 😀😃 in one line\n\tand a tab",
    "in inter internal international internationalisation",
]


def byte_level(
    merges: Sequence[tuple[bytes, bytes]] = (), *, normalizer: object = None, bos: bool = False
) -> Tokenizer:
    """Byte-level BPE with the 256 bytes and the given merges, in their order."""
    sign = _byte_signs()
    spelled = ["".join(sign[byte] for byte in left) for left, _ in merges]
    spelled_right = ["".join(sign[byte] for byte in right) for _, right in merges]
    vocabulary = {sign[byte]: byte for byte in range(256)}
    for left, right in zip(spelled, spelled_right, strict=True):
        vocabulary.setdefault(left + right, len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocabulary, list(zip(spelled, spelled_right, strict=True))))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if bos:
        tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
        start = tokenizer.token_to_id("<s>")
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", start)])
    return tokenizer


def trained_byte_level(size: int) -> Tokenizer:
    """Byte-level BPE trained on the toy text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def metaspace(size: int) -> Tokenizer:
    """BPE with Metaspace, byte fallback and an invented leading space, as Llama has."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    specials = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, limit_alphabet=20, show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return _byte_pieces_are_ordinary(tokenizer)


def word_piece() -> Tokenizer:
    """WordPiece with lower-casing and accent stripping, which is lossy."""
    pieces = ["[UNK]", "cafe", "##s", "(", ")", "the", "internal", "inter", "##nal"]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["[UNK]"])
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _byte_signs() -> dict[int, str]:
    """The visible sign of each byte in a byte-level vocabulary."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


def _byte_pieces_are_ordinary(tokenizer: Tokenizer) -> Tokenizer:
    """The trainer adds its specials as special tokens; byte pieces belong to the model alone, as in released files."""
    import json

    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if not token["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(state))


def lower_unigram(prepend: str = "first") -> Tokenizer:
    """Unigram with a mark for the space before segments, and an unknown id for whatever is not lower case."""
    pieces = ["▁", *"abcdefghijklmnopqrstuvwxyz", "▁a", "in", "▁in", "er", "▁the", "ternal", "riv"]
    tokenizer = Tokenizer(
        models.Unigram([("<unk>", -10.0), *((piece, -2.0 - i / 50) for i, piece in enumerate(pieces))], 0)
    )
    tokenizer.add_special_tokens(["<unk>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=prepend)
    return tokenizer
