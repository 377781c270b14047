"""Pages: self-contained, true to the numbers, readable in the dark and on a phone, and deaf to hostile texts."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tokagnostic.errors import InvalidValueError, MissingExtraError
from tokagnostic.evaluation.overlap import ngram_overlap
from tokagnostic.pages import check_page, overlap_page, tokenizer_page, write_page
from tokagnostic.pages.visible import visible_pieces
from tokagnostic.studies.inspection import inspect_tokenizer
from tokagnostic.studies.passage import passage
from tokagnostic.studies.tokenizer_comparison import compare_tokenizers
from tokagnostic.tokens.encoder import TextEncoder

pytest.importorskip("jinja2", reason="the extra html is not installed")

HOSTILE = (
    "</script><script>document.title='owned'</script><!-- <img src=x onerror=document.title='owned'>\u2028\x00 é日😀"
)
TEXT = f"The river rose over the old stone bridge. {HOSTILE} The river rose again.\n"
EVIL = "<b onmouseover=alert(1)>evil"
DATA_SCRIPT = '<script type="application/json">'
MAX_ORDER = 4
SIDES = ("target", "reference")


@pytest.fixture(scope="module")
def encoders(toy_tokenizers: dict[str, Tokenizer]) -> dict[str, TextEncoder]:
    names = {"byte_level": EVIL, "metaspace": "mark"}
    return {
        family: TextEncoder.from_tokenizer(tokenizer, names.get(family, family))
        for family, tokenizer in toy_tokenizers.items()
    }


@pytest.fixture(scope="module")
def shown(encoders: dict[str, TextEncoder]) -> dict[str, Any]:
    """A passage of a hostile text under two tokenizers, one of which has a hostile name."""
    return passage(TEXT, encoders["byte_level"], encoders["metaspace"], MAX_ORDER)


@pytest.fixture(scope="module")
def result(encoders: dict[str, TextEncoder]) -> dict[str, Any]:
    return ngram_overlap(
        [TEXT, TEXT[:20], TEXT[9:]], encoders["byte_level"], encoders["metaspace"], MAX_ORDER
    ).to_dict()


@pytest.fixture(scope="module")
def page(result: dict[str, Any], shown: dict[str, Any]) -> str:
    return overlap_page([result], [shown])


@pytest.fixture(scope="module")
def comparison_page(encoders: dict[str, TextEncoder], shown: dict[str, Any]) -> str:
    sides = encoders["byte_level"], encoders["wordpiece"]
    return tokenizer_page(list(map(inspect_tokenizer, sides)), compare_tokenizers(*sides, [TEXT]), shown)


def scripts_of(page: str) -> list[str]:
    return re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)


class TestTheFile:
    def test_fetches_nothing_and_forbids_it(self, page: str, comparison_page: str) -> None:
        for made in (page, comparison_page):
            assert not re.search(
                r"https?:|[\"'(]//|@import|url\(|<link|<img|<iframe|\bsrc=|\bfetch\(", html_alone(made)
            )
            assert "default-src 'none'" in made

    def test_shows_the_numbers_of_the_result(self, page: str, result: dict[str, Any]) -> None:
        tables = {
            counting: re.findall(r"<td style=[^>]*>([^<]*)</td>", table)
            for counting, table in zip(
                ("unique", "weighted"), re.findall(r'<table class="heat">(.*?)</table>', page, re.DOTALL), strict=True
            )
        }
        for counting, cells in tables.items():
            rows = [result[counting]["any_order"], *zip(*result[counting]["matrix"], strict=True)]
            assert cells == [f"{share:.1f}" for row in rows for share in row]
        first, last = (result["unique"]["any_order"][n] for n in (0, -1))
        lead = re.search(r'<p class="lead">(.*?)</p>', page, re.DOTALL)[1]
        assert re.findall(r"<strong>([\d.]+)</strong>", lead) == [f"{first:.1f}", f"{last:.1f}"]

    def test_hostile_names_and_texts_are_text(self, page: str, comparison_page: str) -> None:
        for made in (page, comparison_page):
            assert made.count("<script") == 2
            assert EVIL not in made and html.escape(EVIL) in made
            assert not re.search(r"<(b|img|script) ", html_alone(made).replace(DATA_SCRIPT, ""))
            assert "onerror=" not in html_alone(made).replace("onerror=document", "")
            assert "<!--" not in made
            assert "\x00" not in made and "\u2028" not in made
            data, _ = scripts_of(made)
            assert json.loads(data)["max_order"] == MAX_ORDER

    def test_needs_only_what_every_result_has(self, result: dict[str, Any], shown: dict[str, Any]) -> None:
        optional = ("causes", "intervals", "no_intervals", "mean_over_documents", "empty_documents")
        bare = {name: value for name, value in result.items() if name not in optional}
        assert "Why the others are missed" not in overlap_page([bare], [shown])
        full = {**result, "corpus": {counting: result[counting] for counting in ("unique", "weighted")}}
        assert "whole corpus" in overlap_page([full], [shown])

    def test_an_order_without_a_window_has_a_dash(self, encoders: dict[str, TextEncoder]) -> None:
        sides = encoders["byte_level"], encoders["metaspace"]
        made = overlap_page([ngram_overlap(["a"], *sides, 3).to_dict()], [passage("a", *sides, 3)])
        assert 'class=" none">–</td>' in made and "nan" not in made.lower().replace("nan-", "")

    def test_several_pairs_are_listed_and_keep_apart(self, result: dict[str, Any], shown: dict[str, Any]) -> None:
        made = overlap_page([result, result], [shown, shown])
        assert made.count('href="#pair-') == made.count('<article id="pair-') == 2
        ids = re.findall(r'\bid="([^"]+)"', made)
        assert len(ids) == len(set(ids))

    def test_one_and_two_tokenizers(self, encoders: dict[str, TextEncoder], comparison_page: str) -> None:
        report = inspect_tokenizer(encoders["metaspace"])
        alone = tokenizer_page([report])
        assert ">Exact</span>" in alone and report["fingerprint"] in alone and 'class="passage"' not in alone
        assert ">Lossy</span>" in comparison_page
        assert "Side by side" in comparison_page
        assert 'class="passage"' in comparison_page

    def test_paths_are_called_by_their_last_part_unless_these_are_equal(self, result, shown) -> None:
        near = {**result, "target": "/a/b/first", "reference": "hub/second"}
        assert "<h1>first among second</h1>" in overlap_page([near], [shown])
        equal = {**result, "target": "/a/same", "reference": "/b/same"}
        assert "<h1>/a/same among /b/same</h1>" in overlap_page([equal], [shown])

    def test_is_written_whole(self, tmp_path: Path) -> None:
        write_page(str(tmp_path / "new" / "page.html"), "é\udcff")
        assert (tmp_path / "new" / "page.html").read_text(encoding="utf-8") == "é\\udcff"
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["page.html"]

    def test_of_another_name_is_refused(self) -> None:
        with pytest.raises(InvalidValueError, match=r"ends in \.html"):
            check_page("page.htm")

    def test_a_missing_library_is_named_with_its_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "jinja2", None)
        with pytest.raises(MissingExtraError, match=r"tokagnostic\[html\]"):
            check_page("page.html")


def html_alone(page: str) -> str:
    """A page without the text in it, which may hold anything."""
    without_text = re.sub(
        r">[^<]*<", "><", re.sub(r"(<script[^>]*json[^>]*>).*?(</script>)", r"\1\2", page, flags=re.S)
    )
    return without_text + "".join(scripts_of(page)[-1:]) + "".join(re.findall(r"<style>.*?</style>", page, re.S))


def in_a_browser(pages: dict[str, tuple[str, int]], script: str, folder: Path, *flags: str) -> tuple[Any, list[str]]:
    """Load pages as they are, each in a frame, and let a script outside look at them.

    Args:
        pages: by name a page and the width that it has for itself.
        script: the body of an asynchronous function of `frames`, the documents by name.
        folder: for the browser's files.
        flags: further ones for the browser.

    Returns:
        What the script returned, and what the browser complained about.
    """
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser = next((found for name in names if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no Chromium on this machine")
    frames = "".join(
        f'<iframe id="{name}" style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(page)}"></iframe>'
        for name, (page, width) in pages.items()
    )
    outer = folder / "outer.html"
    outer.write_text(
        f"""<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">{frames}
        <output></output><script>
        addEventListener('load', async () => {{
          const frames = Object.fromEntries([...document.querySelectorAll('iframe')].map(f => [f.id, f.contentDocument]));
          document.querySelector('output').textContent = JSON.stringify(await (async () => {{{script}}})());
        }});
        </script>""",
        encoding="utf-8",
    )
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command += ["--enable-logging=stderr", *flags, "--virtual-time-budget=4000", "--dump-dom", outer.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    said = re.search(r"<output>(.+?)</output>", done.stdout, re.DOTALL)
    assert done.returncode == 0 and said, done.stderr[-1500:]
    return json.loads(html.unescape(said[1])), re.findall(r"CONSOLE.*", done.stderr)


@pytest.fixture(scope="module")
def seen(page: str, comparison_page: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a visit to the pages gave: every window pointed at, keys pressed, widths measured."""
    script = """
    const root = frames.wide, seen = {windows: [], title: root.title};
    const token = (side, t) => root.querySelector(`.token[data-side=${side}][data-token="${t}"]`);
    const over = button => button.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
    const press = key => root.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
    const value = name => root.querySelector(`.answer dd[data-name=${name}]`)?.textContent ?? null;
    const lit = name => [...root.querySelectorAll(`.token.${name}`)].map(b => [b.dataset.side, Number(b.dataset.token)]);
    const height = () => root.querySelector('.answer').offsetHeight + root.documentElement.scrollHeight;
    const heights = new Set([height()]);
    for (const radio of root.querySelectorAll('.order input')) {
      radio.click();
      for (const side of ['target', 'reference'])
        for (const button of root.querySelectorAll(`.token[data-side=${side}]`)) {
          over(button);
          seen.windows.push({side, token: Number(button.dataset.token), order: Number(radio.value),
            missing: button.classList.contains('missing'), key: value('key'), hex: value('hex'), text: value('text'),
            verdict: root.querySelector('.verdict').className, sentence: root.querySelector('.verdict').textContent,
            own: lit('own'), twin: lit('twin')});
        }
      heights.add(height());
    }
    seen.heights = heights.size;
    seen.counts = [...root.querySelectorAll('.found')].map(span => span.textContent);
    root.querySelector('.order input').click();
    const latest = () => { const [own] = lit('own'); return own; };
    over(token('target', 3)); token('target', 5).click(); over(token('target', 7));
    seen.held = latest();
    token('target', 5).click(); over(token('target', 7));
    seen.free = latest();
    token('target', 5).click(); token('target', 5).dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}));
    over(token('target', 7));
    seen.escaped = latest();
    token('target', 0).focus();
    seen.walk = ['ArrowRight', 'ArrowRight', 'ArrowLeft', 'ArrowDown', 'ArrowUp', 'End', 'Home'].map(key => {
      press(key);
      const {side, token} = root.activeElement.dataset;
      return [key, side, Number(token), JSON.stringify(latest()) === JSON.stringify([side, Number(token)])];
    });
    seen.stops = root.querySelectorAll('.token[tabindex="0"]').length;
    seen.labels = [...root.querySelectorAll('.token')].every(button => button.getAttribute('aria-label').length > 10);
    seen.widths = Object.fromEntries(Object.entries(frames).map(([name, {documentElement: d}]) => [name, [d.scrollWidth, d.clientWidth]]));
    seen.background = frames.wide.defaultView.getComputedStyle(frames.wide.body).backgroundColor;
    return seen;
    """
    pages = {
        "wide": (page, 1200),
        "phone": (page, 360),
        "compared": (comparison_page, 1200),
        "compared_phone": (comparison_page, 360),
    }
    result, complaints = in_a_browser(pages, script, tmp_path_factory.mktemp("browser"))
    return {**result, "complaints": complaints}


class TestInABrowser:
    def test_nothing_complains_and_no_text_takes_over(self, seen: dict[str, Any]) -> None:
        assert seen["complaints"] == []
        assert seen["title"] == f"{EVIL} among mark: n-gram overlap"

    def test_pointing_at_a_token_shows_its_window(self, seen: dict[str, Any], shown: dict[str, Any]) -> None:
        expected = []
        for order in range(1, MAX_ORDER + 1):
            for side, other in (SIDES, SIDES[::-1]):
                for t, windows in enumerate(shown[side]["windows"]):
                    window = windows[order - 1]
                    first = t + 1 - order
                    data = bytes.fromhex(
                        "".join(token["hex"] for token in shown[side]["tokens"][max(first, 0) : t + 1])
                    )
                    row = {"side": side, "token": t, "order": order, "missing": False}
                    row |= {"key": None, "hex": None, "text": None, "verdict": "verdict", "own": [], "twin": []}
                    if window is not None:
                        twin = {
                            k
                            for match in window["found"]
                            for k in range(match["last"] + 1 - match["order"], match["last"] + 1)
                        }
                        row |= {
                            "missing": not window["found"],
                            "key": window["key"],
                            "hex": data.hex(" "),
                            "text": "".join(visible_pieces(data)),
                            "verdict": "verdict yes" if window["found"] else "verdict no",
                            "own": [[side, k] for k in range(first, t + 1)],
                            "twin": [[other, k] for k in sorted(twin) if k < len(shown[other]["tokens"])],
                        }
                    expected.append(row)
        made = [{name: value for name, value in row.items() if name != "sentence"} for row in seen["windows"]]
        assert made == expected
        assert {row["verdict"] for row in made} == {"verdict", "verdict yes", "verdict no"}
        assert any(int(row["key"]) > 2**53 for row in made if row["key"])

    def test_the_answer_says_where_the_other_makes_it_or_why_it_does_not(self, seen, shown) -> None:
        for row in seen["windows"]:
            window = shown[row["side"]]["windows"][row["token"]][row["order"] - 1]
            if window is None:
                assert "has no window" in row["sentence"]
            elif any(match["here"] for match in window["found"]):
                assert "makes the same window here" in row["sentence"]
            elif window["found"]:
                assert f"elsewhere, at byte {window['found'][0]['begin']}" in row["sentence"]
            elif not window["begin_cut"] or not window["end_cut"]:
                assert "does not cut where it" in row["sentence"]
            else:
                assert f"{window['other_tokens']} token" in row["sentence"]

    def test_it_counts_what_the_other_makes(self, seen: dict[str, Any], shown: dict[str, Any]) -> None:
        for side, sentence in zip(SIDES, seen["counts"], strict=True):
            windows = [at_token[-1] for at_token in shown[side]["windows"] if at_token[-1] is not None]
            found = sum(bool(window["found"]) for window in windows)
            assert sentence == f", {found} of {len(windows)} windows also made by the other"

    def test_a_click_holds_a_window_until_another_or_escape(self, seen: dict[str, Any]) -> None:
        assert seen["held"] == ["target", 5]
        assert seen["free"] == seen["escaped"] == ["target", 7]

    def test_arrow_keys_walk_along_a_line_and_between_the_lines(self, seen, shown) -> None:
        keys, sides, tokens, followed = zip(*seen["walk"], strict=True)
        assert keys == ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "End", "Home")
        assert sides == ("target", "target", "target", "reference", "target", "target", "target")
        assert tokens[:3] == (1, 2, 1) and tokens[4:] == (1, len(shown["target"]["tokens"]) - 1, 0)
        assert all(followed)
        assert seen["stops"] == 1 and seen["labels"]
        middle = sum(shown["target"]["tokens"][1][end] for end in ("begin", "end")) / 2
        below = shown["reference"]["tokens"][tokens[3]]
        assert below["begin"] <= middle < below["end"]

    def test_nothing_jumps(self, seen: dict[str, Any]) -> None:
        assert seen["heights"] == 1

    def test_no_page_scrolls_sideways(self, seen: dict[str, Any]) -> None:
        for name, (whole, inside) in seen["widths"].items():
            width = 360 if "phone" in name else 1200
            assert width - 20 <= inside <= width  # a scroll bar may stand beside it
            assert whole <= inside, name

    def test_it_is_dark_where_dark_is_asked_for(self, seen: dict[str, Any], page: str, tmp_path: Path) -> None:
        script = """
        const style = (of, name) => frames.dark.defaultView.getComputedStyle(frames.dark.querySelector(of))[name];
        return [style('body', 'backgroundColor'), style('.heat td', 'backgroundColor'), style('.heat td', 'color')];
        """
        flags = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0")
        (dark, cell, ink), complaints = in_a_browser({"dark": (page, 1200)}, script, tmp_path, *flags)
        assert complaints == []
        assert (seen["background"], dark) == ("rgb(255, 255, 255)", "rgb(18, 22, 27)")
        style = re.search(r"<td style=\"--light: \S+; --light-ink: \S+; --dark: #(\w{6}); --dark-ink: #(\w{6})", page)
        assert [cell, ink] == [f"rgb({', '.join(str(c) for c in bytes.fromhex(colour))})" for colour in style.groups()]
