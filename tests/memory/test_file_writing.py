from __future__ import annotations

import hashlib
import os
import resource
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file

from tokagnostic.errors import InvalidValueError, MemoryFileError
from tokagnostic.memory import JointConfig, load_memory, read_recipe, save_memory

FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def names_left(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize("row_format", FORMATS)
def test_any_safetensors_reader_reads_it(trained, path, row_format):
    save_memory(trained, path, row_format)
    with safe_open(path, framework="pt") as file:
        assert set(file.metadata()) == {"tokagnostic"}
        assert set(file.keys()) == {"table.0", "table.1", "visits.0", "visits.1"}
        for i in range(2):
            rows, visits = file.get_tensor(f"table.{i}"), file.get_tensor(f"visits.{i}")
            assert rows.dtype == FORMATS[row_format] and visits.dtype == torch.uint32
            assert torch.equal(rows, trained.store.tables[i].to(FORMATS[row_format]))
            assert torch.equal(visits.long(), trained.visits[i].counts)


def test_equal_memories_are_equal_files(make_memory, tmp_path):
    reports = [save_memory(make_memory(), tmp_path / name, "bf16", {"a": 1, "b": [2]}) for name in "xy"]
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()
    assert reports[0].identity == reports[1].identity


def test_the_report_says_what_was_written(trained, path):
    """M-26: the rounding of an export is reported."""
    report = save_memory(trained, path, "bf16")
    assert (report.path, report.num_bytes) == (path, path.stat().st_size)
    assert report.identity == read_recipe(path).identity
    exact = torch.cat([table.detach().double().flatten() for table in trained.store.tables])
    error = exact - exact.to(torch.bfloat16).double()
    assert report.max_rounding == float(error.abs().max()) > 0
    assert report.relative_rounding == pytest.approx(float(error.norm() / exact.norm()))
    assert save_memory(trained, path).max_rounding == save_memory(trained, path).relative_rounding == 0


def test_digests_are_those_of_the_stored_bytes(saved):
    digests = {name: hashlib.sha256(tensor.tobytes()).hexdigest() for name, tensor in load_file(saved).items()}
    assert read_recipe(saved).digests == digests


def test_the_identity_follows_the_rows_and_not_the_words(make_memory, path):
    memory = make_memory()
    first = save_memory(memory, path, trained_on={"date": "today"}).identity
    assert save_memory(memory, path, trained_on={"date": "tomorrow"}).identity == first
    assert save_memory(memory, path, "bf16").identity != first
    with torch.no_grad():
        memory.store.tables[0][0, 0] += 1
    assert save_memory(memory, path).identity != first


@pytest.mark.parametrize("wrong", [70_000.0, -1e30, float("inf"), float("nan")], ids=repr)
def test_what_half_precision_cannot_hold_is_refused(trained, path, wrong):
    """M-26: nothing is stored as infinity; nothing is left behind."""
    with torch.no_grad():
        trained.store.tables[1][5, 2] = wrong
    with pytest.raises(InvalidValueError, match=r"`table\.1` holds .*fp16"):
        save_memory(trained, path, "fp16")
    assert names_left(path.parent) == []


def test_a_row_that_is_not_finite_is_refused_in_any_format(trained, path):
    with torch.no_grad():
        trained.store.tables[0][0, 0] = float("nan")
    with pytest.raises(InvalidValueError, match="nan, which fp32 cannot store"):
        save_memory(trained, path)


@pytest.mark.parametrize("wrong", ["fp64", "int4", None, 32], ids=repr)
def test_an_unknown_row_format_is_refused(trained, path, wrong):
    with pytest.raises(InvalidValueError, match="row_format"):
        save_memory(trained, path, wrong)


@pytest.mark.parametrize("wrong", [{"a": {1, 2}}, {"a": float("nan")}, {"a": b"x"}, {"a": "\ud800"}], ids=repr)
def test_words_that_are_no_json_are_refused(trained, path, wrong):
    with pytest.raises(InvalidValueError, match="trained_on"):
        save_memory(trained, path, trained_on=wrong)
    assert names_left(path.parent) == []


def test_layers_are_written_per_table(make_memory, path):
    save_memory(make_memory(num_tables=2), path, layers=(1, 3))
    assert [table.layers for table in read_recipe(path).tables] == [(1,), (3,)]
    save_memory(make_memory(num_tables=1), path, layers=(1, 3))
    assert [table.layers for table in read_recipe(path).tables] == [(1, 3)]
    with pytest.raises(InvalidValueError, match="3 layers for a memory of 2 tables"):
        save_memory(make_memory(num_tables=2), path, layers=(1, 2, 3))


def test_a_table_shared_by_layers_is_stored_once(make_memory, path, cache, ids):
    """M-08: one table read at two layers is one tensor."""
    memory = make_memory(num_tables=1)
    save_memory(memory, path, layers=(1, 3))
    assert path.stat().st_size < 1.5 * memory.store.tables[0].nbytes + 10_000
    again = load_memory(path, cache)
    assert torch.equal(again(ids, layer=0), memory(ids, layer=0))
    assert torch.equal(again(ids, layer=1), memory(ids, layer=1))


def test_a_full_disk_leaves_nothing_new_and_nothing_spoiled(saved, make_memory):
    """The limit of the file size stands for the end of the disk: the write itself fails half-way."""
    before = saved.read_bytes()
    large = make_memory(num_rows=50_000, num_heads=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    try:
        with pytest.raises(MemoryFileError, match="cannot be written") as caught:
            save_memory(large, saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert saved.read_bytes() == before
    assert names_left(saved.parent) == [saved.name]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_an_interruption_leaves_nothing_behind(trained, path, monkeypatch, step):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    owner = os if step == "fsync" else Path
    monkeypatch.setattr(owner, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_memory(trained, path)
    assert names_left(path.parent) == []


@pytest.mark.parametrize("name", ["missing/memory", "folder"])
def test_a_place_that_cannot_be_written_is_one_line(trained, tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(MemoryFileError, match="cannot be written") as caught:
        save_memory(trained, tmp_path / name)
    assert "\n" not in str(caught.value)
    assert names_left(tmp_path) == ["folder"]


def test_a_mapped_memory_can_be_written_over_its_own_file(saved, cache, ids):
    memory = load_memory(saved, cache)
    before = memory(ids)
    save_memory(memory, saved, "bf16")
    assert torch.equal(memory(ids), before)
    assert torch.equal(load_memory(saved, cache)(ids), before.to(torch.bfloat16))


def test_the_file_of_a_given_memory_never_changes(cache, path):
    """Files outlive programs: whoever changes a byte of the format must raise its version."""
    config = JointConfig(max_order=2, num_rows=5, num_heads=2, dim=3)
    memory = config.build(cache, tables=[torch.arange(36.0).view(12, 3) / 8])
    memory.visits[0].count(torch.tensor([0, 3, 3, 11]))
    report = save_memory(memory, path, "bf16", {"tokenizer": "é"}, layers=(1, 3))
    assert report.identity == "bed07a9369b989b1b62d4b543afdc3af00c65d73eea2f0c6beaa7761fd898c90"
    assert (
        hashlib.sha256(path.read_bytes()).hexdigest()
        == "7ccd3b4e41bd6e2ee5b2a45f6631d471aaf21fa97615659da26fb38b72c95149"
    )
