"""Toy tokenizers of four families, trained in code, and the way to data that is not part of the project."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

# The models here are so small that a second thread costs more than it brings. Read once, when torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Kernels for GPUs are run by Triton's interpreter. Read when triton, and so perhaps torch, is first imported.
os.environ.setdefault("TRITON_INTERPRET", "1")

TRAINING_TEXT = (
    "The river runs through the old stone town, and every spring it rises over the lower bridge.",
    "In the year 1848 the council built a wall of river stone; in 1902 they built it again.",
    "She said that the international bridge was closed, and that nobody knew when it would open.",
    "def count(words):\n    total = 0\n    for word in words:\n        total += len(word)\n    return total\n",
    "A token is only its bytes. The same bytes give the same row, whatever the tokenizer that cut them.",
    "It's an unusual winter: the internal walls are wet, the external ones are dry, and we don't know why.",
    "Genghis rode from the north with twenty thousand riders; the town paid, and he rode on.",
    "x != y, ok. (See 3.14, 2.71 and 1,000,000.) Caf\u00e9s and na\u00efve readers: \u65e5\u672c river \U0001f600!",
)
FAMILIES = ("byte_level", "metaspace", "unigram", "wordpiece")


def train_byte_level(num_ids: int = 420) -> Tokenizer:
    """GPT-2's way: every byte has a symbol."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=num_ids,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINING_TEXT, trainer)
    return tokenizer


def train_metaspace(num_pieces: int = 200) -> Tokenizer:
    """Llama's way: a mark for the space, a space before each segment, byte pieces for the rest."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(TRAINING_TEXT, trainers.BpeTrainer(vocab_size=num_pieces, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    base = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: v for v, piece in enumerate([*base, *pieces])},
            merges=[tuple(merge) for merge in model["merges"]],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def train_unigram(num_ids: int = 160) -> Tokenizer:
    """T5's and XLM's model: a mark for the space, an unknown id for the rest."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=num_ids, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TRAINING_TEXT[:7], trainer)
    return tokenizer


def train_wordpiece(num_ids: int = 200) -> Tokenizer:
    """BERT's way: lower case, no accents, words apart, `##` before what continues one."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=num_ids, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    tokenizer.train_from_iterator(TRAINING_TEXT, trainer)
    return tokenizer


BUILDERS: dict[str, Callable[[], Tokenizer]] = {
    "byte_level": train_byte_level,
    "metaspace": train_metaspace,
    "unigram": train_unigram,
    "wordpiece": train_wordpiece,
}


@pytest.fixture(scope="session")
def toy_tokenizers() -> dict[str, Tokenizer]:
    """A tokenizer per family, by name. Do not change them; train your own with the functions above."""
    return {family: build() for family, build in BUILDERS.items()}


@pytest.fixture(scope="session", params=FAMILIES)
def toy_tokenizer(request: pytest.FixtureRequest, toy_tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    """Each of the four toy tokenizers in turn."""
    return toy_tokenizers[request.param]


@pytest.fixture(scope="session")
def byte_level(toy_tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    """Byte-level BPE."""
    return toy_tokenizers["byte_level"]


@pytest.fixture(scope="session")
def metaspace(toy_tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    """BPE with a mark for the space and byte fallback."""
    return toy_tokenizers["metaspace"]


@pytest.fixture(scope="session")
def unigram(toy_tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    """Unigram without byte fallback."""
    return toy_tokenizers["unigram"]


@pytest.fixture(scope="session")
def wordpiece(toy_tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    """WordPiece, lower case."""
    return toy_tokenizers["wordpiece"]


@pytest.fixture(scope="session")
def byte_toy() -> Callable[..., Tokenizer]:
    """A builder of byte-level tokenizers with 256 byte symbols, a few merges, and added tokens of one's choice."""

    def build(merges: tuple[tuple[str, str], ...] = (), added: tuple[str | AddedToken, ...] = ()) -> Tokenizer:
        symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocab = {piece: v for v, piece in enumerate([*symbols, *(a + b for a, b in merges)])}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_tokens(list(added))
        return tokenizer

    return build


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """Real tokenizers and texts that may not be part of the project; the test is skipped where they are absent."""
    folder = Path(__file__).resolve().parents[1] / ".." / "shared"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: real tokenizers and corpora are not part of the project")
    return folder.resolve()
