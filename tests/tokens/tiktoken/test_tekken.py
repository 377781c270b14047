"""T-20: in a tekken.json ids are ranks moved up by the specials, and the declared size decides what there is."""

from __future__ import annotations

import json
import pickle
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokagnostic.errors import SourceError
from tokagnostic.tokens import TokenKind
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer

pytest.importorskip("tiktoken")

Content = dict[str, Any]


def token(rank: int, piece: bytes, text: str | None = None) -> Content:
    return {"rank": rank, "token_bytes": b64encode(piece).decode(), "token_str": text}


def special(rank: int, name: str) -> Content:
    return {"rank": rank, "token_str": name, "is_control": True}


def toy() -> Content:
    """Three specials out of order, four tokens of which one is no whole character, and room for three of them."""
    return {
        "config": {
            "pattern": r"\s+|\S+",
            "num_vocab_tokens": 4,
            "default_vocab_size": 6,
            "default_num_special_tokens": 3,
            "version": "v3",
        },
        "vocab": [token(0, b"a", "a"), token(1, b"\xe2\x80", "not this"), token(2, b" "), token(3, b"aa", "aa")],
        "special_tokens": [special(2, "</s>"), special(0, "<unk>"), special(1, "<s>")],
    }


def whole() -> Content:
    """Every byte and one merge; two specials of four are listed."""
    content = toy()
    content["config"] |= {"default_vocab_size": 4 + 257, "default_num_special_tokens": 4}
    content["vocab"] = [*(token(byte, bytes((byte,))) for byte in range(256)), token(256, b"ab")]
    content["special_tokens"] = [special(3, "</s>"), special(1, "<s>")]
    return content


def write(folder: Path, content: Any) -> Path:
    path = folder / "tekken.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_the_table_is_the_one_written_by_hand(tmp_path: Path) -> None:
    encoder = load_tokenizer(str(write(tmp_path, toy())))
    table = encoder.token_bytes
    assert [table[v] for v in range(len(table))] == [None, None, None, b"a", b"\xe2\x80", b" "]
    assert table.kinds.tolist() == [*(TokenKind.SPECIAL,) * 3, *(TokenKind.TEXT,) * 3]
    assert encoder.spellings() == ["<unk>", "<s>", "</s>", "a", "âĢ", "Ġ"]
    assert encoder.start_id == 1
    assert encoder.encode("a aa").tolist() == [3, 5, 3, 3]
    assert table.fidelity.level == "lossy"


def test_the_order_of_the_list_plays_no_part(tmp_path: Path) -> None:
    content = whole()
    first = load_tokenizer(str(write(tmp_path, content))).token_bytes.fingerprint
    content["vocab"].reverse()
    content["special_tokens"].reverse()
    assert load_tokenizer(str(write(tmp_path, content))).token_bytes.fingerprint == first


def test_specials_that_are_counted_and_not_listed_are_there(tmp_path: Path) -> None:
    encoder = load_tokenizer(str(write(tmp_path, whole())))
    assert encoder.spellings()[:5] == ["<SPECIAL_0>", "<s>", "<SPECIAL_2>", "</s>", "Ā"]
    assert encoder.encode("ab<s>").tolist() == [4 + 256, *(4 + byte for byte in b"<s>")]
    assert encoder.token_bytes.fidelity.line == "exact"


def test_a_file_without_a_list_of_specials_has_the_old_ones(tmp_path: Path) -> None:
    content = whole()
    del content["special_tokens"]
    content["config"] |= {"default_num_special_tokens": 1000, "default_vocab_size": 1000 + 257}
    encoder = load_tokenizer(str(write(tmp_path, content)))
    assert encoder.spellings()[:4] == ["<unk>", "<s>", "</s>", "[INST]"]
    assert encoder.spellings()[19:21] == ["[TOOL_CONTENT]", "<SPECIAL_20>"]
    assert encoder.encode("ab").tolist() == [1000 + 256]


def test_a_file_without_sizes_holds_what_it_holds(tmp_path: Path) -> None:
    content = toy()
    content["config"] = {"pattern": r"\s+|\S+"}
    assert len(load_tokenizer(str(write(tmp_path, content))).token_bytes) == 7


@pytest.mark.parametrize("start_id", [None, 3], ids=["by name", "given"])
def test_a_saved_folder_is_the_same_tokenizer(tmp_path: Path, start_id: int | None) -> None:
    loaded = load_tokenizer(str(write(tmp_path, whole())))
    encoder = TextEncoder(loaded.token_bytes, "toy", start_id or loaded.start_id, loaded._engine)
    encoder.save(tmp_path / "saved")
    again = load_tokenizer(str(tmp_path / "saved"))
    assert again.token_bytes.fingerprint == encoder.token_bytes.fingerprint
    assert again.start_id == encoder.start_id == (start_id or 1)
    assert again.spellings() == encoder.spellings()
    assert pickle.loads(pickle.dumps(again)).encode("ab \u20ac").tolist() == encoder.encode("ab \u20ac").tolist()


def without(*path: str) -> Callable[[Content], None]:
    def change(content: Content) -> None:
        for key in path[:-1]:
            content = content[key]
        del content[path[-1]]

    return change


def set_config(**values: Any) -> Callable[[Content], None]:
    return lambda content: content["config"].update(values)


def add(part: str, entry: Any) -> Callable[[Content], None]:
    return lambda content: content[part].append(entry)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (without("config"), "has no 'config'"),
        (without("config", "pattern"), "has no 'pattern'"),
        (without("vocab"), "has no 'vocab'"),
        (lambda content: content.update(config=5), "its config is 5"),
        (lambda content: content.update(special_tokens=7), "its special_tokens is 7"),
        (lambda content: content.update(vocab={"a": 1}), "its vocab is {'a': 1}"),
        (set_config(pattern=3), "the pattern is 3"),
        (set_config(default_vocab_size=8), "5 ranks are declared and 4 are there"),
        (set_config(default_vocab_size="many"), "is damaged"),
        (set_config(default_num_special_tokens=2), "3 specials have not names and ranks of their own from 0 to 1"),
        (set_config(default_num_special_tokens=1 << 40), "3 specials have not"),
        (add("vocab", token(3, b"b")), "two tokens have the same rank or the same bytes"),
        (add("vocab", {"rank": 4, "token_bytes": "?"}), "is damaged"),
        (add("vocab", {"rank": 4}), "has no 'token_bytes'"),
        (add("vocab", 4), "is damaged"),
        (add("special_tokens", special(2, "<x>")), "4 specials have not"),
        (add("special_tokens", special(3, "<s>")), "4 specials have not"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, change: Callable[[Content], None], fault: str) -> None:
    content = toy()
    change(content)
    path = write(tmp_path, content)
    with pytest.raises(SourceError) as caught:
        load_tokenizer(str(path))
    assert str(path) in str(caught.value)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, toy())
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SourceError, match="cannot be read"):
        load_tokenizer(str(path))


def test_kept_tokens_with_the_same_bytes_are_refused(tmp_path: Path) -> None:
    content = toy()
    content["vocab"][1] = token(1, b"a")
    with pytest.raises(SourceError, match="the same bytes"):
        load_tokenizer(str(write(tmp_path, content)))
