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
from tokagnostic.studies.inspection import inspect_tokenizer
from tokagnostic.studies.passage import passage
from tokagnostic.studies.tokenizer_comparison import compare_tokenizers
from tokagnostic.tokens.encoder import TextEncoder

pytest.importorskip("jinja2", reason="the extra html is not installed")

HOSTILE = (
    "</script><script>document.title='owned'</script><!-- <img src=x onerror=document.title='owned'>\u2028\x00 é日😀"
)
TEXT = f"The river rose over the old stone bridge. {HOSTILE} The river rose again.\n"


@pytest.fixture(scope="module")
def shown(toy_tokenizers: dict[str, Tokenizer]) -> dict[str, Any]:
    """A passage of a hostile text under two tokenizers, one of which has a hostile name."""
    target = TextEncoder.from_tokenizer(toy_tokenizers["byte_level"], "<b>evil</b>")
    return passage(TEXT, target, TextEncoder.from_tokenizer(toy_tokenizers["metaspace"], "mark"), max_order=4)


@pytest.fixture(scope="module")
def page(toy_tokenizers: dict[str, Tokenizer], shown: dict[str, Any]) -> str:
    target = TextEncoder.from_tokenizer(toy_tokenizers["byte_level"], "<b>evil</b>")
    reference = TextEncoder.from_tokenizer(toy_tokenizers["metaspace"], "mark")
    result = ngram_overlap([TEXT, TEXT[:20], TEXT[9:]], target, reference, 4).to_dict()
    return overlap_page([result], [shown])


def browser() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium on this machine")


def dom_of(page: str, script: str, folder: Path, *flags: str) -> str:
    """What a browser makes of a page after a script was run in it."""
    path = folder / "page.html"
    path.write_text(page.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    command = [browser(), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run(
        [*command, *flags, "--virtual-time-budget=2000", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


def said(dom: str) -> Any:
    """What the script wrote into the page."""
    return json.loads(html.unescape(re.search(r'<output id="said">(.*?)</output>', dom, re.DOTALL)[1]))


SAY = "const say = value => { const o = document.createElement('output'); o.id = 'said'; o.textContent = JSON.stringify(value); document.body.append(o); };"


class TestTheFile:
    def test_it_fetches_nothing(self, page: str) -> None:
        assert not re.search(r"https?://|//[a-z]|@import|url\(|<link|<img|src=[\"']", page.replace("<img src=x", ""))

    def test_numbers_are_those_of_the_result(self, page: str, toy_tokenizers: dict[str, Tokenizer]) -> None:
        result = ngram_overlap(
            [TEXT, TEXT[:20], TEXT[9:]], toy_tokenizers["byte_level"], toy_tokenizers["metaspace"], 4
        ).to_dict()
        cells = re.findall(r"<td[^>]*>([\d.]+)</td>", page)
        assert cells[:4] == [f"{share:.1f}" for share in result["unique"]["any_order"]]

    def test_hostile_names_and_texts_are_text(self, page: str) -> None:
        assert "<b>evil</b>" not in page
        assert page.count("<script") == 2
        assert "&lt;b&gt;evil&lt;/b&gt;" in page

    def test_one_and_two_tokenizers(self, toy_tokenizers: dict[str, Tokenizer], shown: dict[str, Any]) -> None:
        encoders = [TextEncoder.from_tokenizer(toy_tokenizers[name], name) for name in ("metaspace", "wordpiece")]
        reports = [inspect_tokenizer(encoder) for encoder in encoders]
        alone = tokenizer_page(reports[:1])
        assert "Exact" in alone
        assert reports[0]["fingerprint"] in alone
        both = tokenizer_page(reports, compare_tokenizers(*encoders, ["The river rose."]), shown)
        assert "Lossy" in both
        assert "Side by side" in both
        assert 'class="passage"' in both

    def test_it_is_written_whole(self, tmp_path: Path) -> None:
        write_page(str(tmp_path / "new" / "page.html"), "é")
        assert (tmp_path / "new" / "page.html").read_text(encoding="utf-8") == "é"
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["page.html"]

    def test_another_name_is_refused(self) -> None:
        with pytest.raises(InvalidValueError, match=r"ends in \.html"):
            check_page("page.htm")

    def test_a_missing_library_is_named_with_its_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "jinja2", None)
        with pytest.raises(MissingExtraError, match=r"tokagnostic\[html\]"):
            check_page("page.html")


class TestInABrowser:
    def test_pointing_at_a_token_shows_its_window(self, page: str, shown: dict[str, Any], tmp_path: Path) -> None:
        script = (
            SAY
            + """
        const section = document.querySelector('.passage'), order = section.querySelector('.order'), seen = [];
        for (const n of [1, 2, 3, 4]) {
          order.value = n;
          for (const side of ['target', 'reference'])
            for (const button of section.querySelectorAll(`.chunks .${side} .token`)) {
              button.dispatchEvent(new Event(n % 2 ? 'mouseenter' : 'focus'));
              const facts = [...section.querySelectorAll('.answer dd')].map(dd => dd.textContent);
              seen.push([side, n, section.querySelector('.answer').dataset.key, facts[1] ?? null,
                (facts[4] ?? '').startsWith('yes')]);
            }
        }
        say([document.title, seen]);"""
        )
        title, seen = said(dom_of(page, script, tmp_path))
        assert title == "n-gram overlap"
        expected = []
        for n in (1, 2, 3, 4):
            for side in ("target", "reference"):
                for t, windows in enumerate(shown[side]["windows"]):
                    window = windows[n - 1]
                    tokens = shown[side]["tokens"][t + 1 - n : t + 1]
                    data = bytes.fromhex("".join(token["hex"] for token in tokens))
                    row = [window["key"], data.hex(" "), bool(window["found"])] if window else ["", None, False]
                    expected.append([side, n, *row])
        assert seen == expected
        assert any(row[4] for row in seen)

    @pytest.mark.parametrize("width", [360, 1200])
    def test_the_page_does_not_scroll_sideways(self, page: str, tmp_path: Path, width: int) -> None:
        frame = json.dumps(page).replace("</", "<\\/")
        outer = f'<!doctype html><body><iframe style="width:{width}px;height:900px;border:0"></iframe></body>'
        script = (
            SAY
            + f"""
        const frame = document.querySelector('iframe');
        frame.addEventListener('load', () => {{
          const root = frame.contentDocument.documentElement;
          say([root.scrollWidth, root.clientWidth]);
        }});
        frame.srcdoc = {frame};"""
        )
        wide, seen = said(dom_of(outer, script, tmp_path))
        assert width - 20 <= seen <= width  # a scroll bar may stand beside it
        assert wide <= seen

    def test_it_is_dark_where_dark_is_asked_for(self, page: str, tmp_path: Path) -> None:
        script = SAY + "say(getComputedStyle(document.body).backgroundColor);"
        light = said(dom_of(page, script, tmp_path))
        dark = said(dom_of(page, script, tmp_path, "--force-dark-mode", "--blink-settings=preferredColorScheme=0"))
        assert light == "rgb(253, 253, 252)"
        assert dark == "rgb(20, 23, 26)"
