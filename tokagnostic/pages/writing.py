"""Results of overlap and inspection to one HTML file each: styles, script and data inside, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokagnostic import __version__
from tokagnostic.errors import InvalidValueError, MissingExtraError
from tokagnostic.pages.charts import CAUSES, COUNTINGS, cause_bars, length_bars, share_tracks
from tokagnostic.pages.ramp import shade
from tokagnostic.pages.visible import visible, visible_name, visible_pieces

TEMPLATES = Path(__file__).parent / "templates"


def overlap_page(pairs: Sequence[Mapping[str, Any]], passages: Sequence[Mapping[str, Any]]) -> str:
    """Shares by order, a passage with both tokenizers' cut points, heat maps, and misses by cause, for each pair.

    Args:
        pairs: results as `Overlap.to_dict` gives them.
        passages: for each pair what `studies.passage` makes of one of its documents.

    Raises:
        MissingExtraError: if jinja2 is not installed.
    """
    charted = [
        {
            "result": pair,
            "names": _short_names(pair["target"], pair["reference"]),
            "tracks": share_tracks(pair),
            "bars": cause_bars(pair, "unique"),
            "passage": _passage_values(passage),
        }
        for pair, passage in zip(pairs, passages, strict=True)
    ]
    return _render("overlap.html.j2", pairs=charted, causes=CAUSES, countings=COUNTINGS)


def tokenizer_page(
    reports: Sequence[Mapping[str, Any]],
    comparison: Mapping[str, Any] | None = None,
    passage: Mapping[str, Any] | None = None,
) -> str:
    """What one tokenizer keeps, invents and destroys; of two also what they share, and a passage cut by both.

    Args:
        reports: as `inspect_tokenizer` gives them.
        comparison: as `compare_tokenizers` gives it.
        passage: as `studies.passage` gives it.

    Raises:
        MissingExtraError: if jinja2 is not installed.
    """
    return _render(
        "tokenizer.html.j2",
        reports=[{**report, "lengths": length_bars(report.get("num_ids_by_bytes", ()))} for report in reports],
        names=_short_names(*(report["tokenizer"] for report in reports)),
        comparison=comparison,
        passage=None if passage is None else _passage_values(passage),
    )


def check_page(path: str | None) -> None:
    """Refuse a page that cannot be made before the work is done that it shall show.

    Raises:
        InvalidValueError: if its name does not end in .html.
        MissingExtraError: if jinja2 is not installed.
    """
    if path is None:
        return
    if Path(path).suffix != ".html":
        raise InvalidValueError(f"page {path!r}", expected="a name that ends in .html", remedy="Choose such a name")
    _environment()


def write_page(path: str, page: str) -> None:
    """Write a page in one rename."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.write_text(page, encoding="utf-8", errors="backslashreplace")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _passage_values(passage: Mapping[str, Any]) -> dict[str, Any]:
    """A passage with short names, and with the visible text of every token and every window."""
    sides = ("target", "reference")
    names = _short_names(*(passage[side]["name"] or side for side in sides))
    values = dict(passage)
    for side, name in zip(sides, names, strict=True):
        tokens = passage[side]["tokens"]
        pieces = [bytes.fromhex(token["hex"]) for token in tokens]
        values[side] = {
            **passage[side],
            "name": name,
            "tokens": [
                {**token, "show": visible_pieces(piece), "spelling": visible(token["spelling"] or "")}
                for token, piece in zip(tokens, pieces, strict=True)
            ],
            "windows": [
                [
                    None if window is None else {**window, "show": visible_pieces(b"".join(pieces[t + 1 - n : t + 1]))}
                    for n, window in enumerate(windows, start=1)
                ]
                for t, windows in enumerate(passage[side]["windows"])
            ],
        }
    values["chunks"] = [
        {
            "target": range(first, stop),
            "reference": range(other_first, other_stop),
            # A line of the text ends a line of the passage.
            "ends_line": any("0a" in _pairs(passage["target"]["tokens"][t]["hex"]) for t in range(first, stop)),
        }
        for first, stop, other_first, other_stop in passage["chunks"]
    ]
    values["data"] = {
        "max_order": passage["max_order"],
        **{side: {name: values[side][name] for name in ("name", "tokens", "windows")} for side in sides},
    }
    return values


def _pairs(text: str) -> list[str]:
    return [text[i : i + 2] for i in range(0, len(text), 2)]


def _short_names(*names: str) -> tuple[str, ...]:
    """The last parts of paths and repositories, or the whole names where these are equal."""
    short = tuple(visible_name(name.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1] or name) for name in names)
    return short if len(set(short)) == len(short) else tuple(map(visible_name, names))


def _render(template: str, **values: Any) -> str:
    environment = _environment()
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("style.css", "passage.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment.get_template(template)
    return str(page.render(**values, style=style, script=script, script_digest=digest, version=__version__))


def _environment() -> Any:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("jinja2", extra="html", purpose="writing a page") from error
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,  # names and texts are a stranger's
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.filters |= _FILTERS
    return environment


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,}"


def _percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{share:.{digits}f}"


def _spaced(hex_digits: str) -> str:
    return " ".join(_pairs(hex_digits))


_FILTERS: dict[str, Callable[..., Any]] = {
    "number": _number,
    "percent": _percent,
    "shade": shade,
    "name": visible_name,
    "pieces": visible_pieces,
    "from_hex": bytes.fromhex,
    "hex_pairs": _spaced,
}
