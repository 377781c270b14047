"""The text that every Python carries."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from tokagnostic.corpus import Corpus, CorpusConfig, documents_digest, embedded_documents, embedded_source


@pytest.fixture(scope="module")
def by_source() -> dict[str, bytes]:
    return {document.source: document.data for document in embedded_documents()}


@pytest.mark.slow
def test_documents_are_sorted_distinct_utf8_and_not_tiny() -> None:
    documents = embedded_documents()
    sources = [document.source for document in documents]
    assert sources == sorted(set(sources))
    assert len({document.data for document in documents}) == len(documents)
    assert all(len(document.data) >= 200 and document.text for document in documents)


def test_there_are_some_two_megabytes(by_source: dict[str, bytes]) -> None:
    assert 1_500_000 < sum(map(len, by_source.values())) < 4_000_000


def test_a_module_is_its_docstrings_in_the_order_of_the_file(by_source: dict[str, bytes]) -> None:
    import textwrap as module

    wrapper = module.TextWrapper
    docstrings = [module.__doc__, wrapper.__doc__, wrapper._munge_whitespace.__doc__, wrapper.wrap.__doc__]
    text = by_source["python:textwrap"].decode()
    places = [text.index(inspect.cleandoc(docstring)) for docstring in docstrings if docstring]
    assert len(places) == 4 and places == sorted(places)


def test_a_topic_of_the_help_is_a_document(by_source: dict[str, bytes]) -> None:
    from pydoc_data.topics import topics

    assert by_source["python:help:lambda"].decode() == topics["lambda"]


def test_tests_and_installed_packages_are_left_out(by_source: dict[str, bytes]) -> None:
    assert not [
        source for source in by_source if {"test", "tests", "site-packages", "idle_test"} & set(source.split("."))
    ]


def test_the_source_line_names_python_size_and_digest() -> None:
    documents = embedded_documents()
    line = embedded_source()
    assert ".".join(map(str, sys.version_info[:3])) in line
    assert f"{len(documents)} documents" in line and documents_digest(documents) in line


def test_the_corpus_named_embedded_is_the_same_text() -> None:
    assert list(Corpus(CorpusConfig())) == embedded_documents()


@pytest.mark.slow
def test_another_process_reads_the_same_and_imports_nothing_for_it() -> None:
    code = (
        "import sys; from tokagnostic.corpus import embedded_source; print(embedded_source()); "
        "print([name for name in ('this', 'antigravity', 'tkinter', 'pydoc_data.topics') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == f"{embedded_source()}\n[]\n"
