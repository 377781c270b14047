from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tokagnostic.errors import MemoryFileError, SourceError
from tokagnostic.studies.inspection import facts_text, inspect_memory, inspect_tokenizer
from tokagnostic.tokens.encoder import TextEncoder


def saved(tokenizer: Tokenizer, folder: Path) -> str:
    TextEncoder.from_tokenizer(tokenizer).save(folder)
    return str(folder)


class TestTokenizer:
    def test_counts_ids_by_kind_and_they_add_up(self, toy_tokenizer, tmp_path) -> None:
        facts = inspect_tokenizer(saved(toy_tokenizer, tmp_path / "tokenizer"))
        by_kind = [count for name, count in facts.items() if name.startswith("ids of kind")]
        assert sum(by_kind) == facts["ids"] == toy_tokenizer.get_vocab_size()
        json.dumps(facts, allow_nan=False)

    def test_names_prefix_start_and_fidelity(self, metaspace, wordpiece, tmp_path) -> None:
        llama_like = inspect_tokenizer(saved(metaspace, tmp_path / "a"))
        assert llama_like["invented leading space"] == "always"
        assert llama_like["start id"] == metaspace.token_to_id("<s>")
        assert llama_like["fidelity"].startswith("exact")
        assert inspect_tokenizer(saved(wordpiece, tmp_path / "b"))["fidelity"].startswith("lossy")

    def test_counts_byte_strings_that_have_several_ids(self, metaspace, tmp_path) -> None:
        """T-06: `a` and `<0x61>`."""
        token_bytes = TextEncoder.of(metaspace).token_bytes
        facts = inspect_tokenizer(saved(metaspace, tmp_path / "tokenizer"))
        assert facts["byte strings with several ids"] == len(token_bytes.duplicates()) > 10


class TestMemory:
    def test_says_what_the_file_says_of_itself(self, finished) -> None:
        path = finished / "memory.safetensors"
        facts = inspect_memory(str(path), verify=True)
        assert facts["bytes"] == path.stat().st_size
        assert facts["config"]["num_rows"] == 211
        assert facts["trained at layers"] == [[1]]
        assert facts["digests"] == "verified"
        assert inspect_memory(str(path), verify=False)["digests"].startswith("not verified")
        json.dumps(facts, allow_nan=False)

    def test_a_wrong_digest_is_found_only_when_it_is_looked_for(self, finished, tmp_path) -> None:
        data = bytearray((finished / "memory.safetensors").read_bytes())
        data[-3] ^= 1
        (tmp_path / "memory.safetensors").write_bytes(data)
        assert inspect_memory(str(tmp_path / "memory.safetensors"), verify=False)
        with pytest.raises(MemoryFileError, match="digest"):
            inspect_memory(str(tmp_path / "memory.safetensors"), verify=True)

    def test_no_file(self, tmp_path) -> None:
        with pytest.raises(SourceError, match="cannot be opened"):
            inspect_memory(str(tmp_path / "memory.safetensors"), verify=False)


def test_facts_are_aligned_lines_with_groups_indented_and_no_python_in_them(finished) -> None:
    text = facts_text(inspect_memory(str(finished / "memory.safetensors"), verify=False))
    assert not {"{", "[", "'"} & set(text)
    lines = text.splitlines()
    assert any(line.startswith("  num_rows") and line.endswith(" 211") for line in lines)
    assert facts_text({"a": None, "long name": [1, 2], "n": 12345, "flag": True}).splitlines() == [
        "a          -",
        "long name  1, 2",
        "n          12,345",
        "flag       True",
    ]
