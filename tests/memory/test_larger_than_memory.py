"""Tables of many gigabytes, as files that are mostly holes: opened and read by a host at the cost of the rows it looks up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from tokagnostic.hashing.hasher import NgramHasher
from tokagnostic.memory import JointConfig
from tokagnostic.memory.container import write_layout
from tokagnostic.memory.file import METADATA_KEY
from tokagnostic.memory.recipe import MemoryRecipe, TableRecipe, table_name, visits_name

SCRIPT = """
import json, sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from tokagnostic.hashing import HashCache
from tokagnostic.host import attach
from tokagnostic.memory import JointConfig, load_memory
from tokagnostic.tokens.token_bytes import TokenBytes

def field(file, name):
    with open(f"/proc/self/{file}") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name))

def resident():
    return field("status", "VmRSS") * 1024

def host():
    torch.manual_seed(0)
    sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1, vocab_size=256)
    return LlamaForCausalLM(LlamaConfig(**sizes)).eval()

def logits(model):
    with torch.inference_mode():
        return model(input_ids=ids, use_cache=False).logits

path, ids = sys.argv[1], torch.tensor(json.loads(sys.argv[2]))
cache = HashCache.build(TokenBytes.from_list([bytes((byte,)) for byte in range(256)]))
small = JointConfig(max_order=2, num_rows=2, num_heads=2, dim=128).build(cache).freeze()
model = host()
attach(model, cache, small, layers=[0])
logits(model)  # compiles and loads what any call needs

model, start, read_before = host(), resident(), field("io", "rchar")
memory = load_memory(path, cache)
attachment = attach(model, cache, memory, layers=[0])
opened, read = resident() - start, field("io", "rchar") - read_before
torch.nn.init.ones_(attachment.layer(0).value.weight)
found = logits(model)
first = resident() - start
logits(model)
again = resident() - start
with attachment.disabled():
    differs = not torch.equal(found, logits(model))
features = memory(ids)
print(json.dumps({"opened": opened, "read": read, "first": first, "again": again, "differs": differs,
                  "features": features.view(*ids.shape, 2, 2, -1)[..., 0].tolist()}))
"""


def sparse_memory(path: Path, num_bytes: int, ids: torch.Tensor) -> tuple[JointConfig, torch.Tensor]:
    """Write a memory file of about so many bytes, of which only the rows of some ids are there: row r is made of r % 1009.

    Returns:
        Its config, and the rows of the ids, int64 [B, T, N, K].
    """
    from tokagnostic.hashing import HashCache
    from tokagnostic.tokens.token_bytes import TokenBytes

    config = JointConfig(max_order=2, num_rows=num_bytes // (2 * 128 * 4), num_heads=2, dim=128)
    addresser = config.addresser()
    [num_rows], [moduli] = addresser.num_rows, addresser.moduli
    tensors = {table_name(0): (torch.float32, (num_rows, 128)), visits_name(0): (torch.uint32, (num_rows,))}
    recipe = MemoryRecipe(config, "fp32", (TableRecipe(tuple(moduli), ()),), "strip", dict.fromkeys(tensors, "0" * 64))
    header = write_layout(tensors, {METADATA_KEY: recipe.to_json()})
    cache = HashCache.build(TokenBytes.from_list([bytes((byte,)) for byte in range(256)]))
    rows = addresser(NgramHasher(cache, 2)(ids))
    with path.open("wb") as file:
        file.write(header)
        try:
            file.truncate(len(header) + num_rows * (128 * 4 + 4))
        except OSError as error:
            pytest.skip(f"no file of {num_bytes:,} bytes here: {error.strerror}")
        for row in rows[rows >= 0].unique().tolist():
            file.seek(len(header) + row * 512)
            file.write(torch.full((128,), float(row % 1009)).numpy().tobytes())
        file.flush()
        os.fsync(file.fileno())
    if path.stat().st_blocks * 512 > num_bytes / 10:
        pytest.skip("this file system fills the holes of files")
    return config, rows


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="what a process holds and reads is told by /proc")
@pytest.mark.parametrize("times_ram", [0, 1.5], ids=["8 GB", "larger than memory"])
def test_a_host_pays_for_the_rows_that_it_reads(tmp_path, times_ram):
    """M-10."""
    num_bytes = int(psutil.virtual_memory().total * times_ram) or 8_000_000_000
    ids = torch.randint(0, 256, (2, 200), generator=torch.Generator().manual_seed(0))
    path = tmp_path / "memory.safetensors"
    _, rows = sparse_memory(path, num_bytes, ids)
    size = path.stat().st_size
    assert size >= num_bytes
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), json.dumps(ids.tolist())],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["read"] < 2**20, "opening and attaching read the header, and no tensor to check it"
    assert told["opened"] < 8 * 2**20
    # A system maps the neighbours of a page that it has at hand, 64 KiB in all.
    distinct = len(rows[rows >= 0].unique())
    assert told["first"] < distinct * 2**16 + 16 * 2**20 < size / 50
    assert told["again"] - told["first"] < 2**20, "the same rows cost nothing more"
    assert told["differs"]
    assert told["features"] == torch.where(rows < 0, 0, rows % 1009).float().tolist()
