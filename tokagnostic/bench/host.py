"""A host with a memory to its seconds per decoded token, per training step and for attaching, beside the plain host."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tokagnostic.bench.measuring import Row, bench_row, best_seconds, random_vocabulary
from tokagnostic.hashing import HashCache
from tokagnostic.host import attach
from tokagnostic.memory import JointConfig
from tokagnostic.memory.file import load_memory, save_memory
from tokagnostic.training.config import HostConfig
from tokagnostic.training.hosts import fresh_llama

HOST = HostConfig(width=512, num_layers=8, num_heads=8)
NUM_IDS = 16_000
MEMORY = JointConfig(max_order=3, num_rows=65_536, num_heads=8, dim=16)
LAYERS = (1,)
PROMPT = 32


def measure_host(
    host: HostConfig = HOST,
    num_ids: int = NUM_IDS,
    memory: JointConfig = MEMORY,
    num_tokens: int = 16,
    batch: tuple[int, int] = (2, 128),
    repeats: int = 7,
) -> list[Row]:
    """Decoding, the memory's own part of it, attaching, and a training step, of a Llama with one layer that reads.

    Args:
        host: sizes of the Llama; by default it has 33 million parameters.
        num_ids: its vocabulary.
        memory: what is read, frozen.
        num_tokens: tokens decoded per repetition.
        batch: rows and tokens of a training step.
        repeats: of each measurement; the best counts.
    """
    cache = HashCache.build(random_vocabulary(np.random.default_rng(0), num_ids))
    context = max(batch[1], PROMPT + num_tokens)
    make_host: Callable[[], Any] = lambda: fresh_llama(host, num_ids, context, 0)
    return [
        *_decoding(make_host().eval(), cache, memory, num_tokens, repeats),
        *_own_work(host, cache, memory, num_tokens, repeats),
        *_attaching(make_host(), cache, memory, repeats),
        *_training(make_host, cache, memory, batch, repeats),
    ]


def _decoding(model: Any, cache: HashCache, memory: JointConfig, num_tokens: int, repeats: int) -> list[Row]:
    attachment = attach(model, cache, memory.build(cache).freeze(), LAYERS)
    prompt = torch.randint(0, cache.num_ids, (1, PROMPT), generator=torch.Generator().manual_seed(0))

    def decode() -> None:
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            do_sample=False,
            pad_token_id=0,
        )

    def decode_without() -> None:
        with attachment.disabled():
            decode()

    on, off = (1e3 * seconds / num_tokens for seconds in best_seconds(decode, decode_without, repeats=repeats))
    return [bench_row("decoding a token, memory on", on, "ms", "the same, memory off", off, less_is_better=True)]


class _IdleCache:
    """Counts positions and holds nothing."""

    def __init__(self) -> None:
        self.length = 0

    def get_seq_length(self) -> int:
        return self.length

    def reset(self) -> None:
        self.length = 0


class _IdleLayer(nn.Module):
    """Gives back what enters it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, hidden_states: Tensor) -> Tensor:
        return hidden_states


class _IdleHost(nn.Module):
    """Looks ids up and computes nothing: what a call takes beyond that is the memory's own work."""

    def __init__(self, num_ids: int, host: HostConfig) -> None:
        super().__init__()
        self.config = SimpleNamespace(num_hidden_layers=host.num_layers, hidden_size=host.width)
        self.embed = nn.Embedding(num_ids, host.width)
        self.layers = nn.ModuleList(_IdleLayer() for _ in range(host.num_layers))

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embed

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, cache: _IdleCache
    ) -> tuple[Tensor]:
        hidden: Tensor = self.embed(input_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        cache.length += input_ids.shape[1]
        return (hidden,)


def _own_work(host: HostConfig, cache: HashCache, memory: JointConfig, num_tokens: int, repeats: int) -> list[Row]:
    model = _IdleHost(cache.num_ids, host).eval()
    attachment = attach(model, cache, memory.build(cache).freeze(), LAYERS)
    length = PROMPT + num_tokens
    ids = torch.randint(0, cache.num_ids, (1, length), generator=torch.Generator().manual_seed(0))
    positions, mask = torch.arange(length)[None], torch.ones(1, length, dtype=torch.int64)
    features = torch.randn(1, 1, attachment.memory.feature_dim)

    prompt = _IdleCache()
    with torch.inference_mode():
        model(ids[:, :PROMPT], mask[:, :PROMPT], positions[:, :PROMPT], prompt)

    @torch.inference_mode()
    def decode() -> None:
        state = copy.deepcopy(prompt)
        for i in range(PROMPT, length):
            model(ids[:, i : i + 1], mask[:, : i + 1], positions[:, i : i + 1], state)

    def decode_without() -> None:
        with attachment.disabled():
            decode()

    @torch.inference_mode()
    def project() -> None:
        for _ in range(num_tokens):
            for slot in range(len(LAYERS)):
                attachment.layer(slot).key(features)
                attachment.layer(slot).value(features)

    # A call takes well under a millisecond: many repetitions find a quiet moment of the machine.
    on, off, limit = best_seconds(decode, decode_without, project, repeats=50 * repeats)
    name = "the reader's projections alone, the limit; the bar is 200 us"
    own, alone = 1e6 * (on - off) / num_tokens, 1e6 * limit / num_tokens
    return [bench_row("the memory's own work per decoded token", own, "us", name, alone, less_is_better=True)]


def _attaching(model: Any, cache: HashCache, memory: JointConfig, repeats: int) -> list[Row]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "memory.safetensors"
        num_bytes = save_memory(memory.build(cache), file).num_bytes

        def open_and_attach(mapped: bool) -> None:
            attach(model, cache, load_memory(file, cache, mapped=mapped, verify=False), LAYERS).remove()

        ours, rival = best_seconds(lambda: open_and_attach(True), lambda: open_and_attach(False), repeats=repeats)
    name = f"attaching a mapped memory of {num_bytes / 2**20:,.0f} MiB"
    return [
        bench_row(name, 1e3 * ours, "ms", "reading its rows first; the bar is 50 ms", 1e3 * rival, less_is_better=True)
    ]


def _training(
    make_host: Callable[[], Any], cache: HashCache, memory: JointConfig, batch: tuple[int, int], repeats: int
) -> list[Row]:
    def trainer(model: Any) -> Callable[[], None]:
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
        ids = torch.randint(0, cache.num_ids, batch, generator=torch.Generator().manual_seed(0))
        model.train()

        def train() -> None:
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return train

    plain, reading = make_host(), make_host()
    attach(reading, cache, memory.build(cache).freeze(), LAYERS)
    with_memory, bare = best_seconds(trainer(reading), trainer(plain), repeats=repeats)
    name = "the bare step; the bar is 0.94"
    return [bench_row("training step, one frozen layer", with_memory, "s", name, bare, less_is_better=True)]
