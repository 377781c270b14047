"""A finished run and a text to bits per byte, with the memory on and off."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tokagnostic.corpus import Document
from tokagnostic.errors import SourceError
from tokagnostic.evaluation.bits_per_byte import bits_per_byte
from tokagnostic.evaluation.bits_per_byte_report import BitsPerByte
from tokagnostic.training.run import CONFIG_FILE, load_run


def evaluate_run(
    folder: str | Path,
    documents: Sequence[Document],
    context: int | None = None,
    stride: int | None = None,
    *,
    batch_size: int = 16,
    progress: Callable[[int], None] | None = None,
) -> dict[str, BitsPerByte]:
    """Score a text under a run's model, twice.

    Args:
        folder: of the run.
        documents: the text.
        context: tokens per window; by default the run's block length.
        stride: see `bits_per_byte`.
        batch_size: windows per call of the model.
        progress: told the bytes scored since it was last told, by both passes together.

    Returns:
        `memory`: with the memory on; `off`: the same model with it switched off.

    Raises:
        SourceError: if the folder holds no finished run.
        CorpusError: if there is no text.
        InvalidValueError: if context, stride or batch size cannot be used.
    """
    run = load_run(folder)
    if context is None:
        context = _block_length(Path(folder))

    def score() -> BitsPerByte:
        return bits_per_byte(
            run.model, run.encoder, documents, context, stride, batch_size=batch_size, progress=progress
        )

    on = score()
    with run.attachment.disabled():
        return {"memory": on, "off": score()}


def evaluation_text(scores: dict[str, BitsPerByte]) -> str:
    """Both scores, what they were measured on, and whatever makes them doubtful."""
    on, off = scores["memory"], scores["off"]
    difference = on.bits_per_byte - off.bits_per_byte
    return "\n".join(
        [
            f"memory on   {on.bits_per_byte:.4f} bits per byte ({difference:+.4f})",
            f"memory off  {off.bits_per_byte:.4f} bits per byte",
            f"{on.total.num_bytes:,} bytes, {on.total.num_tokens:,} tokens, {len(on.documents):,} documents; "
            f"windows of {on.context} tokens, {on.stride} apart",
            *on.notes,
        ]
    )


def _block_length(folder: Path) -> int:
    """Tokens per block of a run's training."""
    file = folder / CONFIG_FILE
    try:
        return int(json.loads(file.read_text(encoding="utf-8"))["fit"]["block_length"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(
            f"{file} does not say the run's block length ({type(error).__name__}: {error})",
            expected="the config that `pretrain` or `attach` wrote",
            remedy="Give the context with --context",
        ) from error
