from __future__ import annotations

import pytest

from tokagnostic.studies.inspection import inspect_memory, inspect_tokenizer
from tokagnostic.studies.inspection_text import comparison_text, facts_text, quoted, tokenizer_text
from tokagnostic.studies.tokenizer_comparison import compare_tokenizers
from tokagnostic.tokens.encoder import TextEncoder


def test_facts_are_aligned_lines_with_groups_indented_and_no_python_in_them(finished) -> None:
    text = facts_text(inspect_memory(str(finished / "memory.safetensors"), verify=False))
    assert not {"{", "[", "'", "_"} & set(text)
    lines = text.splitlines()
    assert any(line.startswith("  num rows") and line.endswith(" 211") for line in lines)
    assert facts_text({"a": None, "long_name": [1, 2], "n": 12345, "flag": True}).splitlines() == [
        "a          -",
        "long name  1, 2",
        "n          12,345",
        "flag       True",
    ]


def test_a_tokenizer_is_a_page_of_lines(metaspace) -> None:
    encoder = TextEncoder.from_tokenizer(metaspace, "toy")
    num_duplicates = len(encoder.token_bytes.duplicates())
    lines = tokenizer_text(inspect_tokenizer(encoder)).splitlines()
    assert lines[0] == "tokenizer      toy"
    assert lines[1].startswith(f"ids            {len(encoder.token_bytes):,}: ")
    assert lines[2].startswith(f"duplicates     {num_duplicates} byte strings have several ids: ")
    assert lines[3:6] == [
        "without bytes  3 ids",
        '  special      2: "<s>", "</s>" (special or control tokens, which no text spells)',
        '  unknown      1: "<unk>" (what stands for all that the vocabulary cannot spell)',
    ]
    assert lines[-3:] == [
        "What it invents or destroys, each by the shortest text that shows it:",
        '  invents a leading space               "a" -> " a"',
        '  the mark for a space becomes a space  "▁" -> " "',
    ]
    assert len(lines) <= 15


def test_of_a_tokenizer_that_keeps_every_byte_nothing_is_shown(byte_level) -> None:
    text = tokenizer_text(inspect_tokenizer(byte_level))
    assert text.endswith("No text was found that it does not give back byte for byte.")
    assert "none: no two ids have equal bytes" in text


def test_what_is_lost_whole_is_called_nothing(wordpiece) -> None:
    assert 'invisible characters vanish                        "\\x00" -> nothing' in tokenizer_text(
        inspect_tokenizer(wordpiece)
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", '"a b"'),
        ('"\\', '"\\"\\\\"'),
        ("\n\t\x00\u2028", '"\\n\\t\\x00\\u2028"'),
        ("e\u0301\u2126", '"e\\u0301\\u2126"'),
        ("日é▁😀", '"日é▁😀"'),
        ("\xa0\ufeff", '"\\xa0\\ufeff"'),
        ("a" * 61, f'"{"a" * 57}..."'),
    ],
    ids=ascii,
)
def test_a_quoted_text_hides_nothing(text: str, shown: str) -> None:
    assert quoted(text) == shown


def test_a_comparison_is_two_tables_and_a_verdict(byte_level, metaspace) -> None:
    sides = [TextEncoder.from_tokenizer(tokenizer, name) for tokenizer, name in ((byte_level, "a"), (metaspace, "b"))]
    comparison = compare_tokenizers(*sides, ["the river", "stone"])
    lines = comparison_text(comparison).splitlines()
    assert lines[0] == "text: 2 documents, 14 bytes, 3 words"
    assert lines[2].split() == ["a", "b"]
    shared = comparison["shared"]["bytes"]
    assert [line.split() for line in lines if line.startswith("tokens, as bytes")] == [
        [
            *("tokens,", "as", "bytes", str(shared["num_shared"])),
            *(word for whole in ("first", "second", "union") for word in (f"{shared[f'percent_of_{whole}']:.1f}", "%")),
        ]
    ]
    assert lines[-2] == "cut points in 2 documents"
    assert lines[-1].startswith("different byte tables; ")
    same = comparison_text(compare_tokenizers(sides[0], sides[0], ["a"]))
    assert same.splitlines()[-1].startswith("equal byte tables; the same tokens of every document")


def test_a_comparison_says_what_was_left_out_and_a_share_of_nothing_is_a_dash(byte_level, wordpiece) -> None:
    text = comparison_text(compare_tokenizers(byte_level, wordpiece, ["The River"]))
    assert "cut points in 0 documents, 1 left out" in text
    assert text.count("  -") == 3
