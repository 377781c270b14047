from __future__ import annotations

import builtins
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokagnostic import plots
from tokagnostic.errors import InvalidValueError, MissingExtraError
from tokagnostic.plots import curves, drawing

OVERLAP = {
    "target": "bytes 4k",
    "reference": "metaspace 2k",
    "orders": [1, 2, 3],
    "num_documents": 1234,
    "unique": {
        "any_order": [81.25, 100.0, None],
        "same_order": [71.5, 33.3, None],
        "matrix": [[71.5, 9.7, 0.0], [20.5, 33.3, 61.2], [None, None, None]],
    },
    "weighted": {
        "any_order": [91.5, 92.5, 93.5],
        "same_order": [1.5, 2.5, 3.5],
        "matrix": [[1.5, 4.5, 5.5], [6.5, 2.5, 7.5], [8.5, 9.5, 3.5]],
    },
}
BPB = {"none": 2.011, "frozen": 1.955, "off": 2.3, "random": 2.013, "permuted": 2.009, "order1": 1.987, "native": 1.941}
RUNS = {name: [{"tokens": 100 * i, "loss": 9 / i + bpb} for i in range(1, 60)] for name, bpb in BPB.items()}
RUN = [
    {
        "tokens": 100 * i,
        "loss": 2 + 9 / i,
        "bits_per_byte": 1 + 3 / i,
        "gate": {"1": 0.5 + 0.2 / i, "4": None if i < 3 else 0.4},
        "hit_rate": {"1": 1.0, "2": 1 - 0.5 / i, "3": 1 - 0.7 / i},
        "rows_written": 0.6 - 0.5 / i,
        "rows_written_expected": 0.61 - 0.5 / i,
    }
    for i in range(1, 40)
]
RUN += [{"step": i, "tokens": 100 * i, "held_out_bits_per_byte": 2.125 - i / 100} for i in (10, 20, 40)]
SPLIT = {"none": {"seen": 1.85, "novel": 2.3}, "frozen": {"seen": 1.7, "novel": 2.31}}

FIGURES: dict[str, Callable[[Path], None]] = {
    "overlap": lambda path: plots.plot_overlap(OVERLAP, path),
    "curves": lambda path: plots.plot_learning_curves(RUNS, path, smooth=3),
    "run": lambda path: plots.plot_run(RUN, path, smooth=3),
    "controls": lambda path: plots.plot_controls(BPB, path),
    "seen and novel": lambda path: plots.plot_seen_novel(SPLIT, path),
}
SLOW = ("run",)  # five panels take a second each time
every_figure = pytest.mark.parametrize(
    "draw",
    [pytest.param(draw, marks=[pytest.mark.slow] * (name in SLOW), id=name) for name, draw in FIGURES.items()],
)


def texts_of(draw: Callable[[Path], None], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of a figure, read from an SVG that keeps them as text."""
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is in the extra `plot`")
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    draw(folder / "figure.svg")
    root = ElementTree.parse(folder / "figure.svg").getroot()
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


class TestEveryFigure:
    @pytest.fixture(autouse=True)
    def _needs_matplotlib(self) -> None:
        pytest.importorskip("matplotlib", reason="matplotlib is in the extra `plot`")

    @every_figure
    def test_is_a_png_or_an_svg_as_the_suffix_says_and_leaves_nothing_else(self, draw, tmp_path) -> None:
        draw(tmp_path / "figure.png")
        draw(tmp_path / "figure.svg")
        assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert ElementTree.parse(tmp_path / "figure.svg").getroot().tag.endswith("svg")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["figure.png", "figure.svg"]

    @every_figure
    @pytest.mark.parametrize("name", ["figure.jpeg", "figure", "figure.PNG"])
    def test_refuses_another_suffix_and_writes_nothing(self, draw, name, tmp_path) -> None:
        with pytest.raises(InvalidValueError, match=name):
            draw(tmp_path / name)
        assert list(tmp_path.iterdir()) == []

    @every_figure
    def test_that_fails_leaves_an_earlier_one_alone(self, draw, tmp_path, monkeypatch) -> None:
        def fail(self, file, **settings) -> None:
            Path(file).write_text("half")
            raise OSError("disk full")

        (tmp_path / "figure.png").write_text("earlier")
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
        with pytest.raises(OSError, match="disk full"):
            draw(tmp_path / "figure.png")
        assert [path.read_text() for path in tmp_path.iterdir()] == ["earlier"]

    @every_figure
    def test_changes_no_global_setting(self, draw, tmp_path) -> None:
        import matplotlib

        before = dict(matplotlib.rcParams)
        draw(tmp_path / "figure.png")
        assert dict(matplotlib.rcParams) == before

    @every_figure
    def test_keeps_all_of_its_texts_inside_and_apart(self, draw, tmp_path, monkeypatch) -> None:
        from matplotlib.text import Text

        checked = []

        def check(figure, path) -> None:
            figure.draw_without_rendering()
            # Asked through the base class, an annotation leaves its leading line out of its extent.
            boxes = [(text.get_text(), Text.get_window_extent(text)) for text in visible_texts(figure)]
            for i, (name, box) in enumerate(boxes):
                assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 + 1, name
                assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1 + 1, name
                assert not [other for other, its in boxes[:i] if its.overlaps(box)], name
            checked.append(len(boxes))

        monkeypatch.setattr(drawing, "save", check)
        draw(tmp_path / "figure.png")
        assert checked[0] > 5


def visible_texts(figure) -> list:
    """Texts that are drawn: not empty, and no tick label outside the axis limits."""
    from matplotlib.text import Text

    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            shown = {id(tick) for tick in axis._update_ticks()}
            for tick in [*axis.majorTicks, *axis.minorTicks]:
                if id(tick) not in shown:
                    hidden |= {id(tick.label1), id(tick.label2)}
    return [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden
    ]


class TestOverlap:
    def test_writes_every_share_once_with_names_and_axes(self, tmp_path, monkeypatch) -> None:
        texts = texts_of(FIGURES["overlap"], tmp_path, monkeypatch)
        for cell in ("81.2", "100", "71.5", "9.7", "0", "20.5", "33.3", "61.2"):
            assert texts.count(cell) == 1, cell
        assert {"target order (tokens)", "reference order (tokens)", "any"} <= set(texts)
        assert any("bytes 4k" in text for text in texts)
        assert any("metaspace 2k" in text for text in texts)

    def test_draws_occurrences_if_asked(self, tmp_path, monkeypatch) -> None:
        def draw(path: Path) -> None:
            plots.plot_overlap(OVERLAP, path, counting="weighted")

        texts = texts_of(draw, tmp_path, monkeypatch)
        assert {"91.5", "7.5"} <= set(texts)
        assert any("occurrences" in text for text in texts)

    def test_puts_the_target_order_along_x(self, monkeypatch) -> None:
        pytest.importorskip("matplotlib", reason="matplotlib is in the extra `plot`")
        figures = []
        monkeypatch.setattr(drawing, "save", lambda figure, path: figures.append(figure))
        plots.plot_overlap(OVERLAP, "figure.png", counting="weighted")
        above, below = figures[0].axes
        assert above.images[0].get_array().tolist() == [[91.5, 92.5, 93.5]]
        assert below.images[0].get_array()[0].tolist() == [1.5, 6.5, 8.5]

    def test_refuses_another_way_of_counting(self, tmp_path) -> None:
        with pytest.raises(InvalidValueError, match="unique or weighted"):
            plots.plot_overlap(OVERLAP, tmp_path / "figure.png", counting="distinct")


class TestCurves:
    def test_are_named_at_their_ends(self, tmp_path, monkeypatch) -> None:
        texts = texts_of(FIGURES["curves"], tmp_path, monkeypatch)
        assert set(RUNS) <= set(texts)

    def test_pass_over_records_without_a_finite_value(self) -> None:
        records = [
            {"tokens": 1, "loss": 2.0},
            {"tokens": 2},
            {"tokens": 3, "loss": float("nan")},
            {"tokens": 4, "loss": 1.0},
        ]
        assert curves.points_of(records, "tokens", "loss") == [(1.0, 2.0), (4.0, 1.0)]

    def test_smooth_by_the_records_up_to_a_point(self) -> None:
        points = [(1.0, 4.0), (2.0, 2.0), (3.0, 0.0), (4.0, 6.0)]
        assert curves.smoothed(points, 2) == [(1.0, 4.0), (2.0, 3.0), (3.0, 1.0), (4.0, 3.0)]

    def test_without_a_point_are_an_error(self, tmp_path) -> None:
        with pytest.raises(InvalidValueError, match="'bpb'"):
            plots.plot_learning_curves(RUNS, tmp_path / "figure.png", y="bpb")

    @given(st.lists(st.floats(0, 100), max_size=12), st.floats(0.5, 20))
    def test_names_are_moved_apart_and_not_without_need(self, wanted, gap) -> None:
        wanted = sorted(wanted)
        placed = curves._spread(wanted, gap)
        steps = [b - a for a, b in pairwise(placed)]
        assert all(step >= gap - 1e-6 for step in steps)
        if all(b - a >= gap for a, b in pairwise(wanted)):
            assert placed == pytest.approx(wanted)
        assert sum(placed) == pytest.approx(sum(wanted), abs=1e-6)


class TestRun:
    def test_has_a_panel_for_each_kind_and_the_last_value_at_each_end(self, tmp_path, monkeypatch) -> None:
        texts = texts_of(FIGURES["run"], tmp_path, monkeypatch)
        assert {
            "loss (nats per token)",
            "bits per byte",
            "gate by layer",
            "hit rate by order (%)",
            "rows written (%)",
        } <= set(texts)
        assert {"held out: 1.73", "layer 4: 0.4", "order 1: 100", "measured: 58.7", "expected: 59.7"} <= set(texts)

    def test_draws_what_the_metrics_say(self, monkeypatch) -> None:
        pytest.importorskip("matplotlib", reason="matplotlib is in the extra `plot`")
        figures = []
        monkeypatch.setattr(drawing, "save", lambda figure, path: figures.append(figure))
        plots.plot_run(RUN, "figure.png")
        lines = {line.get_label(): line for axes in figures[0].axes for line in axes.get_lines()}
        assert lines["layer 4"].get_xdata().tolist() == [100 * i for i in range(3, 40)]
        assert lines["order 3"].get_ydata().tolist() == [100 * (1 - 0.7 / i) for i in range(1, 40)]
        assert lines["held out"].get_xdata().tolist() == [1000, 2000, 4000]
        assert lines["expected"].get_zorder() < lines["measured"].get_zorder()

    def test_leaves_out_what_the_metrics_lack(self, tmp_path, monkeypatch) -> None:
        def draw(path: Path) -> None:
            plots.plot_run([{"tokens": i, "loss": 1 / i} for i in (1, 2)], path)

        texts = texts_of(draw, tmp_path, monkeypatch)
        assert "loss (nats per token)" in texts
        assert not {"bits per byte", "gate by layer", "hit rate by order (%)", "rows written (%)"} & set(texts)

    @pytest.mark.parametrize("records", [[], [{"tokens": 1}], [{"tokens": 1, "bits_per_byte": 2.0}]], ids=str)
    def test_without_a_loss_is_an_error(self, records, tmp_path) -> None:
        with pytest.raises(InvalidValueError, match="without a loss"):
            plots.plot_run(records, tmp_path / "figure.png")


class TestControls:
    def test_are_ordered_by_their_value_and_written_with_it(self, tmp_path, monkeypatch) -> None:
        texts = texts_of(FIGURES["controls"], tmp_path, monkeypatch)
        assert {"1.941", "1.955", "2.300"} <= set(texts)
        labels = [text.split(":")[0] for text in texts if ": " in text]
        assert labels == sorted(BPB, key=BPB.__getitem__, reverse=True)

    def test_of_several_seeds_show_their_mean(self, tmp_path, monkeypatch) -> None:
        def draw(path: Path) -> None:
            plots.plot_controls({"none": [2.0, 2.2], "frozen": [1.8, 1.9, 2.0]}, path)

        assert {"2.100", "1.900"} <= set(texts_of(draw, tmp_path, monkeypatch))

    @pytest.mark.parametrize("bpb", [{}, {"none": float("nan")}, {"none": None}, {"none": []}], ids=str)
    def test_without_a_number_are_an_error(self, bpb, tmp_path) -> None:
        with pytest.raises(InvalidValueError, match="finite"):
            plots.plot_controls(bpb, tmp_path / "figure.png")


def test_seen_and_novel_have_one_scale(monkeypatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is in the extra `plot`")
    figures = []
    monkeypatch.setattr(drawing, "save", lambda figure, path: figures.append(figure))
    plots.plot_seen_novel(SPLIT, "figure.png")
    widths = [axes.get_xlim()[1] - axes.get_xlim()[0] for axes in figures[0].axes]
    assert widths[0] == pytest.approx(widths[1])


@every_figure
def test_without_matplotlib_the_error_names_the_extra(draw, tmp_path, monkeypatch) -> None:
    real_import = builtins.__import__

    def refuse(name, *args, **settings):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real_import(name, *args, **settings)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=r"tokagnostic\[plot\]"):
        draw(tmp_path / "figure.png")


def test_importing_the_module_imports_no_matplotlib_and_drawing_no_pyplot(tmp_path) -> None:
    code = (
        "import sys, tokagnostic.plots as plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plots.plot_controls({'none': 2.0, 'native': 1.5}, sys.argv[1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert 'torch' not in sys.modules\n"
    )
    pytest.importorskip("matplotlib", reason="matplotlib is in the extra `plot`")
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "figure.png")], check=True)
