from __future__ import annotations

import json

import pytest

from tests.evaluation.naive_overlap import naive_corpus_overlap
from tests.evaluation.overlap_tokenizers import TEXT, byte_level, metaspace
from tokagnostic.cli import main
from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.evaluation.corpus_overlap.whole import forget_work, whole_corpus_overlaps, with_whole_corpus
from tokagnostic.evaluation.overlap import overlap_square
from tokagnostic.tokens.encoder import TextEncoder
from tokagnostic.tokens.sources import load_tokenizer


@pytest.fixture(scope="module")
def specs(tmp_path_factory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tokenizers")
    pairs = byte_level([(b"i", b"n"), (b" ", b" "), (b"in", b"t"), (b"e", b"r")])
    TextEncoder.from_tokenizer(metaspace(340)).save(folder / "metaspace")
    TextEncoder.from_tokenizer(pairs).save(folder / "pairs")
    return str(folder / "metaspace"), str(folder / "pairs")


@pytest.fixture
def text(tmp_path) -> str:
    path = tmp_path / "text.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in TEXT), encoding="utf-8")
    return str(path)


def test_every_pair_gets_its_shares_over_the_corpus(specs, text, tmp_path) -> None:
    corpus = Corpus(CorpusConfig(data=(text,)))
    square = overlap_square(corpus, specs, specs, 3)
    work = tmp_path / "work"
    whole = with_whole_corpus(square, whole_corpus_overlaps(corpus, specs, specs, 3, memory_mib=1, folder=work))
    for row, target in zip(whole.pairs, specs, strict=True):
        for pair, reference in zip(row, specs, strict=True):
            sides = load_tokenizer(target), load_tokenizer(reference)
            for shares, unique in zip(pair.corpus, (True, False), strict=True):
                assert shares.to_dict() == naive_corpus_overlap(TEXT, *sides, 3, unique=unique)
    assert not list(work.rglob("run-*"))
    forget_work(work)
    assert not work.exists()


def test_the_command_line_fills_in_the_corpus_beside_the_documents(specs, text, capsys) -> None:
    flags = ["overlap", "--target", specs[0], "--reference", specs[1], "--data", text, "--max-order", "3"]
    main([*flags, "--json"])
    alone = json.loads(capsys.readouterr().out)
    main([*flags, "--json", "--scope", "corpus", "--memory-mib", "1"])
    both = json.loads(capsys.readouterr().out)
    corpus = both.pop("corpus")
    assert both == alone
    sides = load_tokenizer(specs[0]), load_tokenizer(specs[1])
    for unique in (True, False):
        assert corpus["unique" if unique else "weighted"] == naive_corpus_overlap(TEXT, *sides, 3, unique=unique)
    main([*flags, "--scope", "corpus"])
    assert "the whole corpus as one document, unique any:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags",
    [("--scope", "corpus", "--memory-mib", "0"), ("--scope", "planet")],
    ids=["no memory", "no such scope"],
)
def test_what_cannot_be_counted_is_refused_before_anything_is(specs, flags, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tokagnostic.evaluation.overlap.overlap_square", None)
    monkeypatch.setattr("tokagnostic.evaluation.corpus_overlap.whole.whole_corpus_overlaps", None)
    with pytest.raises(SystemExit) as stop:
        main(["overlap", "--target", specs[0], "--reference", specs[1], "--data", "embedded", *flags])
    assert stop.value.code == 2
    assert capsys.readouterr().out == ""


class TestWorkFolder:
    def flags(self, specs, text, work) -> list[str]:
        sides = ["overlap", "--target", specs[0], "--reference", *specs, "--data", text, "--max-order", "3", "--json"]
        return [*sides, "--scope", "corpus", "--work-folder", str(work)]

    def test_keeps_the_corpus_while_the_documents_are_counted(self, specs, text, tmp_path, capsys, monkeypatch) -> None:
        flags = self.flags(specs, text, tmp_path / "work")
        main(flags)
        whole = capsys.readouterr().out
        assert not (tmp_path / "work").exists()
        with pytest.raises(SystemExit), monkeypatch.context() as patch:
            patch.setattr("tokagnostic.evaluation.overlap.overlap_square", interrupt)
            main(flags)
        monkeypatch.setattr("tokagnostic.evaluation.corpus_overlap.counting.CorpusCounter", None)
        capsys.readouterr()
        main(flags)
        assert capsys.readouterr().out == whole
        assert not (tmp_path / "work").exists()

    def test_of_another_text_is_refused_before_anything_is_counted(
        self, specs, text, tmp_path, capsys, monkeypatch
    ) -> None:
        flags = self.flags(specs, text, tmp_path / "work")
        monkeypatch.setattr("tokagnostic.evaluation.overlap.overlap_square", interrupt)
        with pytest.raises(SystemExit):
            main(flags)
        with open(text, "a", encoding="utf-8") as file:
            file.write('\n{"text": "more"}')
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(flags)
        assert stop.value.code == 2 and "sizes" in capsys.readouterr().err


def interrupt(*_, **__) -> None:
    raise KeyboardInterrupt
