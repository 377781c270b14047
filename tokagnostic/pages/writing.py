"""Results of overlap and inspection to one HTML file each: styles, script and data inside, nothing fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokagnostic.errors import InvalidValueError, MissingExtraError

TEMPLATES = Path(__file__).parent / "templates"
CAUSES = {
    "special": "no bytes there",
    "normalisation": "text rewritten",
    "prefix": "invented space",
    "more_tokens": "more tokens between",
    "cut_points": "no cut at an end",
}
"""What a cause of a miss is called on a page."""


def overlap_page(pairs: Sequence[Mapping[str, Any]], passages: Sequence[Mapping[str, Any]]) -> str:
    """Heat maps, misses by cause, and a passage with both tokenizers' cut points, for each pair.

    Args:
        pairs: results as `Overlap.to_dict` gives them.
        passages: for each pair what `studies.passage` makes of one of its documents.

    Raises:
        MissingExtraError: if jinja2 is not installed.
    """
    return _render("overlap.html.j2", pairs=list(zip(pairs, passages, strict=True)), causes=CAUSES)


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
    return _render("tokenizer.html.j2", reports=reports, comparison=comparison, passage=passage)


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
        partial.write_text(page, encoding="utf-8")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _render(template: str, **values: Any) -> str:
    return str(_environment().get_template(template).render(**values))


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
    environment.filters["percent"] = lambda share: "–" if share is None else f"{share:.1f}"
    environment.filters["visible"] = _visible
    return environment


def _visible(text: object) -> str:
    """A text whose blanks and control characters can be seen."""
    return "".join(_VISIBLE.get(c, c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in str(text))


_VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "\x00": "␀"}
