"""From a file of text to a folder that holds host, tokenizer, reader and memory."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from setups import LINES, MEMORY, assert_equal, change, steps_of, weights_of
from transformers import AutoModelForCausalLM, AutoTokenizer

from tokagnostic.corpus import CorpusConfig
from tokagnostic.host import attachment_of
from tokagnostic.host.saving import FILES
from tokagnostic.memory.file import read_recipe, verify_memory
from tokagnostic.training import pretrain as module
from tokagnostic.training.config import AttachConfig, HostConfig, PretrainConfig
from tokagnostic.training.fit import fit
from tokagnostic.training.pretrain import pretrain
from tokagnostic.training.run import load_run


def kept(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class TestRun:
    def test_the_folder_holds_all_that_a_run_leaves(self, config: PretrainConfig) -> None:
        facts = pretrain(config)
        folder = Path(config.output)
        checkpoints = {
            f"checkpoints/step-0000000{step}/{file}" for step in (2, 4) for file in ("facts.json", "state.safetensors")
        }
        attachment = {f"attachment/{file}" for file in FILES}
        host = {f"host/{file}" for file in ("config.json", "generation_config.json", "model.safetensors")}
        tokenizer = {"tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"}
        plain = {"config.json", "metrics.jsonl", "result.json"}
        assert kept(folder) == checkpoints | attachment | host | tokenizer | plain
        assert json.loads((folder / "result.json").read_text()) == facts
        assert json.loads((folder / "config.json").read_text()) == json.loads(json.dumps(dataclasses.asdict(config)))
        assert (facts["documents"], facts["steps"], facts["tokens_seen"]) == (27, 4, 128)
        assert facts["bytes"] == sum(map(len, LINES)) and math.isfinite(facts["final_loss"])
        assert steps_of(folder) == [1, 2, 3, 4]

    @pytest.mark.parametrize("form", ["txt", "parquet"])
    def test_the_form_of_the_file_does_not_matter(
        self, config: PretrainConfig, source_run: Path, texts: dict[str, Path], form: str
    ) -> None:
        unit = "line" if form == "txt" else "whole"
        pretrain(change(config, corpus=CorpusConfig(data=(str(texts[form]),), documents=unit)))
        if form == "parquet":
            assert_equal(weights_of(Path(config.output)), weights_of(source_run))
        assert steps_of(Path(config.output)) == [1, 2, 3, 4]

    def test_equal_runs_leave_equal_memory_files(self, config: PretrainConfig, source_run: Path) -> None:
        pretrain(config)
        file = "attachment/memory.safetensors"
        assert (Path(config.output) / file).read_bytes() == (source_run / file).read_bytes()

    def test_what_is_loaded_computes_what_was_trained(
        self, config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """M-14: bit-equal logits, with the memory on and off."""
        trained: dict[str, Any] = {}

        def spy(model: Any, *arguments: Any, **named: Any) -> Any:
            result = fit(model, *arguments, **named)
            trained["on"] = model(input_ids=ids).logits
            with attachment_of(model).disabled():
                trained["off"] = model(input_ids=ids).logits
            return result

        ids = torch.randint(0, 250, (2, 13), generator=torch.Generator().manual_seed(1))
        monkeypatch.setattr(module, "fit", spy)
        pretrain(config)
        run = load_run(config.output)
        assert torch.equal(run.model(input_ids=ids).logits, trained["on"])
        assert not torch.equal(trained["on"], trained["off"])
        with run.attachment.disabled():
            assert torch.equal(run.model(input_ids=ids).logits, trained["off"])
        plain = AutoModelForCausalLM.from_pretrained(Path(config.output) / "host")
        assert torch.equal(plain(input_ids=ids).logits, trained["off"])

    def test_the_host_folder_is_plain(self, source_run: Path) -> None:
        names = load_file(source_run / "host" / "model.safetensors")
        assert not [name for name in names if "tokagnostic" in name]
        assert AutoTokenizer.from_pretrained(source_run / "tokenizer").bos_token == "<|endoftext|>"

    def test_the_memory_says_what_it_was_trained_on(self, source_run: Path) -> None:
        file = source_run / "attachment" / "memory.safetensors"
        verify_memory(file)
        recipe = read_recipe(file)
        trained_on = dict(recipe.trained_on or {})
        result = json.loads((source_run / "result.json").read_text())
        assert trained_on["tokenizer"]["fingerprint"] == load_run(source_run).encoder.token_bytes.fingerprint
        assert {name: result[name] for name in trained_on} == trained_on and "tokens_per_second" not in trained_on
        assert recipe.tables[0].layers == (1,) and recipe.config == MEMORY

    def test_progress_is_shown_while_encoding_and_while_training(
        self, config: PretrainConfig, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pretrain(config)
        shown = capsys.readouterr()
        assert "encode:" in shown.err and "B/s" in shown.err and "run: 100%" in shown.err and shown.out == ""

    def test_a_tokenizer_can_be_trained_on_the_text_itself(self, config: PretrainConfig, tmp_path: Path) -> None:
        outputs = [tmp_path / name for name in ("first", "second")]
        for output in outputs:
            facts = pretrain(change(config, tokenizer="bpe:300", output=str(output)))
            assert facts["tokenizer"]["name"] == "byte-level BPE, 300 ids"
        first, second = (load_run(output).encoder for output in outputs)
        assert len(first.token_bytes) == 300 and first.token_bytes.fingerprint == second.token_bytes.fingerprint
        assert len(first.encode(LINES[0])) < len(LINES[0].encode())
        assert (outputs[0] / "attachment/memory.safetensors").read_bytes() == (
            outputs[1] / "attachment/memory.safetensors"
        ).read_bytes()

    def test_layers_with_tables_of_their_own_say_so_in_the_file(self, config: PretrainConfig) -> None:
        pretrain(change(config, layers=(0, 1), memory=change(MEMORY, num_tables=2), gate="signed_sqrt"))
        recipe = read_recipe(Path(config.output) / "attachment" / "memory.safetensors")
        assert [table.layers for table in recipe.tables] == [(0,), (1,)]
        assert [layer.gate for layer in load_run(config.output).attachment.reader.values()] == ["signed_sqrt"] * 2


class TestAttach:
    def test_a_memory_is_read_frozen_under_another_tokenizer(self, attach_config: AttachConfig) -> None:
        before = Path(attach_config.memory_file or "").read_bytes()
        facts = pretrain(attach_config)
        folder = Path(attach_config.output)
        assert (folder / "attachment" / "memory.safetensors").read_bytes() == before
        assert Path(attach_config.memory_file or "").read_bytes() == before
        run = load_run(folder)
        assert run.attachment.memory.frozen and facts["steps"] == 4
        assert run.encoder.token_bytes.fingerprint == facts["tokenizer"]["fingerprint"]

    def test_the_reader_alone_is_trained_in_a_given_host(
        self, attach_config: AttachConfig, source_run: Path, tokenizer_file: Path
    ) -> None:
        host = source_run / "host"
        settings = change(
            attach_config, host=HostConfig(path=str(host)), tokenizer=str(tokenizer_file), train_host=False
        )
        pretrain(settings)
        saved = Path(settings.output)
        assert_equal(load_file(saved / "host" / "model.safetensors"), load_file(host / "model.safetensors"))
        assert load_file(saved / "attachment" / "reader.safetensors")["1.value.weight"].any()

    def test_a_host_in_half_precision_is_trained_in_fp32_and_left_alone_otherwise(
        self, attach_config: AttachConfig, source_run: Path, tokenizer_file: Path, tmp_path: Path
    ) -> None:
        """M-19."""
        half = tmp_path / "half"
        AutoModelForCausalLM.from_pretrained(source_run / "host").to(torch.bfloat16).save_pretrained(half)
        for trained, dtype in ((True, torch.float32), (False, torch.bfloat16)):
            output = tmp_path / f"trained {trained}"
            settings = change(attach_config, host=HostConfig(path=str(half)), tokenizer=str(tokenizer_file))
            pretrain(change(settings, train_host=trained, output=str(output)))
            assert {tensor.dtype for tensor in load_file(output / "host" / "model.safetensors").values()} == {dtype}

    @pytest.mark.parametrize("reading", ["random", "permuted", "order1"])
    def test_a_reading_for_comparison_is_read_in_the_memorys_place(
        self, attach_config: AttachConfig, reading: Any
    ) -> None:
        pretrain(change(attach_config, reading=reading))
        source = load_file(attach_config.memory_file or "")["table.0"]
        file = Path(attach_config.output) / "attachment" / "memory.safetensors"
        found, memory = load_file(file)["table.0"], load_run(attach_config.output).attachment.memory
        assert torch.equal(found, memory.store.tables[0])
        assert (memory.max_order, memory.frozen) == (1 if reading == "order1" else 2, True)
        lengths = [torch.linalg.vector_norm(rows, dim=1) for rows in (found, source)]
        if reading == "order1":
            assert torch.equal(found, source)
        elif reading == "random":
            torch.testing.assert_close(*lengths)
            assert not any(torch.equal(a, b) for a, b in zip(found, source, strict=True))
        else:
            assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, source.tolist()))
            assert not torch.equal(found, source)

    @pytest.mark.parametrize("reading", ["random", "permuted"])
    def test_rows_for_comparison_say_in_their_file_that_they_know_nothing(
        self, attach_config: AttachConfig, reading: Any
    ) -> None:
        pretrain(change(attach_config, reading=reading))
        trained_on = read_recipe(Path(attach_config.output) / "attachment" / "memory.safetensors").trained_on
        assert trained_on == {"nothing": f"{reading} rows for comparison", "of": attach_config.memory_file}

    def test_a_warm_start_trains_the_table_on(self, attach_config: AttachConfig) -> None:
        pretrain(change(attach_config, train_table=True))
        file = Path(attach_config.output) / "attachment" / "memory.safetensors"
        verify_memory(file)
        old, new = load_file(attach_config.memory_file or ""), load_file(file)
        changed = (old["table.0"] != new["table.0"]).any(dim=1)
        visited = new["visits.0"].to(torch.int64) != old["visits.0"].to(torch.int64)
        assert changed.any() and not (changed & ~visited).any() and not visited.all()

    def test_a_memory_of_the_policy_keep_is_read_by_that_policy(
        self, attach_config: AttachConfig, tmp_path: Path, other_tokenizer_file: Path
    ) -> None:
        from tokagnostic.hashing import HashCache
        from tokagnostic.memory.file import save_memory
        from tokagnostic.tokens.sources import load_tokenizer

        encoder = load_tokenizer(str(other_tokenizer_file))
        file = tmp_path / "keep.safetensors"
        save_memory(MEMORY.build(HashCache.build(encoder.token_bytes, prefix="keep")), file)
        pretrain(change(attach_config, memory_file=str(file)))
        assert load_run(attach_config.output).attachment.hasher.cache.policy == "keep"
