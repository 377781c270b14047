from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing import HashCache
from tokagnostic.memory import JointConfig, load_memory, read_recipe, save_memory
from tokagnostic.tokens.token_bytes import TokenBytes

FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(path, framework="numpy") as file:
        return file.metadata()


@pytest.mark.parametrize("row_format", FORMATS)
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "copied"])
def test_the_stored_type_is_kept(trained, path, cache, ids, row_format, mapped):
    """M-26: no copy in another type; the digest of the frozen table in memory is that of the file."""
    save_memory(trained, path, row_format)
    memory = load_memory(path, cache, mapped=mapped)
    for i, table in enumerate(memory.store.tables):
        assert table.dtype == FORMATS[row_format]
        digest = hashlib.sha256(table.detach().view(torch.uint8).numpy().tobytes()).hexdigest()
        assert digest == read_recipe(path).digests[f"table.{i}"]
    assert memory(ids).dtype == FORMATS[row_format]


def test_a_frozen_memory_stays_frozen(saved, cache, ids):
    memory = load_memory(saved, cache)
    memory.train()
    assert memory.frozen and not memory(ids).requires_grad


@pytest.mark.parametrize("row_format", FORMATS)
def test_a_trainable_memory_is_a_copy_in_single_precision(trained, path, cache, ids, row_format):
    save_memory(trained, path, row_format)
    before = path.read_bytes()
    memory = load_memory(path, cache, trainable=True)
    memory.train()
    memory(ids).sum().backward()
    with torch.no_grad():
        memory.store.tables[0].add_(1)
    assert memory.store.tables[0].dtype == torch.float32
    assert int(memory.visits[0].counts.sum()) > int(trained.visits[0].counts.sum())
    assert path.read_bytes() == before


def test_writing_into_a_mapped_table_does_not_reach_the_file(saved, cache):
    before = saved.read_bytes()
    memory = load_memory(saved, cache)
    memory.store.tables[0].data.fill_(7)
    assert saved.read_bytes() == before


def test_visits_come_back_and_saturate(trained, path, cache):
    trained.visits[0].counts[3] = 2**40
    save_memory(trained, path)
    memory = load_memory(path, cache)
    expected = trained.visits[0].counts.clamp(max=2**32 - 1)
    assert torch.equal(memory.visits[0].counts, expected) and expected.dtype == torch.int64
    assert torch.equal(memory.visits[1].counts, trained.visits[1].counts)


@pytest.mark.parametrize("max_order", [1, 2, 5])
def test_a_reader_may_read_other_orders(trained, saved, cache, ids, max_order):
    memory = load_memory(saved, cache, max_order=max_order)
    shared = min(max_order, 3)
    assert memory.max_order == max_order and memory.config.max_order == 3
    assert memory(ids).shape[-1] == memory.feature_dim == max_order * 15
    trained.eval()
    assert torch.equal(memory(ids)[..., : shared * 15], trained(ids)[..., : shared * 15])


def test_another_tokenizer_reads_the_same_rows(trained, saved, vocabulary, other_vocabulary):
    memory = load_memory(saved, other_vocabulary.cache)
    whole = torch.tensor([other_vocabulary.encode(b"internal")])
    parts = torch.tensor([vocabulary.encode(b"internal")])
    width = memory.feature_dim // 3
    trained.eval()
    assert torch.equal(memory(whole)[0, -1, :width], trained(parts)[0, -1, 2 * width :])


@pytest.mark.parametrize(("of_file", "of_cache"), [("strip", "keep"), ("keep", "strip")])
def test_a_cache_of_the_other_prefix_policy_is_refused(make_memory, path, vocabulary, of_file, of_cache):
    table = TokenBytes.from_list(vocabulary.tokens, prefix="first")
    caches = {policy: HashCache.build(table, prefix=policy) for policy in (of_file, of_cache)}
    save_memory(make_memory(cache=caches[of_file]), path)
    assert read_recipe(path).prefix == of_file
    assert load_memory(path, caches[of_file]).frozen
    with pytest.raises(InvalidValueError, match=f"policy '{of_cache}'.*policy '{of_file}'"):
        load_memory(path, caches[of_cache])


def test_a_reader_of_no_order_is_refused(saved, cache):
    with pytest.raises(InvalidValueError, match="max_order = 0"):
        load_memory(saved, cache, max_order=0)


def test_trainable_rows_cannot_be_mapped(saved, cache):
    with pytest.raises(InvalidValueError, match="mapped=True"):
        load_memory(saved, cache, trainable=True, mapped=True)


def test_a_file_in_another_order_of_tensors_is_read(saved, cache, ids):
    """Other writers of safetensors may lay tensors out as they like."""
    before = load_memory(saved, cache)(ids)
    metadata, tensors = metadata_of(saved), load_file(saved)
    other = saved.with_name("other")
    save_file(dict(reversed(tensors.items())), other, metadata=metadata)
    assert torch.equal(load_memory(other, cache, verify=True)(ids), before)


SCRIPT = """
import mmap, os, resource, sys
import torch
from tokagnostic.hashing import HashCache
from tokagnostic.memory import JointConfig, load_memory
from tokagnostic.tokens.token_bytes import TokenBytes

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20

def forbid_more_private_memory(megabytes):
    with open("/proc/self/status") as file:
        used = next(int(line.split()[1]) for line in file if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, ((used + 1024 * megabytes) * 1024,) * 2)

path = sys.argv[1]
cache = HashCache.build(TokenBytes.from_list([bytes((byte,)) for byte in range(256)]))
ids = torch.arange(100).view(1, 100)
JointConfig(num_rows=2, num_heads=1).build(cache).freeze()(ids)  # compiles and loads what any lookup needs

with open(path, "rb") as file:
    for limited in (False, True):
        # What was just written lies in the system's cache in large pieces, which are mapped whole though they cost nothing.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if limited:
            forbid_more_private_memory(100)
            try:
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            except OSError:
                print("refused")
        before = resident()
        memory = load_memory(path, cache)
        opened = resident()
        assert memory(ids).all()
        print(opened - before, resident() - before)
        del memory
"""


@pytest.fixture(scope="module")
def large(cache, tmp_path_factory) -> Path:
    """A table of 200 MB on disk."""
    config = JointConfig(max_order=1, num_rows=800_000, num_heads=1, dim=64)
    memory = config.build(cache, tables=[torch.ones(config.addresser().num_rows[0], 64)])
    path = tmp_path_factory.mktemp("large") / "memory.safetensors"
    save_memory(memory, path)
    return path


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_a_mapped_table_costs_the_rows_looked_up(large):
    """M-10: opening reads the header and no table; 100 lookups in 200 MB leave the rest of it on disk, and the table may
    be larger than the private memory that the system grants.
    """
    assert large.stat().st_size > 200e6
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(large)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    free, refused, limited = done.stdout.splitlines()
    assert refused == "refused"
    for line in (free, limited):
        opened, read = map(float, line.split())
        assert opened < 5 and read < 20
