"""One call of a host: nothing stays behind, nothing is read by the wrong call."""

from __future__ import annotations

import contextvars
import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hosts import VOCABULARY, logits_of, make_host, make_memory, random_ids, wake
from torch import Tensor, nn
from transformers import PreTrainedModel

from tokagnostic.errors import HostError
from tokagnostic.host import Attachment, attach, attachment_of
from tokagnostic.host.calling import _CURRENT
from tokagnostic.memory import NgramMemory


@pytest.fixture
def attachment(host: PreTrainedModel, memory: NgramMemory) -> Attachment:
    return wake(attach(host, VOCABULARY, memory, layers=(1, 2)))


def tensors_on(host: nn.Module) -> int:
    """Tensors that modules hold outside their parameters and buffers."""
    return sum(isinstance(value, Tensor) for module in host.modules() for value in vars(module).values())


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_call_that_fails_half_way_leaves_nothing(
    host: PreTrainedModel, attachment: Attachment, error: type[BaseException]
) -> None:
    expected, num_tensors = logits_of(host, random_ids()), tensors_on(host)

    def fail(*_: object) -> None:
        raise error

    handle = host.model.layers[1].mlp.register_forward_pre_hook(fail)
    with pytest.raises(error):
        logits_of(host, random_ids(3, 5))
    handle.remove()
    assert _CURRENT.get() is None
    assert tensors_on(host) == num_tensors
    assert torch.equal(logits_of(host, random_ids()), expected)


def test_a_refused_call_leaves_nothing(host: PreTrainedModel, attachment: Attachment) -> None:
    with pytest.raises(HostError):
        host(inputs_embeds=torch.zeros(1, 2, 64))
    assert _CURRENT.get() is None


def test_a_call_inside_a_call_reads_its_own_ids(host: PreTrainedModel, attachment: Attachment) -> None:
    inner_ids, outer_ids = random_ids(1, 4, seed=8), random_ids()
    expected_inner, expected_outer = logits_of(host, inner_ids), logits_of(host, outer_ids)
    inner: list[Tensor] = []

    def call_again(*_: object) -> None:
        if not inner:
            inner.append(torch.empty(0))
            inner.append(logits_of(host, inner_ids))

    handle = host.model.layers[1].mlp.register_forward_pre_hook(call_again)
    outer = logits_of(host, outer_ids)
    handle.remove()
    assert torch.equal(inner[1], expected_inner)
    assert torch.equal(outer, expected_outer)


def test_switching_off_is_of_one_thread(host: PreTrainedModel, attachment: Attachment) -> None:
    """What one thread compares with the memory off does not take the memory away from another."""
    ids = random_ids()
    on = logits_of(host, ids)
    with ThreadPoolExecutor(1) as other, attachment.disabled(), attachment.disabled():
        assert attachment.off
        assert torch.equal(other.submit(logits_of, host, ids).result(), on)
        assert torch.equal(
            other.submit(contextvars.copy_context().run, logits_of, host, ids).result(), logits_of(host, ids)
        )
        assert not torch.equal(logits_of(host, ids), on)
    assert not attachment.off


def test_switching_off_ends_with_its_block_whatever_ends_first(attachment: Attachment) -> None:
    """As of two generators that are left early, one of them in another thread."""
    first, second = attachment.disabled(), attachment.disabled()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert attachment.off
    with ThreadPoolExecutor(1) as other:
        assert not other.submit(lambda: attachment.off).result()
        other.submit(second.__exit__, None, None, None).result()
    assert not attachment.off


def test_threads_read_their_own_ids(host: PreTrainedModel, attachment: Attachment) -> None:
    batches = [random_ids(2, 5 + i, seed=i) for i in range(4)]
    expected = [logits_of(host, ids) for ids in batches]
    wrong: list[int] = []

    def serve(i: int) -> None:
        for _ in range(5):
            if not torch.allclose(logits_of(host, batches[i]), expected[i], atol=1e-4):
                wrong.append(i)

    threads = [threading.Thread(target=serve, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def break_class(host: PreTrainedModel) -> None:
    host.model.layers[1].__class__ = type(host.model.layers[0])


def break_wrapper(host: PreTrainedModel) -> None:
    class Skips(nn.Module):
        def forward(self, hidden_states: Tensor, **_: object) -> Tensor:
            return hidden_states

    host.model.layers[1] = Skips()


def break_repetition(host: PreTrainedModel) -> None:
    class Repeats(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, hidden_states: Tensor, **arguments: object) -> Tensor:
            return self.layer(self.layer(hidden_states, **arguments), **arguments)

    host.model.layers[1] = Repeats(host.model.layers[1])


def break_shape(host: PreTrainedModel) -> None:
    class Halves(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, hidden_states: Tensor, **_: object) -> Tensor:
            return self.layer(hidden_states[:, 1:])

    host.model.layers[1] = Halves(host.model.layers[1])


@pytest.mark.parametrize(
    ("break_plumbing", "message"),
    [
        (break_class, "layer 1 read the memory at 0 positions in a call of 18"),
        (break_wrapper, "layer 1 read the memory at 0 positions"),
        (break_repetition, "layer 1 read the memory at 36 positions"),
        (break_shape, r"hidden state of shape \[2, 8, 64\]"),
    ],
    ids=["class", "skipped", "repeated", "other_positions"],
)
def test_a_memory_that_is_not_read_everywhere_is_an_error(
    host: PreTrainedModel, attachment: Attachment, break_plumbing: Callable[[PreTrainedModel], None], message: str
) -> None:
    """M-25: off is only ever explicit."""
    logits_of(host, random_ids())
    break_plumbing(host)
    with pytest.raises(HostError, match=message):
        logits_of(host, random_ids())


def test_a_layer_run_alone_is_an_error(host: PreTrainedModel, attachment: Attachment) -> None:
    """M-25: a layer outside a call has nothing to read and says so."""
    with pytest.raises(HostError, match="outside a call"):
        host.model.layers[1](torch.zeros(1, 2, 64))


def test_the_decoder_may_be_called_without_its_head(host: PreTrainedModel, attachment: Attachment) -> None:
    with torch.no_grad():
        hidden = host.model(random_ids()).last_hidden_state
        assert torch.equal(host.lm_head(hidden), host(random_ids()).logits)
        assert torch.equal(host.forward(random_ids()).logits, host(random_ids()).logits)


def test_a_copy_of_an_attached_host_has_a_memory_of_its_own(host: PreTrainedModel, attachment: Attachment) -> None:
    expected = logits_of(host, random_ids())
    twin = copy.deepcopy(host)
    twin_attachment = attachment_of(twin)
    assert twin_attachment is not attachment
    assert twin_attachment.model is twin
    assert twin_attachment.memory is twin.tokagnostic.memory
    assert torch.equal(logits_of(twin, random_ids()), expected)
    with torch.no_grad():
        twin.tokagnostic.memory.store.tables[0].zero_()
    assert not torch.equal(logits_of(twin, random_ids()), expected)
    assert torch.equal(logits_of(host, random_ids()), expected)
    twin_attachment.remove()
    assert attachment_of(twin) is None
    assert attachment.attached


def test_two_hosts_may_read_one_memory() -> None:
    memory = make_memory()
    hosts = [make_host("llama"), make_host("gpt2")]
    attachments = [wake(attach(host, VOCABULARY, memory)) for host in hosts]
    apart = [logits_of(host, random_ids()) for host in hosts]
    attachments[1].remove()
    assert torch.equal(logits_of(hosts[0], random_ids()), apart[0])
    assert next(name for name, _ in attachments[0].named_parameters()) == "tokagnostic.memory.store.tables.0"
