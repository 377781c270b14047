"""The English text that every CPython carries, read from its source files: docstrings and the topics of its help."""

from __future__ import annotations

import ast
import os
import platform
import sysconfig
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tokagnostic.corpus.document import Document, documents_digest
from tokagnostic.errors import SourceError

_MIN_BYTES = 200
_LEFT_OUT = {"site-packages", "dist-packages", "lib-dynload", "__pycache__", "test", "tests", "idle_test"}
_TOPICS = Path("pydoc_data/topics.py")


def embedded_documents() -> list[Document]:
    """One document per module of the standard library and one per topic of its help, sorted by source.

    A module's document is all its docstrings in the order of the file, cleaned as `inspect.cleandoc` does and joined
    by blank lines. Files are parsed, never imported. Tests, documents below 200 bytes, and documents equal to an
    earlier one are left out. The same Python gives the same documents.

    Raises:
        SourceError: if this Python carries no source files.
    """
    return list(_read_embedded())


def embedded_source() -> str:
    """The embedded text in one line: the Python that carries it, its size and its SHA-256 (`documents_digest`)."""
    documents = _read_embedded()
    num_bytes = sum(len(document.data) for document in documents)
    return (
        f"{platform.python_implementation()} {platform.python_version()}: {len(documents)} documents, "
        f"{num_bytes} bytes, sha256 {documents_digest(documents)}"
    )


@cache
def _read_embedded() -> tuple[Document, ...]:
    library = Path(sysconfig.get_path("stdlib"))
    texts = dict(_topics(library / _TOPICS))
    for path in _modules(library):
        name = ".".join(path.relative_to(library).with_suffix("").parts).removesuffix(".__init__")
        texts[f"python:{name}"] = "\n\n".join(_docstrings(path))
    # Keyed by bytes, so that of equal documents the first by name stays.
    unique = {text.encode("utf-8", "replace"): source for source, text in sorted(texts.items(), reverse=True)}
    documents = [Document(data, source) for data, source in unique.items() if len(data) >= _MIN_BYTES]
    if not documents:
        raise SourceError(
            f"the Python in {library} carries no source files",
            expected="a standard library with its .py files",
            remedy="Use another Python, or name files or a hub dataset as data",
        )
    return tuple(sorted(documents, key=lambda document: document.source))


def _modules(library: Path) -> Iterator[Path]:
    for folder, subfolders, files in os.walk(library):
        subfolders[:] = [name for name in subfolders if name not in _LEFT_OUT]
        for name in files:
            path = Path(folder, name)
            if path.suffix == ".py" and path.relative_to(library) != _TOPICS:
                yield path


def _docstrings(path: Path) -> list[str]:
    """The docstrings of a module, its classes and its functions, in the order of the file."""
    tree = _parse(path)
    if tree is None:
        return []
    owners = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = [(owner.body[0].lineno, text) for owner in owners if (text := ast.get_docstring(owner))]
    return [text for _, text in sorted(found)]


def _topics(path: Path) -> Iterator[tuple[str, str]]:
    """Source and text of each topic of `pydoc_data.topics`, from its dict literal."""
    tree = _parse(path)
    for node in tree.body if tree else []:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            for topic, text in ast.literal_eval(node.value).items():
                yield f"python:help:{topic}", text


def _parse(path: Path) -> ast.Module | None:
    """A file's syntax tree, or None where it cannot be read (a distribution may strip it or ship a template)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            return None
