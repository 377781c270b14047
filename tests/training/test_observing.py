"""What is watched of a run, against counts by plain Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from setups import FIT, HOST, SENTENCES, Setup, assert_equal, change, lines_of
from torch import Tensor

from tests import naive
from tokagnostic.hashing import HashCache
from tokagnostic.host import attach
from tokagnostic.memory.file import load_memory, save_memory
from tokagnostic.memory.load import expected_share
from tokagnostic.memory.visits import Visits
from tokagnostic.training.config import FitConfig
from tokagnostic.training.hosts import fresh_llama
from tokagnostic.training.packing import BlockSampler, TokenStream


def naive_lines(setup: Setup, settings: FitConfig, before: list[set[int]] | None = None) -> list[dict[str, Any]]:
    """The counts of every update, from sets; `before` holds the rows of each table that are written, for good if frozen."""
    sampler = BlockSampler(setup.stream, settings.block_length, settings.batch_size, settings.seed)
    tokens = [setup.encoder.token_bytes[i] for i in range(len(setup.encoder.token_bytes))]
    moduli = setup.memory.addresser.moduli
    written = [set(rows) for rows in before or [[] for _ in moduli]]
    seen: set[int] = set()
    num_bytes, lines = 0, []
    for step in range(settings.num_steps):
        fresh: list[set[int]] = [set() for _ in moduli]
        hits, lookups = [0] * setup.memory.max_order, [0] * setup.memory.max_order
        for part in range(settings.accumulation):
            batch = sampler.batch(step * settings.accumulation + part)
            for ids, starts in zip(batch.input_ids.tolist(), batch.starts.tolist(), strict=True):
                num_bytes += sum(len(tokens[i] or b"") for i in ids)
                for keys in naive.window_keys(tokens, ids, starts, setup.memory.max_order):
                    for n, key in enumerate(keys):
                        if key < 0:
                            continue
                        seen.add(key)
                        for table, primes in enumerate(moduli):
                            rows = naive.rows_of(key, primes)
                            hits[n] += sum(row in written[table] for row in rows)
                            lookups[n] += len(rows)
                            fresh[table] |= set(rows)
        if not setup.memory.frozen:
            written = [old | new for old, new in zip(written, fresh, strict=True)]
        lines.append(
            {
                "hit_rate": {str(n + 1): hits[n] / lookups[n] for n in range(len(hits))},
                "rows_written": sum(map(len, written)) / sum(map(sum, moduli)),
                "distinct_ngrams": len(seen),
                "bytes": num_bytes,
            }
        )
    return lines


def written_rows(counts: Tensor) -> set[int]:
    return set(counts.nonzero().flatten().tolist())


@pytest.mark.parametrize(
    ("tables", "accumulation"), [(1, 1), (1, 3), (2, 2)], ids=["plain", "accumulated", "a table per layer"]
)
def test_every_line_equals_the_counts_by_sets(
    make_setup: Callable[..., Setup], tmp_path: Path, token_lengths: Tensor, tables: int, accumulation: int
) -> None:
    """A row counts as written from the update after the one that wrote it, whatever batch of that it was in."""
    setup = make_setup(layers=(0, 1), num_tables=tables)
    settings = change(FIT, num_steps=7, log_every=3, accumulation=accumulation)
    setup.fit(tmp_path, settings, token_lengths=token_lengths)
    expected = naive_lines(setup, settings)
    lines = lines_of(tmp_path)
    assert [line["step"] for line in lines] == [3, 6, 7]
    for line in lines:
        counts = expected[line["step"] - 1]
        for name in ("hit_rate", "rows_written", "distinct_ngrams"):
            assert line[name] == counts[name], (line["step"], name)
        assert line["bytes_per_second"] / line["tokens_per_second"] == pytest.approx(counts["bytes"] / line["tokens"])
    assert 0 < lines[0]["hit_rate"]["2"] < lines[0]["hit_rate"]["1"] < 1 and lines[-1]["seconds_left"] == 0
    assert lines[0]["seconds_left"] == pytest.approx(lines[0]["tokens"] * 4 / 3 / lines[0]["tokens_per_second"])
    primes = [prime for moduli in setup.memory.addresser.moduli for prime in moduli]
    filled = sum(prime * (1 - (1 - 1 / prime) ** counts["distinct_ngrams"]) for prime in primes)
    assert lines[-1]["rows_written_expected"] == pytest.approx(filled / sum(primes))


def test_watching_changes_nothing(make_setup: Callable[..., Setup], tmp_path: Path) -> None:
    often, seldom = make_setup(), make_setup()
    often.fit(tmp_path / "often", change(FIT, log_every=1))
    seldom.fit(tmp_path / "seldom", change(FIT, log_every=8))
    assert_equal(often.tensors(), seldom.tensors())
    assert {**lines_of(tmp_path / "often")[-1], **TIMED} == {**lines_of(tmp_path / "seldom")[-1], **TIMED}


TIMED = {"tokens_per_second": 0, "seconds_left": 0}


class TestAMemoryThatWasTrainedBefore:
    @pytest.fixture
    def file(self, setup: Setup, tmp_path: Path) -> Path:
        setup.stream = TokenStream.from_ids([setup.encoder.encode(SENTENCES[0])])
        setup.fit(tmp_path / "before", change(FIT, num_steps=2))
        save_memory(setup.memory, tmp_path / "memory.safetensors")
        return tmp_path / "memory.safetensors"

    def setup_of(self, setup: Setup, file: Path, stream: TokenStream, trainable: bool) -> Setup:
        model = fresh_llama(HOST, len(setup.encoder.token_bytes), FIT.block_length, seed=0)
        cache = HashCache.build(setup.encoder.token_bytes)
        memory = load_memory(file, cache, trainable=trainable)
        return Setup(model, memory, attach(model, cache, memory, [1]), stream, setup.encoder)

    @pytest.mark.parametrize("trainable", [False, True], ids=["frozen", "trained on"])
    def test_is_hit_where_that_wrote(
        self, setup: Setup, file: Path, stream: TokenStream, tmp_path: Path, trainable: bool
    ) -> None:
        """Of a frozen one nothing but the rows of the lookups is read; how many n-grams it has seen is not made up."""
        reader = self.setup_of(setup, file, stream, trainable)
        settings = change(FIT, num_steps=3)
        reader.fit(tmp_path / "after", settings)
        before = [written_rows(visits.counts) for visits in setup.memory.visits]
        for line, counts in zip(lines_of(tmp_path / "after"), naive_lines(reader, settings, before), strict=True):
            assert line["hit_rate"] == counts["hit_rate"] and 0 < line["hit_rate"]["2"] < 1
            assert line.get("rows_written") == (counts["rows_written"] if trainable else None)
            assert "distinct_ngrams" not in line and "rows_written_expected" not in line
        (visits,) = reader.memory.visits
        assert isinstance(visits, Visits) and (visits._counts is None) == (not trainable)


def test_an_order_without_windows_has_no_rate(setup: Setup, tmp_path: Path) -> None:
    setup.stream = TokenStream.from_ids([[setup.encoder.start_id, 100] * 20])
    setup.fit(tmp_path, change(FIT, num_steps=2))
    assert [line["hit_rate"] for line in lines_of(tmp_path)] == [{"1": 0.0, "2": None}, {"1": 1.0, "2": None}]


def test_a_checkpoint_without_a_sketch_goes_on_without_the_expectation(
    make_setup: Callable[..., Setup], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = change(FIT, num_steps=4, save_every=2)
    with monkeypatch.context() as patch:
        patch.setattr("tokagnostic.training.observing.Observer.tensors", lambda observer: {})
        make_setup().fit(tmp_path, settings)
    for path in (tmp_path / "checkpoints").glob("step-00000004"):
        path.rename(tmp_path / "put aside")
    make_setup().fit(tmp_path, settings, resume=True)
    assert ["distinct_ngrams" in line for line in lines_of(tmp_path)] == [True, True, False, False]


def test_the_share_that_is_expected_of_rows_drawn_by_lot() -> None:
    assert expected_share(211, 0) == 0
    assert expected_share(211, 1) == pytest.approx(1 / 211, rel=1e-12)
    assert expected_share(211, 100) == pytest.approx(1 - (210 / 211) ** 100, rel=1e-12)
    assert expected_share(2**40, 1) == pytest.approx(2**-40, rel=1e-12)  # where 1 - (1 - 1 / R) ** k loses all digits
    drawn = torch.randint(0, 211, (2000, 100), generator=torch.Generator().manual_seed(0))
    shares = torch.tensor([len(set(row.tolist())) for row in drawn]) / 211
    assert float(shares.mean()) == pytest.approx(expected_share(211, 100), abs=4 * float(shares.std()) / 2000**0.5)
