"""The names of special tokens turned into the id that starts a document, where nobody says which it is."""

from __future__ import annotations

from collections.abc import Mapping

START_NAMES = (
    *("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|begin▁of▁sentence|>", "[BOS]"),
    *("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<|end▁of▁sentence|>", "[EOS]"),
    *("[CLS]", "<cls>", "[SEP]", "<sep>"),
)
"""First match first: begin, else end, else classifier, else separator."""


def find_start_id(special: Mapping[str, int]) -> int | None:
    """The id of the first of `START_NAMES` that is there.

    Args:
        special: ids of the special tokens by name.
    """
    return next((special[name] for name in START_NAMES if name in special), None)
