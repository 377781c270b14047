"""Facts about tokenizers and memory files to aligned lines for people."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_LONGEST_SHOWN = 60


def facts_text(facts: Mapping[str, Any]) -> str:
    """Facts as aligned lines, one each; a group of facts is indented under its name."""
    return "\n".join(_lines(facts, ""))


def tokenizer_text(facts: Mapping[str, Any]) -> str:
    """What `inspect_tokenizer` found."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in facts["kinds"].items())
    longest = facts["longest_token"]
    lines: dict[str, Any] = {
        "tokenizer": facts["tokenizer"],
        "ids": f"{facts['num_ids']:,}: {kinds}",
        "duplicates": _duplicates(facts["duplicates"]),
        "without bytes": f"{facts['without_bytes']['num_ids']:,} ids",
        **{f"  {name}": _reason(reason) for name, reason in facts["without_bytes"]["reasons"].items()},
        "longest token": longest and f"{longest['num_bytes']} bytes: {_token(longest)}",
        "leading space": facts["prefix"]["in_words"],
        "start": facts["start"] and _token(facts["start"]),
        "fidelity": facts["fidelity"] and facts["fidelity"]["line"],
        "fingerprint": facts["fingerprint"],
    }
    if not facts["witnesses"]:
        return f"{facts_text(lines)}\n\nNo text was found that it does not give back byte for byte."
    shown = {witness["effect"]: _witness(witness) for witness in facts["witnesses"]}
    title = "What it invents or destroys, each by the shortest text that shows it:"
    return f"{facts_text(lines)}\n\n{title}\n{facts_text({f'  {name}': text for name, text in shown.items()})}"


def comparison_text(comparison: Mapping[str, Any]) -> str:
    """What `compare_tokenizers` found."""
    text, cuts, shared = comparison["text"], comparison["cuts"], comparison["shared"]
    first, second = comparison["first"], comparison["second"]
    rows = [
        ("", first["tokenizer"], second["tokenizer"]),
        *_pair("ids", "num_ids", first, second, ",d"),
        *_pair("byte strings", "num_byte_strings", first, second, ",d"),
        *_pair("their mean length", "mean_token_bytes", first, second, ".2f"),
        *_pair("tokens of the text", "num_tokens", first, second, ",d"),
        *_pair("  per byte", "tokens_per_byte", first, second, ".4f"),
        *_pair("  per word", "tokens_per_word", first, second, ".3f"),
        *_pair("  per 1000 characters", "tokens_per_1000_characters", first, second, ".1f"),
        *_pair("  their mean length", "bytes_per_token", first, second, ".2f"),
        *_pair("  unknown", "num_unknown", first, second, ",d"),
        *_pair("documents not exact", "num_lossy_documents", first, second, ",d"),
        ("cut points", f"{cuts['num_first']:,}", f"{cuts['num_second']:,}"),
    ]
    shares = [
        ("shared", "number", "of the first", "of the second", "of the union"),
        _share("tokens, as bytes", shared["bytes"]),
        _share("tokens, as strings", shared["strings"]),
        _share("cut points", cuts),
    ]
    left_out = f", {cuts['num_left_out']:,} left out that one of the two does not give back byte for byte"
    return "\n".join(
        (
            f"text: {text['num_documents']:,} documents, {text['num_bytes']:,} bytes, {text['num_words']:,} words",
            "",
            *_table(rows),
            "",
            *_table(shares),
            "",
            f"cut points in {cuts['num_documents']:,} documents{left_out if cuts['num_left_out'] else ''}",
            _verdict(comparison),
        )
    )


def quoted(text: str) -> str:
    """A text in quotes, with everything escaped that a terminal hides, merges or mistakes for something else."""
    short = text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
    return f'"{"".join(map(_escaped, short))}"'


def _escaped(c: str) -> str:
    if c in '"\\':
        return f"\\{c}"
    if c.isprintable() and unicodedata.category(c)[0] != "M" and unicodedata.normalize("NFC", c) == c:
        return c
    return c.encode("unicode_escape").decode()


def _bytes(data: bytes) -> str:
    try:
        return quoted(data.decode()) if data else "nothing"
    except UnicodeDecodeError:
        return f"bytes {data.hex(' ').upper()}"


def _token(token: Mapping[str, Any]) -> str:
    shown = token["spelling"] if token["text"] in (None, "") else token["text"]
    return f"{'no token' if shown is None else quoted(shown)} (id {token['id']:,})"


def _duplicates(duplicates: Mapping[str, Any]) -> str:
    if not duplicates["num_byte_strings"]:
        return "none: no two ids have equal bytes"
    examples = (
        f"{_bytes(bytes.fromhex(example['hex']))} ({', '.join(str(v) for v in example['ids'])})"
        for example in duplicates["examples"]
    )
    return f"{duplicates['num_byte_strings']:,} byte strings have several ids: {_listed(examples, duplicates)}"


def _reason(reason: Mapping[str, Any]) -> str:
    examples = (
        quoted(token["spelling"]) if token["spelling"] else f"id {token['id']:,}" for token in reason["examples"]
    )
    more = ", ..." if reason["num_ids"] > len(reason["examples"]) else ""
    return f"{reason['num_ids']:,}: {', '.join(examples)}{more} ({reason['why']})"


def _listed(examples: Iterator[str], duplicates: Mapping[str, Any]) -> str:
    more = ", ..." if duplicates["num_byte_strings"] > len(duplicates["examples"]) else ""
    return ", ".join(examples) + more


def _witness(witness: Mapping[str, Any]) -> str:
    joined, kept = (bytes.fromhex(witness[name]) for name in ("joined_hex", "kept_hex"))
    became = _bytes(kept if joined == bytes.fromhex(witness["source_hex"]) else joined)
    return f"{quoted(witness['text'])} -> {became}"


def _pair(
    name: str, key: str, first: Mapping[str, Any], second: Mapping[str, Any], form: str
) -> Iterator[tuple[str, str, str]]:
    yield name, _number(first[key], form), _number(second[key], form)


def _share(name: str, shared: Mapping[str, Any]) -> tuple[str, ...]:
    percents = (_number(shared[f"percent_of_{whole}"], ".1f", " %") for whole in ("first", "second", "union"))
    return name, f"{shared['num_shared']:,}", *percents


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"


def _verdict(comparison: Mapping[str, Any]) -> str:
    table = "equal byte tables" if comparison["same_table"] else "different byte tables"
    if comparison["same_windows"]:
        return f"{table}; the same tokens of every document, so the same windows, keys and rows"
    num_alike, num_documents = comparison["num_documents_alike"], comparison["text"]["num_documents"]
    return f"{table}; the same tokens, windows and keys of {num_alike:,} of {num_documents:,} documents"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        aligned = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join((f"{name:<{widths[0]}}", *aligned)).rstrip()


def _lines(facts: Mapping[str, Any], indent: str) -> Iterator[str]:
    width = max(map(len, facts), default=0)
    for key, value in facts.items():
        name = key.replace("_", " ")
        if isinstance(value, Mapping) and value:
            yield f"{indent}{name}"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{name:<{width}}  {_plain(value)}".rstrip()


def _plain(value: object) -> str:
    if value is None or value in ((), [], {}, ""):
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
