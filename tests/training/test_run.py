"""A finished run taken up again: loaded, exported, continued, and refused where it is not what was saved."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from setups import FIT, HOST, Setup
from torch import Tensor

from tokagnostic.errors import HostError, InvalidValueError, MemoryFileError, SourceError, TokagnosticError
from tokagnostic.hashing import HashCache
from tokagnostic.host.attach import attachment_of
from tokagnostic.host.loading import load_attachment
from tokagnostic.json_files import write_json
from tokagnostic.memory.file import load_memory, read_recipe, save_memory, verify_memory
from tokagnostic.training.export import export_memory
from tokagnostic.training.hosts import fresh_llama, load_host
from tokagnostic.training.run import (
    Run,
    continue_prompt,
    load_run,
    memory_file_of,
    read_metrics,
)

IDS = torch.randint(0, 250, (2, 13), generator=torch.Generator().manual_seed(1))


def fresh_host(setup: Setup, width: int = HOST.width) -> Any:
    return fresh_llama(dataclasses.replace(HOST, width=width), len(setup.encoder.token_bytes), FIT.block_length, 0)


def plain_host(setup: Setup) -> Any:
    """A host with the same parameters, without a memory."""
    host = fresh_host(setup)
    own = setup.model.state_dict()
    host.load_state_dict({name: own[name] for name in host.state_dict()})
    return host.eval()


@pytest.fixture(scope="module")
def trained(make_setup: Callable[..., Setup], tmp_path_factory: pytest.TempPathFactory) -> Setup:
    """A trained host with its memory. Do not change it."""
    setup = make_setup()
    setup.fit(tmp_path_factory.mktemp("metrics"))
    return setup


@pytest.fixture(scope="module")
def saved_once(trained: Setup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    file = folder / "exported.safetensors"
    save_memory(trained.memory, file, trained_on={"text": "three sentences"}, layers=(1,))
    trained.attachment.save_pretrained(folder / "attachment", file)
    return folder / "attachment"


@pytest.fixture
def saved(saved_once: Path, tmp_path: Path) -> Path:
    """The folder of a saved attachment."""
    return Path(shutil.copytree(saved_once, tmp_path / "attachment"))


@pytest.fixture
def run_folder(trained: Setup, saved: Path, tmp_path: Path) -> Path:
    """The folder of a finished run."""
    folder = tmp_path / "run"
    shutil.copytree(saved, folder / "attachment")
    plain_host(trained).save_pretrained(folder / "host")
    trained.encoder.save(folder / "tokenizer")
    write_json(folder / "result.json", {"steps": 8})
    return folder


class TestAttachment:
    def test_a_saved_attachment_gives_bit_equal_logits(self, trained: Setup, saved: Path) -> None:
        """M-14."""
        expected = trained.model(input_ids=IDS).logits
        host = plain_host(trained)
        assert not torch.equal(host(input_ids=IDS).logits, expected)
        attachment = load_attachment(host, trained.encoder, saved)
        assert torch.equal(host(input_ids=IDS).logits, expected)
        assert attachment.layers == (1,) and attachment.memory.frozen
        assert torch.equal(attachment.memory.visits[0].counts, trained.memory.visits[0].counts)

    @pytest.mark.parametrize("form", ["encoder", "bytes", "cache", "tokenizer"])
    def test_the_tokenizer_may_come_in_any_form(
        self, trained: Setup, saved: Path, form: str, byte_tokenizer: Any
    ) -> None:
        token_bytes = trained.encoder.token_bytes
        forms = {
            "encoder": trained.encoder,
            "bytes": token_bytes,
            "cache": HashCache.build(token_bytes),
            "tokenizer": byte_tokenizer,
        }
        host = plain_host(trained)
        load_attachment(host, forms[form], saved)
        assert torch.equal(host(input_ids=IDS).logits, trained.model(input_ids=IDS).logits)

    def test_it_can_be_saved_over_itself(self, trained: Setup, saved: Path) -> None:
        before = {path.name: path.read_bytes() for path in saved.iterdir()}
        host = plain_host(trained)
        attachment = load_attachment(host, trained.encoder, saved)
        attachment.save_pretrained(saved, saved / "memory.safetensors")
        assert {path.name: path.read_bytes() for path in saved.iterdir()} == before

    def test_a_reader_of_fewer_orders_is_loaded_as_one(
        self, make_setup: Callable[..., Setup], trained: Setup, saved: Path, tmp_path: Path
    ) -> None:
        from tokagnostic.host import attach

        cache = HashCache.build(trained.encoder.token_bytes)
        host = fresh_host(trained)
        memory = load_memory(saved / "memory.safetensors", cache, max_order=1)
        attach(host, cache, memory).save_pretrained(tmp_path / "low", saved / "memory.safetensors")
        assert load_attachment(fresh_host(trained), cache, tmp_path / "low").memory.max_order == 1

    @pytest.mark.parametrize("name", ["attachment.json", "reader.safetensors", "memory.safetensors"])
    def test_a_missing_file_is_refused(self, trained: Setup, saved: Path, name: str) -> None:
        (saved / name).unlink()
        self.refused(trained, saved, SourceError, name)

    @pytest.mark.parametrize("name", ["attachment.json", "reader.safetensors", "memory.safetensors"])
    def test_a_truncated_file_is_refused(self, trained: Setup, saved: Path, name: str) -> None:
        (saved / name).write_bytes((saved / name).read_bytes()[:-9])
        error = MemoryFileError if name.startswith("memory") else SourceError
        self.refused(trained, saved, error, "memory" if name.startswith("memory") else "attachment .* cannot be read")

    @pytest.mark.parametrize(
        "changes",
        [
            {"version": 2},
            {"version": None},
            {"layers": "1"},
            {"layers": 1},
            {"layers": [True]},
            {"max_order": "2"},
            {"gate": ["sigmoid"]},
            {"gate": "open"},
            {"layers": []},
            {"layers": [7]},
            {"max_order": 0},
        ],
        ids=str,
    )
    def test_wrong_values_are_refused(self, trained: Setup, saved: Path, changes: dict[str, Any]) -> None:
        config = json.loads((saved / "attachment.json").read_text())
        (saved / "attachment.json").write_text(json.dumps({**config, **changes}))
        self.refused(trained, saved, TokagnosticError, None)

    @pytest.mark.parametrize("text", ["[]", "{}", "null", '"layers"', "{", ""], ids=lambda text: text or "nothing")
    def test_wrong_json_is_refused(self, trained: Setup, saved: Path, text: str) -> None:
        (saved / "attachment.json").write_text(text)
        self.refused(trained, saved, SourceError, "attachment .* cannot be read")

    def test_another_memory_is_refused(self, make_setup: Callable[..., Setup], trained: Setup, saved: Path) -> None:
        save_memory(make_setup(seed=9).memory, saved / "memory.safetensors")
        self.refused(trained, saved, HostError, "which its reader was trained with")

    def test_a_host_of_another_width_is_refused(self, trained: Setup, saved: Path) -> None:
        self.refused(trained, saved, HostError, "of width 16; expected one of the host's width 24", width=24)

    @pytest.mark.parametrize("change", ["less", "more", "reshaped"])
    def test_a_reader_with_other_weights_is_refused(self, trained: Setup, saved: Path, change: str) -> None:
        file = saved / "reader.safetensors"
        weights = load_file(file)
        if change == "less":
            del weights["1.key.weight"]
        elif change == "more":
            weights["2.key.weight"] = torch.ones(2, 2)
        else:
            weights["1.key.weight"] = torch.ones(16, 3)
        save_file(weights, file)
        self.refused(trained, saved, HostError, "reader.safetensors has")

    def test_a_file_of_another_memory_is_not_saved(
        self, make_setup: Callable[..., Setup], trained: Setup, tmp_path: Path
    ) -> None:
        file = tmp_path / "other.safetensors"
        save_memory(make_setup(num_rows=101).memory, file)
        with pytest.raises(
            InvalidValueError, match=r"other.safetensors holds other rows than .* Save the attached memory"
        ):
            trained.attachment.save_pretrained(tmp_path / "folder", file)
        assert not (tmp_path / "folder").exists()

    @pytest.mark.parametrize("function", ["shutil.copyfile", "save_file", "Path.write_text"])
    def test_a_full_disk_leaves_nothing_under_a_final_name(
        self, trained: Setup, tmp_path: Path, function: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file, folder = tmp_path / "exported.safetensors", tmp_path / "full"
        save_memory(trained.memory, file)

        def refuse(*arguments: Any, **_: object) -> None:
            for path in arguments:
                if isinstance(path, Path) and path.parent == folder:
                    path.write_bytes(b"half")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(f"tokagnostic.host.saving.{function}", refuse)
        with pytest.raises(SourceError, match=r"attachment .* cannot be written .*No space left") as caught:
            trained.attachment.save_pretrained(folder, file)
        assert "\n" not in str(caught.value)
        done = {"shutil.copyfile": [], "save_file": ["memory.safetensors"]}
        expected = done.get(function, ["memory.safetensors", "reader.safetensors"])
        assert sorted(path.name for path in folder.iterdir()) == expected

    def refused(
        self, trained: Setup, saved: Path, error: type[TokagnosticError], message: str | None, width: int = HOST.width
    ) -> None:
        host = fresh_host(trained, width)
        with pytest.raises(error, match=message) as caught:
            load_attachment(host, trained.encoder, saved)
        assert "\n" not in str(caught.value) and attachment_of(host) is None


class TestLoading:
    def test_a_run_is_loaded_whole(self, trained: Setup, run_folder: Path) -> None:
        run = load_run(run_folder)
        assert torch.equal(run.model(input_ids=IDS).logits, trained.model(input_ids=IDS).logits)
        assert run.encoder.token_bytes.fingerprint == trained.encoder.token_bytes.fingerprint
        assert run.encoder.start_id == trained.encoder.start_id is not None
        assert run.attachment.attached and not run.model.training

    @pytest.mark.parametrize("missing", ["result.json", "host", "tokenizer", "attachment"])
    def test_what_is_missing_is_one_line(self, run_folder: Path, missing: str) -> None:
        path = run_folder / missing
        path.unlink() if path.is_file() else shutil.rmtree(path)
        with pytest.raises(SourceError) as caught:
            load_run(run_folder)
        assert "\n" not in str(caught.value)

    def test_a_folder_that_is_none_is_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match="holds no finished run"):
            load_run(tmp_path / "absent")

    def test_code_of_a_model_is_never_run(self, run_folder: Path) -> None:
        config = json.loads((run_folder / "host" / "config.json").read_text())
        automatic = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
        config = {**config, "model_type": "evil", "auto_map": automatic}
        (run_folder / "host" / "config.json").write_text(json.dumps(config))
        (run_folder / "host" / "evil.py").write_text("open('ran', 'w')\n")
        with pytest.raises(SourceError, match="code from a hub is never run"):
            load_host(str(run_folder / "host"))

    def test_metrics_are_read(self, tmp_path: Path) -> None:
        (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
        assert read_metrics(tmp_path) == [{"step": 1}, {"step": 2}]
        (tmp_path / "metrics.jsonl").write_text('{"step": 1')
        with pytest.raises(SourceError, match="metrics of a run"):
            read_metrics(tmp_path)
        with pytest.raises(SourceError):
            read_metrics(tmp_path / "absent")


class TestExport:
    @pytest.mark.parametrize(("row_format", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
    def test_the_memory_of_a_run_becomes_a_file_of_its_own(
        self, trained: Setup, run_folder: Path, tmp_path: Path, row_format: Any, dtype: torch.dtype
    ) -> None:
        file = tmp_path / "memory.safetensors"
        report = export_memory(run_folder, file, row_format).file
        verify_memory(file)
        recipe, source = read_recipe(file), read_recipe(memory_file_of(run_folder))
        assert (recipe.identity, recipe.row_format) == (report.identity, row_format)
        assert (recipe.identity == source.identity) == (row_format == "fp32")
        assert (recipe.config, recipe.tables, recipe.prefix) == (source.config, source.tables, source.prefix)
        assert recipe.tables[0].layers == (1,) and recipe.trained_on == {"text": "three sentences"}
        stored = load_file(file)
        assert torch.equal(stored["table.0"], trained.memory.store.tables[0].detach().to(dtype))
        assert torch.equal(stored["visits.0"].to(torch.int64), trained.memory.visits[0].counts)
        assert (report.max_rounding == 0) == (row_format == "fp32")

    def test_a_run_without_a_memory_is_one_line(self, run_folder: Path, tmp_path: Path) -> None:
        (run_folder / "attachment" / "memory.safetensors").unlink()
        with pytest.raises(SourceError, match="holds no memory"):
            export_memory(run_folder, tmp_path / "memory.safetensors", "fp32")

    def test_a_damaged_memory_is_refused_and_nothing_is_written(self, run_folder: Path, tmp_path: Path) -> None:
        file = memory_file_of(run_folder)
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(MemoryFileError, match="digest"):
            export_memory(run_folder, tmp_path / "memory.safetensors", "fp32")
        assert not (tmp_path / "memory.safetensors").exists()


class TestContinuing:
    @pytest.fixture
    def run(self, trained: Setup) -> Run:
        return Run(trained.model, trained.encoder, trained.attachment)

    def by_hand(self, run: Run, prompt: str, num_tokens: int) -> str:
        ids = [run.encoder.start_id, *run.encoder.encode(prompt).tolist()]
        for _ in range(num_tokens):
            logits: Tensor = run.model(input_ids=torch.tensor([ids]), use_cache=False).logits
            ids.append(int(logits[0, -1].argmax()))
        return run.encoder.token_bytes.join(ids).decode(errors="replace")

    @pytest.mark.parametrize("prompt", ["The r", "é", ""])
    def test_a_prompt_is_continued_with_the_most_likely_tokens_memory_on_and_off(self, run: Run, prompt: str) -> None:
        assert continue_prompt(run, prompt, 9) == self.by_hand(run, prompt, 9)
        with run.attachment.disabled():
            assert continue_prompt(run, prompt, 9) == self.by_hand(run, prompt, 9)

    def test_no_ordinary_token_ends_a_fresh_host(self, trained: Setup) -> None:
        """The ids that Llama's own vocabulary has for begin and end are bytes or words here."""
        settings = fresh_host(trained).generation_config
        assert (settings.bos_token_id, settings.eos_token_id) == (None, None)

    def test_an_empty_prompt_without_a_start_is_one_line(self, run: Run) -> None:
        run = dataclasses.replace(run, encoder=dataclasses.replace(run.encoder, start_id=None))
        with pytest.raises(InvalidValueError, match="an empty prompt under a tokenizer without a start token"):
            continue_prompt(run, "", 3)

    @pytest.mark.parametrize("num_tokens", [0, -1, 10_000])
    def test_no_tokens_and_more_than_there_are_positions_for_are_one_line(self, run: Run, num_tokens: int) -> None:
        with pytest.raises(InvalidValueError, match=f"{num_tokens} tokens to add to a prompt of"):
            continue_prompt(run, "a", num_tokens)


def test_a_json_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    write_json(tmp_path / "a" / "it.json", {"a": (1, 2)})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a" / "it.json", {"a": object()})
    assert json.loads((tmp_path / "a" / "it.json").read_text()) == {"a": [1, 2]}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["it.json"]
