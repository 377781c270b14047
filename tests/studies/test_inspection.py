from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from tokagnostic.errors import MemoryFileError, SourceError
from tokagnostic.studies.inspection import inspect_memory, inspect_tokenizer
from tokagnostic.tokens.cutting import split_text
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.fidelity import Fidelity
from tokagnostic.tokens.token_bytes import TokenBytes, TokenKind


def saved(tokenizer: Tokenizer, folder: Path) -> str:
    TextEncoder.from_tokenizer(tokenizer).save(folder)
    return str(folder)


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


class SilentEngine:
    """Makes no id of any text, and spells its ids by their numbers, the last ones not at all."""

    parts = staticmethod(split_text)

    def __init__(self, num_spelled: int) -> None:
        self.num_spelled = num_spelled

    def encode(self, texts: list[str], *, follows: bool) -> list[Any]:
        return [np.zeros(0, dtype=np.int64) for _ in texts]

    def spellings(self) -> list[str | None]:
        return [f"#{v}" for v in range(self.num_spelled)]


class TestTokenizer:
    def test_counts_ids_by_kind_and_they_add_up(self, toy_tokenizer) -> None:
        facts = inspect_tokenizer(toy_tokenizer)
        assert sum(facts["kinds"].values()) == facts["num_ids"] == toy_tokenizer.get_vocab_size()
        assert facts["without_bytes"]["num_ids"] == sum(
            reason["num_ids"] for reason in facts["without_bytes"]["reasons"].values()
        )

    def test_is_plain_json_with_keys_for_programs(self, toy_tokenizer) -> None:
        facts = inspect_tokenizer(toy_tokenizer)
        assert json.loads(json.dumps(facts, allow_nan=False)) == facts
        assert [key for key in keys_of(facts) if not re.fullmatch(r"[a-z][a-z0-9_]*", key)] == []

    def test_a_spec_and_a_tokenizer_give_the_same_facts(self, metaspace, tmp_path) -> None:
        of_file, of_object = inspect_tokenizer(saved(metaspace, tmp_path / "a")), inspect_tokenizer(metaspace)
        assert {**of_file, "tokenizer": ""} == {**of_object, "tokenizer": ""}
        assert of_file["tokenizer"] == str(tmp_path / "a")

    def test_names_prefix_start_fidelity_and_fingerprint(self, metaspace, wordpiece) -> None:
        facts = inspect_tokenizer(metaspace)
        assert facts["prefix"]["rule"] == "always"
        assert facts["start"] == {"id": metaspace.token_to_id("<s>"), "spelling": "<s>", "hex": "", "text": ""}
        assert facts["fidelity"]["level"] == "exact"
        assert facts["fingerprint"] == TextEncoder.of(metaspace).token_bytes.fingerprint
        assert inspect_tokenizer(wordpiece)["fidelity"]["line"].startswith("lossy")

    def test_counts_byte_strings_that_have_several_ids(self, metaspace) -> None:
        """T-06: `a` and `<0x61>`."""
        groups = TextEncoder.of(metaspace).token_bytes.duplicates()
        duplicates = inspect_tokenizer(metaspace)["duplicates"]
        assert duplicates["num_byte_strings"] == len(groups) > 10
        assert duplicates["num_ids"] == sum(map(len, groups))
        [example, *_] = duplicates["examples"]
        byte, piece = example["spellings"]
        assert byte == f"<0x{example['hex'].upper()}>" and piece == bytes.fromhex(example["hex"]).decode()
        assert [metaspace.token_to_id(byte), metaspace.token_to_id(piece)] == example["ids"]

    def test_says_why_an_id_has_no_bytes(self) -> None:
        kinds = {
            None: [TokenKind.SPECIAL, TokenKind.UNKNOWN, TokenKind.HOLE, TokenKind.HOLE, TokenKind.UNREACHABLE],
            b"": [TokenKind.TEXT],
            b"abc": [TokenKind.TEXT],
            b"\xe6": [TokenKind.BYTE],
            b"s": [TokenKind.SPECIAL],
        }
        pairs = [(data, kind) for data, some in kinds.items() for kind in some]
        table = TokenBytes.from_list(
            [data for data, _ in pairs], kinds=[kind for _, kind in pairs], fidelity=Fidelity("exact")
        )
        facts = inspect_tokenizer(TextEncoder(table, "made up", None, SilentEngine(len(pairs) - 1)))
        assert facts["start"] is None
        assert facts["longest_token"] == {"id": 6, "spelling": "#6", "hex": "616263", "text": "abc", "num_bytes": 3}
        assert facts["without_bytes"]["num_ids"] == 6
        assert facts["num_ids_by_bytes"] == [6, 2, 0, 1]
        reasons = {
            name: (reason["num_ids"], [token["id"] for token in reason["examples"]])
            for name, reason in facts["without_bytes"]["reasons"].items()
        }
        assert reasons == {
            "special": (1, [0]),
            "unknown": (1, [1]),
            "hole": (2, [2, 3]),
            "unreachable": (1, [4]),
            "empty": (1, [5]),
        }

    def test_shows_witnesses_as_hex(self, unigram) -> None:
        """T-11: the ids are those of the text without its space."""
        witnesses = {witness["effect"]: witness for witness in inspect_tokenizer(unigram)["witnesses"]}
        assert witnesses["takes the text's own leading space for the invented one"] == {
            "effect": "takes the text's own leading space for the invented one",
            "text": " a",
            "source_hex": b" a".hex(),
            "joined_hex": b"a".hex(),
            "kept_hex": b" a".hex(),
            "ids": TextEncoder.of(unigram).encode("a").tolist(),
        }

    def test_a_run_is_told_where_its_tokenizer_and_its_memory_lie(self, byte_level, tmp_path) -> None:
        saved(byte_level, tmp_path / "run" / "tokenizer")
        run = str(tmp_path / "run")
        with pytest.raises(SourceError, match=r"is a run.*inspect .*run/tokenizer`.*export --run"):
            inspect_tokenizer(run)
        (tmp_path / "run" / "memory.safetensors").touch()
        with pytest.raises(SourceError, match=r"inspect .*run/tokenizer`.*inspect .*run/memory.safetensors`"):
            inspect_tokenizer(run)

    def test_no_tokenizer(self, tmp_path) -> None:
        with pytest.raises(SourceError, match="holds no tokenizer"):
            inspect_tokenizer(str(tmp_path))


class TestMemory:
    def test_says_what_the_file_says_of_itself(self, finished) -> None:
        path = finished / "memory.safetensors"
        facts = inspect_memory(str(path), verify=True)
        assert facts["num_bytes"] == path.stat().st_size
        assert facts["config"]["num_rows"] == 211
        assert facts["trained_at_layers"] == [[1]]
        assert facts["digests"] == "verified"
        assert inspect_memory(str(path), verify=False)["digests"].startswith("not verified")
        json.dumps(facts, allow_nan=False)
        assert [key for key in facts if not re.fullmatch(r"[a-z_]+", key)] == []

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
