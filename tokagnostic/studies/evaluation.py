"""Finished runs and a text to bits per byte, with the memory on and off."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tokagnostic.corpus import Document
from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.evaluation.bits_per_byte import bits_per_byte
from tokagnostic.evaluation.bits_per_byte_report import BitsPerByte
from tokagnostic.studies.report import markdown_table
from tokagnostic.training.run import CONFIG_FILE, HOST_FOLDER, TOKENIZER_FOLDER, Run, load_run

Scores = Mapping[str, BitsPerByte]
"""`memory`: with the memory on; `off`: the same model with it switched off."""


def evaluate_runs(
    folders: Sequence[str | Path],
    documents: Sequence[Document],
    context: int | None = None,
    stride: int | None = None,
    *,
    batch_size: int = 16,
    memory_file: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Scores]:
    """Score a text under each run's model, twice; runs whose hosts are equal share what they say without a memory.

    Args:
        folders: of the runs.
        documents: the text.
        context: tokens per window; by default each run's block length.
        stride: see `bits_per_byte`.
        batch_size: windows per call of the model.
        memory_file: read in place of each run's memory, see `load_run`.
        progress: told the bytes scored since it was last told, by both passes over all runs together.

    Returns:
        Scores by the name of the run's folder, or by the whole path where two folders have one name.

    Raises:
        SourceError: if a folder holds no finished run.
        CorpusError: if there is no text.
        InvalidValueError: if there is no run, one is named twice, or context, stride or batch size cannot be used.
    """
    names = _names([str(folder) for folder in folders])
    scores: dict[str, Scores] = {}
    offs: dict[tuple[str, int], BitsPerByte] = {}
    for name, folder in zip(names, map(Path, folders), strict=True):
        run = load_run(folder, memory_file)
        tokens = _block_length(folder) if context is None else context

        def score(run: Run = run, tokens: int = tokens) -> BitsPerByte:
            return bits_per_byte(
                run.model, run.encoder, documents, tokens, stride, batch_size=batch_size, progress=progress
            )

        on = score()
        key = (_digest(folder), tokens) if len(names) > 1 else ("", tokens)
        if key not in offs:
            with run.attachment.disabled():
                offs[key] = score()
        elif progress is not None:
            progress(sum(len(document.data) for document in documents))
        scores[name] = {"memory": on, "off": offs[key]}
    return scores


def evaluation_text(runs: Mapping[str, Scores]) -> str:
    """All scores, what they were measured on, and whatever makes them doubtful."""
    if len(runs) > 1:
        return _comparison_text(runs)
    [scores] = runs.values()
    on, off = scores["memory"], scores["off"]
    difference = on.bits_per_byte - off.bits_per_byte
    return "\n".join(
        [
            f"memory on   {on.bits_per_byte:.4f} bits per byte ({difference:+.4f})",
            f"memory off  {off.bits_per_byte:.4f} bits per byte",
            *_measured_on(on),
        ]
    )


def without_memory(runs: Mapping[str, Scores]) -> float | None:
    """Bits per byte with the memory off if that is one number for all runs, which then read in one host."""
    values = {scores["off"].bits_per_byte for scores in runs.values()}
    return values.pop() if len(values) == 1 else None


def _comparison_text(runs: Mapping[str, Scores]) -> str:
    """A table, best last; of documents it says in how many the memory saved anything."""
    rows = [["run", "memory on", "memory off", "difference", "documents better"]]
    for name in sorted(runs, key=lambda name: runs[name]["memory"].bits_per_byte, reverse=True):
        on, off = runs[name]["memory"], runs[name]["off"]
        better = sum(a.nats < b.nats for a, b in zip(on.documents, off.documents, strict=True))
        difference = on.bits_per_byte - off.bits_per_byte
        rows.append(
            [
                name,
                f"{on.bits_per_byte:.4f}",
                f"{off.bits_per_byte:.4f}",
                f"{difference:+.4f}",
                f"{better} of {len(on.documents)}",
            ]
        )
    first = next(iter(runs.values()))["memory"]
    return "\n".join([*markdown_table(rows), "", *_measured_on(first)])


def _measured_on(score: BitsPerByte) -> list[str]:
    return [
        f"{score.total.num_bytes:,} bytes, {score.total.num_tokens:,} tokens, {len(score.documents):,} documents; "
        f"windows of {score.context} tokens, {score.stride} apart",
        *score.notes,
    ]


def _names(folders: Sequence[str]) -> list[str]:
    if not folders or len(set(folders)) < len(folders):
        raise InvalidValueError(
            f"runs {', '.join(folders)}" if folders else "no run",
            expected="one or more folders of finished runs, each once",
            remedy="Name them after --run",
        )
    names = [Path(folder).name for folder in folders]
    return names if len(set(names)) == len(names) and all(names) else list(folders)


def _digest(folder: Path) -> str:
    """SHA-256 of a run's host and tokenizer as they are stored: what decides the outputs without a memory."""
    digest = hashlib.sha256()
    for file in sorted(file for name in (HOST_FOLDER, TOKENIZER_FOLDER) for file in (folder / name).iterdir()):
        with file.open("rb") as opened:
            digest.update(file.name.encode() + hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


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
