"""Packing: every token once per epoch, no padding, and a step number that is the whole cursor."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokagnostic.corpus import Document
from tokagnostic.errors import CorpusError, InvalidValueError, TrainingError
from tokagnostic.training.packing import Batch, BlockSampler, TokenStream


class ByteEncoder:
    """An id per byte, and 256 before a document; drops every `~`, as a normaliser might."""

    start_id: int | None = 256

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        return [np.frombuffer(text.replace("~", "").encode(), dtype=np.uint8).astype(np.int64) for text in texts]


def stream_of(lengths: list[int]) -> TokenStream:
    """Documents whose ids are all different: each id is its place in the stream."""
    ends = np.cumsum(lengths)
    return TokenStream.from_ids([np.arange(end - length, end) for end, length in zip(ends, lengths, strict=True)])


def equal(one: Batch, other: Batch) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("input_ids", "starts", "position_ids")
    )


LENGTHS = [5, 1, 63, 2, 100, 7, 1, 1, 19]
lengths_strategy = st.lists(st.integers(1, 40), min_size=1, max_size=20)


class TestTokenStream:
    def test_documents_are_laid_end_to_end_after_the_start_id(self) -> None:
        stream = TokenStream.from_documents([Document(b"ab", "1"), Document(b"c", "2")], ByteEncoder())
        assert stream.ids.tolist() == [256, 97, 98, 256, 99]
        assert stream.document_offsets.tolist() == [0, 3, 5]
        assert stream.ids.dtype == np.int32 and stream.document_offsets.dtype == np.int64
        assert (stream.num_documents, stream.num_tokens) == (2, 5)

    def test_without_a_start_id_nothing_is_put_before_a_document(self) -> None:
        stream = TokenStream.from_ids([np.array([3, 4]), np.array([5])])
        assert stream.ids.tolist() == [3, 4, 5]

    def test_documents_without_ids_leave_no_trace(self) -> None:
        """D-04: an empty text, and one that the normaliser emptied, beside a real one; ids stay integers."""
        documents = [Document(b"", "1"), Document(b"a", "2"), Document(b"~", "3")]
        stream = TokenStream.from_documents(documents, ByteEncoder())
        assert stream.ids.tolist() == [256, 97] and stream.ids.dtype == np.int32
        empty = TokenStream.from_ids([np.array([])])
        assert empty.num_documents == 0 and empty.ids.dtype == np.int32
        batch = BlockSampler(stream, block_length=2, batch_size=1).batch(0)
        assert batch.input_ids.dtype == batch.position_ids.dtype == np.int64 and batch.starts.dtype == bool

    def test_progress_adds_up_to_the_bytes(self) -> None:
        documents = [Document(b"x" * 300_000, str(i)) for i in range(9)]
        seen: list[int] = []
        TokenStream.from_documents(iter(documents), ByteEncoder(), seen.append)
        assert len(seen) > 1 and sum(seen) == 2_700_000

    def test_the_digest_tells_borders_apart(self) -> None:
        assert stream_of([2, 3]).digest == stream_of([2, 3]).digest != stream_of([3, 2]).digest

    def test_bytes_that_are_no_text_are_refused(self) -> None:
        with pytest.raises(CorpusError, match="document bad"):
            TokenStream.from_documents([Document(b"\xff", "bad")], ByteEncoder())

    @pytest.mark.parametrize("offsets", [[], [0, 2], [1, 3], [0, 2, 2, 3], [0, 3, 2, 3]], ids=str)
    def test_offsets_that_do_not_partition_the_ids_are_refused(self, offsets: list[int]) -> None:
        with pytest.raises(InvalidValueError, match="do not partition"):
            TokenStream(np.arange(3, dtype=np.int32), np.array(offsets, dtype=np.int64))


class TestBlocks:
    @given(lengths=lengths_strategy, block_length=st.integers(1, 50), batch_size=st.integers(1, 5))
    def test_every_token_comes_once_per_epoch_and_nothing_else_does(
        self, lengths: list[int], block_length: int, batch_size: int
    ) -> None:
        stream = stream_of(lengths)
        block_length = min(block_length, stream.num_tokens)
        sampler = BlockSampler(stream, block_length, batch_size, seed=3)
        # As many epochs as it takes for blocks and epochs to end together.
        num_blocks = stream.num_tokens  # blocks in `block_length` epochs
        steps = -(-num_blocks // batch_size)
        blocks = np.concatenate([sampler.batch(step).input_ids for step in range(steps)])[:num_blocks]
        assert np.bincount(blocks.ravel(), minlength=stream.num_tokens).tolist() == [block_length] * stream.num_tokens

    @given(lengths=lengths_strategy, block_length=st.integers(1, 50))
    def test_the_last_block_of_an_epoch_ends_in_the_next(self, lengths: list[int], block_length: int) -> None:
        """No tail is dropped: an epoch's blocks hold all its tokens but for those that the block before it took."""
        stream = stream_of(lengths)
        block_length = min(block_length, stream.num_tokens)
        num_blocks = -(-stream.num_tokens // block_length)
        blocks = BlockSampler(stream, block_length, num_blocks).batch(0).input_ids
        assert set(blocks.ravel().tolist()) == set(range(stream.num_tokens))
        assert blocks.size - stream.num_tokens < block_length

    def test_starts_stand_at_documents_and_rows_and_positions_count_from_them(self) -> None:
        stream = stream_of(LENGTHS)
        batch = BlockSampler(stream, block_length=13, batch_size=4, seed=1).batch(2)
        document_starts = set(stream.document_offsets[:-1].tolist())
        for row in range(4):
            position = 0
            for column, token in enumerate(batch.input_ids[row].tolist()):
                assert bool(batch.starts[row, column]) == (column == 0 or token in document_starts)
                position = 0 if batch.starts[row, column] else position + 1
                assert int(batch.position_ids[row, column]) == position

    def test_within_a_document_tokens_follow_each_other(self) -> None:
        batch = BlockSampler(stream_of(LENGTHS), block_length=50, batch_size=6).batch(0)
        steps = np.diff(batch.input_ids, axis=1)
        assert np.all(steps[~batch.starts[:, 1:]] == 1)

    def test_a_document_of_one_token_and_one_of_many_blocks_are_whole(self) -> None:
        sampler = BlockSampler(stream_of([1, 1000, 1]), block_length=100, batch_size=11)
        assert set(range(1002)) == set(sampler.batch(0).input_ids.ravel().tolist())

    def test_documents_and_blocks_come_in_another_order_each_epoch_and_seed(self) -> None:
        stream = stream_of([10] * 50)
        one, two = (BlockSampler(stream, 10, 50).batch(step).input_ids for step in (0, 1))
        other = BlockSampler(stream, 10, 50, seed=1).batch(0).input_ids
        assert not np.array_equal(one, two) and not np.array_equal(one, other)
        assert not np.array_equal(one.ravel(), np.arange(500))

    def test_the_order_does_not_change_from_version_to_version(self) -> None:
        """Pinned: another order would resume old runs with other data."""
        batch = BlockSampler(stream_of([2, 3, 4]), block_length=3, batch_size=3, seed=5).batch(0)
        assert batch.input_ids.tolist() == [[8, 0, 1], [2, 3, 4], [5, 6, 7]]


class TestResume:
    def test_batches_after_a_resume_and_after_a_second_one_are_those_of_the_uninterrupted_run(self) -> None:
        """M-22, D-09: 64 documents, 2 processes, stops in the second epoch."""
        stream = stream_of([(7 * i) % 13 + 1 for i in range(64)])
        for rank in range(2):
            steady = list(islice(BlockSampler(stream, 16, 3, 1, rank, 2).batches(), 14))
            steps_per_epoch = -(-stream.num_tokens // (16 * 3 * 2))
            first, second = steps_per_epoch + 1, steps_per_epoch + 3
            assert second < 14
            resumed = list(islice(BlockSampler(stream, 16, 3, 1, rank, 2).batches(first), second - first))
            resumed += islice(BlockSampler(stream, 16, 3, 1, rank, 2).batches(second), 14 - second)
            assert all(equal(one, other) for one, other in zip(steady[first:], resumed, strict=True))

    def test_a_batch_depends_on_its_step_and_not_on_those_asked_before(self) -> None:
        sampler = BlockSampler(stream_of([3] * 20), block_length=7, batch_size=4)
        forward = [sampler.batch(step) for step in range(12)]
        assert all(equal(sampler.batch(step), forward[step]) for step in reversed(range(12)))

    def test_a_late_step_needs_none_of_those_before(self) -> None:
        sampler = BlockSampler(stream_of(LENGTHS), block_length=8, batch_size=4)
        assert sampler.batch(10**12).input_ids.shape == (4, 8)


class TestRanks:
    @given(lengths=lengths_strategy, world_size=st.integers(1, 4), batch_size=st.integers(1, 3))
    def test_ranks_together_are_one_process_with_a_larger_batch(
        self, lengths: list[int], world_size: int, batch_size: int
    ) -> None:
        stream = stream_of(lengths)
        block_length = min(4, stream.num_tokens)
        alone = BlockSampler(stream, block_length, batch_size * world_size, seed=2)
        ranks = [BlockSampler(stream, block_length, batch_size, 2, rank, world_size) for rank in range(world_size)]
        for step in range(4):
            rows = np.concatenate([rank.batch(step).input_ids for rank in ranks])
            assert np.array_equal(rows, alone.batch(step).input_ids)

    def test_ranks_see_disjoint_blocks(self) -> None:
        stream = stream_of([10] * 12)
        seen = [BlockSampler(stream, 10, 3, 0, rank, 4).batch(0).input_ids for rank in range(4)]
        assert sorted(np.concatenate(seen).ravel().tolist()) == list(range(120))


@pytest.mark.parametrize("lengths", [[], [3]], ids=["no document", "three tokens"])
def test_too_few_tokens_for_a_block_is_one_line(lengths: list[int]) -> None:
    stream = stream_of(lengths) if lengths else TokenStream.from_ids([])
    with pytest.raises(TrainingError, match="expected at least one block of 4 tokens") as caught:
        BlockSampler(stream, block_length=4, batch_size=1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"block_length": 0},
        {"batch_size": 0},
        {"world_size": 0},
        {"seed": -1},
        {"rank": -1},
        {"rank": 2, "world_size": 2},
    ],
    ids=str,
)
def test_a_wrong_setting_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidValueError):
        BlockSampler(stream_of(LENGTHS), **({"block_length": 4, "batch_size": 2} | wrong))


def test_a_negative_step_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="step -1"):
        BlockSampler(stream_of(LENGTHS), 4, 2).batch(-1)
