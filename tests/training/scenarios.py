"""Runs that one process and several can do alike, each a function of plain values that returns tensors."""

from __future__ import annotations

import dataclasses
import os
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from setups import FIT, HOST, MEMORY, SENTENCES, TABLE, Setup, lines_of, set_dropout
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from tokagnostic.corpus import Document
from tokagnostic.errors import TrainingError
from tokagnostic.hashing import HashCache
from tokagnostic.host import attach
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.training import sharding
from tokagnostic.training.allocations import Allocations
from tokagnostic.training.exchange import exchange_gradients, trained_tables
from tokagnostic.training.hosts import fresh_llama, seeded
from tokagnostic.training.packing import Batch, TokenStream
from tokagnostic.training.processes import ending_processes
from tokagnostic.training.sharding import RowShares, Sharding
from tokagnostic.training.updating import Updater, make_accelerator, make_optimizers

NUM_ROWS = 4
"""Rows of the batch of all processes together."""


class Stop(Exception):
    """Raised from an evaluation in place of a kill."""


def world() -> tuple[int, int]:
    """Rank of this process, and number of processes."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def build(tokenizer: str, frozen: bool = False, table_dtype: str = "float32") -> Setup:
    """The host and the memory of the other tests, of a tokenizer in a file."""
    encoder = TextEncoder.from_tokenizer(Tokenizer.from_file(tokenizer), "bytes and three merges")
    documents = [Document(sentence.encode(), str(i)) for i in range(9) for sentence in SENTENCES]
    model = fresh_llama(HOST, len(encoder.token_bytes), FIT.block_length, seed=0)
    cache = HashCache.build(encoder.token_bytes)
    memory = MEMORY.build(cache)
    if frozen:
        memory.freeze()
    for table in memory.parameters():
        table.data = table.data.to(getattr(torch, table_dtype))
    with seeded(0):
        attachment = attach(model, cache, memory)
        # A fresh reader says nothing, and so would teach the table nothing in the first step.
        torch.nn.init.normal_(attachment.reader["1"].value.weight, std=0.1)
    return Setup(model, memory, attachment, TokenStream.from_documents(documents, encoder), encoder)


def updates(
    tokenizer: str,
    silent: tuple[int, ...] = (),
    off: tuple[int, ...] = (),
    frozen: bool = False,
    table_dtype: str = "float32",
    num_steps: int = 4,
    **settings: Any,
) -> dict[str, Tensor]:
    """Some updates on random text, each process on its share of the same rows.

    Args:
        tokenizer: file of the tokenizer.
        silent: rows of each batch that hold no bytes and so no window.
        off: steps in which the memory is switched off.
        frozen: whether the table stays as it is.
        table_dtype: of the table.
        num_steps: updates.
        settings: of `FitConfig`.
    """
    rank, num_processes = world()
    config = dataclasses.replace(FIT, **settings)
    accelerator = make_accelerator(config)
    setup = build(tokenizer, frozen, table_dtype)
    before = {name: tensor.clone() for name, tensor in setup.tensors().items()}
    sharding = Sharding(setup.attachment, config.table_placement, accelerator)
    optimizers = make_optimizers(setup.model, setup.attachment, config)
    random = np.random.default_rng(0)
    share = slice(rank * NUM_ROWS // num_processes, (rank + 1) * NUM_ROWS // num_processes)
    no_bytes = setup.encoder.token_bytes
    (silent_id,) = (i for i in range(len(no_bytes)) if no_bytes[i] is None)
    losses, keys = [], []
    with Updater(accelerator, setup.model, optimizers, config.clip_norm, config.clip_table) as updater:
        for step in range(num_steps):
            batches = []
            for _ in range(config.accumulation):
                ids = random.integers(97, 123, (NUM_ROWS, FIT.block_length))
                ids[list(silent)] = silent_id
                starts = np.zeros(ids.shape, dtype=bool)
                starts[:, 0] = True
                positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
                batches.append(Batch(ids[share], starts[share], positions[share].copy()))
                keys.append(setup.attachment.hasher(torch.from_numpy(ids[share]), torch.from_numpy(starts[share])))
            with setup.attachment.disabled() if step in off else nullcontext():
                losses.append(updater.update(batches, 1.0))
    sharding.end()
    found = {f"before.{name}": tensor for name, tensor in before.items()}
    found |= {f"after.{name}": tensor for name, tensor in setup.tensors().items()}
    return found | {"losses": torch.tensor(losses, dtype=torch.float64), "keys": torch.cat(keys, dim=1)}


def fitted(
    tokenizer: str, folder: str, stop_at: int = 0, resume: bool = False, dropout: float = 0.0, **settings: Any
) -> dict[str, Tensor]:
    """A run of `fit`, or a part of one.

    Args:
        tokenizer: file of the tokenizer.
        folder: of the run.
        stop_at: the update after which it is stopped, before it would save; 0: goes to its end.
        resume: whether it goes on from its newest checkpoint.
        dropout: share of attention that is left out by chance.
        settings: of `FitConfig`.
    """

    def evaluate() -> float:
        if stop_at:
            raise Stop
        return 1.0

    setup = build(tokenizer)
    set_dropout(setup, dropout)
    config = dataclasses.replace(FIT, evaluate_every=stop_at, **settings)
    with suppress(Stop):
        setup.fit(Path(folder), config, evaluate=evaluate, resume=resume)
    losses = [line["loss"] for line in lines_of(Path(folder)) if "loss" in line]
    return setup.tensors() | {"losses": torch.tensor(losses, dtype=torch.float64)}


def ended(tokenizer: str, folder: str, different: bool) -> dict[str, Tensor]:
    """What a run that has ended leaves behind.

    Args:
        tokenizer: file of the tokenizer.
        folder: of the run.
        different: whether the processes are started with different seeds.

    Returns:
        What it was told, as bytes, and how many threads there still are that exchange numbers, as Linux tells.
    """
    config = dataclasses.replace(FIT, seed=world()[0] if different else 0, table_placement="sharded")
    message = ""
    try:
        ending_processes(lambda: build(tokenizer).fit(Path(folder), config))
    except TrainingError as error:
        message = str(error)
    threads = [thread.read_text() for thread in Path("/proc/self/task").glob("*/comm")]
    return {
        "message": torch.tensor(list(message.encode()), dtype=torch.uint8),
        "exchanging": torch.tensor(sum("gloo" in name for name in threads)),
    }


def broken(tokenizer: str, folder: str, rank: int, table_placement: str) -> dict[str, Tensor]:
    """A run in which the loss of one process is infinite in the third update: what each is told, and what it is left with."""
    setup = build(tokenizer)
    forward, calls = setup.model.forward, [0]

    def break_third(*arguments: Any, **named: Any) -> Any:
        output = forward(*arguments, **named)
        calls[0] += 1
        if calls[0] == 3 and world()[0] == rank:
            output.loss = output.loss * float("inf")
        return output

    setup.model.forward = break_third
    with pytest.raises(TrainingError) as caught:
        setup.fit(Path(folder), dataclasses.replace(FIT, save_every=2, table_placement=table_placement))
    message = torch.tensor(list(str(caught.value).encode()), dtype=torch.uint8)
    dense = {name: parameter.detach().clone() for name, parameter in setup.model.named_parameters() if name != TABLE}
    return {"message": message, **dense}


def shards(tokenizer: str, frozen: bool, num_steps: int = 3) -> dict[str, Tensor]:
    """Some updates of a host that `fully_shard` has sharded, its table left out of that and exchanged if it is trained."""
    rank, num_processes = world()
    setup = build(tokenizer, frozen)
    tables = trained_tables(setup.attachment)
    (table,) = setup.memory.store.tables
    if num_processes > 1:
        dist.init_process_group("gloo")
        ignored = set(setup.attachment.memory.parameters())
        for module in (*setup.model.model.layers, setup.model):
            fully_shard(module, mesh=init_device_mesh("cpu", (num_processes,)), ignored_params=ignored)
        dense = [parameter for parameter in setup.model.parameters() if parameter is not table]
        assert type(table) is nn.Parameter and {type(parameter) for parameter in dense} == {DTensor}
    optimizers = make_optimizers(setup.model, setup.attachment, FIT)
    random, losses = torch.Generator().manual_seed(0), []
    for _ in range(num_steps):
        ids = torch.randint(97, 123, (NUM_ROWS, FIT.block_length), generator=random).chunk(num_processes)[rank]
        loss = setup.model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        if num_processes > 1:
            exchange_gradients(tables)
            loss = loss.detach()
            dist.all_reduce(loss)
        assert (table.grad is None) == frozen
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(float(loss.detach()) / num_processes)
    return {"losses": torch.tensor(losses, dtype=torch.float64), "after." + TABLE: table.detach().clone()}


def traffic(tokenizer: str, table_placement: str) -> dict[str, Tensor]:
    """What `updates` returns, and the bytes that this process has received from others for its table."""
    received, (rank, num_processes) = [0], world()
    gather, exchange = dist.all_gather, dist.all_to_all_single

    def counting_gather(parts: list[Tensor], own: Tensor, **arguments: Any) -> Any:
        received[0] += (num_processes - 1) * own.nbytes
        return gather(parts, own, **arguments)

    def counting_exchange(found: Tensor, sent: Tensor, splits: Any = None, *others: Any, **arguments: Any) -> Any:
        own = len(found) // num_processes if splits is None else splits[rank]
        received[0] += found.nbytes - found[:own].nbytes
        return exchange(found, sent, splits, *others, **arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_gather", counting_gather)
        patch.setattr(dist, "all_to_all_single", counting_exchange)
        found = updates(tokenizer, silent=(3,), table_placement=table_placement)
    return found | {"received": torch.tensor(received)}


def gathering(num_rows: int, dim: int, block: int) -> dict[str, Tensor]:
    """A table of consecutive numbers, made whole of its shares; and the most bytes that were alive in it at once."""
    dist.init_process_group("gloo")
    shares = RowShares(num_rows, dist.get_rank(), dist.group.WORLD)
    table = torch.arange(num_rows * dim, dtype=torch.float32).view(num_rows, dim)
    own = shares.own(table)
    with pytest.MonkeyPatch.context() as patch, Allocations() as counted:
        patch.setattr(sharding, "ROWS_AT_ONCE", block)
        whole = shares.whole(own)
        counts = shares.whole(own[:, 0].long())
    dist.destroy_process_group()
    found = {"peak": torch.tensor(counted.peak)}
    return found if whole is None or counts is None else {**found, "whole": whole, "counts": counts}
