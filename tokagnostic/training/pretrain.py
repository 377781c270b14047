"""Text, a tokenizer, a host and a memory to a trained run in a folder."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import torch

from tokagnostic.corpus import Corpus
from tokagnostic.errors import TrainingError
from tokagnostic.hashing import HashCache
from tokagnostic.host import Attachment, attach
from tokagnostic.host.saving import MEMORY_FILE
from tokagnostic.json_files import write_json
from tokagnostic.memory.controls import load_reading
from tokagnostic.memory.file import load_memory, read_recipe, save_memory
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer
from tokagnostic.tokens.train_tokenizers import train_byte_level_bpe
from tokagnostic.training.blocks import TextCounts
from tokagnostic.training.checkpoint import disk_errors
from tokagnostic.training.config import PretrainConfig
from tokagnostic.training.fit import CHECKPOINTS_FOLDER, DIVISION, REPORTING, FitResult, fit
from tokagnostic.training.hosts import fresh_llama, load_host, seeded
from tokagnostic.training.metrics import METRICS_FILE
from tokagnostic.training.plan import MemoryPlan, available_bytes, plan_updates, refuse_beyond, table_parts
from tokagnostic.training.run import (
    ATTACHMENT_FOLDER,
    CONFIG_FILE,
    HOST_FOLDER,
    RESULT_FILE,
    TOKENIZER_FOLDER,
)
from tokagnostic.training.state import refuse_difference
from tokagnostic.training.stopping import StopRequest, stopping_before_training
from tokagnostic.training.texts import load_text
from tokagnostic.training.updating import make_accelerator

logger = logging.getLogger(__name__)

_WRITTEN = (RESULT_FILE, METRICS_FILE, HOST_FOLDER, TOKENIZER_FOLDER, ATTACHMENT_FOLDER)
"""What a run writes beside its config and its checkpoints."""


def pretrain(config: PretrainConfig) -> dict[str, Any]:
    """Train a host with a fresh memory, or with a frozen one its reader and, if asked, the host.

    The output folder receives nothing until all inputs are known to be good; then the config at once, metrics and
    checkpoints on the way, and at the end the plain host, its tokenizer, the attachment with its memory file, and last
    result.json. A finished run that is resumed is left as it is.

    Args:
        config: the run.

    Returns:
        The contents of result.json.

    Raises:
        TokagnosticError: if a source is missing, the text is empty, the folder holds another run, or training fails.
        RunStopped: if SIGTERM or SIGINT has come before the last step was done; all steps done are saved.
    """
    folder = Path(config.output)
    with stopping_before_training():
        process = make_accelerator(config.fit)
        begun = _begun(folder, config)
        process.wait_for_everyone()
        if begun and (folder / RESULT_FILE).is_file():
            logger.info("%s is finished: nothing is left to do", folder)
            return _read_json(folder / RESULT_FILE)
        refuse_beyond(MemoryPlan(str(process.device), table_parts(config), available_bytes(process.device)), config)
        encoder = _tokenizer(config)
        # The memory before the text: a wrong file is told at once, a long text takes minutes.
        attachment, memory_facts = _assemble(config, encoder)
        text = load_text(config.corpus, config.text, encoder, process.is_main_process)

    def record() -> None:
        if process.is_main_process and not begun:
            with disk_errors(str(folder / CONFIG_FILE), "nothing was trained"):
                write_json(folder / CONFIG_FILE, dataclasses.asdict(config))

    result = fit(
        attachment.model,
        text,
        config.fit,
        folder,
        attachment=attachment,
        token_lengths=_lengths(encoder, attachment.model),
        resume=config.resume,
        facts={"run": _lasting(config), "tokenizer": encoder.token_bytes.fingerprint, "memory": memory_facts},
        on_start=record,
        label=folder.name,
    )
    facts = _facts(config, encoder, text.counts, result)
    if process.is_main_process:
        # The work of the whole run takes seconds to write: a signal waits for that.
        with StopRequest(), disk_errors(f"the results in {folder}", "the checkpoints are intact"):
            _save(config, folder, attachment, encoder, facts)
    process.wait_for_everyone()
    return facts


def plan(config: PretrainConfig) -> MemoryPlan:
    """What memory a run will take at its peak, without its tables and without its result.

    The text is read and the host made as the run does it; then few updates are tried, see `plan_updates`.

    Raises:
        TokagnosticError: if a source is missing or the text is empty.
    """
    encoder = _tokenizer(config)
    model = _host(config, encoder)
    process = make_accelerator(config.fit)
    text = load_text(config.corpus, config.text, encoder, process.is_main_process)
    parts = table_parts(config) | plan_updates(model, config, len(encoder.token_bytes))
    del text  # which had to be there while the updates were tried
    return MemoryPlan(str(process.device), parts, available_bytes(process.device))


def _begun(folder: Path, config: PretrainConfig) -> bool:
    """Whether the folder holds the beginning of this very run.

    Raises:
        TrainingError: if it holds a run that is not to be resumed, or one with other settings.
    """
    path = folder / CONFIG_FILE
    if not path.exists():
        foreign = [name for name in _WRITTEN if (folder / name).exists()]
        if foreign:
            raise TrainingError(
                f"{folder} holds {foreign[0]}, which no run there has written",
                expected="a folder in which nothing would be replaced",
                remedy="Name another output folder, or move what is there",
            )
        if config.resume and not (folder / CHECKPOINTS_FOLDER).exists():
            logger.warning("%s holds no run: it starts from the beginning", folder)
        return False
    if not config.resume:
        raise TrainingError(
            f"{folder} holds a run already",
            expected="a new output folder",
            remedy="Add --resume to go on with it, or name another folder",
        )
    saved = _read_json(path)
    refuse_difference(str(path), _without_reporting(saved), _lasting(config))
    return True


def _lasting(config: PretrainConfig) -> dict[str, Any]:
    """The settings that a resumed run must share, as JSON values."""
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return _without_reporting(values)


def _without_reporting(values: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in values.items() if name not in ("output", "plan", "resume", "memory_stays")}
    fit_values = kept.get("fit")
    if isinstance(fit_values, dict):
        kept["fit"] = {name: value for name, value in fit_values.items() if name not in (*REPORTING, *DIVISION)}
    text_values = kept.get("text")
    if isinstance(text_values, dict):
        kept["text"] = {name: value for name, value in text_values.items() if name != "processes"}
    return kept


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        values = error
    if not isinstance(values, dict):
        raise TrainingError(
            f"{path} cannot be read ({values})",
            expected="the JSON object that an earlier run wrote",
            remedy="Name another output folder, or put the file back",
        )
    return values


def _tokenizer(config: PretrainConfig) -> TextEncoder:
    """The tokenizer that is named, or one trained on the text: equal texts give equal ones."""
    num_ids = config.trained_ids
    if num_ids is None:
        return load_tokenizer(config.tokenizer)
    logger.info("training a byte-level BPE of %d ids", num_ids)
    bpe = train_byte_level_bpe((document.text for document in Corpus(config.corpus)), num_ids)
    return TextEncoder.from_tokenizer(bpe, f"byte-level BPE, {bpe.get_vocab_size():,} ids")


def _assemble(config: PretrainConfig, encoder: TextEncoder) -> tuple[Attachment, Any]:
    """Host and memory, attached; and by what the memory is known again."""
    cache = HashCache.build(encoder.token_bytes)
    memory_facts: Any = config.memory.to_dict()
    if config.memory_file is None:
        memory = config.memory.build(cache)
    else:
        recipe = read_recipe(config.memory_file)
        cache = HashCache.build(encoder.token_bytes, prefix=recipe.prefix)
        # A run takes minutes to days, the digests of its memory seconds: damage is told before, not by a bad loss.
        if config.train_table:
            memory = load_memory(config.memory_file, cache, trainable=True, verify=True)
        else:
            memory = load_reading(config.reading, config.memory_file, cache, config.fit.seed, verify=True)
        if config.memory_stays:
            memory.stay()
        memory_facts = recipe.identity
    if config.fit.table_dtype == "bf16" and not memory.frozen:
        for table in memory.parameters():
            table.data = table.data.bfloat16()
    if memory.num_tables not in (1, len(config.layers)):
        raise TrainingError(
            f"{len(config.layers)} layers for a memory of {memory.num_tables} tables",
            expected="one table for all layers, or one for each",
            remedy="Name as many layers as the memory has tables",
        )
    model = _host(config, encoder)
    with seeded(config.fit.seed):
        return attach(model, cache, memory, config.layers, config.gate, config.conv_kernel), memory_facts


def _host(config: PretrainConfig, encoder: TextEncoder) -> Any:
    """The model, with what is to be trained of it trainable."""
    if config.host.path is None:
        if not config.train_host:
            logger.warning("the host is fresh and not trained: only a reader in a host of random parameters is")
        model = fresh_llama(config.host, len(encoder.token_bytes), config.fit.block_length, config.fit.seed)
    else:
        model = load_host(config.host.path)
    if config.train_host:
        model.float()
    model.requires_grad_(config.train_host)
    return model


def _lengths(encoder: TextEncoder, model: Any) -> torch.Tensor:
    """Bytes per id, int64, for as many ids as the host has embedding rows."""
    lengths = torch.zeros(model.get_input_embeddings().num_embeddings, dtype=torch.int64)
    lengths[: len(encoder.token_bytes)] = torch.from_numpy(encoder.token_bytes.lengths)
    return lengths


def _facts(config: PretrainConfig, encoder: TextEncoder, read: TextCounts, result: FitResult) -> dict[str, Any]:
    """What result.json says."""
    from tokagnostic import __version__

    losses = [line["loss"] for line in result.metrics if "loss" in line]
    return {
        "tokenizer": {"name": encoder.name, "fingerprint": encoder.token_bytes.fingerprint},
        "data": list(config.corpus.data),
        "documents": read.documents,
        "bytes": read.bytes,
        "tokens_in_text": read.tokens,
        "steps": result.num_steps,
        "tokens_seen": result.num_tokens,
        "final_loss": losses[-1] if losses else float("nan"),
        "program": f"tokagnostic {__version__}",
        "tokens_per_second": round(result.tokens_per_second, 1),
    }


def _save(
    config: PretrainConfig, folder: Path, attachment: Attachment, encoder: TextEncoder, facts: dict[str, Any]
) -> None:
    """Write what a finished run leaves, result.json last; the host is plain afterwards."""
    attachment_folder = folder / ATTACHMENT_FOLDER
    attachment_folder.mkdir(exist_ok=True)
    if config.memory_file is None or not attachment.memory.is_as_in_file:
        memory_file = attachment_folder / MEMORY_FILE
        # A speed is no property of a memory: equal runs leave equal files.
        trained_on = {name: value for name, value in facts.items() if name != "tokens_per_second"}
        if config.reading != "frozen":
            trained_on = {"nothing": f"{config.reading} rows for comparison", "of": str(config.memory_file)}
        save_memory(attachment.memory, memory_file, trained_on=trained_on, layers=config.layers)
    else:
        memory_file = Path(config.memory_file)
    attachment.save_pretrained(attachment_folder, memory_file)
    model: Any = attachment.model
    attachment.remove()
    model.save_pretrained(folder / HOST_FOLDER)
    encoder.save(folder / TOKENIZER_FOLDER)
    write_json(folder / RESULT_FILE, facts)
