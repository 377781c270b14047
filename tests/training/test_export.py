"""A run's memory exported: hot rows, and visits of several runs added, or refused where they count other rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tokagnostic.errors import InvalidValueError, MemoryFileError, SourceError
from tokagnostic.hashing import HashCache
from tokagnostic.memory import JointConfig, NgramMemory, load_memory, save_memory
from tokagnostic.memory.file import read_recipe
from tokagnostic.tokens.token_bytes import TokenBytes
from tokagnostic.training.export import export_memory

CACHE = HashCache.build(TokenBytes.from_list([bytes((byte,)) for byte in range(256)]))
CONFIG = JointConfig(max_order=2, num_rows=101, num_heads=2, dim=4)


def memory_with_visits(visits: int, config: JointConfig = CONFIG, cache: HashCache = CACHE) -> NgramMemory:
    memory = config.build(cache)
    for table, num_rows in enumerate(memory.addresser.num_rows):
        memory.visits[table].counts = torch.arange(num_rows) % 7 * visits
    return memory


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder that holds what an export looks at."""

    def make(name: str, visits: int, **fields: object) -> Path:
        folder = tmp_path / name
        (folder / "attachment").mkdir(parents=True)
        memory = memory_with_visits(visits, **fields)
        layers = range(memory.num_tables)
        save_memory(memory, folder / "attachment" / "memory.safetensors", trained_on={"text": name}, layers=layers)
        return folder

    return make


def test_visits_of_runs_are_added_to_the_rows_of_the_first(run, tmp_path):
    folders, base = [run("one", 2), run("two", 3), run("three", 5)], tmp_path / "base.safetensors"
    save_memory(memory_with_visits(1), base)
    path = tmp_path / "merged.safetensors"
    other_file = folders[2] / "attachment" / "memory.safetensors"
    export_memory(folders[0], path, merge_visits=[folders[1], other_file], visits_base=base)
    merged, first = (
        load_memory(path, CACHE, verify=True),
        load_memory(folders[0] / "attachment/memory.safetensors", CACHE),
    )
    assert torch.equal(merged.visits[0].counts, torch.arange(len(merged.visits[0].counts)) % 7 * (2 + 3 + 5 - 2 * 1))
    assert torch.equal(merged.store.tables[0], first.store.tables[0])
    files = [folder / "attachment/memory.safetensors" for folder in folders]
    assert read_recipe(path).trained_on == {
        "text": "one",
        "visits_of": [read_recipe(file).identity for file in files],
        "visits_since": read_recipe(base).identity,
    }


def test_runs_from_fresh_tables_have_no_base(run, tmp_path):
    path = tmp_path / "merged.safetensors"
    export_memory(run("one", 2), path, merge_visits=[run("two", 3)])
    counts = load_memory(path, CACHE).visits[0].counts
    assert torch.equal(counts, torch.arange(len(counts)) % 7 * 5)


def test_hot_rows_are_chosen_by_the_merged_visits_and_the_file_says_so(run, tmp_path):
    path = tmp_path / "hot.safetensors"
    exported = export_memory(run("one", 2), path, "int8", hot_rows=30, merge_visits=[run("two", 3)])
    memory, hot = load_memory(path, CACHE, verify=True), exported.hot
    assert hot is not None and (hot.kept, hot.rows) == (30, sum(memory.addresser.num_rows))
    assert hot.least_visits == int(memory.visits[0].counts[memory.visits[0].counts > 0].min())
    assert read_recipe(path).trained_on["hot_rows"] == {
        "kept": 30,
        "rows": hot.rows,
        "least_visits": hot.least_visits,
        "share_of_lookups": hot.share_of_lookups,
    }
    assert int((memory.visits[0].counts > 0).sum()) == 30


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"config": JointConfig(max_order=2, num_rows=103, num_heads=2, dim=4)}, "rows"),
        ({"config": JointConfig(max_order=2, num_rows=101, num_heads=3, dim=4)}, "rows"),
        ({"config": JointConfig(max_order=2, num_rows=101, num_heads=2, dim=4, num_tables=2)}, "rows"),
        ({"cache": HashCache.build(TokenBytes.from_list([b"a"]), prefix="keep")}, "prefix"),
    ],
    ids=["other sizes", "other heads", "more tables", "another prefix policy"],
)
@pytest.mark.parametrize("side", ["merge_visits", "visits_base"])
def test_visits_of_other_rows_are_refused_in_one_line(run, tmp_path, fields, told, side):
    one, foreign = run("one", 2), run("foreign", 2, **fields)
    given = {"merge_visits": [one], side: [foreign] if side == "merge_visits" else foreign}
    with pytest.raises(InvalidValueError, match=f"foreign.* whose {told} is") as caught:
        export_memory(one, tmp_path / "merged.safetensors", **given)
    assert "\n" not in str(caught.value) and not (tmp_path / "merged.safetensors").exists()


def test_a_base_that_a_run_did_not_start_from_is_refused(run, tmp_path):
    with pytest.raises(InvalidValueError, match="fewer than"):
        export_memory(run("one", 2), tmp_path / "m", merge_visits=[run("two", 5)], visits_base=run("base", 3))


def test_a_base_alone_is_refused(run, tmp_path):
    with pytest.raises(InvalidValueError, match="without merge_visits"):
        export_memory(run("one", 2), tmp_path / "m", visits_base=run("two", 5))


def test_damaged_visits_are_not_believed(run, tmp_path):
    one, two = run("one", 2), run("two", 3)
    file = two / "attachment" / "memory.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(MemoryFileError, match="digest"):
        export_memory(one, tmp_path / "m", merge_visits=[two])
    shutil.rmtree(two)
    with pytest.raises(SourceError, match="two"):
        export_memory(one, tmp_path / "m", merge_visits=[two])
    assert not (tmp_path / "m").exists()


def test_visits_of_hot_rows_alone_are_refused(run, tmp_path):
    one, two, hot = run("one", 2), run("two", 3), tmp_path / "hot.safetensors"
    export_memory(two, hot, hot_rows=30)
    for arguments in ({"merge_visits": [hot]}, {"merge_visits": [two], "visits_base": hot}):
        with pytest.raises(InvalidValueError, match="holds hot rows alone"):
            export_memory(one, tmp_path / "merged.safetensors", **arguments)


def test_a_run_is_added_once(run, tmp_path):
    one, two, path = run("one", 2), run("two", 3), tmp_path / "merged.safetensors"
    shutil.copytree(one, tmp_path / "copy")
    for others in ([one], [two, two], [two, tmp_path / "copy"]):
        with pytest.raises(InvalidValueError, match="twice among the runs"):
            export_memory(one, path, merge_visits=others)
    assert not path.exists()


def test_the_memory_that_an_attachment_reads_is_not_replaced(run, tmp_path):
    one, two = run("one", 2), run("two", 3)
    path = two / "attachment" / "memory.safetensors"
    (path.parent / "attachment.json").write_text("{}")
    before = path.read_bytes()
    with pytest.raises(InvalidValueError, match="which an attachment reads"):
        export_memory(one, path)
    assert path.read_bytes() == before
