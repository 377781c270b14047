"""Several processes: one run, one folder, one batch."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
import scenarios
import torch
from ranks import call_together, run_together
from safetensors.torch import load_file
from setups import FIT, SENTENCES, TABLE, Setup, assert_equal, change, lines_of, steps_of
from tokenizers import Tokenizer

from tokagnostic.errors import TrainingError
from tokagnostic.memory.file import save_memory

MAIN = "import sys; from tokagnostic.cli import main; main(sys.argv[1:])"


def run(arguments: list[str], num_processes: int) -> tuple[list[int], str]:
    """Exit codes of all processes, and what they wrote to stderr."""
    return run_together([sys.executable, "-c", MAIN, *arguments], num_processes)


@pytest.fixture
def arguments(byte_tokenizer: Tokenizer, setup: Setup, tmp_path: Path) -> list[str]:
    """A run that reads a frozen memory."""
    byte_tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "text.txt").write_text("\n".join(SENTENCES * 9))
    save_memory(setup.memory, tmp_path / "memory.safetensors")
    shared = ["--tokenizer", str(tmp_path / "tokenizer.json"), "--corpus.data", str(tmp_path / "text.txt")]
    shared += ["--host.width", "16", "--host.num-layers", "2", "--host.num-heads", "2", "--train-host"]
    shared += ["--fit.num-steps", "6", "--fit.block-length", "16", "--fit.save-every", "3", "--fit.log-every", "1"]
    return [*shared, "--memory-file", str(tmp_path / "memory.safetensors")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "trained",
    [[], ["--train-table"], ["--train-table", "--fit.table-placement", "sharded"]],
    ids=["frozen", "replicated", "sharded"],
)
def test_two_processes_are_one_with_a_batch_of_twice_the_size(
    arguments: list[str], tmp_path: Path, trained: list[str]
) -> None:
    """A frozen table is neither changed nor sent around, a trained one is saved whole; a second start with --resume finds the run
    finished.
    """
    verb = ["pretrain" if trained else "attach", *arguments, *trained]
    two = [*verb, "--fit.batch-size", "2", "--output", str(tmp_path / "two")]
    codes, errors = run(two, 2)
    assert codes == [0, 0], errors
    codes, errors = run([*verb, "--fit.batch-size", "4", "--output", str(tmp_path / "one")], 1)
    assert codes == [0], errors
    for file in ("host/model.safetensors", "attachment/reader.safetensors", "attachment/memory.safetensors"):
        one, other = (load_file(tmp_path / name / file) for name in ("one", "two"))
        for name, tensor in one.items():
            if tensor.is_floating_point():
                torch.testing.assert_close(other[name], tensor, rtol=1e-2, atol=1e-3, msg=name)
            else:
                assert torch.equal(other[name], tensor), name
    losses = [[line["loss"] for line in lines_of(tmp_path / name)] for name in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], rel=0, abs=1e-6)
    bits = [[line["bits_per_byte"] for line in lines_of(tmp_path / name)] for name in ("one", "two")]
    assert bits[0] == pytest.approx(bits[1], rel=1e-6)
    for name in ("hit_rate", "rows_written", "rows_written_expected", "distinct_ngrams"):
        watched = [[line.get(name) for line in lines_of(tmp_path / number)] for number in ("one", "two")]
        assert watched[0] == watched[1] and (watched[0][-1] is not None) == (name == "hit_rate" or bool(trained)), name
    gates = [[line["gate"]["1"] for line in lines_of(tmp_path / number)] for number in ("one", "two")]
    assert gates[0] == pytest.approx(gates[1], rel=1e-5)
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two")]
    assert [result["tokens_seen"] for result in results] == [6 * 4 * FIT.block_length] * 2
    assert len((tmp_path / "two" / "metrics.jsonl").read_text().splitlines()) == 6
    codes, errors = run([*two, "--resume"], 2)
    assert codes == [0, 0] and "is finished" in errors


class TestResharding:
    """A run goes on in another number of processes, which divide the same updates among them."""

    SETTINGS: ClassVar = {"num_steps": 8, "save_every": 2, "learning_rate": 1e-3}

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "placements", [("replicated", "replicated"), ("sharded", "sharded"), ("sharded", "replicated")]
    )
    def test_two_one_and_two_processes_equal_a_run_that_never_stopped(
        self, tokenizer_file: Path, tmp_path: Path, placements: tuple[str, str]
    ) -> None:
        """M-22: visits to the last bit, the losses within 1e-6; a table may be placed in another way each time."""
        first, last = ({"table_placement": placement} for placement in placements)
        shared = {"tokenizer": str(tokenizer_file), **self.SETTINGS}
        parted = {**shared, "folder": str(tmp_path / "parted")}
        steady = scenarios.fitted(folder=str(tmp_path / "steady"), batch_size=4, **shared)
        call_together("fitted", 2, tmp_path / "first", batch_size=2, stop_at=3, **first, **parted)
        scenarios.fitted(batch_size=1, accumulation=4, stop_at=5, resume=True, **parted)
        ranks = call_together(
            "fitted", 2, tmp_path / "last", batch_size=1, accumulation=2, resume=True, **last, **parted
        )
        for found in ranks[: 1 if "sharded" in last.values() else 2]:
            assert torch.equal(found["visits.0"], steady["visits.0"])
            torch.testing.assert_close(found["losses"], steady["losses"], rtol=0, atol=1e-6)
            torch.testing.assert_close(found[TABLE], steady[TABLE], rtol=0, atol=1e-4)
        assert len(steady["losses"]) == 8 and steps_of(tmp_path / "parted")[-1] == 8

    @pytest.mark.slow
    def test_two_processes_that_were_stopped_draw_on_where_each_was(self, tokenizer_file: Path, tmp_path: Path) -> None:
        """D-09: to the last bit, dropout included, which each process draws by itself."""
        shared = {"tokenizer": str(tokenizer_file), "batch_size": 2, "dropout": 0.5, **self.SETTINGS}
        steady = call_together("fitted", 2, tmp_path / "a", folder=str(tmp_path / "steady"), **shared)
        call_together("fitted", 2, tmp_path / "b", folder=str(tmp_path / "parted"), stop_at=5, **shared)
        last = call_together("fitted", 2, tmp_path / "c", folder=str(tmp_path / "parted"), resume=True, **shared)
        for one, other in zip(steady, last, strict=True):
            assert_equal(one, other)

    def test_what_would_change_the_text_of_an_update_is_refused(
        self, make_setup: Callable[..., Setup], tmp_path: Path
    ) -> None:
        make_setup().fit(tmp_path, change(FIT, num_steps=2, save_every=1))
        message = r"has batch_size \* accumulation \* processes = 2, but the run is resumed with 6"
        with pytest.raises(TrainingError, match=message):
            make_setup().fit(tmp_path, change(FIT, num_steps=2, save_every=1, accumulation=3), resume=True)
        assert steps_of(tmp_path) == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(("num_rows", "block"), [(1001, 64), (1000, 500), (3, 64), (1, 64)], ids=str)
def test_a_table_is_made_whole_with_little_beside_the_whole(num_rows: int, block: int, tmp_path: Path) -> None:
    """The first process holds the whole and a few blocks, the other few blocks: not the shares of all beside it."""
    dim = 16
    first, other = call_together("gathering", 2, tmp_path, num_rows=num_rows, dim=dim, block=block)
    numbers = torch.arange(num_rows * dim, dtype=torch.float32).view(num_rows, dim)
    assert torch.equal(first["whole"], numbers) and torch.equal(first["counts"], numbers[:, 0].long())
    assert "whole" not in other
    counts, one_block = num_rows * 8, min(block, -(-num_rows // 2)) * dim * 4
    assert int(first["peak"]) <= numbers.nbytes + counts + 5 * one_block
    assert int(other["peak"]) <= num_rows * 8 + 2 * one_block


@pytest.mark.slow
def test_more_processes_than_blocks_of_text_are_refused_in_one_line(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("A text of some twenty bytes.")
    codes, errors = run(["attach", *arguments, "--output", str(tmp_path / "two")], 2)
    assert codes == [2, 2] and "Traceback" not in errors
    assert errors.count("tokagnostic: 2 processes for a text of 1 blocks of 16 tokens") == 2
    assert not (tmp_path / "two").exists()


@pytest.mark.slow
@pytest.mark.parametrize("table_placement", ["replicated", "sharded"])
def test_a_loss_that_breaks_in_one_process_stops_all_before_the_update(
    tokenizer_file: Path, tmp_path: Path, table_placement: str
) -> None:
    """The checkpoint of the second update holds what all are left with."""
    shared = {"tokenizer": str(tokenizer_file), "folder": str(tmp_path / "run"), "table_placement": table_placement}
    ranks = call_together("broken", 2, tmp_path / "ranks", rank=1, **shared)
    messages = [bytes(found.pop("message").tolist()).decode() for found in ranks]
    for message in messages:
        assert message.startswith("loss inf at step 3 on blocks 10 to 11 of the text")
        assert "all trained parameters are finite; nothing was updated, the last checkpoint is" in message
    assert "read by process 1" in messages[0] and "(document" in messages[1]
    assert_equal(*ranks)
    saved = load_file(tmp_path / "run" / "checkpoints" / "step-00000002" / "state.safetensors")
    assert_equal(ranks[0], {name: saved[f"model.{name}"] for name in ranks[0]})


@pytest.mark.slow
def test_processes_that_do_different_runs_are_told_before_the_first_update(
    tokenizer_file: Path, tmp_path: Path
) -> None:
    ranks = call_together(
        "ended", 2, tmp_path, tokenizer=str(tokenizer_file), folder=str(tmp_path / "run"), different=True
    )
    messages = {bytes(found["message"].tolist()).decode() for found in ranks}
    assert len(messages) == 1 and messages.pop().startswith("process 1 has another fit than process 0")
    assert not (tmp_path / "run").exists()
    assert [int(found["exchanging"]) for found in ranks] == [0, 0]


@pytest.mark.slow
def test_processes_that_have_ended_leave_no_thread_that_could_abort_their_interpreters(
    tokenizer_file: Path, tmp_path: Path
) -> None:
    ranks = call_together(
        "ended", 2, tmp_path, tokenizer=str(tokenizer_file), folder=str(tmp_path / "run"), different=False
    )
    assert [(len(found["message"]), int(found["exchanging"])) for found in ranks] == [(0, 0), (0, 0)]
