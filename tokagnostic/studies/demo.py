"""The whole way on one text: two tokenizers, one memory, every control, and a report.

The memory is trained with one model under one tokenizer on all but the held-out documents, exported, and read frozen by
another model under another tokenizer that trains on a third of them. Neither sees the held-out documents.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import platform
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokagnostic.corpus import Corpus, CorpusConfig, Document
from tokagnostic.errors import InvalidValueError
from tokagnostic.evaluation.bits_per_byte import bits_per_byte
from tokagnostic.evaluation.coverage import coverage
from tokagnostic.evaluation.key_set import KeySet
from tokagnostic.evaluation.overlap import ngram_overlap
from tokagnostic.hashing import HashCache
from tokagnostic.host import attach
from tokagnostic.json_files import write_json
from tokagnostic.memory.file import load_memory, save_memory
from tokagnostic.memory.kinds import JointConfig
from tokagnostic.studies.controls import (
    CONTROLS,
    ControlResult,
    TargetSetting,
    run_control,
    transfer_efficiency,
)
from tokagnostic.studies.division import DividedText, divide_text
from tokagnostic.studies.report import claim_folder, write_report
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.train_tokenizers import train_byte_level_bpe, train_unigram
from tokagnostic.training.config import FitConfig, HostConfig
from tokagnostic.training.fit import FitResult, fit
from tokagnostic.training.hosts import fresh_llama, seeded
from tokagnostic.training.packing import TokenStream
from tokagnostic.training.stopping import RunStopped

logger = logging.getLogger(__name__)

LAYERS = (1,)


@dataclass(frozen=True)
class DemoConfig:
    """A demonstration that fits two cores and some minutes.

    Raises:
        InvalidValueError: if a share is not between 0 and 1.
    """

    output: str = "artifacts/demo"
    """Folder for the report; an earlier demonstration in it is replaced, and nothing else ever deleted."""
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    """The text; by default the English that every Python carries."""
    held_out_share: float = 0.06
    """Share of the text that no training sees."""
    source_ids: int = 4_096
    """Vocabulary of the source's byte-level BPE."""
    target_ids: int = 2_304
    """Vocabulary of the target's Unigram."""
    source_host: HostConfig = field(default_factory=lambda: HostConfig(width=128, num_layers=3))
    """The model that the memory is trained with."""
    target_host: HostConfig = field(default_factory=lambda: HostConfig(width=96, num_layers=3))
    """The model that reads it under the other tokenizer."""
    memory: JointConfig = field(default_factory=lambda: JointConfig(num_rows=65_536, num_heads=4, dim=16))
    """The memory; its rows are drawn by `seed` below."""
    source_steps: int = 500
    """Updates of the source."""
    target_steps: int = 200
    """Updates of the target under each control."""
    batch_size: int = 16
    """Blocks per update."""
    block_length: int = 128
    """Tokens per block, and the context of the evaluation."""
    learning_rate: float = 5e-3
    """Peak rate of hosts and readers."""
    table_rate_factor: float = 15.0
    """Peak rate of the table as a multiple of that."""
    overlap_order: int = 5
    """Largest order of the overlap."""
    seed: int = 0
    """Seed of models and of the order of the text; the split of the text does not depend on it."""

    def __post_init__(self) -> None:
        if not 0 < self.held_out_share < 1:
            raise InvalidValueError(
                f"held_out_share = {self.held_out_share}",
                expected="a number between 0 and 1",
                remedy="Set it to 0.06 or so",
            )

    def fresh_memory(self) -> JointConfig:
        """The memory, its fresh rows drawn by the demonstration's seed like everything else."""
        return dataclasses.replace(self.memory, seed=self.seed)

    def fit(self, num_steps: int) -> FitConfig:
        """How models are trained."""
        return FitConfig(
            num_steps=num_steps,
            batch_size=self.batch_size,
            block_length=self.block_length,
            learning_rate=self.learning_rate,
            table_rate_factor=self.table_rate_factor,
            seed=self.seed,
            evaluate_every=max(1, num_steps // 5),
            save_every=0,
        )


class DemoStopped(KeyboardInterrupt):
    """A demonstration that was asked to end in one of its runs. It cannot be gone on with, and so has not succeeded.

    Args:
        number: the signal.
        folder: the demonstration's.
    """

    def __init__(self, number: int, folder: Path) -> None:
        super().__init__(
            f"stopped by {signal.Signals(number).name} within the demonstration, which cannot be resumed; give the same "
            f"command again, which replaces what it left in {folder}"
        )
        self.exit_code = 128 + number


def demo(config: DemoConfig) -> dict[str, Any]:
    """Go the whole way and leave report.json, report.md, figures, tokenizers, the memory and all metrics in a folder.

    Returns:
        The contents of report.json.

    Raises:
        CorpusError: if the text is too small to be divided.
        InvalidValueError: if the folder holds something that no demonstration wrote.
        DemoStopped: if SIGTERM or SIGINT has come in one of its runs.
    """
    try:
        return _whole_way(config)
    except RunStopped as stop:
        raise DemoStopped(stop.number, Path(config.output)) from stop


def _whole_way(config: DemoConfig) -> dict[str, Any]:
    begin = time.perf_counter()
    folder = Path(config.output)
    text = divide_text(list(Corpus(config.corpus)), config.corpus, config.held_out_share)
    claim_folder(folder)
    write_json(folder / "config.json", dataclasses.asdict(config))
    source, target = _train_tokenizers(config, text, folder / "tokenizers")
    logger.info("overlap of the tokenizers on the held-out text")
    overlap = ngram_overlap(text.held_out, target, source, config.overlap_order)
    trained = _train_source(config, text, source, folder)
    seen = KeySet.of_documents(text.source, source, config.memory.max_order)
    setting = TargetSetting(
        encoder=target,
        stream=TokenStream.from_documents(text.target, target),
        held_out=text.held_out,
        watched=text.watched,
        memory_file=trained.memory_file,
        memory_config=config.fresh_memory(),
        host=config.target_host,
        layers=LAYERS,
        fit=config.fit(config.target_steps),
        seen=seen,
    )
    reader_cache = HashCache.build(target.token_bytes)
    covered = coverage(text.held_out, target, load_memory(trained.memory_file, reader_cache), key_set=seen)
    results = {control: run_control(control, setting, folder / control) for control in CONTROLS}
    bits = _bits(results)
    efficiency = transfer_efficiency(bits["none"], bits["frozen"], bits["native"])
    report = {
        "bpb": bits,
        "transfer_efficiency": None if math.isnan(efficiency) else efficiency,
        "frozen_table_unchanged": results["frozen"].table_unchanged,
        "controls": {control: result.to_dict() for control, result in results.items()},
        "source": trained.facts,
        "text": text.facts,
        "tokenizers": {
            role: {
                "name": encoder.name,
                "ids": len(encoder.token_bytes),
                "fidelity": "" if encoder.token_bytes.fidelity is None else encoder.token_bytes.fidelity.line,
                "fingerprint": encoder.token_bytes.fingerprint,
            }
            for role, encoder in (("source", source), ("target", target))
        },
        "overlap": overlap.to_dict(),
        "coverage": covered.to_dict(),
        "seed": config.seed,
        "python": platform.python_version(),
        "seconds": round(time.perf_counter() - begin, 1),
        "peak_memory_mib": _peak_memory() // 2**20,
    }
    curves = {"source": trained.training.metrics} | {name: result.training.metrics for name, result in results.items()}
    write_report(report, curves, folder)
    return report


def _train_tokenizers(config: DemoConfig, text: DividedText, folder: Path) -> tuple[TextEncoder, TextEncoder]:
    """The source's tokenizer from the source's text, the target's from the target's."""
    logger.info("training a byte-level BPE of %d ids and a Unigram of %d", config.source_ids, config.target_ids)
    bpe = train_byte_level_bpe((document.text for document in text.source), config.source_ids)
    unigram = train_unigram([document.text for document in text.target], config.target_ids)
    source = TextEncoder.from_tokenizer(bpe, f"byte-level BPE, {bpe.get_vocab_size():,} ids")
    target = TextEncoder.from_tokenizer(unigram, f"Unigram, {unigram.get_vocab_size():,} ids")
    source.save(folder / "source")
    target.save(folder / "target")
    return source, target


@dataclass(frozen=True)
class _Source:
    memory_file: Path
    training: FitResult
    facts: dict[str, Any]


def _train_source(config: DemoConfig, text: DividedText, encoder: TextEncoder, folder: Path) -> _Source:
    """Train host and memory together, score them with the memory on and off, and export the memory."""
    cache = HashCache.build(encoder.token_bytes)
    fit_config = config.fit(config.source_steps)
    stream = TokenStream.from_documents(text.source, encoder)
    model = fresh_llama(config.source_host, len(encoder.token_bytes), config.block_length, config.seed)
    memory = config.fresh_memory().build(cache)
    with seeded(config.seed):
        attachment = attach(model, cache, memory, LAYERS)

    def score(documents: Sequence[Document]) -> float:
        return bits_per_byte(model, encoder, documents, config.block_length).bits_per_byte

    training = fit(
        model,
        stream,
        fit_config,
        folder / "source",
        attachment=attachment,
        evaluate=lambda: score(text.watched),
        label="source",
    )
    memory_file = folder / "memory.safetensors"
    trained_on = {
        "tokenizer": {"name": encoder.name, "fingerprint": encoder.token_bytes.fingerprint},
        "text": text.facts,
        "tokens_seen": training.num_tokens,
    }
    saved = save_memory(memory, memory_file, trained_on=trained_on, layers=LAYERS)
    on = score(text.held_out)
    with attachment.disabled():
        off = score(text.held_out)
    facts = {
        "bpb": {"memory": on, "off": off},
        "tokens_seen": training.num_tokens,
        "epochs": training.num_tokens / stream.num_tokens,
        "tokens_per_second": round(training.tokens_per_second, 1),
        "seconds": round(training.seconds, 1),
        "memory": {
            "identity": saved.identity,
            "bytes": saved.num_bytes,
            "rows": memory.addresser.num_rows[0],
            "dim": config.memory.dim,
        },
    }
    return _Source(memory_file, training, facts)


def _bits(results: dict[Any, ControlResult]) -> dict[str, float]:
    """Bits per byte by control; `off` is the frozen memory's reader with the memory switched off."""
    bits = {control: result.score.bits_per_byte for control, result in results.items()}
    off = results["frozen"].off
    return bits | {"off": off.bits_per_byte if off is not None else float("nan")}


def _peak_memory() -> int:
    """The most memory that this process has held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
