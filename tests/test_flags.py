"""Command lines and TOML files to configs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.flags import parse_flags
from tokagnostic.options import BenchOptions, CompareOptions, InspectOptions, OverlapOptions
from tokagnostic.studies.demo import DemoConfig
from tokagnostic.training.config import AttachConfig, PretrainConfig

Write = Callable[[str], str]


@pytest.fixture
def toml(tmp_path: Path) -> Write:
    """Writes a TOML file and gives its path."""

    def write(text: str) -> str:
        path = tmp_path / "settings.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


class TestFlags:
    def test_make_a_config_and_say_whether_json_is_wanted(self) -> None:
        options, as_json = parse_flags(OverlapOptions, ["--target", "a", "--reference=b", "--json"], "overlap")
        assert options == OverlapOptions(target=("a",), reference=("b",))
        assert type(options) is OverlapOptions
        assert as_json is True

    def test_reach_into_nested_configs(self) -> None:
        arguments = [
            "--tokenizer",
            "t",
            "--output",
            "o",
            "--memory.num-rows",
            "7",
            "--fit.seed=3",
            "--corpus.data",
            "a",
            "b",
        ]
        config, as_json = parse_flags(PretrainConfig, arguments, "pretrain")
        assert (config.memory.num_rows, config.fit.seed, config.corpus.data) == (7, 3, ("a", "b"))
        assert as_json is False

    @pytest.mark.parametrize(
        "arguments",
        [
            ["a", "b"],
            ["--reports", "a", "b"],
            ["--figure", "f.png", "a", "b"],
            ["--figure", "f.png", "--reports", "a", "b"],
        ],
        ids=" ".join,
    )
    def test_of_positional_values_may_be_left_out(self, arguments) -> None:
        assert parse_flags(CompareOptions, arguments, "compare")[0].reports == ("a", "b")

    @pytest.mark.parametrize("arguments", [["x"], ["--specs", "x"], ["--specs=x"], ["--no-verify", "x"]], ids=" ".join)
    def test_name_one_positional_value(self, arguments) -> None:
        assert parse_flags(InspectOptions, arguments, "inspect")[0] == InspectOptions(specs=("x",))

    def test_may_name_nothing_where_nothing_is_needed(self) -> None:
        assert parse_flags(BenchOptions, [], "bench")[0] == BenchOptions()

    def test_given_twice_are_refused(self) -> None:
        with pytest.raises(InvalidValueError, match="--data twice"):
            parse_flags(OverlapOptions, ["--data", "a", "--target", "t", "--reference", "r", "--data=b"], "overlap")

    @pytest.mark.parametrize(
        ("config_class", "arguments", "match"),
        [
            (OverlapOptions, ["--target", "a", "--reference", "b", "--limit", "0"], "limit 0"),
            (PretrainConfig, ["--tokenizer", "t", "--output", "o", "--memory.num-rows", "1"], "num_rows = 1"),
            (PretrainConfig, ["--tokenizer", "t", "--output", "o", "--fit.num-steps", "0"], "num_steps = 0"),
            (PretrainConfig, ["--tokenizer", "t", "--output", "o", "--train-table"], "train_table"),
            (DemoConfig, ["--held-out-share", "2"], "held_out_share"),
        ],
        ids=["root", "nested", "nested fit", "cross-field", "demo"],
    )
    def test_whose_value_a_config_refuses_raise_its_own_error(self, config_class, arguments, match, capsys) -> None:
        with pytest.raises(InvalidValueError, match=match):
            parse_flags(config_class, arguments, "verb")
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["--target", "a"], "--reference"),
            (["--target", "a", "--reference", "b", "--limit", "x"], "--limit"),
            (["--target", "a", "--reference", "b", "--documents", "x"], "paragraph"),
            (["--target", "a", "--reference", "b", "--nonsense", "x"], "--nonsense"),
        ],
        ids=["missing", "no number", "no choice", "unknown"],
    )
    def test_that_cannot_be_read_are_explained_in_one_line(self, arguments, told, capsys) -> None:
        with pytest.raises(InvalidValueError) as caught:
            parse_flags(OverlapOptions, arguments, "overlap")
        said = str(caught.value)
        assert told in said and "`tokagnostic overlap --help`" in said
        assert not set(said) & set("\n\u2500\u2502\u256d") and "Tokenizers that the memory" not in said
        assert capsys.readouterr() == ("", "")

    def test_are_listed_with_the_docstrings_of_their_fields(self, capsys) -> None:
        with pytest.raises(SystemExit) as stop:
            parse_flags(OverlapOptions, ["--help"], "overlap")
        out, err = capsys.readouterr()
        assert (stop.value.code, err) == (0, "")
        for told in (
            "tokagnostic overlap",
            "--max-order",
            "Largest order, in tokens",
            "--json",
            "--config",
            "(default: 7)",
        ):
            assert told in out


class TestToml:
    def test_gives_defaults_and_flags_win(self, toml) -> None:
        path = toml('target = ["a"]\nreference = ["b"]\nmax_order = 3\ndata = ["x", "y"]\nlimit = 5\n')
        options, _ = parse_flags(OverlapOptions, ["--config", path, "--max-order", "2"], "overlap")
        assert options == OverlapOptions(target=("a",), reference=("b",), max_order=2, data=("x", "y"), limit=5)
        options, _ = parse_flags(OverlapOptions, [f"--config={path}", "--data", "z"], "overlap")
        assert (options.data, options.max_order) == (("z",), 3)

    def test_tables_change_what_they_name_and_keep_the_rest_of_the_default(self, toml) -> None:
        """The demonstration's memory is not the memory config's default."""
        path = toml("[memory]\ndim = 8\n[corpus]\ndocuments = 'paragraph'\n")
        config, _ = parse_flags(DemoConfig, ["--config", path], "demo")
        assert config.memory.dim == 8
        assert config.memory.num_rows == DemoConfig().memory.num_rows
        assert config.corpus.documents == "paragraph"

    def test_leaves_what_is_needed_to_the_flags(self, toml) -> None:
        path = toml("[fit]\nnum_steps = 5\nlearning_rate = 1\n")
        arguments = ["--config", path, "--tokenizer", "t", "--output", "o", "--memory-file", "m"]
        config, _ = parse_flags(AttachConfig, arguments, "attach")
        assert (config.fit.num_steps, config.fit.learning_rate, config.memory_file) == (5, 1.0, "m")

    def test_booleans_can_be_turned_either_way_and_back(self, toml) -> None:
        needed = ["--tokenizer", "t", "--output", "o"]
        path = toml("train_host = false\nresume = true\n")
        config, _ = parse_flags(PretrainConfig, ["--config", path, *needed], "pretrain")
        assert (config.train_host, config.resume) == (False, True)
        config, _ = parse_flags(PretrainConfig, ["--config", path, *needed, "--train-host", "--no-resume"], "pretrain")
        assert (config.train_host, config.resume) == (True, False)

    def test_names_may_be_spelled_as_the_flags_are(self, toml) -> None:
        path = toml('text-field = "-a b"\noutput = ""\nmax-order = 3\n')
        options, _ = parse_flags(OverlapOptions, ["--config", path, "--target", "a", "--reference", "b"], "overlap")
        assert options == OverlapOptions(target=("a",), reference=("b",), text_field="-a b", output="", max_order=3)

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            ("max_orde = 3", "unknown setting 'max_orde'"),
            ("max_order = 'three'", "max_order = 'three'.*expected a whole number"),
            ("max_order = 3.5", r"max_order = 3\.5.*whole number"),
            ("max_order = true", "max_order = True.*whole number"),
            ("data = 'x'", "data = 'x'.*expected a list, each item a text"),
            ("data = [1]", r"data = \[1\]"),
            ("documents = 'book'", "documents = 'book'.*'whole', 'line', 'paragraph', 'article'"),
            ("limit = 'many'", "limit = 'many'.*expected a whole number"),
            ("text_field = {a = 1}", "text_field = .*expected a text"),
        ],
        ids=lambda text: text,
    )
    def test_that_does_not_fit_is_named(self, text, match, toml) -> None:
        with pytest.raises(InvalidValueError, match=match):
            parse_flags(OverlapOptions, ["--config", toml(text)], "overlap")

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            ("[memory]\nrows = 3", r"unknown setting 'memory\.rows'"),
            ("memory = 3", "memory = 3.*a table of settings"),
            ("[fit]\nlearning_rate = '1'", r"fit\.learning_rate = '1'.*expected a number"),
            ("resume = 1", "resume = 1.*true or false"),
        ],
        ids=lambda text: text,
    )
    def test_that_does_not_fit_in_a_table_is_named_with_its_place(self, text, match, toml) -> None:
        with pytest.raises(InvalidValueError, match=match):
            parse_flags(PretrainConfig, ["--config", toml(text)], "pretrain")

    def test_cannot_hold_what_is_positional(self, toml) -> None:
        with pytest.raises(InvalidValueError, match="on the command line"):
            parse_flags(BenchOptions, ["--config", toml("names = ['cache']")], "bench")

    @pytest.mark.parametrize("text", ["max_order = ", "= 3", "\x00"], ids=repr)
    def test_with_a_fault_in_its_syntax_is_refused(self, text, toml) -> None:
        with pytest.raises(SourceError, match=r"settings\.toml cannot be read"):
            parse_flags(OverlapOptions, ["--config", toml(text)], "overlap")

    def test_that_is_missing_is_refused(self, tmp_path) -> None:
        with pytest.raises(SourceError, match="expected a TOML file"):
            parse_flags(OverlapOptions, ["--config", str(tmp_path / "none.toml")], "overlap")
