"""Documents to ids by this process and by others: the same ids in the same order, and no process left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from tokagnostic.corpus import Document
from tokagnostic.errors import CorpusError, TokenizerError, WorkerError
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.training.encoding import encode_documents

MEGABYTE = b"The council built a wall of river stone.\n" * 25_600


def numbered(documents: list[Document]) -> Iterator[tuple[Document, int]]:
    return ((document, i) for i, document in enumerate(documents))


class Refusing:
    """Encodes bytes, and refuses the text `no`, which it names by its place as a `TextEncoder` does."""

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        if "no" in texts:
            raise TokenizerError(f"document {texts.index('no')}: refused", expected="another", remedy="Change it")
        return [np.frombuffer(text.encode(), dtype=np.uint8) for text in texts]


def test_ids_come_in_order_with_what_came_with_the_document() -> None:
    documents = [Document(b"x" * (i % 3), f"a.txt:{i}") for i in range(9)]
    told: list[int] = []
    encoded = list(encode_documents(numbered(documents), Refusing(), progress=told.append))  # type: ignore[arg-type]
    assert [(one.source, one.num_bytes, one.after, len(one.ids)) for one in encoded] == [
        (f"a.txt:{i}", i % 3, i, i % 3) for i in range(9)
    ]
    assert sum(told) == 9


def test_a_refused_document_is_named_by_its_source() -> None:
    documents = [Document(b"yes", "a.jsonl:1"), Document(b"no", "a.jsonl:2"), Document(b"yes", "a.jsonl:3")]
    with pytest.raises(TokenizerError, match=r"^a\.jsonl:2: refused; expected another\. Change it\.$"):
        list(encode_documents(numbered(documents), Refusing()))  # type: ignore[arg-type]


def test_several_processes_need_a_tokenizer_that_a_file_describes() -> None:
    class OnlyHere:
        def save(self, folder: Path) -> None:
            raise TokenizerError("a tokenizer without a file", expected="one", remedy="Use the fast one")

    told = r"^2 encoding processes: a tokenizer without a file; .*\. Set text\.processes to 0\. Use the fast one\.$"
    with pytest.raises(TokenizerError, match=told):
        list(encode_documents(numbered([Document(b"a", "a.txt")]), OnlyHere(), 2))  # type: ignore[arg-type]
    assert multiprocessing.active_children() == []


@pytest.mark.slow
class TestProcesses:
    @pytest.mark.parametrize("processes", [1, 2, 5])
    def test_they_give_the_ids_of_one_in_its_order(self, encoder: TextEncoder, processes: int) -> None:
        """Of more processes than batches too, of which some get nothing."""
        documents = [Document((b"%d " % i) * (i * 7919 % 90_000), str(i)) for i in range(30)] + [Document(b"", "30")]
        alone = list(encode_documents(numbered(documents), encoder))
        apart = list(encode_documents(numbered(documents), encoder, processes))
        assert [one.after for one in apart] == list(range(31))
        assert all(np.array_equal(one.ids, other.ids) for one, other in zip(alone, apart, strict=True))

    def test_bytes_that_are_no_text_are_named(self, encoder: TextEncoder) -> None:
        """D-01."""
        with pytest.raises(CorpusError, match=r"document a\.txt:2 breaks UTF-8"):
            list(encode_documents(numbered([Document(b"a", "a.txt:1"), Document(b"\xff", "a.txt:2")]), encoder, 1))

    def test_one_that_dies_is_one_line_with_the_documents_in_hand(self, encoder: TextEncoder) -> None:
        encoded = encode_documents(numbered([Document(MEGABYTE, f"a.jsonl:{i}") for i in range(1, 41)]), encoder, 2)
        with pytest.raises(
            WorkerError, match=r"one of 2 encoding processes died .*a\.jsonl:\d+ and a\.jsonl:"
        ) as caught:
            for i, _ in enumerate(encoded):
                if i == 3:
                    for child in multiprocessing.active_children():
                        os.kill(child.pid or 0, signal.SIGKILL)
        assert "\n" not in str(caught.value)
        assert multiprocessing.active_children() == []

    def test_a_stream_that_is_let_go_ends_its_processes(self, encoder: TextEncoder) -> None:
        encoded = encode_documents(numbered([Document(MEGABYTE, str(i)) for i in range(40)]), encoder, 2)
        next(encoded)
        assert len(multiprocessing.active_children()) > 0
        encoded.close()  # type: ignore[attr-defined]
        assert multiprocessing.active_children() == []

    @pytest.mark.parametrize("signal_of_end", [signal.SIGINT, signal.SIGKILL], ids=["interrupt", "kill"])
    def test_none_outlives_the_one_that_started_it(
        self, byte_tokenizer: Tokenizer, tmp_path: Path, signal_of_end: signal.Signals
    ) -> None:
        """An interrupt goes to the whole group, as from a keyboard; a kill to the first process alone."""
        byte_tokenizer.save(str(tmp_path / "tokenizer.json"))
        code = (
            "import itertools, multiprocessing, signal\n"
            # whoever runs the tests in the background may have had interrupts ignored
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from tokagnostic.corpus import Document\n"
            "from tokagnostic.tokens.sources import load_tokenizer\n"
            "from tokagnostic.training.encoding import encode_documents\n"
            f"encoder = load_tokenizer({str(tmp_path / 'tokenizer.json')!r})\n"
            "documents = ((Document(b'some words ' * 100_000, str(i)), i) for i in itertools.count())\n"
            "for document in encode_documents(documents, encoder, 2):\n"
            "    if document.after == 8:\n"
            "        print(*(child.pid for child in multiprocessing.active_children()), flush=True)\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        children = [int(pid) for pid in process.stdout.readline().split()]
        assert len(children) == 2
        if signal_of_end == signal.SIGINT:
            os.killpg(process.pid, signal_of_end)
        else:
            process.kill()
        try:
            errors = process.communicate(timeout=60)[1]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == -signal_of_end
        until = time.monotonic() + 20
        while any(alive(pid) for pid in children) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(alive(pid) for pid in children)
        assert errors.count("Traceback") == (1 if signal_of_end == signal.SIGINT else 0)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and whom nobody has asked for its exit status does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
