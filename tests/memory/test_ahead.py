"""Reading ahead: what a memory gives is the same to the bit, and what goes wrong in the thread is told to the caller."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokagnostic.memory import NgramMemory, load_memory, save_memory
from tokagnostic.memory.ahead import ReadAhead
from tokagnostic.memory.quantised import CODE_DTYPES

CPU = torch.device("cpu")
FORMATS = ("fp32", "bf16", *CODE_DTYPES)
BATCHES = [torch.randint(0, 260, (2, 9), generator=torch.Generator().manual_seed(seed)) for seed in range(4)]


@pytest.fixture(params=FORMATS)
def mapped(request, trained, path, cache) -> NgramMemory:
    """A memory left in its file, in any format, with two tables."""
    save_memory(trained, path, request.param)
    return load_memory(path, cache)


@pytest.fixture
def watched(monkeypatch):
    """Notes the names of the threads that read a memory's store."""

    def watch(memory: NgramMemory) -> list[str]:
        names, read = [], memory.store.read

        def noted(*arguments: object) -> torch.Tensor:
            names.append(threading.current_thread().name)
            return read(*arguments)

        monkeypatch.setattr(memory.store, "read", noted)
        return names

    return watch


def in_own_thread(names: list[str]) -> list[bool]:
    return [name.startswith("tokagnostic-ahead") for name in names]


def ahead_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("tokagnostic-ahead")]


def test_calls_read_what_was_fetched_and_it_is_what_they_would_have_read(mapped, watched):
    plain = [[mapped(ids, layer=layer) for layer in range(2)] for ids in BATCHES]
    keys, names = [mapped.hasher(ids) for ids in BATCHES], watched(mapped)
    with ReadAhead(mapped, CPU) as ahead:
        ahead.start(keys[0])
        for call, ids in enumerate(BATCHES):
            found = [mapped(ids, layer=0)]
            if call + 1 < len(BATCHES):
                ahead.start(keys[call + 1])
            found.append(mapped(ids, layer=1))
            assert all(torch.equal(a, b) for a, b in zip(found, plain[call], strict=True))
    assert in_own_thread(names) == [True] * 2 * len(BATCHES)


def test_a_call_that_was_not_told_of_reads_by_itself_and_loses_nothing(mapped, watched):
    keys, names = [mapped.hasher(ids) for ids in BATCHES], watched(mapped)
    with ReadAhead(mapped, CPU) as ahead:
        for own, following in zip(keys, (*keys[1:], None), strict=True):
            if following is not None:
                ahead.start(following)
            mapped.features_of(own)
    assert sorted(in_own_thread(names)) == [False] + [True] * 2 * (len(keys) - 1)


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12))
def test_whatever_is_started_a_call_reads_its_own_keys(saved, cache, calls):
    """Starts without a call, calls without a start, one batch twice, more starts than are kept."""
    memory = load_memory(saved, cache)
    with ReadAhead(memory, CPU) as ahead:
        for batch, starts in calls:
            keys, layer = memory.hasher(BATCHES[batch]), batch % 2
            if starts:
                ahead.start(keys)
            else:
                plain = memory.addresser.read(keys, memory.store, layer)
                assert torch.equal(memory.features_of(keys, layer), plain)


def test_what_goes_wrong_in_the_thread_is_raised_where_it_is_waited_for(mapped, monkeypatch):
    def fail(*_: object) -> torch.Tensor:
        raise IndexError("row 7 of a table of 5 rows")

    keys = mapped.hasher(BATCHES[0])
    with ReadAhead(mapped, CPU) as ahead:
        monkeypatch.setattr(mapped.store, "read", fail)
        ahead.start(keys)
        with pytest.raises(IndexError, match="row 7"):
            mapped.features_of(keys)
    assert ahead_threads() == []


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_threads_end_with_it_and_the_memory_is_as_before(mapped, error, watched):
    keys, names = mapped.hasher(BATCHES[0]), watched(mapped)
    try:
        with ReadAhead(mapped, CPU) as outer, ReadAhead(mapped, CPU) as inner:
            for ahead in (outer, inner, inner, inner):
                ahead.start(keys)
            assert mapped.ahead is inner and len(ahead_threads()) == 2
            if error is not None:
                raise error
    except KeyboardInterrupt:
        pass
    assert ahead_threads() == [] and mapped.ahead is None
    names.clear()
    mapped.features_of(keys)
    outer.start(keys)
    assert in_own_thread(names) == [False]


def test_nothing_is_fetched_that_is_at_hand_or_trained(trained, path, cache, make_memory):
    save_memory(trained, path)
    for memory in (load_memory(path, cache, mapped=False), load_memory(path, cache, trainable=True), make_memory()):
        with ReadAhead(memory, CPU) as ahead:
            ahead.start(memory.hasher(BATCHES[0]))
            assert memory.ahead is None and ahead_threads() == []


def test_a_memory_that_is_read_ahead_can_be_copied(mapped):
    with ReadAhead(mapped, CPU) as ahead:
        ahead.start(mapped.hasher(BATCHES[0]))
        for other in (copy.deepcopy(mapped), pickle.loads(pickle.dumps(mapped))):
            assert other.ahead is None and torch.equal(other(BATCHES[0]), mapped(BATCHES[0]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("mapped_to_file", [True, False], ids=["in a file", "in host memory"])
def test_a_gpu_reads_what_the_cpu_reads(trained, path, cache, watched, mapped_to_file):
    save_memory(trained, path)
    memory = load_memory(path, cache, mapped=mapped_to_file).stay()
    plain, keys, names = [memory(ids) for ids in BATCHES], [memory.hasher(ids) for ids in BATCHES], watched(memory)
    device = torch.device("cuda", torch.cuda.current_device())
    with ReadAhead(memory, device) as ahead:
        ahead.start(keys[0])
        for call, own in enumerate(keys):
            if call + 1 < len(keys):
                ahead.start(keys[call + 1])
            assert torch.equal(memory.features_of(own.to(device)).cpu(), plain[call])
    assert all(in_own_thread(names))
