"""From a name to an encoder, and one line for every way it can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from tokagnostic.errors import SourceError, TokenizerError
from tokagnostic.tokens import sources
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer


@pytest.fixture
def tokenizer_file(metaspace: Tokenizer, tmp_path: Path) -> Path:
    path = tmp_path / "toy" / "tokenizer.json"
    path.parent.mkdir()
    metaspace.save(str(path))
    return path


@pytest.fixture
def config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tokenizers_cfg"
    folder.mkdir()
    monkeypatch.setattr(sources, "CONFIG_FOLDERS", (folder,))
    return folder


def refusal(spec: str) -> str:
    with pytest.raises(SourceError) as caught:
        load_tokenizer(spec)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("form", ["file:{file}", "{file}", "{folder}", "file:{folder}"])
def test_a_file_and_its_folder_are_the_same_tokenizer(metaspace: Tokenizer, tokenizer_file: Path, form: str) -> None:
    spec = form.format(file=tokenizer_file, folder=tokenizer_file.parent)
    encoder = load_tokenizer(spec)
    assert encoder.token_bytes.fingerprint == TextEncoder.of(metaspace).token_bytes.fingerprint
    assert encoder.name == spec


@pytest.mark.parametrize(
    ("config", "start"),
    [
        ({"bos_token": None, "eos_token": "</s>"}, "</s>"),
        ({"bos_token": {"content": "<s>", "special": True}, "eos_token": "</s>"}, "<s>"),
        ({"bos_token": "<absent>"}, "<s>"),
    ],
    ids=["eos", "bos as a record", "absent: by name"],
)
def test_the_config_beside_the_file_says_what_starts_a_document(
    metaspace: Tokenizer, tokenizer_file: Path, config: dict[str, object], start: str
) -> None:
    tokenizer_file.with_name("tokenizer_config.json").write_text(json.dumps(config))
    assert load_tokenizer(str(tokenizer_file.parent)).start_id == metaspace.token_to_id(start)


def test_a_name_stands_for_a_spec_and_a_fingerprint(tokenizer_file: Path, config_folder: Path) -> None:
    fingerprint = load_tokenizer(str(tokenizer_file)).token_bytes.fingerprint
    (config_folder / "toy.toml").write_text(f'spec = "file:../toy/tokenizer.json"\nfingerprint = "{fingerprint}"\n')
    encoder = load_tokenizer("toy")
    assert encoder.token_bytes.fingerprint == fingerprint
    assert encoder.name == "toy"


def test_another_fingerprint_is_refused(tokenizer_file: Path, config_folder: Path) -> None:
    (config_folder / "toy.toml").write_text('spec = "file:../toy"\nfingerprint = "00"\n')
    found = load_tokenizer(str(tokenizer_file)).token_bytes.fingerprint
    assert f"has the fingerprint {found}; expected 00" in refusal("toy")


@pytest.mark.parametrize(
    "text",
    [
        'spec = "toy"',
        "",
        'spec = "hf:a/b"\nrevision = "main"',
        "spec = 3",
        'spec = "file:x"\nfingerprint = 1',
        "spec =",
    ],
    ids=repr,
)
def test_a_damaged_description_is_named(config_folder: Path, text: str) -> None:
    (config_folder / "odd.toml").write_text(text)
    assert "odd.toml" in refusal("odd")


def test_an_unknown_name_lists_the_known_ones(config_folder: Path) -> None:
    for name in ("one", "two"):
        (config_folder / f"{name}.toml").write_text('spec = "hf:a/b"\n')
    message = refusal("three")
    assert message.startswith("tokenizer 'three'; expected hf:NAME, file:PATH, a path that exists")
    assert "or one of the names one, two. " in message
    assert "tokenizer ''" in refusal("")


def test_the_projects_own_names_are_found() -> None:
    message = refusal("no such tokenizer")
    assert all(name in message for name in ("gpt2", "llama2", "mistral-7b", "qwen3", "smollm2"))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{", "cannot be read as a tokenizer"),
        (b"\xff\xfe", "cannot be read as a tokenizer"),
        (b"[]", "cannot be read"),
    ],
    ids=["cut off", "not text", "not a tokenizer"],
)
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    message = refusal(str(path))
    assert str(path) in message
    assert complaint in message


def test_a_missing_file_and_a_folder_without_one_are_named(tmp_path: Path) -> None:
    assert "absent.json does not exist" in refusal(f"file:{tmp_path}/absent.json")
    assert "holds no tokenizer" in refusal(str(tmp_path))


def test_a_broken_config_beside_the_file_is_named(tokenizer_file: Path) -> None:
    tokenizer_file.with_name("tokenizer_config.json").write_text("{")
    assert "tokenizer_config.json cannot be read" in refusal(str(tokenizer_file))


class TestHub:
    def test_files_come_from_the_hub(
        self, metaspace: Tokenizer, tokenizer_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = []

        def download(name: str, file: str) -> str:
            asked.append((name, file))
            return str(tokenizer_file.with_name(file))

        monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
        tokenizer_file.with_name("tokenizer_config.json").write_text('{"eos_token": "</s>"}')
        encoder = load_tokenizer("hf:some/name")
        assert encoder.start_id == metaspace.token_to_id("</s>")
        assert encoder.name == "hf:some/name"
        assert asked == [("some/name", "tokenizer.json"), ("some/name", "tokenizer_config.json")]

    def test_a_repository_without_a_config_will_do(
        self, metaspace: Tokenizer, tokenizer_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from huggingface_hub.errors import EntryNotFoundError

        def download(name: str, file: str) -> str:
            if file != "tokenizer.json":
                raise EntryNotFoundError("404")
            return str(tokenizer_file)

        monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
        assert load_tokenizer("hf:some/name").start_id == metaspace.token_to_id("<s>")

    @pytest.mark.parametrize("failure", ["offline", "invalid name", "no file", "network"])
    def test_a_hub_that_does_not_answer_is_one_line(self, monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
        from huggingface_hub import errors

        error = {
            "offline": errors.LocalEntryNotFoundError("not\nhere"),
            "invalid name": errors.HFValidationError("bad id"),
            "no file": errors.EntryNotFoundError("404"),
            "network": ConnectionError("reset"),
        }[failure]

        def download(name: str, file: str) -> str:
            raise error

        monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
        message = refusal("hf:some/name")
        assert "hf:some/name" in message
        assert ("the hub does not answer" in message) == (failure == "offline")
        assert ("smollm2" in message) == (failure != "no file")


def test_a_description_is_read_by_its_path_too(tokenizer_file: Path, config_folder: Path) -> None:
    path = tokenizer_file.with_name("described.toml")
    path.write_text('spec = "file:tokenizer.json"\n')
    assert load_tokenizer(str(path)).name == "described"
    assert str(config_folder / "NAME.toml") in refusal("unheard of")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.gguf", b"", "expected a whole GGUF file"),
        ("broken.json", b"\n[[", "broken.json cannot be read as a tokenizer"),
        ("empty.tiktoken", b"", "expected a byte string in base64"),
    ],
    ids=["gguf", "json", "tiktoken"],
)
def test_a_file_that_begins_like_no_tokenizer_is_what_its_name_says(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    message = refusal(str(tmp_path / name))
    assert said in message and name in message


def test_a_file_that_cannot_be_read_is_named(tokenizer_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "open", fails)
    assert f"{tokenizer_file} cannot be read (Input/output error)" in refusal(str(tokenizer_file))


def test_an_id_that_would_take_gigabytes_is_refused(byte_level: Tokenizer, tmp_path: Path) -> None:
    content = json.loads(byte_level.to_str())
    content["model"]["vocab"]["zzz"] = 2**31
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=f"the id {2**31}; expected ids from 0 to {2**24 - 1}"):
        load_tokenizer(str(path))


def test_a_vocabulary_that_spells_nothing_is_refused(tmp_path: Path) -> None:
    """T-27: without a word about texts, which would not be at fault."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match="turns every probe text into ids without bytes"):
        load_tokenizer(str(tmp_path))
