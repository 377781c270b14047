"""The README is true: its tree is the tree, and what it shows exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tokagnostic.cli import VERBS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN_WHOLE = ("tokagnostic", "scripts", "docs", "tokenizers_cfg")
"""Folders whose files the tree names one by one."""


def tree_of_the_readme() -> list[str]:
    """Paths of the tree, folders with a slash at their end."""
    paths, folders = [], [""]
    block = re.search(r"## The tree\n\n```text\n(.*?)```", README, re.DOTALL).group(1)
    for line in block.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        paths.append("".join(folders[: depth + 1]) + name)
        if name.endswith("/"):
            folders[depth + 1 :] = [name]
    return paths


def test_the_tree_in_the_readme_is_the_tree():
    shown = tree_of_the_readme()
    files = {path for path in shown if not path.endswith("/")}
    assert len(files) == len([path for path in shown if not path.endswith("/")]), "a file stands twice"
    missing = [path for path in shown if not (ROOT / path).exists()]
    assert missing == []
    there = {
        path.relative_to(ROOT).as_posix()
        for folder in SHOWN_WHOLE
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    inside = {path for path in files if path.split("/")[0] in SHOWN_WHOLE}
    assert inside == there


def test_every_file_of_the_tree_has_a_phrase():
    block = re.search(r"## The tree\n\n```text\n(.*?)```", README, re.DOTALL).group(1)
    assert [line for line in block.splitlines() if len(line.split()) < 2 and not line.endswith("/")] == []


@pytest.mark.parametrize("target", re.findall(r"\]\((?!https?:)([^)#]+)\)", README))
def test_what_the_readme_links_to_exists(target: str):
    assert (ROOT / target).exists()


@pytest.mark.parametrize("verb", sorted(set(re.findall(r"tokagnostic (\w+) --", README))))
def test_the_verbs_of_the_readme_are_verbs(verb: str):
    assert verb in VERBS


def test_the_readme_names_the_versions_that_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == ">=3.11"
    assert "Python 3.11 to 3.13" in README
