"""gad show --html: one page that shows everything, in a real browser, whatever a journal holds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gad.browser.chromium import Running
from gad.cli import exits, gad
from gad.cli.chart import columns
from gad.cli.html_page import RESULT_LIMIT
from gad.cli.plain import one_line, visible
from gad.core.messages import Assistant, Text, Thinking, ToolCall, ToolResult, Usage
from gad.core.records import (
    Answered,
    Asked,
    Begin,
    Calling,
    Checked,
    Ended,
    Record,
    Said,
    ToolFinished,
    ToolStarted,
    encode,
)
from gad.core.task import TaskOptions
from gad.home import make_home
from gad.spool.status import write_status
from tests.browsers import until
from tests.sites import Loop, Site

HOSTILE = (
    "</pre></details></script><script>window.hacked = 1; fetch('http://127.0.0.1:9/x')</script>"
    "<img src=http://127.0.0.1:9/y onerror='window.hacked = 2'><iframe src='http://127.0.0.1:9/z'></iframe>"
    "<style>body { display: none }</style><link rel=stylesheet href=http://127.0.0.1:9/css>"
    "<svg onload='window.hacked = 3'><meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>"
    "\" onclick='window.hacked = 4' <!-- --> ]]> &lt; &amp; "
    "\x00\x07\x1b[2J\r \x85 \u202egnp.exe\u2066 \u2028 \ufeff \ud800"
)
LONG = "w" * 3000
"""A word that no line holds."""


def answer(turn: int, *parts: Text | Thinking | ToolCall, usd: float | None = 0.01) -> list[Record]:
    usage = Usage(900 * turn, 50, 400)
    return [
        Calling(10.0 * turn, turn, "m"),
        Answered(10.0 * turn + 1, turn, Assistant(parts), "tools", "the-model", usage, usd),
    ]


def result(turn: int, output: str, status: Any = "ok", **meta: Any) -> list[Record]:
    call = f"c{turn}"
    return [
        ToolStarted(10.0 * turn + 2, call, "code_run"),
        ToolFinished(10.0 * turn + 3, ToolResult(call, status, output, meta), 1.25),
    ]


STORY: list[Record] = [
    Begin(1.0, "s", TaskOptions()),
    Said(1.0, 1, "input.txt", "Please look at <b>this</b> & that.\n\nSecond paragraph: مرحبا"),
    *answer(
        1, Thinking("Hm, let me think."), Text("I look."), ToolCall("c1", "code_run", {"code": "ls\nls -l", "n": 3})
    ),
    *result(1, "one\ntwo\nthree", exit=0),
    *answer(2, ToolCall("c2", "code_run", {"code": HOSTILE})),
    *result(2, HOSTILE, "error", why=HOSTILE),
    *answer(3, Text(f"{HOSTILE}\n{LONG}"), ToolCall("c3", "code_run", {"code": LONG})),
    *result(3, "begin " + "x" * 3 * RESULT_LIMIT + " end"),
    Checked(40.0, 1, HOSTILE + "\nline" * 20),
    Said(41.0, 2, "reply.txt", HOSTILE),
    *answer(5, Text("Which?"), usd=0.0375),
    Asked(52.0, "", HOSTILE, ("a", HOSTILE)),
    Ended(60.0, "failed", HOSTILE),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("html") / "home"
    make_home(home)
    directory = home / "spool/s"
    directory.mkdir()
    journal(directory, STORY)
    write_status(directory, {"state": "failed", "error": HOSTILE.replace("\ud800", ""), "children_cost_usd": 0.5})
    return home


def journal(directory: Path, records: list[Record]) -> None:
    directory.mkdir(exist_ok=True)
    lines = [json.dumps(encode(record)) + "\n" for record in records]
    (directory / "journal.jsonl").write_text("".join(lines), "ascii")


def show(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(gad, ["--home", str(home), "show", *arguments])


@pytest.fixture(scope="module")
def written(home: Path) -> Path:
    path = home.parent / "page.html"
    done = show(home, "s", "--html", str(path))
    assert done.exit_code == 0, done.output
    assert str(path) in done.stderr
    return path


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}


def test_the_page_has_no_tag_and_no_attribute_that_acts(written: Path) -> None:
    found = Tags(written.read_text("utf-8"))
    assert not found.tags & {"script", "img", "iframe", "link", "object", "embed", "form", "base"}
    assert not {name for name, _ in found.attributes if name.startswith("on") or name in ("src", "style", "action")}
    links = {value for name, value in found.attributes if name == "href"}
    assert links == {"#t1", "#t2", "#t3", "#t4"}
    assert links <= {f"#{value}" for name, value in found.attributes if name == "id"}


def test_nothing_in_the_file_steers_or_hides(written: Path) -> None:
    text = written.read_text("utf-8")
    assert not [letter for letter in text if letter in "\x00\x07\x1b\r\x85\u202e\u2066\u2028\ufeff"]
    for seen in (
        "␀",
        "␇",
        "␛[2J",
        "␍",
        "[U+0085]",
        "[U+202E]gnp.exe[U+2066]",
        "[U+2028]",
        "[U+FEFF]",
        "&lt;/script&gt;",
    ):
        assert seen in text
    assert visible("a\r\nb\tc\n") == "a\nb\tc\n" and "👩‍💻" in visible("👩‍💻 می‌خواهم")
    assert one_line("a\nb\u202ec\x1b[2J") == "a bc [2J"


def test_a_huge_result_is_cut_and_says_where_the_rest_is(written: Path) -> None:
    text = written.read_text("utf-8")
    assert "characters cut; all of it is in the journal: gad show --json s ...]" in text
    assert "begin xxx" in text and "xxx end" in text
    assert "x" * RESULT_LIMIT not in text


def test_the_file_is_replaced_whole_and_read_by_its_owner_alone(home: Path, tmp_path: Path) -> None:
    path, kept = tmp_path / "page.html", tmp_path / "kept"
    kept.write_text("kept")
    path.symlink_to(kept)
    assert show(home, "--html", str(path), "s").exit_code == 0
    assert kept.read_text() == "kept" and not path.is_symlink() and path.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["kept", "page.html"]
    before = path.read_bytes()
    (home / "spool/broken").mkdir(exist_ok=True)
    (home / "spool/broken/journal.jsonl").write_text('{"kind": "message", "at": 1}\n')
    refused = show(home, "--html", str(path), "broken")
    assert refused.exit_code == exits.ERROR and "journal line 1" in refused.stderr
    assert path.read_bytes() == before
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in show(home, "--html", str(tmp_path / "pipe"), "s").stderr
    assert "No such file" in show(home, "--html", str(tmp_path / "none/page.html"), "s").stderr
    assert show(home, "--html", str(path), "--json", "s").exit_code == exits.USAGE


def test_looking_leaves_the_session_as_it_is(home: Path, tmp_path: Path) -> None:
    directory = home / "spool/s"
    before = files(directory)
    for arguments in (["s"], ["s", "--json"], ["s", "--html", str(tmp_path / "page.html")]):
        assert show(home, *arguments).exit_code == 0
    assert files(directory) == before


def files(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    """Return all that can be told of a directory's files, but for when they were read."""
    found = {path.name: (path, path.stat()) for path in directory.iterdir()}
    return {name: (path.read_bytes(), stat.st_ino, stat.st_mtime_ns) for name, (path, stat) in found.items()}


def test_a_chart_of_very_many_turns_stays_small() -> None:
    drawn = columns("t", [float(turn % 997) for turn in range(5000)], link="#t")
    assert drawn.count("<rect") <= 140 and "turns 1 to 36, at most: 35" in drawn
    assert columns("t", [None, 0.0], link="#t", unit="$").count("unknown") == 1
    assert "<rect" not in columns("t", [], link="#t")


class Opened:
    """The page in a browser as wide as a phone, and all that it asked for or complained of."""

    def __init__(self, loop: Loop, page: Any, seen: list[str]) -> None:
        self.loop = loop
        self.page = page
        self.seen = seen

    @staticmethod
    async def open(running: Running, path: Path, scheme: Any) -> tuple[Any, list[str]]:
        context = await running.browser.new_context(viewport={"width": 360, "height": 640}, color_scheme=scheme)
        page = await context.new_page()
        seen: list[str] = []
        page.on("request", lambda request: seen.append(f"request {request.url}"))
        page.on("console", lambda message: seen.append(f"console {message.text}"))
        page.on("dialog", lambda dialog: seen.append(f"dialog {dialog.message}"))
        page.on("pageerror", lambda error: seen.append(f"error {error}"))
        await page.goto(path.as_uri())
        return page, seen

    def run(self, script: str, argument: object = None) -> Any:
        return self.loop.run(self.page.evaluate(script, argument))

    def click(self, selector: str) -> None:
        self.loop.run(self.page.locator(selector).first.click())


@pytest.fixture(scope="module", params=["light", "dark"])
def opened(request: pytest.FixtureRequest, loop: Loop, running: Running, written: Path) -> Iterator[Opened]:
    page = loop.run(Opened.open(running, written, request.param))
    made = Opened(loop, *page)
    yield made
    loop.run(made.page.context.close())


def test_nothing_is_fetched_and_nothing_runs(opened: Opened, written: Path) -> None:
    assert opened.seen == [f"request {written.as_uri()}"]
    assert opened.run("() => window.hacked ?? 'untouched'") == "untouched"
    assert opened.run("() => document.querySelectorAll('script, img, iframe, link, [onclick]').length") == 0
    assert "</script><script>window.hacked" in opened.run("() => document.body.innerText")


def test_the_policy_stops_what_would_get_in_all_the_same(opened: Opened) -> None:
    with Site() as site:
        url = site.url("/x")
        opened.run(
            """url => {
                window.stopped = [];
                document.addEventListener('securitypolicyviolation', one => stopped.push(one.effectiveDirective));
                const made = document.createElement('div');
                made.innerHTML = `<img src=${url} onerror='window.hacked = 5'><style>main { opacity: 0 }</style>`;
                made.firstChild.addEventListener('error', () => stopped.push('image'));
                const script = document.createElement('script');
                script.textContent = 'window.hacked = 6';
                made.append(script);
                document.body.append(made);
            }""",
            url,
        )
        expected = {"image", "img-src", "style-src-elem", "script-src-elem", "script-src-attr"}
        assert until(lambda: expected <= set(opened.run("() => stopped"))), opened.run("() => stopped")
        assert opened.run("() => window.hacked ?? 'untouched'") == "untouched"
        assert site.asked == []


WIDE = "() => [...document.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"


def test_a_phone_needs_no_sideways_scrolling(opened: Opened) -> None:
    for state in ("false", "true"):
        opened.run(f"() => document.querySelectorAll('details').forEach(one => {{ one.open = {state} }})")
        assert opened.run("() => document.documentElement.scrollWidth") == 360
        assert opened.run(WIDE) == 0
    opened.run("() => document.querySelectorAll('details').forEach(one => { one.open = false })")
    sizes = "() => [...document.querySelectorAll('pre, summary, dd, h2')].map(e => getComputedStyle(e).fontSize)"
    assert min(float(size.removesuffix("px")) for size in opened.run(sizes)) >= 12
    drawn = "() => { const m = document.querySelector('svg').getScreenCTM(); return m.a * 11 }"
    assert opened.run(drawn) >= 10  # the size at which a chart's words are seen


CONTRAST = """() => {
    const parse = text => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => {
        const part = value => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
        return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
    };
    const ground = element => {
        for (; element; element = element.parentElement) {
            const found = parse(getComputedStyle(element).backgroundColor);
            if (found.length < 4 || found[3] > 0) return found;
        }
        return [255, 255, 255];
    };
    const found = {};
    for (const element of document.querySelectorAll('body *')) {
        const drawn = element instanceof SVGElement;
        const words = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
        const bar = element.tagName === 'rect';
        if (element.tagName === 'title' || !(words || bar)) continue;
        const style = getComputedStyle(element);
        const one = light(parse(drawn ? style.fill : style.color)), other = light(ground(element));
        const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        const name = element.tagName + '.' + element.getAttribute('class');
        found[name] = Math.min(found[name] ?? 99, ratio);
    }
    return [found, ground(document.body)];
}"""


def test_both_colour_schemes_can_be_read(opened: Opened, request: pytest.FixtureRequest) -> None:
    ratios, ground = opened.run(CONTRAST)
    dark = opened.run("() => matchMedia('(prefers-color-scheme: dark)').matches")
    assert (ground[0] < 60) == dark  # the scheme is followed
    assert {"DT.null", "SUMMARY.null", "PRE.null", "text.words", "rect.column", "B.null"} <= set(ratios)
    assert min(ratios.values()) >= 4.5, ratios


def test_results_open_and_close(opened: Opened) -> None:
    shown = "() => document.querySelector('details.result pre').checkVisibility()"
    assert opened.run(shown) is False
    opened.click("details.result summary")
    assert opened.run(shown) is True
    assert opened.run("() => document.querySelector('details.result pre').innerText") == "one\ntwo\nthree"
    opened.click("details.result summary")
    assert opened.run(shown) is False
    assert opened.run("() => document.querySelectorAll('details.result.bad').length") == 1


def test_the_charts_show_each_turn_and_lead_to_it(opened: Opened) -> None:
    titles = opened.run("() => [...document.querySelectorAll('svg title')].map(one => one.textContent)")
    assert titles[:4] == ["turn 1: 900", "turn 2: 1,800", "turn 3: 2,700", "turn 4: 4,500"]
    assert titles[4:] == ["turn 1: $0.01", "turn 2: $0.01", "turn 3: $0.01", "turn 4: $0.0375"]
    heights = opened.run("() => [...document.querySelectorAll('rect')].map(one => one.getBoundingClientRect().height)")
    assert heights[3] / heights[0] == pytest.approx(5, rel=0.1) and heights[7] / heights[4] == pytest.approx(
        3.75, rel=0.1
    )
    opened.click("svg a[href='#t3'] rect")
    assert opened.run("() => document.querySelector(':target').innerText.includes('turn 3')")


def test_without_scripts_it_is_the_same_page(loop: Loop, running: Running, written: Path) -> None:
    async def look() -> tuple[bool, bool]:
        context = await running.browser.new_context(java_script_enabled=False)
        page = await context.new_page()
        await page.goto(written.as_uri())
        block = page.locator("details.result pre").first
        before = await block.is_visible()
        await page.locator("details.result summary").first.click()
        after = await block.is_visible()
        await context.close()
        return before, after

    assert loop.run(look()) == (False, True)
