"""Text, a tokenizer, a host and a memory to a trained run in a folder."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import torch

from tokagnostic.corpus import Corpus
from tokagnostic.errors import CorpusError, TrainingError
from tokagnostic.hashing import HashCache
from tokagnostic.host import attach
from tokagnostic.host.saving import MEMORY_FILE, save_attachment
from tokagnostic.memory.file import load_memory, save_memory
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer
from tokagnostic.training.config import PretrainConfig
from tokagnostic.training.fit import CHECKPOINTS_FOLDER, FitResult, fit
from tokagnostic.training.hosts import fresh_llama, load_host, seeded
from tokagnostic.training.packing import TokenStream
from tokagnostic.training.run import (
    ATTACHMENT_FOLDER,
    CONFIG_FILE,
    HOST_FOLDER,
    RESULT_FILE,
    TOKENIZER_FOLDER,
    write_json,
)

logger = logging.getLogger(__name__)


def pretrain(config: PretrainConfig) -> dict[str, Any]:
    """Train a host with a fresh memory, or with a frozen one its reader and, if asked, the host.

    The output folder receives the config at once, metrics and checkpoints on the way, and at the end the plain host, its
    tokenizer, and the attachment with its memory file.

    Args:
        config: the run.

    Returns:
        The contents of result.json.

    Raises:
        TokagnosticError: if a source is missing, the text is empty, the folder holds another run, or training fails.
    """
    folder = Path(config.output)
    _claim(folder, config.resume)
    encoder = load_tokenizer(config.tokenizer)
    write_json(folder / CONFIG_FILE, dataclasses.asdict(config))
    corpus = Corpus(config.corpus)
    stream = TokenStream.from_documents(corpus, encoder)
    if stream.num_documents == 0:
        raise CorpusError(
            f"no text in {', '.join(config.corpus.data)}",
            expected="at least one document with text",
            remedy="Name a source that is not empty",
        )
    num_ids = len(encoder.token_bytes)
    if config.host.path is None:
        model = fresh_llama(config.host, num_ids, config.fit.block_length, config.fit.seed)
    else:
        model = load_host(config.host.path)
    cache = HashCache.build(encoder.token_bytes)
    if config.memory_file is None:
        memory = config.memory.build(cache)
    else:
        memory = load_memory(config.memory_file, cache, trainable=config.train_table)
    model.requires_grad_(config.train_host)
    with seeded(config.fit.seed):
        attachment = attach(model, cache, memory, config.layers, config.gate)
    result = fit(
        model,
        stream,
        config.fit,
        folder,
        attachment=attachment,
        token_lengths=_lengths(encoder, model),
        resume=config.resume,
        label=folder.name,
    )
    facts = _facts(config, encoder, stream, corpus, result)
    attachment_folder = folder / ATTACHMENT_FOLDER
    attachment_folder.mkdir(exist_ok=True)
    if config.memory_file is None or config.train_table:
        memory_file = attachment_folder / MEMORY_FILE
        save_memory(memory, memory_file, trained_on=facts, layers=config.layers)
    else:
        memory_file = Path(config.memory_file)
    save_attachment(attachment, attachment_folder, memory_file)
    attachment.remove()
    model.save_pretrained(folder / HOST_FOLDER)
    encoder.save(folder / TOKENIZER_FOLDER)
    write_json(folder / RESULT_FILE, facts)
    return facts


def _claim(folder: Path, resume: bool) -> None:
    """Refuse to write into a folder that holds another run."""
    if not resume and (folder / CONFIG_FILE).exists():
        raise TrainingError(
            f"{folder} holds a run already",
            expected="a new output folder",
            remedy="Add --resume to go on with it, or name another folder",
        )
    if resume and not (folder / CHECKPOINTS_FOLDER).exists():
        logger.warning("%s holds no checkpoint: the run starts from the beginning", folder)


def _lengths(encoder: TextEncoder, model: Any) -> torch.Tensor:
    """Bytes per id, int64, for as many ids as the host has embedding rows."""
    lengths = torch.zeros(model.get_input_embeddings().num_embeddings, dtype=torch.int64)
    lengths[: len(encoder.token_bytes)] = torch.from_numpy(encoder.token_bytes.lengths)
    return lengths


def _facts(
    config: PretrainConfig, encoder: TextEncoder, stream: TokenStream, corpus: Corpus, result: FitResult
) -> dict[str, Any]:
    """What people want to know of a memory's past: the `trained_on` of its file."""
    from tokagnostic import __version__

    return {
        "tokenizer": {"name": encoder.name, "fingerprint": encoder.token_bytes.fingerprint},
        "data": list(config.corpus.data),
        "documents": corpus.counts.documents,
        "bytes": corpus.counts.bytes,
        "tokens_in_text": stream.num_tokens,
        "steps": result.num_steps,
        "tokens_seen": result.num_tokens,
        "tokens_per_second": round(result.tokens_per_second, 1),
        "final_loss": next(line["loss"] for line in reversed(result.metrics) if "loss" in line),
        "program": f"tokagnostic {__version__}",
    }
