"""A trained attachment to a folder or the hub and back: bit for bit, or refused with the reason."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hosts import EOS, LEADING_SPACE_VOCABULARY, VOCABULARY, logits_of, make_host, make_memory, random_ids, wake
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from tokagnostic.errors import HostError, InvalidValueError, MemoryFileError, SourceError, TokagnosticError
from tokagnostic.hashing import HashCache
from tokagnostic.host import Attachment, attach, attachment_of
from tokagnostic.host.loading import load_attachment
from tokagnostic.host.saving import FILES
from tokagnostic.memory import NgramMemory
from tokagnostic.memory.file import load_memory, read_recipe, save_memory, verify_memory

IDS = random_ids(2, 11)


def train(host: nn.Module, attachment: Attachment, steps: int = 2) -> None:
    """Some updates of reader and table, and of nothing else."""
    dense = [parameter for parameter in attachment.reader.parameters() if parameter.requires_grad]
    optimizers = [torch.optim.AdamW(dense, lr=1e-2)]
    if not attachment.memory.frozen:
        optimizers.append(torch.optim.SparseAdam(list(attachment.memory.parameters()), lr=1e-2))
    host.train()
    for step in range(steps):
        ids = random_ids(2, 11, seed=step)
        host(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        host.zero_grad()
    host.eval()


def trained(memory: NgramMemory, **settings: Any) -> Attachment:
    """A host with a memory that is heard in every part."""
    host = make_host()
    attachment = wake(
        attach(host, LEADING_SPACE_VOCABULARY, memory, **{"layers": (0, 2), "conv_kernel": 4, **settings})
    )
    for layer in attachment.reader.values():
        for weight in (
            layer.key_norm.weight,
            layer.query_norm.weight,
            *(layer.conv.parameters() if layer.conv else ()),
        ):
            nn.init.normal_(weight)
    train(host, attachment)
    return attachment


def loaded(folder: Path | str, **arguments: Any) -> PreTrainedModel:
    host = make_host()
    load_attachment(host, LEADING_SPACE_VOCABULARY, folder, **arguments)
    return host


@pytest.fixture(scope="module")
def saved_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tensor]:
    attachment = trained(make_memory(), gate="signed_sqrt", boundary_ids=(EOS, 3), packed=True)
    folder = tmp_path_factory.mktemp("saved") / "attachment"
    attachment.save_pretrained(folder)
    return folder, logits_of(attachment.model, IDS)


@pytest.fixture
def saved(saved_once: tuple[Path, Tensor], tmp_path: Path) -> Path:
    """A folder that may be damaged."""
    import shutil

    return Path(shutil.copytree(saved_once[0], tmp_path / "copy"))


@pytest.fixture
def one_process() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


class TestRoundTrip:
    """M-14: one call saves, one call loads, and the outputs are the same bits."""

    def test_all_that_an_attachment_is(self, saved_once: tuple[Path, Tensor]) -> None:
        folder, expected = saved_once
        host = loaded(folder)
        attachment = attachment_of(host)
        assert torch.equal(logits_of(host, IDS), expected)
        assert not torch.equal(logits_of(make_host(), IDS), expected)
        assert (attachment.layers, attachment.gate, attachment.conv_kernel) == ((0, 2), "signed_sqrt", 4)
        assert (attachment.boundary_ids, attachment.packed) == ((EOS, 3), True)
        assert attachment.memory.frozen and attachment.memory.origin.path == folder / "memory.safetensors"
        assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)

    @pytest.mark.slow
    def test_in_another_process(self, saved_once: tuple[Path, Tensor], tmp_path: Path) -> None:
        """M-08: nothing that this process knows is needed."""
        folder, expected = saved_once
        save_file({"expected": expected}, tmp_path / "expected.safetensors")
        code = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "import torch\n"
            "from pathlib import Path\n"
            "from safetensors.torch import load_file\n"
            "from hosts import logits_of\n"
            "from test_saving import IDS, loaded\n"
            "expected = load_file(sys.argv[3])['expected']\n"
            "assert torch.equal(logits_of(loaded(Path(sys.argv[2])), IDS), expected)\n"
        )
        arguments = [str(Path(__file__).parent), str(folder), str(tmp_path / "expected.safetensors")]
        subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)

    @pytest.mark.parametrize(
        "state",
        [
            "plain",
            pytest.param("compiled", marks=pytest.mark.slow),
            pytest.param("compiled in place", marks=pytest.mark.slow),
            "data parallel",
            "lora on top",
            "lora below",
        ],
    )
    def test_from_every_state(self, state: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        """M-14: keys have no wrapper's prefix, and outputs are those of the wrapped host."""
        # Data-parallel training cannot exchange sparse gradients of a table.
        attachment = trained(make_memory().freeze() if state == "data parallel" else make_memory())
        host: Any = attachment.model
        if state == "compiled":
            host = torch.compile(host, backend="eager")
        elif state == "compiled in place":
            host.compile(backend="eager")
        elif state == "data parallel":
            request.getfixturevalue("one_process")
            host = nn.parallel.DistributedDataParallel(host)
        elif state.startswith("lora"):
            peft = pytest.importorskip("peft", reason="peft is not installed")
            if state == "lora below":
                attachment.remove()
            torch.manual_seed(5)
            # A fresh LoRA changes nothing, so that a host without it has the same outputs.
            host = peft.get_peft_model(host, peft.LoraConfig(target_modules=["q_proj", "v_proj"]))
            if state == "lora below":
                attachment = wake(attach(host, LEADING_SPACE_VOCABULARY, make_memory(), layers=(0, 2)))
            attachment.reader.requires_grad_(True)
        train(host, attachment)
        expected = logits_of(host, IDS)
        attachment.save_pretrained(tmp_path / "folder")
        names = load_file(tmp_path / "folder" / "reader.safetensors")
        assert {name.split(".")[0] for name in names} == {"0", "2"}
        assert torch.equal(logits_of(loaded(tmp_path / "folder"), IDS), expected)

    def test_saving_what_was_loaded_writes_the_same_bytes(self, saved: Path, tmp_path: Path) -> None:
        before = {path.name: path.read_bytes() for path in saved.iterdir()}
        attachment = attachment_of(loaded(saved))
        for folder in (saved, tmp_path / "elsewhere"):
            attachment.save_pretrained(folder)
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    def test_a_reader_in_half_precision_goes_on_in_it(self, dtype: torch.dtype, tmp_path: Path) -> None:
        attachment = trained(make_memory())
        attachment.reader.to(dtype)
        expected = logits_of(attachment.model, IDS)
        attachment.save_pretrained(tmp_path)
        host = loaded(tmp_path)
        assert {parameter.dtype for parameter in attachment_of(host).reader.parameters()} == {dtype}
        assert torch.equal(logits_of(host, IDS), expected)

    def test_a_loaded_reader_can_be_trained_on(self, saved: Path) -> None:
        host = loaded(saved)
        attachment = attachment_of(host)
        before, rows = copy.deepcopy(attachment.reader.state_dict()), copy.deepcopy(attachment.memory.state_dict())
        attachment.packed = False
        train(host, attachment)
        assert not any(torch.equal(value, before[name]) for name, value in attachment.reader.state_dict().items())
        assert all(torch.equal(value, rows[name]) for name, value in attachment.memory.state_dict().items())


class TestMemoryFile:
    """The memory is copied, left where it is, or written anew: never another one."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        save_memory(make_memory(), tmp_path / "exported.safetensors", "bf16", trained_on={"text": "a | b"})
        return tmp_path / "exported.safetensors"

    def frozen(self, file: Path) -> Attachment:
        return trained(load_memory(file, HashCache.build(VOCABULARY)))

    def test_the_file_that_a_memory_was_loaded_from_is_copied(self, file: Path, tmp_path: Path) -> None:
        self.frozen(file).save_pretrained(tmp_path / "folder")
        assert (tmp_path / "folder" / "memory.safetensors").read_bytes() == file.read_bytes()

    def test_rows_that_were_damaged_since_are_found_where_asked(self, file: Path, tmp_path: Path) -> None:
        self.frozen(file).save_pretrained(tmp_path / "folder")
        copy = tmp_path / "folder" / "memory.safetensors"
        content = bytearray(copy.read_bytes())
        content[-100] ^= 0x40
        copy.write_bytes(content)
        with pytest.raises(MemoryFileError):
            loaded(tmp_path / "folder", verify=True)

    def test_or_left_where_it_is(self, file: Path, tmp_path: Path) -> None:
        attachment = self.frozen(file)
        attachment.save_pretrained(tmp_path / "folder", copy_memory=False)
        assert not (tmp_path / "folder" / "memory.safetensors").exists()
        host = loaded(tmp_path / "folder")
        assert torch.equal(logits_of(host, IDS), logits_of(attachment.model, IDS))
        assert attachment_of(host).memory.origin.path == file
        moved = file.rename(tmp_path / "moved.safetensors")
        with pytest.raises(SourceError, match=r"exported.safetensors; .* Name the file with memory_file"):
            loaded(tmp_path / "folder")
        assert torch.equal(
            logits_of(loaded(tmp_path / "folder", memory_file=moved), IDS), logits_of(attachment.model, IDS)
        )

    def test_a_trained_table_is_written_anew(self, file: Path, tmp_path: Path) -> None:
        attachment = trained(load_memory(file, HashCache.build(VOCABULARY), trainable=True))
        attachment.save_pretrained(tmp_path / "folder")
        stored = load_file(tmp_path / "folder" / "memory.safetensors")["table.0"]
        assert torch.equal(stored, attachment.memory.store.tables[0].detach())
        verify_memory(tmp_path / "folder" / "memory.safetensors")

    def test_a_table_that_was_frozen_when_loaded_and_has_changed_since_is_written_anew(self, tmp_path: Path) -> None:
        save_memory(make_memory(), tmp_path / "exported.safetensors")
        memory = load_memory(tmp_path / "exported.safetensors", HashCache.build(VOCABULARY), mapped=False)
        attachment = trained(memory.requires_grad_(True))
        memory.freeze()
        with pytest.raises(InvalidValueError, match="holds other rows"):
            attachment.save_pretrained(tmp_path / "folder", tmp_path / "exported.safetensors")
        attachment.save_pretrained(tmp_path / "folder")
        assert read_recipe(tmp_path / "folder" / "memory.safetensors").identity != memory.origin.identity
        assert torch.equal(logits_of(loaded(tmp_path / "folder"), IDS), logits_of(attachment.model, IDS))

    def test_a_trained_table_is_not_taken_for_the_file_it_came_from(self, file: Path, tmp_path: Path) -> None:
        attachment = trained(load_memory(file, HashCache.build(VOCABULARY), trainable=True))
        with pytest.raises(InvalidValueError, match="holds other rows than the attached memory"):
            attachment.save_pretrained(tmp_path / "folder", file)
        with pytest.raises(InvalidValueError, match="copy_memory=False for a memory whose rows are in no file"):
            attachment.save_pretrained(tmp_path / "folder", copy_memory=False)
        assert not (tmp_path / "folder").exists()

    def test_a_file_that_the_trained_table_was_saved_to_is_taken(self, file: Path, tmp_path: Path) -> None:
        attachment = trained(make_memory())
        save_memory(attachment.memory, tmp_path / "own.safetensors", trained_on={"text": "mine"})
        attachment.save_pretrained(tmp_path / "folder", tmp_path / "own.safetensors")
        assert read_recipe(tmp_path / "folder" / "memory.safetensors").trained_on == {"text": "mine"}
        assert torch.equal(logits_of(loaded(tmp_path / "folder"), IDS), logits_of(attachment.model, IDS))

    def test_a_file_that_was_replaced_since_it_was_loaded_is_noticed(self, file: Path, tmp_path: Path) -> None:
        attachment = self.frozen(file)
        save_memory(make_memory(seed=8), file)
        with pytest.raises(InvalidValueError, match="holds other rows"):
            attachment.save_pretrained(tmp_path / "folder")

    def test_one_table_of_two_layers_is_stored_once(self, tmp_path: Path) -> None:
        """M-08: by name, and by the size of the file."""
        attachment = trained(make_memory(num_rows=5_003))
        attachment.save_pretrained(tmp_path)
        assert set(load_file(tmp_path / "memory.safetensors")) == {"table.0", "visits.0"}
        table = attachment.memory.store.tables[0]
        least = table.numel() * 4 + len(table) * 4
        assert least < (tmp_path / "memory.safetensors").stat().st_size < 1.2 * least
        assert not any("table" in name for name in load_file(tmp_path / "reader.safetensors"))

    def test_a_table_per_layer_is_read_by_its_layer_again(self, tmp_path: Path) -> None:
        attachment = trained(make_memory(num_tables=2))
        attachment.save_pretrained(tmp_path)
        assert [table.layers for table in read_recipe(tmp_path / "memory.safetensors").tables] == [(0,), (2,)]
        assert torch.equal(logits_of(loaded(tmp_path), IDS), logits_of(attachment.model, IDS))

    @pytest.mark.parametrize("cast", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_rows_keep_the_dtype_of_their_file_whatever_the_hosts(self, file: Path, cast: torch.dtype) -> None:
        """M-26: the table in memory has the digest of the file; only what is looked up is cast."""
        memory = load_memory(file, HashCache.build(VOCABULARY))
        host = make_host().to(cast)
        wake(attach(host, VOCABULARY, memory))
        (table,) = memory.store.tables
        where = table.data_ptr()
        assert logits_of(host, IDS).isfinite().all()
        host.to(torch.float32)
        assert (table.dtype, table.data_ptr()) == (torch.bfloat16, where)
        assert torch.equal(table.detach(), load_file(file)["table.0"])

    def test_accelerate_saves_the_table_once_and_loads_it(self, tmp_path: Path) -> None:
        """M-08: the way of checkpoints, beside that of the attachment."""
        from accelerate.utils import save

        attachment = trained(make_memory(), layers=(0, 2))
        save(attachment.model.state_dict(), tmp_path / "state.safetensors", safe_serialization=True)
        names = [name for name in load_file(tmp_path / "state.safetensors") if "tables" in name]
        assert names == ["tokagnostic.memory.store.tables.0"]
        host = make_host()
        attach(host, LEADING_SPACE_VOCABULARY, make_memory(seed=9), layers=(0, 2), conv_kernel=4)
        assert not any(host.load_state_dict(load_file(tmp_path / "state.safetensors"), strict=False).unexpected_keys)
        assert torch.equal(logits_of(host, IDS), logits_of(attachment.model, IDS))


class TestHosts:
    """M-12: however the host came up, the hash arrays are built from the tokenizer and nothing is uninitialised."""

    @pytest.mark.parametrize("loading", [{}, {"low_cpu_mem_usage": True}, {"device_map": {"": "cpu"}}], ids=str)
    def test_a_host_loaded_by_transformers(
        self, saved_once: tuple[Path, Tensor], loading: dict[str, Any], tmp_path: Path
    ) -> None:
        folder, expected = saved_once
        make_host().save_pretrained(tmp_path)
        host = AutoModelForCausalLM.from_pretrained(tmp_path, **loading).eval()
        attachment = load_attachment(host, LEADING_SPACE_VOCABULARY, folder)
        assert attachment.hasher.cache.fingerprint == HashCache.build(LEADING_SPACE_VOCABULARY, 320).fingerprint
        torch.testing.assert_close(logits_of(host, IDS), expected, atol=1e-4, rtol=1e-4)

    def test_a_host_whose_layers_lie_on_disk(self, saved_once: tuple[Path, Tensor], tmp_path: Path) -> None:
        """Offloaded weights come in for each call; the reader stands where the layer computes."""
        folder, expected = saved_once
        make_host().save_pretrained(tmp_path / "host")
        places = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"}
        places |= {"model.layers.2": "disk", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
        host = AutoModelForCausalLM.from_pretrained(
            tmp_path / "host", device_map=places, offload_folder=tmp_path / "offload"
        ).eval()
        assert next(host.model.layers[2].parameters()).is_meta
        load_attachment(host, LEADING_SPACE_VOCABULARY, folder)
        torch.testing.assert_close(logits_of(host, IDS), expected, atol=1e-4, rtol=1e-4)

    def test_a_host_without_values_is_refused(self, saved_once: tuple[Path, Tensor]) -> None:
        with torch.device("meta"):
            host = make_host()
        memory = make_memory()
        with pytest.raises(HostError, match="meta device"):
            attach(host, VOCABULARY, memory)
        assert not memory.store.tables[0].is_meta
        assert attachment_of(host) is None


def test_a_host_of_another_class_is_told_of(
    saved_once: tuple[Path, Tensor], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = saved_once[0]
    load_attachment(make_host(), LEADING_SPACE_VOCABULARY, folder)
    assert "was trained in" not in caplog.text
    load_attachment(make_host("qwen2"), LEADING_SPACE_VOCABULARY, folder)
    assert f"The reader in {folder} was trained in a LlamaModel and is read in a Qwen2Model." in caplog.text
    older = json.loads((folder / "attachment.json").read_text())
    del older["host"]
    shutil.copytree(folder, tmp_path / "older")
    (tmp_path / "older" / "attachment.json").write_text(json.dumps(older))
    caplog.clear()
    load_attachment(make_host("qwen2"), LEADING_SPACE_VOCABULARY, tmp_path / "older")
    assert "was trained in" not in caplog.text


class TestRefusals:
    """Nothing is loaded that was not saved; a refused attachment leaves the host as it was."""

    def refused(self, folder: Path | str, error: type[TokagnosticError], message: str) -> None:
        host = make_host()
        before = type(host), list(host.state_dict())
        with pytest.raises(error, match=message) as caught:
            load_attachment(host, LEADING_SPACE_VOCABULARY, folder)
        assert "\n" not in str(caught.value)
        assert (type(host), list(host.state_dict())) == before

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda weights: weights.pop("2.key.weight"), r"has no 2.key.weight; expected 2.key.weight of shape"),
            (lambda weights: weights.pop("0.conv.weight"), "has no 0.conv.weight"),
            (lambda weights: weights.update({"1.key.weight": torch.ones(2)}), "expected no 1.key.weight"),
            (lambda weights: weights.update({"module.0.key.weight": torch.ones(2)}), "expected no module.0.key"),
            (lambda weights: weights.update({"0.conv.weight": torch.ones(3, 64)}), r"shape \(3, 64\); .*\(4, 64\)"),
            (lambda weights: weights.update({"0.conv.weight": torch.ones(4, 64).int()}), "torch.int32"),
            (lambda weights: weights["0.key.weight"].normal_(), "another reader than"),
            (lambda weights: weights["0.key.weight"][0, 0].add_(1e-3), "another reader than"),
        ],
        ids=["less", "no conv", "more", "prefixed", "shorter conv", "whole numbers", "re-initialised", "changed"],
    )
    def test_a_reader_with_other_weights(
        self, saved: Path, change: Callable[[dict[str, Tensor]], object], message: str
    ) -> None:
        weights = load_file(saved / "reader.safetensors")
        change(weights)
        save_file(weights, saved / "reader.safetensors")
        self.refused(saved, HostError, message)

    @pytest.mark.parametrize(
        ("changes", "error", "message"),
        [
            ({"gate": "sigmoid"}, HostError, "another reader than"),
            ({"gate": "open"}, InvalidValueError, "gate 'open'"),
            ({"conv_kernel": 0}, HostError, "expected no 0.conv"),
            ({"conv_kernel": 5}, HostError, r"shape \(4, 64\); .*\(5, 64\)"),
            ({"conv_kernel": -1}, InvalidValueError, "conv_kernel = -1"),
            ({"layers": [0, 1]}, HostError, "has no 1.conv"),
            ({"max_order": 2}, HostError, "another reader than"),
            ({"boundary_ids": []}, HostError, "another reader than"),
            ({"width": 32}, HostError, "expected 0.conv.norm.weight of shape"),
            ({"feature_dim": 0}, InvalidValueError, "feature_dim = 0"),
            ({"memory": "0" * 64}, HostError, "another reader than"),
            ({"packed": 1}, SourceError, "packed = 1"),
            ({"boundary_ids": [True]}, SourceError, r"boundary_ids = \[True\]"),
            ({"version": 2}, SourceError, "version 2, this program reads version 1"),
        ],
        ids=str,
    )
    def test_settings_that_are_not_the_readers(
        self, saved: Path, changes: dict[str, Any], error: type[TokagnosticError], message: str
    ) -> None:
        config = json.loads((saved / "attachment.json").read_text())
        (saved / "attachment.json").write_text(json.dumps({**config, **changes}))
        self.refused(saved, error, message)

    @pytest.mark.parametrize("keep", [0, 7, 400, -1])
    def test_a_reader_that_was_cut_short(self, saved: Path, keep: int) -> None:
        file = saved / "reader.safetensors"
        file.write_bytes(file.read_bytes()[:keep])
        self.refused(saved, SourceError, "attachment .* cannot be read")

    def test_a_memory_that_was_cut_short(self, saved: Path) -> None:
        file = saved / "memory.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
        self.refused(saved, MemoryFileError, "memory.safetensors")

    def test_another_memory(self, saved: Path) -> None:
        save_memory(make_memory(seed=4), saved / "memory.safetensors")
        self.refused(saved, HostError, "which its reader was trained with")

    def test_a_memory_that_is_not_there(self, saved: Path) -> None:
        (saved / "memory.safetensors").unlink()
        self.refused(saved, SourceError, "without its memory")

    def test_a_host_that_has_a_memory(self, saved: Path) -> None:
        with pytest.raises(HostError, match="already"):
            load_attachment(attachment_of(loaded(saved)).model, LEADING_SPACE_VOCABULARY, saved)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            (name, value)
            for name in ("width", "feature_dim", "max_order", "conv_kernel")
            for value in (10**30, -1, 2**40)
        ]
        + [("layers", [10**30]), ("boundary_ids", [10**30]), ("reader", None), ("reader", 10**30)],
    )
    def test_a_size_that_nothing_has(self, saved: Path, field: str, value: object) -> None:
        settings = json.loads((saved / "attachment.json").read_text())
        (saved / "attachment.json").write_text(json.dumps({**settings, field: value}))
        with pytest.raises(TokagnosticError) as caught:
            loaded(saved)
        assert "\n" not in str(caught.value)

    def test_a_config_that_is_nested_too_deep(self, saved: Path) -> None:
        (saved / "attachment.json").write_text("[" * 100_000)
        self.refused(saved, SourceError, "cannot be read")

    def test_a_reader_that_something_has_wrapped_is_not_saved(self, tmp_path: Path) -> None:
        attachment = trained(make_memory())
        nn.utils.parametrizations.weight_norm(attachment.layer(0).key)
        with pytest.raises(HostError, match=r"has no 0.key.weight|has 0.key.parametrizations") as caught:
            attachment.save_pretrained(tmp_path / "folder")
        assert "wrapped" in caught.value.remedy
        assert not (tmp_path / "folder").exists()


class FakeHub:
    """What huggingface_hub does, in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[tuple[str, bool]] = []

    def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> None:
        assert exist_ok
        self.made.append((name, private))

    def upload_folder(self, *, repo_id: str, folder_path: Path, allow_patterns: list[str], commit_message: str) -> str:
        target = self.root / repo_id
        target.mkdir(parents=True)
        for name in allow_patterns:
            (target / name).write_bytes((folder_path / name).read_bytes())
        return f"hub/{repo_id}"

    def snapshot_download(self, name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        if not (self.root / name).exists():
            from huggingface_hub.errors import LocalEntryNotFoundError

            raise LocalEntryNotFoundError("Cannot find an appropriate cached snapshot folder\nand no connection.")
        return str(self.root / name)


class TestHub:
    @pytest.fixture
    def hub(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
        hub = FakeHub(tmp_path / "hub")
        monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
        monkeypatch.setattr("huggingface_hub.snapshot_download", hub.snapshot_download)
        return hub

    @pytest.mark.parametrize("private", [False, True])
    def test_what_is_pushed_is_loaded_by_its_name(self, hub: FakeHub, private: bool) -> None:
        attachment = trained(make_memory())
        assert attachment.push_to_hub("me/memory", private=private) == "hub/me/memory"
        assert hub.made == [("me/memory", private)]
        assert sorted(path.name for path in (hub.root / "me/memory").iterdir()) == sorted(FILES)
        assert torch.equal(logits_of(loaded("me/memory"), IDS), logits_of(attachment.model, IDS))

    @pytest.mark.parametrize("name", ["me/absent", "absent"])
    def test_a_name_that_cannot_be_fetched_is_one_line(self, hub: FakeHub, name: str) -> None:
        with pytest.raises(SourceError, match=f"attachment {name} is no folder here") as caught:
            loaded(name)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("name", ["/no/such/folder", "./folder", "a/b/c", "-x", "..", ""])
    def test_what_is_no_hub_name_is_not_asked_for(
        self, hub: FakeHub, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
        with pytest.raises(SourceError, match="cannot be read"):
            loaded(name)

    def test_a_path_from_the_hub_is_not_followed(self, hub: FakeHub, saved: Path, tmp_path: Path) -> None:
        elsewhere = (saved / "memory.safetensors").rename(tmp_path / "elsewhere.safetensors")
        config = json.loads((saved / "attachment.json").read_text())
        (saved / "attachment.json").write_text(json.dumps({**config, "memory_file": str(elsewhere)}))
        loaded(saved)
        saved.rename(hub.root.joinpath("x").parent.mkdir() or hub.root / "x")
        with pytest.raises(SourceError, match="without its memory"):
            loaded("x")
        loaded("x", memory_file=elsewhere)

    def test_a_hub_that_does_not_answer_is_one_line(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise ConnectionError("Max retries exceeded\nwith url")

        monkeypatch.setattr(hub, "create_repo", refuse)
        with pytest.raises(SourceError, match=r"attachment me/memory cannot be pushed .*with url") as caught:
            trained(make_memory()).push_to_hub("me/memory")
        assert "\n" not in str(caught.value)


def test_the_card_says_what_is_known_and_no_more(saved_once: tuple[Path, Tensor], tmp_path: Path) -> None:
    card = (saved_once[0] / "README.md").read_text()
    identity = read_recipe(saved_once[0] / "memory.safetensors").identity
    for fact in (
        "| Host | LlamaForCausalLM, width 64 |",
        "| Layers that read | 0, 2 |",
        "| Gate | signed_sqrt |",
        identity,
    ):
        assert fact in card
    assert card.startswith("---\nlibrary_name: tokagnostic\n") and "base_model" not in card
    attachment = trained(make_memory())
    attachment.model.config._name_or_path = "someone/model"
    save_memory(attachment.memory, tmp_path / "file.safetensors", trained_on={"data": "a | b\nc", "bytes": 7})
    attachment.save_pretrained(tmp_path, tmp_path / "file.safetensors")
    card = (tmp_path / "README.md").read_text()
    for fact in ('base_model: "someone/model"', "| Memory trained on: data | a \\| b c |", "trained on: bytes | 7 |"):
        assert fact in card


def test_trainable_parameters_are_printed_as_peft_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    host = make_host()
    host.requires_grad_(False)
    num_host = sum(parameter.numel() for parameter in host.parameters())
    attachment = attach(host, VOCABULARY, make_memory().freeze())
    attachment.print_trainable_parameters()
    num_reader = sum(parameter.numel() for parameter in attachment.reader.parameters())
    num_all = num_host + num_reader + attachment.memory.store.tables[0].numel()
    line = (
        f"trainable params: {num_reader:,} || all params: {num_all:,} || trainable%: {100 * num_reader / num_all:.4f}\n"
    )
    assert capsys.readouterr().out == line
