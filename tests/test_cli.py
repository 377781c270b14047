"""The command line as a newcomer meets it: what a verb prints, where it prints it, and what it says of a mistake."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import pre_tokenizers

from tokagnostic import cli
from tokagnostic.cli import VERBS, main
from tokagnostic.errors import InvalidValueError
from tokagnostic.studies import evaluation
from tokagnostic.studies.report import MEANING
from tokagnostic.tokens.encoder import TextEncoder

TEXT = (
    "The river runs through the old stone town, and every spring it rises over the lower bridge.\n\n"
    "In the year 1848 the council built a wall of river stone; in 1902 they built it again.\n\n"
    "She said that the internal bridge was closed, and that nobody knew when it would open.\n\n"
)


class Called(NamedTuple):
    """How a call ended."""

    code: int | str | None
    out: str
    err: str


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Called]:
    """Runs the command line in this process."""

    def run(*arguments: object) -> Called:
        capsys.readouterr()
        code: int | str | None = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        return Called(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, toy_tokenizers) -> Path:
    """A folder with two tokenizers, a text, a finished run and its exported memory. Do not change it."""
    place = tmp_path_factory.mktemp("place")
    TextEncoder.from_tokenizer(toy_tokenizers["byte_level"]).save(place / "a")
    TextEncoder.from_tokenizer(toy_tokenizers["metaspace"]).save(place / "b")
    (place / "text.txt").write_text(TEXT * 4, encoding="utf-8")
    train(place, "pretrain", "a", place / "run", "--memory.num-rows", 211, "--memory.num-heads", 2, "--memory.dim", 4)
    main(["export", "--run", str(place / "run"), "--output", str(place / "memory.safetensors")])
    return place


def train(place: Path, verb: str, tokenizer: str, output: Path, *more: object) -> None:
    host = {"width": 16, "num-layers": 2, "num-heads": 2}
    fit = {"num-steps": 3, "batch-size": 2, "block-length": 16, "log-every": 1}
    small = [f"--host.{name}={value}" for name, value in host.items()]
    small += [f"--fit.{name}={value}" for name, value in fit.items()] + ["--corpus.documents=paragraph"]
    data = ["--tokenizer", place / tokenizer, "--corpus.data", place / "text.txt", "--output", output]
    main([verb, *small, *map(str, data), *map(str, more)])


def one_line(called: Called) -> str:
    """What a refused call said: one line on stderr and nothing on stdout."""
    assert called.code == 2
    assert called.out == ""
    lines = called.err.splitlines()
    assert len(lines) == 1, called.err
    assert lines[0].startswith("tokagnostic: ") and "expected" in lines[0]
    return lines[0]


class TestHelp:
    @pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]], ids=["nothing", "--help", "-h"])
    def test_names_every_verb_with_what_it_does(self, arguments, call) -> None:
        code, out, err = call(*arguments)
        assert (code, err) == (0, "")
        for verb, function in VERBS.items():
            assert f"  {verb:<9} {function.__doc__}" in out

    @pytest.mark.parametrize("verb", VERBS)
    def test_of_a_verb_lists_its_flags(self, verb, call) -> None:
        code, out, err = call(verb, "--help")
        assert (code, err) == (0, "")
        assert out.startswith(f"usage: tokagnostic {verb}")
        assert "--json" in out and "--config" in out

    def test_has_a_version(self, call) -> None:
        import tokagnostic

        assert call("--version") == Called(0, f"tokagnostic {tokagnostic.__version__}\n", "")

    def test_verbs_are_those_of_the_design(self) -> None:
        assert list(VERBS) == [
            "demo", "pretrain", "export", "attach", "eval", "generate", "overlap", "coverage", "inspect", "compare",
            "plot", "bench",
        ]  # fmt: skip


class TestStart:
    """STYLE 14: starting is instant."""

    @pytest.mark.parametrize(
        "code",
        ["import tokagnostic", "from tokagnostic.cli import main; main(['--help'])", "import tokagnostic.__main__"],
        ids=["import", "help", "module"],
    )
    def test_brings_no_heavy_library(self, code) -> None:
        heavy = "{'torch', 'transformers', 'datasets', 'numba', 'tokenizers', 'tyro', 'matplotlib', 'numpy'}"
        check = f"; import sys; assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
        subprocess.run([sys.executable, "-c", code + check], check=True, capture_output=True)

    @pytest.mark.parametrize("verb", ["overlap", "coverage", "eval", "generate", "export", "plot", "bench", "inspect"])
    def test_of_a_verb_shows_its_help_without_torch(self, verb) -> None:
        code = (
            "import sys\nfrom tokagnostic.cli import main\n"
            f"try:\n    main([{verb!r}, '--help'])\nexcept SystemExit:\n    pass\n"
            "assert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


class TestMistakes:
    """Each is one line that says what was given, what was expected, and what to do; the code is 2."""

    def test_an_unknown_verb(self, call) -> None:
        assert "verb 'foo'" in one_line(call("foo"))

    def test_an_unknown_tokenizer(self, call, place) -> None:
        line = one_line(
            call("overlap", "--target", "nothere", "--reference", place / "a", "--data", place / "text.txt")
        )
        assert "tokenizer 'nothere'" in line

    @pytest.mark.parametrize("data", ["nothere.txt", "nothere-*.txt", "."], ids=["file", "glob", "folder"])
    def test_an_unknown_text(self, data, call, place, tmp_path, monkeypatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert data in one_line(call("overlap", "--target", place / "a", "--reference", place / "b", "--data", data))

    def test_an_unknown_dataset(self, call, place, monkeypatch) -> None:
        monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
        monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
        line = one_line(call("overlap", "--target", place / "a", "--reference", place / "b", "--data", "hf:no/such"))
        assert "no/such" in line

    def test_a_tokenizer_that_fails_its_probe(self, call, place, byte_toy, tmp_path) -> None:
        tokenizer = byte_toy()
        byte_step = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([byte_step, byte_step])
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        assert "do not join back" in one_line(call("inspect", tmp_path))

    def test_a_file_that_is_no_tokenizer(self, call, place) -> None:
        assert "cannot be read as a tokenizer" in one_line(call("inspect", place / "text.txt"))

    def test_broken_utf8_is_named_with_its_place(self, call, place, tmp_path) -> None:
        """D-01."""
        (tmp_path / "broken.txt").write_bytes(b"fine\n\xff\xfe\n")
        arguments = ("--target", place / "a", "--reference", place / "b", "--data", tmp_path / "broken.txt")
        line = one_line(call("overlap", *arguments))
        assert "line 2" in line and "byte offset 5" in line
        assert call("overlap", *arguments, "--documents", "line", "--on-bad-document", "skip").code == 0

    @pytest.mark.parametrize("text", [b"", b" \n\n", b"\xef\xbb\xbf"], ids=["empty", "blank", "mark"])
    @pytest.mark.parametrize("verb", ["overlap", "eval", "coverage"])
    def test_an_empty_corpus(self, verb, text, call, place, tmp_path) -> None:
        (tmp_path / "empty.txt").write_bytes(text)
        needed = {
            "overlap": ("--target", place / "a", "--reference", place / "b"),
            "eval": ("--run", place / "run"),
            "coverage": ("--memory", place / "memory.safetensors", "--tokenizer", place / "b"),
        }[verb]
        assert "no document in" in one_line(call(verb, *needed, "--data", tmp_path / "empty.txt"))

    def test_a_memory_file_that_is_truncated_foreign_or_newer(self, call, place, tmp_path) -> None:
        data = (place / "memory.safetensors").read_bytes()
        newer = data.replace(b'\\"version\\":1', b'\\"version\\":9', 1)
        assert newer != data
        for name, damaged, told in (
            ("truncated", data[:-9], "header says"),
            ("short", data[:5], "short.safetensors"),
            ("foreign", b"GGUF" + b"\x03" * 60, "foreign.safetensors"),
            ("newer", newer, "`version` is 9"),
        ):
            path = tmp_path / f"{name}.safetensors"
            path.write_bytes(damaged)
            assert told in one_line(call("inspect", path))
            assert told in one_line(
                call("coverage", "--memory", path, "--tokenizer", place / "b", "--data", place / "text.txt")
            )

    def test_a_wrong_digest_when_it_is_verified(self, call, place, tmp_path) -> None:
        data = bytearray((place / "memory.safetensors").read_bytes())
        data[-1] ^= 1
        path = tmp_path / "memory.safetensors"
        path.write_bytes(data)
        assert "not verified" in call("inspect", path).out
        assert "digest" in one_line(call("inspect", path, "--verify"))

    def test_verify_with_a_tokenizer(self, call, place) -> None:
        assert "--verify" in one_line(call("inspect", place / "a", "--verify"))

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ((), "no name"),
            (("a", "a", "a"), "3 names"),
            (("a", "memory.safetensors"), "2 names"),
            (("a", "--data", "text.txt"), "data with"),
            (("run",), "run/tokenizer"),
            (("run", "a"), "run/tokenizer"),
        ],
        ids=["nothing", "three", "a memory", "a text for one", "a run", "a run and another"],
    )
    def test_inspect_of_what_cannot_be_inspected(self, arguments, told, call, place) -> None:
        here = [name if name.startswith("--") else place / name for name in arguments]
        assert told in one_line(call("inspect", *here))

    @pytest.mark.parametrize("layers", [["5"], ["0", "0"]], ids=["out of range", "twice"])
    def test_layers_that_the_host_does_not_have(self, layers, call, place, tmp_path, capsys) -> None:
        with pytest.raises(SystemExit) as stop:
            train(place, "pretrain", "a", tmp_path / "run", "--memory.num-rows", 211, "--layers", *layers)
        assert f"layers [{', '.join(layers)}]" in one_line(Called(stop.value.code, *capsys.readouterr()))
        assert not (tmp_path / "run").exists()

    def test_a_row_count_below_two(self, call, place, tmp_path) -> None:
        line = one_line(
            call("pretrain", "--tokenizer", place / "a", "--output", tmp_path / "run", "--memory.num-rows", 1)
        )
        assert "num_rows = 1" in line
        assert not (tmp_path / "run").exists()

    def test_an_attachment_without_a_memory_file(self, call, place, tmp_path) -> None:
        line = one_line(call("attach", "--tokenizer", place / "b", "--output", tmp_path / "run"))
        assert "--memory-file" in line

    @pytest.mark.parametrize("runs", [(), ("run", "run")], ids=["none", "twice"])
    def test_no_run_or_one_run_twice(self, runs, call, place) -> None:
        given = ("--run", *(place / run for run in runs)) if runs else ("--run",)
        assert "each once" in one_line(call("eval", *given, "--data", place / "text.txt"))

    def test_a_folder_without_a_run(self, call, tmp_path, place) -> None:
        for verb, more in (
            ("eval", ("--data", place / "text.txt")),
            ("generate", ("--prompt", "x")),
            ("export", ("--output", tmp_path / "m")),
        ):
            assert str(tmp_path) in one_line(call(verb, "--run", tmp_path, *more))

    def test_a_folder_that_holds_a_run_already(self, call, place, capsys) -> None:
        before = (place / "run" / "result.json").read_bytes()
        with pytest.raises(SystemExit) as stop:
            train(place, "pretrain", "a", place / "run")
        assert "holds a run already" in one_line(Called(stop.value.code, *capsys.readouterr()))
        assert (place / "run" / "result.json").read_bytes() == before

    @pytest.mark.parametrize("verb", ["overlap", "coverage", "eval"])
    def test_an_output_that_cannot_be_written_is_told_before_the_work(
        self, verb, call, place, tmp_path, monkeypatch
    ) -> None:
        needed = {
            "overlap": ("--target", place / "a", "--reference", place / "b"),
            "eval": ("--run", place / "run"),
            "coverage": ("--memory", place / "memory.safetensors", "--tokenizer", place / "b"),
        }[verb]
        monkeypatch.setattr("tokagnostic.corpus.Corpus.__iter__", lambda corpus: pytest.fail("the work was begun"))
        for output in (place / "text.txt" / "result.json", tmp_path):
            assert str(output) in one_line(call(verb, *needed, "--data", place / "text.txt", "--output", output))

    def test_an_export_that_cannot_be_written(self, call, place) -> None:
        assert "text.txt" in one_line(call("export", "--run", place / "run", "--output", place / "text.txt" / "memory"))

    @pytest.mark.parametrize("verb", ["pretrain", "demo"])
    def test_a_folder_that_cannot_be_made(self, verb, call, place, capsys) -> None:
        if verb == "demo":
            called = call("demo", "--output", place / "text.txt" / "run", "--corpus.data", place / "text.txt",
                          "--corpus.documents", "line", "--held-out-share", 0.3)  # fmt: skip
        else:
            with pytest.raises(SystemExit) as stop:
                train(place, "pretrain", "a", place / "text.txt" / "run")
            called = Called(stop.value.code, *capsys.readouterr())
        assert "text.txt" in one_line(called)

    @pytest.mark.parametrize("figure", ["x.jpeg", "x", "x.PNG"])
    def test_a_figure_of_an_unknown_format_is_told_before_the_work(self, figure, call, place) -> None:
        arguments = ("--target", "nothere", "--reference", "nothere", "--figure", figure)
        assert ".png or .svg" in one_line(call("overlap", *arguments))

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["bench", "speed"], "measurement 'speed'"),
            (["compare"], "no demonstration"),
            (["compare", "nothere"], "nothere"),
            (["plot", "nothere", "--output", "x.png"], "nothere"),
            (["plot", "--output", "x.png"], "no run"),
            (["inspect", "nothere.safetensors"], "nothere.safetensors"),
            (["demo", "--held-out-share", "7"], "held_out_share = 7"),
            (["overlap", "--target", "a", "--reference", "b", "--max-order", "0"], "max_order"),
            (["overlap", "--config", "nothere.toml"], "nothere.toml"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_of_other_kinds(self, arguments, told, call, place, tmp_path, monkeypatch) -> None:
        monkeypatch.chdir(place)
        assert told in one_line(call(*arguments))

    def test_an_error_of_several_lines_is_told_in_one(self, call, monkeypatch) -> None:
        def fail(arguments: object) -> None:
            raise InvalidValueError("a\n  b", expected="c", remedy="D")

        monkeypatch.setitem(cli.VERBS, "bench", fail)
        assert one_line(call("bench")) == "tokagnostic: a b; expected c. D."

    def test_a_full_disk_is_no_bug_of_ours_and_a_bug_keeps_its_traceback(self, call, monkeypatch) -> None:
        errors: list[BaseException] = [
            OSError(28, "No space left on device", "x/y"),
            OSError("of some library"),
            KeyError("x"),
        ]

        def fail(arguments: object) -> None:
            raise errors.pop(0)

        monkeypatch.setitem(cli.VERBS, "bench", fail)
        assert "x/y: No space left on device" in one_line(call("bench"))
        with pytest.raises(OSError, match="of some library"):
            call("bench")
        with pytest.raises(KeyError):
            call("bench")

    def test_an_interruption_ends_with_code_130(self, call, monkeypatch) -> None:
        def interrupt(arguments: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setitem(cli.VERBS, "bench", interrupt)
        code, out, err = call("bench")
        assert (code, out) == (130, "") and err.startswith("tokagnostic: interrupted") and err.count("\n") == 1

    def test_a_reader_that_hangs_up_sees_no_traceback(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "tokagnostic", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait() == 1


class TestResults:
    """A result once on stdout, one document of JSON if asked, and its config beside it."""

    def test_pretrain_leaves_a_run_and_says_what_came_of_it(self, place) -> None:
        config = json.loads((place / "run" / "config.json").read_text())
        assert config["memory"]["num_rows"] == 211 and config["fit"]["num_steps"] == 3
        assert json.loads((place / "run" / "result.json").read_text())["steps"] == 3

    def test_overlap_in_json_has_the_promised_shape(self, call, place) -> None:
        arguments = ("overlap", "--target", place / "a", "--reference", place / "b", "--data", place / "text.txt")
        code, out, err = call(*arguments, "--documents", "paragraph", "--max-order", 2, "--json")
        assert (code, err) == (0, "")
        result = json.loads(out)
        assert {"target", "reference", "orders", "num_documents", "unique", "weighted"} <= result.keys()
        assert (result["orders"], result["num_documents"]) == ([1, 2], 12)
        for counting in ("unique", "weighted"):
            shares = result[counting]
            assert [len(shares[name]) for name in ("any_order", "same_order", "matrix")] == [2, 2, 2]
            assert [len(row) for row in shares["matrix"]] == [2, 2]
            assert all(0 <= share <= 100 for row in shares["matrix"] for share in row)
            assert shares["same_order"] == [shares["matrix"][n][n] for n in range(2)]
        text = call(*arguments).out
        assert "12 documents" not in text and "1 documents" in text

    def test_overlap_writes_result_config_and_figure(self, call, place, tmp_path) -> None:
        arguments = (
            "--target",
            place / "a",
            "--reference",
            place / "b",
            "--data",
            place / "text.txt",
            "--max-order",
            2,
        )
        figure, output = tmp_path / "new" / "heat.svg", tmp_path / "new" / "overlap.json"
        assert call("overlap", *arguments, "--output", output, "--figure", figure).code == 0
        written = json.loads(output.read_text())
        assert written["config"]["max_order"] == 2 and written["config"]["documents"] == "whole"
        assert "unique" in written
        assert figure.read_text().startswith("<?xml")
        assert json.loads((tmp_path / "new" / "heat.config.json").read_text()) == written["config"]

    def test_coverage_is_a_table_and_one_document_of_json(self, call, place, tmp_path) -> None:
        arguments = (
            "coverage",
            "--memory",
            place / "memory.safetensors",
            "--tokenizer",
            place / "b",
            "--data",
            place / "text.txt",
        )
        assert "noise floor" in call(*arguments).out
        code, out, err = call(*arguments, "--json", "--output", tmp_path / "coverage.json")
        assert (code, err) == (0, "")
        written = json.loads((tmp_path / "coverage.json").read_text())
        assert written.pop("config")["tokenizer"] == str(place / "b")
        assert written == json.loads(out)

    def test_eval_gives_both_states_and_every_document(self, call, place, tmp_path) -> None:
        arguments = ("eval", "--run", place / "run", "--data", place / "text.txt", "--documents", "paragraph")
        code, out, _ = call(*arguments, "--json", "--output", tmp_path / "eval.json")
        assert code == 0
        result = json.loads(out)
        assert set(result) == {"memory", "off"}
        assert [result[name]["memory"] for name in ("memory", "off")] == ["on", "off"]
        assert result["memory"]["bits_per_byte"] != result["off"]["bits_per_byte"]
        assert result["memory"]["rule"]["context"] == 16, "the run's block length"
        written = json.loads((tmp_path / "eval.json").read_text())
        assert written["config"]["documents"] == "paragraph"
        assert len(written["documents"]["off"]) == result["off"]["num_documents"] == 12
        text = call(*arguments, "--stride", 4).out
        assert "memory on" in text and "memory off" in text and "windows of 16 tokens, 4 apart" in text

    def test_eval_shows_runs_side_by_side_and_scores_equal_hosts_without_memory_once(
        self, call, place, tmp_path, monkeypatch
    ) -> None:
        for name in ("one", "two"):
            shutil.copytree(place / "run", tmp_path / name)
        train(place, "pretrain", "a", tmp_path / "other", "--memory.num-rows", 211, "--memory.dim", 4, "--fit.seed", 1)
        passes = []
        scored = evaluation.bits_per_byte
        monkeypatch.setattr(
            evaluation, "bits_per_byte", lambda *given, **named: passes.append(1) or scored(*given, **named)
        )
        runs = ("--run", tmp_path / "one", tmp_path / "two", tmp_path / "other")
        files = ("--output", tmp_path / "eval.json", "--figure", tmp_path / "eval.png")
        arguments = ("eval", *runs, "--data", place / "text.txt", "--documents", "paragraph", *files)
        found = json.loads(call(*arguments, "--json").out)["runs"]
        assert list(found) == ["one", "two", "other"] and len(passes) == 5
        alone = [json.loads(call("eval", "--run", run, *arguments[5:9], "--json").out) for run in runs[1:]]
        bits = [[scores[name]["bits_per_byte"] for name in ("memory", "off")] for scores in (*found.values(), *alone)]
        assert bits[:3] == bits[3:] and bits[0] == bits[1] != bits[2]
        written = json.loads((tmp_path / "eval.json").read_text())
        assert written["runs"] == found and len(written["documents"]["other"]["off"]) == 12
        assert (tmp_path / "eval.png").stat().st_size > 0
        text = call(*arguments).out
        assert "of 12" in text and "windows of 16 tokens" in text
        assert all(f"{found[run]['memory']['bits_per_byte']:.4f}" in text for run in found)

    def test_generate_without_a_cache_gives_the_same_text(self, call, place) -> None:
        arguments = ("generate", "--run", place / "run", "--prompt", "The river", "--num-tokens", 5, "--json")
        assert call(*arguments, "--no-cache").out == call(*arguments).out

    def test_generate_continues_with_the_memory_on_and_off(self, call, place) -> None:
        result = json.loads(
            call("generate", "--run", place / "run", "--prompt", "The river", "--num-tokens", 3, "--json").out
        )
        assert set(result) == {"memory", "off"}
        assert all(text.startswith("The river") for text in result.values())
        out = call("generate", "--run", place / "run", "--prompt", "The river", "--num-tokens", 3).out
        assert out.count("The river") == 2 and "memory off" in out

    def test_export_says_what_rounding_changed(self, call, place, tmp_path) -> None:
        exact = json.loads(call("export", "--run", place / "run", "--output", tmp_path / "a.safetensors", "--json").out)
        assert exact["max_rounding"] == 0 and exact["num_bytes"] == (tmp_path / "a.safetensors").stat().st_size
        assert json.loads((tmp_path / "a.config.json").read_text())["row_format"] == "fp32"
        assert (tmp_path / "a.safetensors").read_bytes() == (place / "memory.safetensors").read_bytes()
        text = call(
            "export", "--run", place / "run", "--output", tmp_path / "b.safetensors", "--row-format", "bf16"
        ).out
        assert "rounded to bf16" in text and "%" in text

    def test_export_of_hot_rows_says_what_they_serve_and_eval_reads_them(self, call, place, tmp_path) -> None:
        export = ("export", "--run", place / "run", "--output", tmp_path / "hot.safetensors", "--hot-rows", 50)
        hot = json.loads(call(*export, "--json").out)["hot_rows"]
        assert hot["kept"] == 50 < hot["rows"] and 0 < hot["share_of_lookups"] < 1
        assert "50 of " in call(*export).out
        measure = ("eval", "--run", place / "run", "--data", place / "text.txt", "--json", "--memory-file")
        whole, cut = (
            json.loads(call(*measure, file).out)
            for file in (place / "memory.safetensors", tmp_path / "hot.safetensors")
        )
        own = json.loads(call(*measure[:-1]).out)
        assert whole == own
        assert cut["off"] == own["off"] and cut["memory"]["bits_per_byte"] != own["memory"]["bits_per_byte"]

    def test_export_adds_the_visits_of_no_run_twice(self, call, place, tmp_path) -> None:
        target = tmp_path / "merged.safetensors"
        found = call("export", "--run", place / "run", "--output", target, "--merge-visits", place / "run")
        assert "twice among the runs" in found.err and not target.exists()

    def test_inspect_of_a_memory_and_of_a_tokenizer(self, call, place) -> None:
        facts = json.loads(call("inspect", place / "memory.safetensors", "--verify", "--json").out)
        assert facts["digests"] == "verified" and facts["config"]["num_rows"] == 211
        facts = json.loads(call("inspect", place / "a", "--json").out)
        assert facts["num_ids"] == 420
        assert "fidelity" in call("inspect", place / "b").out

    def test_inspect_of_two_tokenizers_compares_them(self, call, place) -> None:
        arguments = ("inspect", place / "a", place / "b", "--data", place / "text.txt", "--documents", "paragraph")
        comparison = json.loads(call(*arguments, "--json").out)
        assert comparison["text"]["num_documents"] == 12
        assert comparison["shared"]["bytes"]["num_shared"] > comparison["shared"]["strings"]["num_shared"] > 0
        assert "tokens, as bytes" in call(*arguments).out
        alike = json.loads(call("inspect", place / "a", place / "a", "--data", place / "text.txt", "--json").out)
        assert alike["same_table"] and alike["same_windows"]

    def test_attach_reads_the_memory_under_the_other_tokenizer(self, place, tmp_path, capsys) -> None:
        capsys.readouterr()
        memory = place / "memory.safetensors"
        before = memory.read_bytes()
        train(place, "attach", "b", tmp_path / "reader", "--memory-file", memory, "--json")
        result = json.loads(capsys.readouterr().out)
        assert result["steps"] == 3
        assert memory.read_bytes() == before

    def test_plot_draws_the_curves_of_runs(self, call, place, tmp_path) -> None:
        shown = call("plot", place / "run", "--output", tmp_path / "loss.png", "--field", "loss").out
        assert shown == f"{tmp_path / 'loss.png'}\n"
        assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
        assert json.loads((tmp_path / "loss.config.json").read_text())["field"] == "loss"

    def test_plot_of_one_run_draws_all_that_it_tells_into_its_folder(self, call, place, tmp_path) -> None:
        run = Path(shutil.copytree(place / "run", tmp_path / "run"))
        assert json.loads(call("plot", run, "--json").out) == {"figure": str(run / "curves.png")}
        assert (run / "curves.png").read_bytes().startswith(b"\x89PNG") and (run / "curves.config.json").is_file()
        assert "2 runs without an output" in one_line(call("plot", run, place / "run"))

    def test_export_reports_the_load_of_a_text(self, call, place, tmp_path) -> None:
        run, text, memory = place / "run", place / "text.txt", tmp_path / "m.safetensors"
        shown = call("export", "--run", run, "--output", memory, "--data", text, "--documents", "paragraph")
        assert "rows stored as fp32" in shown.out and "\norder " in shown.out and "\n  all " in shown.out
        called = call("export", "--run", run, "--output", memory, "--data", text, "--documents", "paragraph", "--json")
        load = json.loads(called.out)["load"]
        assert load["num_documents"] > 1 and len(load["tables"][0]["orders"]) == 3
        written = np.count_nonzero(load_file(memory)["visits.0"])
        hit = sum(load["tables"][0]["all_orders"]["rows_hit"])
        assert 0 < written <= hit  # three updates have not seen all of the text

    def test_a_setting_of_a_text_without_one_is_refused(self, call, place, tmp_path) -> None:
        called = call("export", "--run", place / "run", "--output", tmp_path / "m.safetensors", "--documents", "line")
        assert "documents without data" in one_line(called)
        assert not (tmp_path / "m.safetensors").exists()

    def test_plot_tells_runs_of_one_name_apart(self, call, place, tmp_path, monkeypatch) -> None:
        import shutil

        shutil.copytree(place / "run", tmp_path / "other" / "run")
        drawn: list[str] = []
        monkeypatch.setattr("tokagnostic.plots.plot_learning_curves", lambda curves, *_, **__: drawn.extend(curves))
        runs = [str(place / "run"), str(tmp_path / "other" / "run")]
        assert call("plot", *runs, "--output", tmp_path / "loss.svg").code == 0
        assert drawn == runs

    def test_compare_is_a_table_and_a_figure(self, call, tmp_path) -> None:
        for seed in (0, 1):
            folder = tmp_path / f"demo-{seed}"
            folder.mkdir()
            report = {
                "bpb": {control: 2 + i / 10 + seed / 100 for i, control in enumerate(MEANING)},
                "transfer_efficiency": 0.5,
                "seed": seed,
                "python": "3.11",
                "text": {"digest": "abc"},
            }
            (folder / "report.json").write_text(json.dumps(report))
            (folder / "config.json").write_text(json.dumps({"seed": seed, "output": str(folder)}))
        code, out, err = call("compare", tmp_path / "demo-*", "--figure", tmp_path / "controls.png")
        assert (code, err) == (0, "")
        assert "| seed 0 | seed 1 |" in out and (tmp_path / "controls.png").exists()
        result = json.loads(call("compare", tmp_path / "demo-0", tmp_path / "demo-1", "--json").out)
        assert result["bpb"]["none"]["spread"] == pytest.approx(0.01)

    def test_bench_is_a_list_of_rows(self, call, monkeypatch) -> None:
        row = {"name": "x", "value": 2.0, "unit": "s", "rival": "y", "rival_value": 4.0, "ratio": 2.0}
        monkeypatch.setattr("tokagnostic.bench.MEASUREMENTS", {"cache": lambda: [row]})
        assert json.loads(call("bench", "--json", "cache").out) == [row]
        assert "2.00  y" in call("bench", "cache").out

    def test_demo_prints_the_table_and_where_the_report_is(self, call, tmp_path, monkeypatch) -> None:
        score = {"seen": {"bits_per_byte": 1.0}, "novel": {"bits_per_byte": 2.0}}
        report = {
            "bpb": dict.fromkeys(MEANING, 2.0),
            "controls": {name: {"score": score, "off": score} for name in MEANING if name != "off"},
            "transfer_efficiency": 0.5,
            "seconds": 3.0,
            "peak_memory_mib": 10,
        }
        monkeypatch.setattr("tokagnostic.studies.demo.demo", lambda config: report)
        out = call("demo", "--output", tmp_path / "x").out
        assert "transfer efficiency 0.500" in out and str(tmp_path / "x" / "report.md") in out
        assert json.loads(call("demo", "--json").out) == report


@pytest.mark.skipif(os.name != "posix", reason="the way to a folder without permission is POSIX's")
def test_a_folder_without_permission_is_refused(call, place, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere
    arguments = ("--target", place / "a", "--reference", place / "b", "--output", tmp_path / "x.json")
    assert "a file that can be written" in one_line(call("overlap", *arguments))
