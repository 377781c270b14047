"""Texts that are read while they are trained on, alone and in a mixture, against plain Python that knows no cursor."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.errors import InvalidValueError, TrainingError
from tokagnostic.training.blocks import Text
from tokagnostic.training.mixture import Mixture
from tokagnostic.training.packing import Batch, BlockSampler, TokenStream
from tokagnostic.training.streamed_text import StreamedText

START = 1 << 20


class NumberEncoder:
    """A document `first length` has the ids first, first + 1, and so on; `0 0` has none, as if a normaliser had emptied it."""

    start_id: int | None = None

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        numbers = [[int(word) for word in text.split()] for text in texts]
        return [np.arange(first, first + length) for first, length in numbers]


class StartingEncoder(NumberEncoder):
    start_id = START


def write(path: Path, lengths: list[int], first: int = 0, emptied: int = 0) -> Path:
    """Documents in lines; all ids of all documents are different."""
    begins = first + np.cumsum([0, *lengths[:-1]])
    lines = [f"{begin} {length}" for begin, length in zip(begins, lengths, strict=True)]
    lines[emptied:emptied] = ["0 0"] * emptied
    path.write_text("".join(line + "\n" for line in lines))
    return path


def streamed(path: Path, buffer: int, encoder: NumberEncoder | None = None) -> StreamedText:
    corpus = Corpus(CorpusConfig((str(path),), documents="line"))
    return StreamedText(corpus, encoder or NumberEncoder(), buffer)  # type: ignore[arg-type]


def rows_of(text: Text, block_length: int, num: int, seed: int = 3) -> list[list[int]]:
    sampler = BlockSampler(text, block_length, 1, seed)
    return [sampler.batch(step).input_ids[0].tolist() for step in range(num)]


def same(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(one, other, strict=True)
        for name in ("input_ids", "starts", "position_ids")
    )


lengths_strategy = st.lists(st.integers(1, 12), min_size=1, max_size=15)
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)


class TestStreamed:
    @shared
    @given(lengths=lengths_strategy, buffer=st.integers(1, 20), block_length=st.integers(1, 20))
    def test_every_token_comes_once_per_epoch(
        self, tmp_path: Path, lengths: list[int], buffer: int, block_length: int
    ) -> None:
        """After as many epochs as it takes for blocks and epochs to end together."""
        text = streamed(write(tmp_path / "a.txt", lengths, emptied=2), buffer)
        num_tokens = sum(lengths)
        block_length = min(block_length, num_tokens)
        rows = rows_of(text, block_length, num_tokens)
        assert Counter(token for row in rows for token in row) == dict.fromkeys(range(num_tokens), block_length)
        assert text.counts.tokens >= num_tokens * block_length

    @shared
    @given(lengths=lengths_strategy, buffer=st.integers(1, 20), data=st.data())
    def test_resumed_at_any_step_and_again_it_gives_what_the_uninterrupted_run_does(
        self, tmp_path: Path, lengths: list[int], buffer: int, data: st.DataObject
    ) -> None:
        """M-22, D-09: the cursor sent through JSON."""
        path = write(tmp_path / "a.txt", lengths, emptied=1)
        block_length = min(5, sum(lengths))

        def sampler() -> BlockSampler:
            return BlockSampler(streamed(path, buffer, StartingEncoder()), block_length, 2, seed=1)

        steady = sampler()
        whole = [steady.batch(step) for step in range(12)]
        place, cursor, parts = 0, None, []
        for stop in (data.draw(st.integers(0, 6)), data.draw(st.integers(6, 12))):
            resumed = sampler()
            resumed.go_to(place, cursor)
            parts += [resumed.batch(step) for step in range(place, stop)]
            place, cursor = stop, json.loads(json.dumps(resumed.cursor(stop)))
        last = sampler()
        last.go_to(place, cursor)
        parts += [last.batch(step) for step in range(place, 12)]
        assert same(parts, whole)

    def test_going_to_a_step_without_a_cursor_reads_up_to_it(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", [3, 4, 5] * 9)
        whole = rows_of(streamed(path, 4), 6, 9)
        sampler = BlockSampler(streamed(path, 4), 6, 1, seed=3)
        sampler.go_to(7)
        assert sampler.batch(7).input_ids[0].tolist() == whole[7]

    @shared
    @given(lengths=lengths_strategy, buffer=st.integers(1, 9), world_size=st.integers(1, 3))
    def test_ranks_together_are_one_process_with_a_larger_batch(
        self, tmp_path: Path, lengths: list[int], buffer: int, world_size: int
    ) -> None:
        """More ranks than documents too: blocks are dealt, not documents."""
        path = write(tmp_path / "a.txt", lengths)
        block_length = min(4, sum(lengths))
        alone = BlockSampler(streamed(path, buffer), block_length, 2 * world_size, seed=2)
        ranks = [BlockSampler(streamed(path, buffer), block_length, 2, 2, r, world_size) for r in range(world_size)]
        for step in range(4):
            rows = np.concatenate([rank.batch(step).input_ids for rank in ranks])
            assert np.array_equal(rows, alone.batch(step).input_ids)

    def test_a_run_goes_on_with_another_number_of_ranks(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", [3, 4, 5, 1] * 9)
        alone = BlockSampler(streamed(path, 5), 4, 6)
        whole = [alone.batch(step).input_ids for step in range(6)]
        two = [BlockSampler(streamed(path, 5), 4, 3, 0, rank, 2) for rank in range(2)]
        assert all(np.array_equal(np.concatenate([r.batch(s).input_ids for r in two]), whole[s]) for s in range(3))
        three = [BlockSampler(streamed(path, 5), 4, 2, 0, rank, 3) for rank in range(3)]
        for rank in three:
            rank.go_to(3, two[0].cursor(3))
        assert all(np.array_equal(np.concatenate([r.batch(s).input_ids for r in three]), whole[s]) for s in (3, 4, 5))

    def test_within_a_document_tokens_follow_each_other_and_starts_stand_at_documents(self, tmp_path: Path) -> None:
        lengths = [5, 1, 63, 2, 100, 7, 1, 1, 19]
        begins = {START}
        sampler = BlockSampler(streamed(write(tmp_path / "a.txt", lengths), 3, StartingEncoder()), 13, 4)
        for step in range(9):
            batch = sampler.batch(step)
            inside = ~batch.starts[:, 1:]
            steps = np.diff(batch.input_ids, axis=1)
            after_start = batch.input_ids[:, :-1] == START
            assert np.all(steps[inside & ~after_start] == 1)
            assert set(batch.input_ids[:, 1:][batch.starts[:, 1:]].tolist()) <= begins

    def test_documents_and_blocks_come_in_another_order_each_epoch_buffer_and_seed(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", [2] * 40)
        rows = np.array(rows_of(streamed(path, 20), 2, 80))
        first, second = rows[:40, 0], rows[40:, 0]
        assert set(first[:20]) == set(range(0, 40, 2)) == set(second[:20])
        assert first.tolist() != second.tolist() and (first[:20] + 40).tolist() != first[20:].tolist()
        assert rows_of(streamed(path, 20), 2, 40, seed=4) != rows[:40].tolist()

    def test_the_order_does_not_change_from_version_to_version(self, tmp_path: Path) -> None:
        """Pinned: another order would resume old runs with other data."""
        path = write(tmp_path / "a.txt", [2, 3, 4])
        assert rows_of(streamed(path, 2), 3, 4, seed=5) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [2, 3, 4]]

    def test_no_more_than_two_buffers_lie_in_memory(self, tmp_path: Path) -> None:
        read = []

        class Counting(NumberEncoder):
            def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
                read.extend(texts)
                return super().encode_batch(texts)

        path = tmp_path / "a.txt"
        path.write_text("".join(f"{i} 4{' ' * 50_000}\n" for i in range(400)))
        sampler = BlockSampler(streamed(path, 30, Counting()), 4, 1)
        sampler.batch(0)
        assert len(read) <= 2 * 30 + 21  # and what is encoded at once


class TestChange:
    def test_a_document_that_was_changed_is_named(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.txt", [4] * 12)
        sampler = BlockSampler(streamed(path, 4), 4, 1)
        sampler.go_to(5)
        cursor = sampler.cursor(5)
        lines = path.read_text().splitlines()
        lines[6] = "99 4"
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(TrainingError, match=r"a\.txt:7 is not the document that the run had read"):
            BlockSampler(streamed(path, 4), 4, 1).go_to(5, cursor)

    @pytest.mark.parametrize("change", ["longer", "begin", "end"])
    def test_a_file_that_was_changed_has_another_identity_under_its_name(self, tmp_path: Path, change: str) -> None:
        path = write(tmp_path / "a.txt", [4] * 12)
        other = write(tmp_path / "b.txt", [4] * 12)
        config = CorpusConfig((f"{tmp_path}/*.txt",), documents="line")

        def identity() -> dict[str, str]:
            return StreamedText(Corpus(config), NumberEncoder(), 2).identity["files"]  # type: ignore[arg-type]

        before, data = identity(), path.read_bytes()
        path.write_bytes({"longer": data + b"7 1\n", "begin": b"9" + data[1:], "end": data[:-2] + b"5\n"}[change])
        after = identity()
        assert {name for name in before if before[name] != after[name]} == {str(path)}
        assert before.keys() == {str(path), str(other)}

    def test_going_back_is_refused(self, tmp_path: Path) -> None:
        sampler = BlockSampler(streamed(write(tmp_path / "a.txt", [4] * 9), 2), 4, 1)
        sampler.go_to(8)
        with pytest.raises(TrainingError, match="block 0 of a streamed text after block 8"):
            sampler.batch(0)

    def test_a_cursor_of_another_kind_of_text_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(TrainingError, match="a cursor without a place"):
            BlockSampler(streamed(write(tmp_path / "a.txt", [4]), 2), 4, 1).go_to(0, {"other": 1})


@pytest.mark.parametrize("lines", ["0 3\n", "0 0\n0 0\n"], ids=["three tokens", "no tokens"])
def test_too_few_tokens_for_a_block_is_one_line(tmp_path: Path, lines: str) -> None:
    (tmp_path / "a.txt").write_text(lines)
    with pytest.raises(TrainingError, match=r"tokens in .*a\.txt; expected at least one block of 4 tokens") as caught:
        BlockSampler(streamed(tmp_path / "a.txt", 2), 4, 1).go_to(0)
    assert "\n" not in str(caught.value)


def test_a_buffer_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="shuffle_buffer 0"):
        streamed(write(tmp_path / "a.txt", [1]), 0)


class TestMixture:
    @given(
        weights=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=4),
        seed=st.integers(0, 9),
        far=st.integers(0, 10**12),
    )
    def test_every_number_is_one_block_of_one_text_and_shares_are_kept(
        self, weights: list[float], seed: int, far: int
    ) -> None:
        names = {str(i): TokenStream.from_ids([np.array([i])]) for i in range(len(weights))}
        blocks = Mixture(names, weights).blocks(1, (seed,))
        assert blocks.dealt(0) == [0] * len(weights)
        for number in (*range(40), far):
            before, after = blocks.dealt(number), blocks.dealt(number + 1)
            assert sum(before) == number and sorted(np.subtract(after, before)) == [0] * (len(weights) - 1) + [1]
            expected = np.array(weights) / sum(weights) * number
            assert np.all(np.abs(before - expected) <= len(weights) + 1e-9 * number)

    @shared
    @given(
        lengths=st.tuples(lengths_strategy, lengths_strategy),
        weights=st.tuples(st.integers(1, 5), st.integers(1, 5)),
        buffer=st.integers(0, 6),
    )
    def test_each_text_comes_once_per_epoch_of_its_own_and_in_blocks_of_its_own(
        self, tmp_path: Path, lengths: tuple[list[int], list[int]], weights: tuple[int, int], buffer: int
    ) -> None:
        paths = [write(tmp_path / f"{i}.txt", part, 1000 * i) for i, part in enumerate(lengths)]
        num_tokens = [sum(part) for part in lengths]
        enough = 2 + max(-(-total * sum(weights) // weight) for total, weight in zip(num_tokens, weights, strict=True))
        tokens = BlockSampler(self.mixed(paths, weights, buffer), 1, enough, 3).batch(0).input_ids[:, 0]
        for i, total in enumerate(num_tokens):
            own = tokens[tokens // 1000 == i]
            epochs = len(own) // total
            assert epochs >= 1
            assert Counter(own[: epochs * total].tolist()) == {1000 * i + j: epochs for j in range(total)}

    @pytest.mark.parametrize("buffer", [0, 3])
    def test_it_resumes_at_any_step(self, tmp_path: Path, buffer: int) -> None:
        """M-22, D-09: two texts of which one ends many times while the other is read once."""
        paths = [write(tmp_path / "a.txt", [3, 4, 2]), write(tmp_path / "b.txt", [2, 5, 1] * 20, 1000)]
        sampler = BlockSampler(self.mixed(paths, (2, 1), buffer), 4, 2)
        whole = [sampler.batch(step) for step in range(12)]
        for stop in range(12):
            before, after = (BlockSampler(self.mixed(paths, (2, 1), buffer), 4, 2) for _ in range(2))
            for step in range(stop):
                before.batch(step)
            after.go_to(stop, json.loads(json.dumps(before.cursor(stop))))
            assert same([after.batch(step) for step in range(stop, 12)], whole[stop:])

    def test_ranks_together_are_one_process_with_a_larger_batch(self, tmp_path: Path) -> None:
        paths = [write(tmp_path / "a.txt", [3, 4, 2]), write(tmp_path / "b.txt", [2, 5, 1] * 20, 1000)]
        alone = BlockSampler(self.mixed(paths, (1, 3), 2), 4, 6)
        for world_size in (2, 3):
            ranks = [
                BlockSampler(self.mixed(paths, (1, 3), 2), 4, 6 // world_size, 0, rank, world_size)
                for rank in range(world_size)
            ]
            alone.go_to(0)
            for step in range(4):
                rows = np.concatenate([rank.batch(step).input_ids for rank in ranks])
                assert np.array_equal(rows, alone.batch(step).input_ids)

    @pytest.mark.parametrize("buffer", [0, 3])
    def test_the_documents_of_a_block_are_named(self, tmp_path: Path, buffer: int) -> None:
        """All ids are different, so that they tell whose they are; what a buffer has left to the next has no name there."""
        lengths = {"a.txt": [3, 4, 2, 9], "b.txt": [2, 5, 1, 1, 1] * 4}
        paths = [write(tmp_path / name, lengths[name], 1000 * i) for i, name in enumerate(lengths)]
        owners = {}
        for i, path in enumerate(paths):
            ends = 1000 * i + np.cumsum(lengths[path.name])
            for line, (end, length) in enumerate(zip(ends, lengths[path.name], strict=True)):
                name = f"{path}:{line + 1}" if buffer else f"{path}: document {line}"
                owners |= {int(token): name for token in range(end - length, end)}
        blocks = self.mixed(paths, (2, 1), buffer).blocks(4, (3,))
        unnamed = 0
        for number in range(40):
            ids = blocks.read([number])[0][0].tolist()
            truth, named = {owners[token] for token in ids}, blocks.documents(number)
            assert len(named) == len(set(named)) and set(named) <= truth
            unnamed += len(truth) - len(named)
        assert (unnamed == 0) == (buffer == 0) and unnamed < 20

    def test_counts_and_identities_are_those_of_all_texts(self, tmp_path: Path) -> None:
        paths = [write(tmp_path / "a.txt", [3]), write(tmp_path / "b.txt", [2, 5])]
        whole = self.mixed(paths, (1, 3), 0)
        assert (whole.counts.documents, whole.counts.tokens) == (3, 10)
        assert json.loads(json.dumps(whole.identity))["weights"] == [1, 3]
        assert self.mixed(paths, (1, 2), 0).identity != whole.identity

    @pytest.mark.parametrize("weights", [(1,), (1, 0), (1, -1), (1, float("inf")), (1, float("nan"))], ids=str)
    def test_weights_that_cannot_be_are_refused(self, weights: tuple[float, ...]) -> None:
        text = TokenStream.from_ids([np.arange(9)])
        with pytest.raises(InvalidValueError, match="above 0 for each source"):
            Mixture({"a": text, "b": text}, weights)

    def test_a_cursor_of_another_mixture_is_refused(self) -> None:
        text = TokenStream.from_ids([np.arange(9)])
        with pytest.raises(TrainingError, match="another mixture"):
            BlockSampler(Mixture({"a": text, "b": text}, (1, 1)), 4, 1).go_to(0, [None])

    def mixed(self, paths: list[Path], weights: tuple[int, ...], buffer: int) -> Mixture:
        return Mixture({str(path): self.text(path, buffer) for path in paths}, weights)

    def text(self, path: Path, buffer: int) -> Text:
        if buffer > 0:
            return streamed(path, buffer)
        return TokenStream.from_documents(
            Corpus(CorpusConfig((str(path),), documents="line")),
            NumberEncoder(),  # type: ignore[arg-type]
        )
