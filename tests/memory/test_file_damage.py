"""Every damaged or foreign file is refused in one line, and none is believed in part."""

from __future__ import annotations

import errno
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tokagnostic.errors import MemoryFileError, SourceError
from tokagnostic.hashing import HashCache
from tokagnostic.memory import load_memory, read_recipe, save_memory
from tokagnostic.memory.recipe import canonical_json, identity_of


def rewritten(path: Path, change) -> None:
    """Change the recipe of a file and leave its tensors."""
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    values = json.loads(header["__metadata__"]["tokagnostic"])
    change(values)
    header["__metadata__"]["tokagnostic"] = canonical_json(values).decode()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + size :])


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(path, framework="numpy") as file:
        return file.metadata()


def names_left(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def refuse(path: Path, cache: HashCache, match: str | None = None, error: type = MemoryFileError) -> None:
    for call in (read_recipe, lambda place: load_memory(place, cache)):
        with pytest.raises(error, match=match) as caught:
            call(path)
        assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_a_file_truncated_anywhere(saved, cache):
    whole = saved.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    for length in [*range(0, 8 + size, 13), *range(8 + size, len(whole), 997), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        refuse(saved, cache)


def test_bytes_after_the_end(saved, cache):
    saved.write_bytes(saved.read_bytes() + b"\x00")
    refuse(saved, cache, "header says")


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00" * 8, b"\xff" * 64, b"GGUF" + b"\x03" * 60, pickle.dumps({"table.0": [1.0]}), b"text\n" * 20,
     (2).to_bytes(8, "little") + b"[]", (2).to_bytes(8, "little") + b"{}", (4).to_bytes(8, "little") + b"null"],
    ids=["empty", "zeros", "ones", "gguf", "pickle", "text", "list", "nothing", "null"],
)  # fmt: skip
def test_what_is_no_memory_file(path, cache, data):
    path.write_bytes(data)
    refuse(path, cache)


def test_a_pickle_is_never_executed(path, cache, tmp_path):
    class Trap:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "sprung"),)

    torch.save({"table.0": Trap()}, path)
    refuse(path, cache)
    assert names_left(tmp_path) == [path.name]


def test_no_file(path, cache):
    refuse(path, cache, "cannot be opened", SourceError)


def test_a_folder(tmp_path, cache):
    refuse(tmp_path, cache, "is a folder")


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"tokagnostic": ""}, {"tokagnostic": "[]"}], ids=repr)
def test_a_safetensors_file_without_a_recipe(path, cache, metadata):
    """H-20: the table is there, what names its rows is not."""
    save_file({"table.0": np.zeros((5, 3), dtype=np.float32)}, path, metadata=metadata)
    refuse(path, cache, "tokagnostic|recipe")


@pytest.mark.parametrize(
    "field",
    ["version", "kind", "config", "hash", "tables", "max_order", "policy", "golden", "digests", "identity"],
)
def test_a_missing_field(saved, cache, field):
    """H-20: the field is named; what each of them may hold is tested with the recipe."""
    rewritten(saved, lambda values: values.pop(field))
    refuse(saved, cache, f"`{field}` is missing")


def test_a_higher_version(saved, cache):
    rewritten(saved, lambda values: values.update(version=2))
    refuse(saved, cache, "`version` is 2")


def test_a_recipe_of_a_larger_table(saved, cache, make_memory, tmp_path):
    """Consistent in itself, but not the recipe of these tensors."""
    other = tmp_path / "other"
    save_memory(make_memory(num_rows=211), other)
    stolen = json.loads(metadata_of(other)["tokagnostic"])
    rewritten(saved, lambda values: values.update(stolen))
    refuse(saved, cache, r"tensor `table\.0` is F32 \[\d+, 5\]; expected F32")


@pytest.mark.parametrize("row_format", ["bf16", "fp16"])
def test_a_recipe_of_another_row_format(saved, cache, row_format):
    def change(values: dict) -> None:
        values["config"]["row_format"] = row_format
        values["identity"] = identity_of(values)

    rewritten(saved, change)
    refuse(saved, cache, "tensor `table.0` is F32")


@pytest.mark.parametrize("change", ["drop", "add", "flatten", "float64"])
def test_other_tensors_than_the_recipe_says(saved, cache, change):
    metadata, tensors = metadata_of(saved), load_file(saved)
    if change == "drop":
        del tensors["visits.1"]
    elif change == "add":
        tensors["table.2"] = tensors["table.1"]
    elif change == "flatten":
        tensors["table.0"] = tensors["table.0"].reshape(-1)
    else:
        tensors["table.0"] = tensors["table.0"].astype(np.float64)
    save_file(tensors, saved, metadata=metadata)
    refuse(saved, cache, "tensor `")


@pytest.mark.parametrize("tensor", ["table.0", "table.1", "visits.0", "visits.1"])
def test_a_wrong_digest_is_found_when_asked_for(saved, cache, tensor):
    needle = load_file(saved)[tensor].tobytes()
    whole = bytearray(saved.read_bytes())
    whole[whole.index(needle) + len(needle) // 2] ^= 0x10
    saved.write_bytes(whole)
    for options in ({"verify": True}, {"mapped": False}, {"trainable": True}):
        with pytest.raises(MemoryFileError, match=rf"tensor `{tensor}` has the digest"):
            load_memory(saved, cache, **options)
    assert load_memory(saved, cache).frozen
    assert load_memory(saved, cache, mapped=False, verify=False).frozen


def test_rows_that_are_not_aligned_are_copied_or_refused(saved, cache, ids):
    before = load_memory(saved, cache)(ids)
    whole = saved.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    saved.write_bytes((size + 1).to_bytes(8, "little") + whole[8 : 8 + size] + b" " + whole[8 + size :])
    with pytest.raises(MemoryFileError, match="mapped=False"):
        load_memory(saved, cache)
    assert torch.equal(load_memory(saved, cache, mapped=False)(ids), before)


@settings(deadline=None, max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_changed_bytes_in_the_header_are_refused_or_change_nothing(saved, cache, data):
    whole = saved.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, 8 + size - 1))] = data.draw(st.integers(0, 255))
    saved.with_name("changed").write_bytes(changed)
    try:
        memory = load_memory(saved.with_name("changed"), cache, verify=True)
    except MemoryFileError as error:
        assert "\n" not in str(error)
    else:
        saved.with_name("original").write_bytes(whole)
        right = load_memory(saved.with_name("original"), cache)
        assert memory.config == right.config
        assert all(map(torch.equal, memory.store.tables, right.store.tables))
        assert read_recipe(saved.with_name("changed")).identity == read_recipe(saved).identity


def test_a_system_that_cannot_map_says_what_to_do(saved, cache, monkeypatch):
    """M-10: the option is named in the error."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("mmap.mmap", refuse)
    with pytest.raises(MemoryFileError, match=r"Cannot allocate memory.*mapped=False"):
        load_memory(saved, cache)
