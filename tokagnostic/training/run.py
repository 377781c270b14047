"""A finished run's folder: what pretraining leaves, and what evaluation and export take up again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.evaluation.load_report import LoadReport, measure_loads
from tokagnostic.evaluation.windows import AnyDocument, WindowReader
from tokagnostic.hashing import HashCache
from tokagnostic.host import Attachment
from tokagnostic.host.loading import load_attachment
from tokagnostic.host.saving import MEMORY_FILE
from tokagnostic.memory.base import NgramMemory
from tokagnostic.memory.file import load_memory, read_recipe
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer
from tokagnostic.training.hosts import load_host
from tokagnostic.training.metrics import METRICS_FILE

CONFIG_FILE = "config.json"
RESULT_FILE = "result.json"
HOST_FOLDER = "host"
TOKENIZER_FOLDER = "tokenizer"
ATTACHMENT_FOLDER = "attachment"


@dataclass(frozen=True, eq=False)
class Run:
    """A trained host with its tokenizer and memory."""

    model: nn.Module
    encoder: TextEncoder
    attachment: Attachment


def load_run(folder: str | Path, memory_file: str | Path | None = None) -> Run:
    """Load what a finished run left.

    Args:
        folder: of the run.
        memory_file: read this file in place of the run's memory: the same tables in another row format, or fewer rows.

    Raises:
        SourceError: if the folder holds no finished run.
        MemoryFileError: if the memory file cannot be believed.
        InvalidValueError: if its tables are others.
    """
    folder = Path(folder)
    if not (folder / RESULT_FILE).is_file():
        raise SourceError(
            f"{folder} holds no finished run",
            expected=f"a folder that `pretrain` or `attach` has written, with {RESULT_FILE} in it",
            remedy="Name such a folder, or finish the run with --resume",
        )
    encoder = load_tokenizer(str(folder / TOKENIZER_FOLDER))
    model = load_host(str(folder / HOST_FOLDER))
    attachment = load_attachment(model, encoder, folder / ATTACHMENT_FOLDER)
    if memory_file is not None:
        _read_instead(attachment.memory, memory_file)
    return Run(model, encoder, attachment)


def _read_instead(memory: NgramMemory, file: str | Path) -> None:
    """Put the rows of a file in the place of a memory's."""
    recipe = read_recipe(file)
    if (recipe.config, [list(table.moduli) for table in recipe.tables]) != (memory.config, memory.addresser.moduli):
        raise InvalidValueError(
            f"memory file {file}, whose config is {recipe.config}",
            expected=f"{memory.config}, as that of the run's memory",
            remedy="Name a file that was exported from this run",
        )
    other = load_memory(file, memory.hasher.cache, max_order=memory.max_order)
    memory.store, memory.visits, memory.origin = other.store, other.visits, other.origin


def memory_file_of(folder: str | Path) -> Path:
    """The memory file of a run.

    Raises:
        SourceError: if the run has none.
    """
    path = Path(folder) / ATTACHMENT_FOLDER / MEMORY_FILE
    if not path.is_file():
        raise SourceError(
            f"{folder} holds no memory",
            expected=f"a finished run with {ATTACHMENT_FOLDER}/{MEMORY_FILE} in it",
            remedy="Name the folder of a finished run, or finish it with --resume",
        )
    return path


def load_of_text(folder: str | Path, documents: Iterable[AnyDocument]) -> LoadReport:
    """Say how a text, as the run's tokenizer cuts it, fills the tables of the run's memory.

    Raises:
        SourceError: if the folder holds no finished run.
        CorpusError: if there is no document, or one is not UTF-8.
    """
    path, encoder = memory_file_of(folder), load_tokenizer(str(Path(folder) / TOKENIZER_FOLDER))
    prefix = read_recipe(path).prefix
    memory = load_memory(path, HashCache.build(encoder.token_bytes, prefix=prefix))
    reader = WindowReader(encoder, memory.max_order, prefix)
    return measure_loads(documents, reader, memory.addresser, memory.num_tables)


def continue_prompt(run: Run, prompt: str, num_tokens: int, *, use_cache: bool = True) -> str:
    """The prompt and the most likely tokens after it, as text; bytes that are not UTF-8 show as U+FFFD.

    Args:
        run: model, tokenizer and memory.
        prompt: what to continue.
        num_tokens: tokens to add.
        use_cache: whether the host keeps what it has computed, or computes all of the sequence for each token.

    Raises:
        InvalidValueError: if there is nothing to begin with or to add, or more than the host has positions for.
    """
    ids = run.encoder.encode(prompt)
    start = [] if run.encoder.start_id is None else [run.encoder.start_id]
    sequence = torch.tensor([[*start, *ids.tolist()]])
    if sequence.numel() == 0:
        raise InvalidValueError(
            "an empty prompt under a tokenizer without a start token",
            expected="a prompt of at least one token",
            remedy="Give some text",
        )
    room = getattr(run.model.config, "max_position_embeddings", sys.maxsize) - sequence.shape[1]
    if not 1 <= num_tokens <= room:
        raise InvalidValueError(
            f"{num_tokens} tokens to add to a prompt of {sequence.shape[1]}",
            expected=f"1 to {room} tokens, for which the host has positions",
            remedy="Ask for fewer tokens or give a shorter prompt" if num_tokens > room else "Ask for at least one",
        )
    with torch.inference_mode():
        generated = run.model.generate(  # type: ignore[operator]
            sequence,
            attention_mask=torch.ones_like(sequence),
            max_new_tokens=num_tokens,
            do_sample=False,
            use_cache=use_cache,
            pad_token_id=0,
        )
    return run.encoder.token_bytes.join(generated[0].tolist()).decode("utf-8", errors="replace")


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl.

    Raises:
        SourceError: if there is none, or a line is no JSON.
    """
    path = Path(folder) / METRICS_FILE
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{path} cannot be read ({error})", expected="the metrics of a run", remedy="Name the folder of a run"
        ) from error
