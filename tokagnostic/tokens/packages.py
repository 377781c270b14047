"""The name of an installed package to the folder that it lies in, which may hold a tokenizer or a model."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tokagnostic.errors import SourceError

SCHEME = "package:"


def package_path(name: str) -> Path:
    """The folder of a package, or a file in it; nothing of the package is run.

    Args:
        name: `NAME`, or `NAME/FILE` for one of its files.

    Raises:
        SourceError: if no such package is installed, or it has no such file.
    """
    package, _, file = name.partition("/")
    # A name with dots would import the packages above it.
    spec = find_spec(package) if package.isidentifier() else None
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    if not folders:
        raise SourceError(
            f"package {package!r}, which is not installed",
            expected="an installed package that carries files, by the name that it is imported by",
            remedy="Install the package, or name the file itself",
        )
    path = Path(folders[0], file)
    if not path.exists():
        raise SourceError(
            f"package {package!r}, which carries no {file!r}",
            expected=f"a file in {folders[0]}",
            remedy="Check the name of the file, or leave it out",
        )
    return path
