"""Attached models, attachments and filled caches through pickle, `torch.save` and into another process."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hosts import VOCABULARY, digest, logits_of, make_host, make_memory, random_ids, wake
from torch import nn
from transformers import DynamicCache, PreTrainedModel, StaticCache

from tokagnostic.hashing import HashCache
from tokagnostic.host import Attachment, attach, attachment_of
from tokagnostic.memory import NgramMemory, load_memory, save_memory

IDS = random_ids()


def through_pickle(value):
    return pickle.loads(pickle.dumps(value))


def through_the_oldest_pickle(value):
    return pickle.loads(pickle.dumps(value, protocol=0))


def through_torch(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


ways = pytest.mark.parametrize("sent", [through_pickle, through_the_oldest_pickle, through_torch, copy.deepcopy])


@ways
class TestEveryWay:
    def test_a_model_computes_the_same(self, family_host: PreTrainedModel, memory: NgramMemory, sent) -> None:
        attachment = wake(attach(family_host, VOCABULARY, memory, layers=(0, 2), conv_kernel=3))
        nn.init.normal_(attachment.reader["0"].conv.weight)
        expected = logits_of(family_host, IDS)
        twin = sent(family_host)
        own = attachment_of(twin)
        assert torch.equal(logits_of(twin, IDS), expected)
        assert own is not attachment and own.model is twin and own.memory is not memory
        assert type(twin) is type(family_host)
        with own.disabled():
            off = logits_of(twin, IDS)
            assert torch.equal(logits_of(family_host, IDS), expected)
        assert not torch.equal(off, expected)

    def test_it_can_be_taken_out_of_the_copy_alone(self, host: PreTrainedModel, memory: NgramMemory, sent) -> None:
        plain, state = type(host), digest(host)
        wake(attach(host, VOCABULARY, memory))
        expected = logits_of(host, IDS)
        twin = sent(host)
        attachment_of(twin).remove()
        assert type(twin) is plain
        assert digest(twin).keys() == state.keys()
        assert torch.equal(logits_of(host, IDS), expected)

    def test_an_attachment_brings_its_host(self, host: PreTrainedModel, memory: NgramMemory, sent) -> None:
        attachment = wake(attach(host, VOCABULARY, memory))
        twin = sent(attachment)
        assert attachment_of(twin.model) is twin
        assert torch.equal(logits_of(twin.model, IDS), logits_of(host, IDS))

    @pytest.mark.parametrize("make", [DynamicCache, lambda config: StaticCache(config, max_cache_len=16)])
    def test_a_filled_cache_goes_on(self, host: PreTrainedModel, memory: NgramMemory, sent, make) -> None:
        wake(attach(host, VOCABULARY, memory))
        cache = make(config=host.config)
        logits_of(host, IDS[:, :5], past_key_values=cache)
        twin, kept = sent((host, cache))
        rest = logits_of(host, IDS[:, 5:], past_key_values=cache)
        assert torch.equal(logits_of(twin, IDS[:, 5:], past_key_values=kept), rest)


@pytest.mark.slow
def test_another_process_computes_the_same(host: PreTrainedModel, memory: NgramMemory, tmp_path: Path) -> None:
    wake(attach(host, VOCABULARY, memory))
    torch.save((host, IDS, logits_of(host, IDS)), tmp_path / "model.pt")
    code = (
        "import sys, torch\n"
        "model, ids, expected = torch.load(sys.argv[1], weights_only=False)\n"
        "with torch.no_grad():\n"
        "    assert torch.equal(model(input_ids=ids).logits, expected)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "model.pt")], check=True, capture_output=True)


@pytest.mark.slow
def test_attachments_of_two_processes_never_pass_for_one_another(memory: NgramMemory) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from hosts import VOCABULARY, make_host, make_memory\n"
        "from tokagnostic.host import attach\n"
        "print(attach(make_host(), VOCABULARY, make_memory()).number)\n"
    )
    folder = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", code, folder], check=True, capture_output=True, text=True)
    own = [attach(make_host(), VOCABULARY, make_memory()).number for _ in range(2)]
    assert len({int(done.stdout), *own}) == 3


class TestAMemoryInAFile:
    ROWS = 40_000

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "memory.safetensors"
        save_memory(make_memory(num_rows=self.ROWS), path)
        return path

    @pytest.fixture
    def attachment(self, host: PreTrainedModel, file: Path) -> Attachment:
        return wake(attach(host, VOCABULARY, load_memory(file, HashCache.build(VOCABULARY))))

    def test_mapped_rows_are_named_and_not_copied(self, attachment: Attachment, file: Path) -> None:
        sent = pickle.dumps(attachment)
        assert len(sent) < file.stat().st_size / 2
        twin = pickle.loads(sent)
        assert twin.memory.is_as_in_file
        assert torch.equal(logits_of(twin.model, IDS), logits_of(attachment.model, IDS))
        assert twin.memory.hasher is twin.hasher

    @pytest.mark.parametrize("change", ["removed", "replaced", "trained"])
    def test_rows_that_are_in_no_file_any_more_are_copied(
        self, attachment: Attachment, file: Path, change: str
    ) -> None:
        if change == "removed":
            file.unlink()
        elif change == "replaced":
            save_memory(make_memory(num_rows=self.ROWS, seed=8), file)
        else:
            with torch.no_grad():
                attachment.memory.store.tables[0].mul_(2)
        sent = pickle.dumps(attachment)
        twin = pickle.loads(sent)
        assert torch.equal(logits_of(twin.model, IDS), logits_of(attachment.model, IDS))

    def test_a_file_that_has_gone_since_is_named(self, attachment: Attachment, file: Path) -> None:
        from tokagnostic.errors import TokagnosticError

        sent = pickle.dumps(attachment)
        save_memory(make_memory(num_rows=self.ROWS, seed=8), file)
        with pytest.raises(TokagnosticError, match=file.name):
            pickle.loads(sent)
        file.unlink()
        with pytest.raises(TokagnosticError, match=file.name):
            pickle.loads(sent)
