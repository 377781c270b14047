from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
import torch

from tests.evaluation.naive_overlap import naive_windows
from tests.evaluation.overlap_tokenizers import TEXT, byte_level, metaspace, trained_byte_level
from tokagnostic.errors import CorpusError
from tokagnostic.evaluation.coverage import coverage
from tokagnostic.evaluation.coverage_report import BANDS, Noise
from tokagnostic.evaluation.key_set import KeySet
from tokagnostic.hashing import HashCache
from tokagnostic.memory import JointConfig, NgramMemory
from tokagnostic.tokens.encoder import TextEncoder

MAX_ORDER = 3
OTHER_TEXT = ["internal windows are external", "the same café 😀", "zzzz qqqq"]


@pytest.fixture(scope="module")
def writer() -> TextEncoder:
    return TextEncoder.from_tokenizer(trained_byte_level(330), "writer")


@pytest.fixture(scope="module")
def reader() -> TextEncoder:
    return TextEncoder.from_tokenizer(metaspace(340), "reader")


def visited_memory(encoder: TextEncoder, texts: list[str], num_rows: int = 4093, num_tables: int = 1) -> NgramMemory:
    """A memory that has read the texts once in training mode."""
    config = JointConfig(max_order=MAX_ORDER, num_rows=num_rows, num_heads=4, dim=2, num_tables=num_tables)
    memory = config.build(HashCache.build(encoder.token_bytes)).train()
    for text in texts:
        ids = torch.from_numpy(encoder.encode(text))[None]
        for layer in range(num_tables):
            memory(ids, layer=layer)
    return memory


def windows_of(encoder: TextEncoder, texts: list[str], order: int) -> list[bytes]:
    return [window for text in texts for window in naive_windows(encoder.token_bytes, encoder.encode(text), order)]


class TestShares:
    def test_equal_those_counted_by_hand_where_no_rows_are_shared(self, writer, reader) -> None:
        memory = visited_memory(writer, TEXT, num_rows=1_000_003)
        result = coverage(OTHER_TEXT, reader, memory)
        written = Counter(window for order in range(1, MAX_ORDER + 1) for window in windows_of(writer, TEXT, order))
        assert result.noise.floor == 0
        for n in range(MAX_ORDER):
            windows = windows_of(reader, OTHER_TEXT, n + 1)
            for covered, asked in ((result.weighted, windows), (result.unique, sorted(set(windows)))):
                assert covered.num_windows[n] == len(asked)
                assert covered.covered[n] == 100 * sum(window in written for window in asked) / len(asked)
                limits = {"0": (0, 0), "1": (1, 1), "2-3": (2, 3), "4-15": (4, 15), "16+": (16, 10**9)}
                for name, (least, most) in limits.items():
                    assert covered.bands[name][n] == 100 * sum(least <= written[w] <= most for w in asked) / len(asked)

    def test_of_the_memorys_own_text_are_100(self, writer) -> None:
        result = coverage(TEXT, writer, visited_memory(writer, TEXT, num_rows=1_000_003))
        assert result.unique.covered.tolist() == [100.0] * MAX_ORDER
        assert result.weighted.covered.tolist() == [100.0] * MAX_ORDER

    def test_of_a_memory_that_was_never_written_are_zero(self, writer) -> None:
        result = coverage(TEXT, writer, visited_memory(writer, []))
        assert result.weighted.covered.tolist() == [0.0] * MAX_ORDER
        assert result.weighted.bands["0"].tolist() == [100.0] * MAX_ORDER
        assert not result.saturated

    @pytest.mark.parametrize("num_rows", [5, 101, 4093])
    def test_never_say_less_than_the_truth_but_for_the_noise_floor(self, writer, reader, num_rows) -> None:
        key_set = KeySet.of_documents(TEXT, writer, MAX_ORDER)
        result = coverage(OTHER_TEXT, reader, visited_memory(writer, TEXT, num_rows), key_set=key_set)
        for covered in (result.unique, result.weighted):
            visited = 100 - covered.bands["0"]
            assert np.all(visited >= covered.seen - 1e-9)
            assert covered.covered == pytest.approx(covered.seen - covered.seen_not_covered + covered.covered_not_seen)
            assert sum(covered.bands.values()) == pytest.approx([100.0] * MAX_ORDER)

    def test_of_several_tables_take_the_least_count_over_all(self, writer, reader) -> None:
        one = coverage(OTHER_TEXT, reader, visited_memory(writer, TEXT, 211))
        two = coverage(OTHER_TEXT, reader, visited_memory(writer, TEXT, 211, num_tables=2))
        assert len(two.tables) == 2
        assert two.tables[0] == one.tables[0]
        assert two.noise.visited < one.noise.visited
        assert np.all(two.weighted.bands["0"] >= one.weighted.bands["0"])

    def test_of_more_orders_than_the_memory_was_trained_with_can_be_asked_for(self, writer) -> None:
        result = coverage(TEXT, writer, visited_memory(writer, TEXT), max_order=5)
        assert (result.max_order, result.trained_order) == (5, MAX_ORDER)
        assert len(result.weighted.covered) == 5

    def test_do_not_depend_on_the_batches(self, writer, reader, monkeypatch) -> None:
        memory = visited_memory(writer, TEXT, 211)
        whole = coverage(OTHER_TEXT, reader, memory).to_dict()
        monkeypatch.setattr("tokagnostic.evaluation.windows.BATCH_DOCUMENTS", 1)
        monkeypatch.setattr("tokagnostic.evaluation.coverage.CHUNK", 7)
        assert coverage(OTHER_TEXT, reader, memory).to_dict() == whole

    def test_count_nothing_as_a_visit_of_the_memory(self, writer) -> None:
        memory = visited_memory(writer, TEXT, 211)
        before = memory.visits[0].counts.clone()
        coverage(TEXT, writer, memory)
        assert torch.equal(memory.visits[0].counts, before)


class TestNoise:
    def test_floor_is_exceeded_by_at_most_one_in_a_hundred_and_no_lower_count_is_a_floor(self) -> None:
        answers = np.repeat([0, 1, 2, 9], [9_000, 880, 30, 90])
        noise = Noise.measure([torch.tensor([0, 3, 0, 1])], answers)
        assert (noise.floor, noise.visited) == (2, 10.0)
        assert (noise.num_rows, noise.rows_visited, noise.visits) == (4, 2, 4)
        assert np.mean(answers > noise.floor) <= 0.01 < np.mean(answers > noise.floor - 1)

    @pytest.mark.parametrize(("num_rows", "saturated"), [(5, True), (101, True), (100_003, False)], ids=str)
    def test_of_a_small_table_is_called_saturated_in_plain_words(self, writer, num_rows, saturated) -> None:
        result = coverage(OTHER_TEXT, writer, visited_memory(writer, TEXT * 5, num_rows))
        assert result.saturated == saturated
        assert ("SATURATED" in result.to_text()) == saturated
        assert result.to_dict()["saturated"] == saturated

    def test_keeps_windows_that_were_never_seen_out_of_what_is_called_covered(self, writer) -> None:
        random = np.random.default_rng(3)
        unseen = "".join(chr(code) for code in random.integers(0x4E00, 0x9FFF, 2000))
        memory = visited_memory(writer, TEXT * 3, 211)
        result = coverage([unseen], byte_level(), memory, key_set=KeySet.of_documents(TEXT, writer, MAX_ORDER))
        assert result.noise.visited > 10
        assert result.unique.covered_not_seen[2] < 3


class TestResult:
    def test_is_plain_json_with_an_exact_part_only_if_a_key_set_was_given(self, writer, reader) -> None:
        memory = visited_memory(writer, TEXT)
        plain = json.loads(json.dumps(coverage(OTHER_TEXT, reader, memory).to_dict()))
        assert plain["orders"] == [1, 2, 3]
        assert list(plain["unique"]["bands"]) == list(BANDS)
        assert plain["noise_floor"] == plain["noise"]["floor"]
        assert "exact" not in plain["unique"]
        key_set = KeySet.of_documents(TEXT, writer, MAX_ORDER)
        exact = coverage(OTHER_TEXT, reader, memory, key_set=key_set).to_dict()["unique"]["exact"]
        assert set(exact) == {"seen", "seen_not_covered", "covered_not_seen"}

    def test_is_a_table_with_a_dash_where_there_is_no_window(self, writer) -> None:
        lines = coverage(["a"], writer, visited_memory(writer, TEXT)).to_text().splitlines()
        assert lines[-2].split()[:3] == ["3", "0", "-"]


@pytest.mark.parametrize("documents", [[], [""]], ids=["none", "empty"])
def test_a_text_without_windows_is_an_error(writer, documents) -> None:
    with pytest.raises(CorpusError):
        coverage(documents, writer, visited_memory(writer, TEXT))
