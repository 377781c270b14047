"""Bad input is one line, and leaves nothing behind that the next try would stumble over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from setups import RUN_FIT, assert_equal, change, weights_of
from tokenizers import Tokenizer

from tokagnostic.corpus import CorpusConfig
from tokagnostic.errors import (
    CorpusError,
    HostError,
    InvalidValueError,
    MemoryFileError,
    SourceError,
    TokagnosticError,
    TrainingError,
)
from tokagnostic.hashing import HashCache
from tokagnostic.memory import JointConfig, save_memory
from tokagnostic.tokens import TokenBytes
from tokagnostic.training.config import AttachConfig, HostConfig, PretrainConfig
from tokagnostic.training.pretrain import pretrain


def _two_tables(folder: Path) -> Path:
    cache = HashCache.build(TokenBytes.from_list([b"a"]))
    path = folder / "two.safetensors"
    save_memory(JointConfig(num_rows=5, num_heads=1, dim=2, num_tables=2).build(cache), path, layers=(0, 1))
    return path


def _damaged(memory_file: Path, folder: Path) -> Path:
    """A memory with one bit of one row turned over."""
    data = bytearray(memory_file.read_bytes())
    data[8 + int.from_bytes(data[:8], "little") + 3] ^= 0x80
    path = folder / "damaged.safetensors"
    path.write_bytes(data)
    return path


def _wrong(kind: str, folder: Path, attach_config: AttachConfig) -> dict[str, Any]:
    empty, short, model = folder / "empty.txt", folder / "short.txt", folder / "model"
    empty.write_text(" \n")
    short.write_text("short")
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "unheard-of"}')
    broken = folder / "broken.txt"
    broken.write_bytes(b"abc\xff" * 99)
    host = Path(attach_config.memory_file or "").parents[1] / "host"
    torn = folder / "torn"
    torn.mkdir()
    (torn / "config.json").write_bytes((host / "config.json").read_bytes())
    (torn / "model.safetensors").write_bytes((host / "model.safetensors").read_bytes()[:-100])
    return {
        "empty corpus": {"corpus": CorpusConfig(data=(str(empty),))},
        "short text": {"corpus": CorpusConfig(data=(str(short),))},
        "no such file": {"corpus": CorpusConfig(data=(str(folder / "absent.txt"),))},
        "broken UTF-8": {"corpus": CorpusConfig(data=(str(broken),))},
        "no such tokenizer": {"tokenizer": "unheard-of"},
        "broken tokenizer": {"tokenizer": str(model / "config.json")},
        "no such model": {"host": HostConfig(path=str(folder / "absent"))},
        "unknown model": {"host": HostConfig(path=str(model))},
        "torn model": {"host": HostConfig(path=str(torn))},
        "no such memory": {"memory_file": str(folder / "absent.safetensors")},
        "no memory": {"memory_file": str(host / "model.safetensors")},
        "no such layer": {"layers": (2,)},
        "uneven heads": {"host": HostConfig(width=17)},
        "two tables": {"memory_file": str(_two_tables(folder))},
        "damaged rows": {"memory_file": str(_damaged(Path(attach_config.memory_file or ""), folder))},
        "fp16 on a CPU": {"fit": change(RUN_FIT, precision="fp16")},
        "long blocks": {"host": HostConfig(path=str(host)), "fit": change(RUN_FIT, block_length=17)},
    }[kind]


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("empty corpus", CorpusError, "no document in .*empty.txt"),
        ("short text", TrainingError, "tokens in 1 documents; expected at least one block of 16 tokens"),
        ("no such file", SourceError, "absent.txt does not exist"),
        ("broken UTF-8", CorpusError, "broken.txt"),
        ("no such tokenizer", SourceError, "tokenizer 'unheard-of'"),
        ("broken tokenizer", SourceError, "config.json cannot be read as a tokenizer"),
        ("no such model", SourceError, "model .*absent' cannot be loaded"),
        ("unknown model", SourceError, "model .*model' cannot be loaded"),
        ("torn model", SourceError, "model .*torn' cannot be loaded"),
        ("no such memory", SourceError, "memory file .*absent.safetensors cannot be opened"),
        ("no memory", TokagnosticError, "model.safetensors"),
        ("no such layer", InvalidValueError, r"layers \[2\]"),
        ("uneven heads", InvalidValueError, "a host of width 17"),
        ("two tables", TrainingError, "1 layers for a memory of 2 tables"),
        ("damaged rows", MemoryFileError, "the tensor `table.0` has the digest"),
        ("fp16 on a CPU", TrainingError, "precision = 'fp16' on a CPU"),
        ("long blocks", TrainingError, "block_length = 17 for a host with a context of 16"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_bad_input_is_one_line_and_leaves_nothing(
    attach_config: AttachConfig,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    error: type[TokagnosticError],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tokenizer_file: Path,
) -> None:
    """Nothing is written, so that the next try into the same folder is not refused."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    wrong = {"tokenizer": str(tokenizer_file), **_wrong(kind, tmp_path_factory.mktemp("wrong"), attach_config)}
    with pytest.raises(error, match=message) as caught:
        pretrain(change(attach_config, **wrong))
    assert "\n" not in str(caught.value) and caught.value.remedy
    assert not Path(attach_config.output).exists()


def test_a_host_of_fewer_ids_than_the_tokenizer_is_refused(
    attach_config: AttachConfig, source_run: Path, toy_tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    larger = tmp_path / "larger.json"
    toy_tokenizers["metaspace"].save(str(larger))
    wrong = change(attach_config, host=HostConfig(path=str(source_run / "host")), tokenizer=str(larger))
    with pytest.raises(HostError, match="embedding rows"):
        pretrain(wrong)
    assert not Path(attach_config.output).exists()


def test_results_that_cannot_be_written_are_one_line_and_no_finished_run(
    config: PretrainConfig, monkeypatch: pytest.MonkeyPatch, source_run: Path
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("transformers.PreTrainedModel.save_pretrained", refuse)
        with pytest.raises(TrainingError, match=r"the results in .* could not be written .*add --resume"):
            pretrain(config)
    assert not (Path(config.output) / "result.json").exists()
    pretrain(change(config, resume=True))
    assert_equal(weights_of(Path(config.output)), weights_of(source_run))


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "host", "attachment"])
def test_files_that_no_run_has_written_are_not_replaced(config: PretrainConfig, name: str) -> None:
    theirs = Path(config.output) / name
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text("keep")
    with pytest.raises(TrainingError, match=f"holds {name}, which no run there has written"):
        pretrain(config)
    assert theirs.read_text() == "keep"
