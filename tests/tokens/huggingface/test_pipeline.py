"""Descriptions of tokenizers: what is built from one is what it describes, to the last bit."""

from __future__ import annotations

import json

import pytest
from tokenizers import AddedToken, Tokenizer, models

from tests.conftest import BUILDERS
from tokagnostic.errors import TokenizerError
from tokagnostic.tokens.huggingface.pipeline import load_description


@pytest.mark.parametrize("family", BUILDERS)
def test_a_copy_describes_itself_as_its_original(family: str) -> None:
    tokenizer = BUILDERS[family]()
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer.add_tokens(["zürich", AddedToken("two words", normalized=False, single_word=True)])
    description = json.loads(tokenizer.to_str())
    assert json.loads(load_description(description).to_str()) == description


def test_every_setting_of_a_model_reaches_the_copy() -> None:
    model = models.BPE(
        vocab={"a": 0, "b</w>": 1, "ab</w>": 2, "?": 3},
        merges=[("a", "b</w>")],
        dropout=0.25,
        unk_token="?",
        end_of_word_suffix="</w>",
        fuse_unk=True,
        ignore_merges=True,
    )
    description = json.loads(Tokenizer(model).to_str())
    assert json.loads(load_description(description).to_str()) == description


def test_a_merge_of_what_is_no_piece_is_refused() -> None:
    description = json.loads(Tokenizer(models.BPE(vocab={"a": 0}, merges=[])).to_str())
    description["model"]["merges"] = [["a", "b"]]
    with pytest.raises(TokenizerError, match="copying the tokenizer failed in the tokenizers library"):
        load_description(description)
