"""Running a script in a page: its value, its errors, what it sets off, and that it always ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gad.browser.chromium import Running
from gad.errors import BrowserError
from tests.script_runs import Runs, browser, runs, text_of
from tests.sites import Asked, Loop, Served, Site


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


@pytest.fixture(scope="module")
def running(loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with browser(loop, tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture(scope="module")
def page(loop: Loop, running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with runs(loop, running, tmp_path_factory.mktemp("work")) as made:
        yield made


@pytest.fixture
def fresh(loop: Loop, running: Running, tmp_path: Path) -> Iterator[Runs]:
    """A context of its own, for tests that count tabs, close them or look for files."""
    with runs(loop, running, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def at_rest(loop: Loop, running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """A page for scripts that leave it as it is."""
    html = """<p>text</p><a id=l class='x y' href=/q onclick='f()'>q</a>
        <script>function pageFunction() { throw new Error('thrown by the page') }</script>"""
    with Site({"/": html}) as site, runs(loop, running, tmp_path_factory.mktemp("work")) as made:
        made.open(site.url())
        yield made


@pytest.fixture
def site() -> Iterator[Site]:
    with Site({"/": "<title>one</title><p>first page</p><a href=/two>next</a>"}) as made:
        made.pages["/two"] = "<title>two</title><p>second page</p>"
        yield made


# -- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("1 + 1", 2),
        ("'\u00e9\u4e2d'", "\u00e9\u4e2d"),
        ("null", None),
        ("[undefined, null, true]", [None, None, True]),
        ("[NaN, Infinity, -Infinity, -0, 1.5]", ["NaN", "Infinity", "-Infinity", 0, 1.5]),
        ("NaN", "NaN"),
        ("2n ** 64n", 2**64),
        ("[2n ** 64n]", [2**64]),
        ("new Date(0)", "1970-01-01T00:00:00.000Z"),
        ("new Map([['a', 1], ['b', new Set([1, 2])]])", {"a": 1, "b": [1, 2]}),
        ("new Map([[{k: 1}, 2], ['a', 3]])", [[{"k": 1}, 2], ["a", 3]]),
        ("/a+/gi", "/a+/gi"),
        ("new TypeError('oh')", "TypeError: oh"),
        ("[{status: 'rejected', reason: new Error('no')}]", [{"status": "rejected", "reason": "Error: no"}]),
        ("new DOMException('gone', 'AbortError')", "AbortError: gone"),
        ("[function f() {}, () => 0]", ["[function f]", "[function]"]),
        ("new Uint8Array([1, 2, 255])", [1, 2, 255]),
        ("({a: new Float64Array([0.5])})", {"a": [0.5]}),
        ("window", "[window]"),
        ("document", "[document]"),
        ("document.querySelector('a')", '<a#l.x.y href="/q">'),
        ("document.querySelectorAll('a, p')", ["<p>", '<a#l.x.y href="/q">']),
        ("document.links", ['<a#l.x.y href="/q">']),
        ("document.querySelector('p').firstChild", "text"),
        ("({top: new DOMRect(1, 2, 3, 4)})", {"top": {
            "x": 1, "y": 2, "width": 3, "height": 4, "top": 2, "right": 4, "bottom": 6, "left": 1}}),
        ("const a = {n: 1}; a.self = a; a", {"n": 1, "self": "[circular]"}),
        ("const s = [1]; ({a: s, b: s})", {"a": [1], "b": [1]}),
        ("let d = 0; for (let i = 0; i < 14; i++) d = [d]; d", [[[[[[[[[[[["[...]"]]]]]]]]]]]]),
        ("Symbol('s')", "[symbol]"),
        ("await Promise.resolve([1])", [1]),
        ("Promise.resolve(7)", 7),
        ("let x = 1; { x += 2 } x // a comment at the end", 3),
        ("function f() { return 4 } f()", 4),
        ("if (1) { 'yes' } else { 'no' }", "yes"),
        ("return {a: await 5}", {"a": 5}),
        ("if (document.body) return [1]; return [2]", [1]),
        ("return null", None),
    ],
)  # fmt: skip
def test_the_value_of_a_script_is_json(at_rest: Runs, script: str, value: Any) -> None:
    done = at_rest.run(script)
    assert (done.error, done.value, done.returned) == ("", value, True)


@pytest.mark.parametrize("script", ["undefined", "let x = 1", "return", "return undefined", "await 0; void 1"])
def test_a_script_without_a_value_returns_none(at_rest: Runs, script: str) -> None:
    done = at_rest.run(script)
    assert (done.error, done.value, done.returned) == ("", None, False)


@pytest.mark.parametrize(
    "script",
    [
        "'x'.repeat(21_000_000)",
        "Array.from({length: 900}, () => 'y'.repeat(60_000))",
        "return 'z'.repeat(50_000_000)",
        "let bomb = ['0123456789']; for (let i = 0; i < 11; i++) bomb = [bomb, bomb, bomb, bomb, bomb, bomb]; bomb",
    ],
)
def test_a_value_that_is_too_large_is_an_error_and_harms_nothing(at_rest: Runs, script: str) -> None:
    done = at_rest.run(script)
    assert done.error.startswith("the value is too large") and done.value is None
    assert at_rest.run("1").value == 1


def test_scripts_share_nothing_but_what_they_put_on_the_window(page: Runs, site: Site) -> None:
    page.open(site.url())
    page.run("const kept = 1; window.mine = 2")
    assert page.run("[typeof kept, mine]").value == ["undefined", 2]
    assert page.run("const kept = 3; kept").value == 3


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("let a = 1;\n\nnope()", "ReferenceError: nope is not defined (line 3:1)"),
        ("  nope()", "ReferenceError: nope is not defined (line 1:3)"),
        ("let a =;\n1", "SyntaxError: Unexpected token ';' (line 1:8)"),
        ("let a = 1;\nfoo bar", "SyntaxError: Unexpected identifier 'bar' (line 2:5)"),
        ("if (1) {\n  2", "SyntaxError: Unexpected end of input (line 2:4)"),
        ("await 1;\nawait Promise.reject(new Error('no\\nway'))", "Error: no\nway (line 2:22)"),
        ("return new Promise((_, no) => no(new Error('late')))", "Error: late (line 1:34)"),
        ("Promise.reject(new Error('unawaited'))", "Error: unawaited (line 1:16)"),
        ("throw 'text'", "thrown: text"),
        ("throw {code: 5}", "thrown: {'code': 5}"),
        ("return 1;\nnope(", "SyntaxError: Unexpected token '}' (line 2:6)"),
        ("// one\n[1].map(\n  x => x.y.z)", "TypeError: Cannot read properties of undefined (reading 'z') (line 3:12)"),
        ("pageFunction()", "Error: thrown by the page (line 1:1)"),
    ],
)
def test_errors_tell_the_line_of_the_script(at_rest: Runs, script: str, error: str) -> None:
    done = at_rest.run(script)
    assert (done.error, done.returned) == (error, False)


def test_a_return_in_code_that_is_evaluated_does_not_run_the_script_twice(page: Runs, site: Site) -> None:
    page.open(site.url())
    page.run("window.runs = 0")
    assert "Illegal return" in page.run("window.runs++; eval('return 1')").error
    assert page.run("window.runs").value == 1


# -- scripts without end -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    ["while (1);", "await 0; while (1);", "while (1) await 0", "await new Promise(f => setTimeout(f, 20)); for (;;);"],
)
def test_a_busy_script_is_stopped_and_the_tab_goes_on(at_rest: Runs, script: str) -> None:
    done = at_rest.run(script, seconds=0.4)
    assert done.error == "the script did not end within 0.4 s; it was stopped"
    assert at_rest.run("document.links.length").value == 1


def test_a_script_that_waits_for_ever_is_given_up(at_rest: Runs) -> None:
    done = at_rest.run("window.f = new Promise(() => {}); await f", seconds=0.4)
    assert done.error.startswith("the script did not end within 0.4 s; what it waits for did not come")
    assert at_rest.run("document.links.length").value == 1


def test_a_value_that_takes_for_ever_to_read_is_given_up(at_rest: Runs) -> None:
    done = at_rest.run("({get a() { while (1); }})", seconds=0.4)
    assert "did not end within 0.4 s" in done.error
    assert at_rest.run("1").value == 1


def test_cancelling_stops_a_busy_script(page: Runs, site: Site) -> None:
    page.open(site.url())

    async def cancel() -> None:
        begun = asyncio.Event()
        tab = await page.visit.tab()
        tab.page.on("console", lambda _: begun.set())
        task = asyncio.create_task(page.start("console.log('on'); while (1);"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    page.loop.run(cancel())
    assert page.run("document.title").value == "one"


def test_a_page_that_is_stuck_by_itself_is_closed_and_said(
    fresh: Runs, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gad.browser.script.LOOK_SECONDS", 0.5)
    fresh.open(site.url())

    async def stuck() -> None:
        tab = await fresh.visit.tab()
        async with tab.page.expect_console_message():
            await tab.page.evaluate("setTimeout(() => { console.log('on'); while (1); }, 0)")

    fresh.loop.run(stuck())
    with pytest.raises(BrowserError, match="closed: a script of the page runs without end"):
        fresh.watch("1")
    assert fresh.watch("location.href").value == "about:blank"


def test_a_script_that_leaves_the_page_stuck_is_stopped(
    page: Runs, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gad.browser.script.LOOK_SECONDS", 1.0)
    monkeypatch.setattr("gad.browser.settle.STUCK_SECONDS", 0.3)
    page.open(site.url())
    done = page.watch("setTimeout(() => { while (1); }, 150); 'begun'", seconds=1)
    assert any("a script without end: it was stopped" in note for note in done.notes) and done.value == "begun"
    assert page.watch("document.title").value == "one"


# -- what a script sets off ----------------------------------------------------------------------


def test_a_script_that_sets_off_nothing_costs_little(page: Runs, site: Site) -> None:
    page.open(site.url())
    page.watch("1")
    spent = []
    for _ in range(5):
        began = time.perf_counter()
        done = page.watch("document.title")
        spent.append(time.perf_counter() - began)
        assert (done.value, done.moved, done.unsettled, done.brief) == ("one", False, "", ())
    assert sorted(spent)[2] < 0.4


def test_a_link_leads_to_another_page(page: Runs, site: Site) -> None:
    page.open(site.url())
    done = page.watch("document.querySelector('a').click(); 'clicked'")
    assert (done.value, done.moved, done.error) == ("clicked", True, "")
    assert text_of(done.before).startswith("first page") and text_of(done.after) == "second page"
    assert done.after is not None and done.after.url == site.url("/two")


def test_a_page_that_leaves_ends_the_script(page: Runs, site: Site) -> None:
    page.open(site.url())
    done = page.watch(f"location.href = '{site.url('/two', 'b.localhost')}'; await new Promise(() => {{}})")
    assert (done.returned, done.error, done.moved) == (False, "", True)
    assert done.notes == ("the script ended when the page left",)
    assert text_of(done.after) == "second page"


def test_a_slow_page_is_waited_for(page: Runs, site: Site) -> None:
    come = threading.Event()
    site.pages["/slow"] = Served("<p>here at last</p>", wait=come)
    page.open(site.url())
    threading.Timer(0.8, come.set).start()
    done = page.watch("location.href = '/slow'; 1")
    assert text_of(done.after) == "here at last" and done.moved and not done.unsettled


def test_a_page_that_does_not_come_is_said(fresh: Runs, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gad.browser.settle.ARRIVAL_SECONDS", 0.3)
    never = threading.Event()
    site.pages["/never"] = Served("", wait=never)
    fresh.open(site.url())
    try:
        done = fresh.watch("location.href = '/never'; 1")
        host = site.url("").removeprefix("http://")
        assert done.unsettled == f"no answer came from {host}/never; going there was stopped" and done.value == 1
        assert text_of(done.after).startswith("first page") and not done.moved
    finally:
        never.set()


def test_a_page_that_comes_anew_all_the_time_is_not_waited_for(
    fresh: Runs, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gad.browser.settle.ARRIVAL_SECONDS", 0.5)
    site.pages["/again"] = "<p>again</p><script>setTimeout(() => location.reload(), 60)</script>"
    fresh.open(site.url())
    began = time.monotonic()
    done = fresh.watch("location.href = '/again'; 1")
    assert done.moved and done.unsettled != "" and time.monotonic() - began < 10


def test_a_form_is_sent_and_its_answer_shown(page: Runs, site: Site) -> None:
    def answer(asked: Asked) -> Served:
        return Served(f"<p>got {asked.body.decode()}</p>")

    site.pages["/"] = "<form action=/send method=post><input name=q><button>go</button></form>"
    site.pages["/send"] = answer
    page.open(site.url())
    done = page.watch("document.forms[0].q.value = 'tea'; document.forms[0].requestSubmit()")
    assert text_of(done.after) == "got q=tea" and done.moved


def test_going_back(page: Runs, site: Site) -> None:
    page.open(site.url())
    page.open(site.url("/two"))
    done = page.watch("history.back()")
    assert done.moved and done.after is not None and done.after.title == "one"


def test_pushing_a_state_shows_the_same_document(page: Runs, site: Site) -> None:
    site.pages["/"] = """<div id=app>home</div><script>
        function go() { history.pushState({}, '', '/deep'); setTimeout(() => { app.textContent = 'deep page' }, 50) }
    </script>"""
    page.open(site.url())
    done = page.watch("go()")
    assert not done.moved and text_of(done.before) == "home" and text_of(done.after) == "deep page"
    assert done.after is not None and done.after.url == site.url("/deep")


def test_what_is_fetched_is_shown(page: Runs, site: Site) -> None:
    come = threading.Event()
    site.pages["/data"] = Served('{"text": "fetched"}', type="application/json", wait=come)
    site.pages["/"] = """<p id=out></p><script>
        async function load() {
            const found = await (await fetch('/data')).json();
            setTimeout(() => { out.textContent = found.text }, 60);
        }
    </script>"""
    page.open(site.url())
    threading.Timer(0.6, come.set).start()
    done = page.watch("load(); 0")
    assert text_of(done.after) == "fetched" and done.unsettled == ""


def test_what_goes_on_is_said(page: Runs, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gad.browser.settle.REQUEST_SECONDS", 0.3)
    monkeypatch.setattr("gad.browser.settle.CHANGE_SECONDS", 0.3)
    never = threading.Event()
    site.pages["/poll"] = Served("", wait=never)
    page.open(site.url())
    try:
        done = page.watch("fetch('/poll?a=1'); fetch('/poll?a=2'); setInterval(() => { document.title += 'x' }, 20); 0")
        host = site.url("").removeprefix("http://")
        assert done.unsettled == f"2 requests: {host}/poll; the page keeps changing"
        began = time.monotonic()
        assert "request" not in page.watch("1").unsettled  # those of an earlier script do not count
        assert time.monotonic() - began < 2
    finally:
        never.set()


def test_a_toast_that_vanishes_is_told(page: Runs, site: Site) -> None:
    site.pages["/"] = """<button onclick="save()">save</button><script>
        function save() {
            const toast = document.createElement('div');
            toast.textContent = 'Saved as draft';
            document.body.append(toast);
            setTimeout(() => toast.remove(), 300);
        }
    </script>"""
    page.open(site.url())
    done = page.watch("save()")
    assert done.brief == ("Saved as draft",) or "Saved as draft" in text_of(done.after)
    done = page.watch("save(); await new Promise(f => setTimeout(f, 400))")
    assert done.brief == ("Saved as draft",)


def test_dialogs_are_told_and_a_script_can_answer_them(page: Runs, site: Site) -> None:
    page.open(site.url())
    done = page.watch("alert('watch out'); confirm('sure?')")
    assert done.value is False
    assert [event.text for event in done.events] == ["alert: watch out (accepted)", "confirm: sure? (dismissed)"]
    done = page.watch("window.confirm = () => true; confirm('sure?')")
    assert (done.value, done.events) == (True, ())


@pytest.mark.parametrize(
    "script", ["open('/two')", "document.querySelector('a').target = '_blank'; document.querySelector('a').click()"]
)
def test_a_new_tab_is_the_one_shown(fresh: Runs, site: Site, script: str) -> None:
    fresh.open(site.url())
    done = fresh.watch(f"{script}; 1")
    assert text_of(done.after) == "second page" and done.before is None and done.moved
    assert [(tab.number, tab.active) for tab in done.tabs] == [(1, False), (2, True)]


def test_a_script_may_close_its_tab(fresh: Runs, site: Site) -> None:
    fresh.open(site.url())
    fresh.watch("open('/two')")
    done = fresh.watch("window.close(); await new Promise(() => {})")
    assert done.error == "" and [tab.number for tab in done.tabs] == [1]
    assert text_of(done.after).startswith("first page")


def test_a_download_is_waited_for(fresh: Runs, site: Site, tmp_path: Path) -> None:
    site.pages["/file"] = Served(
        "data", type="application/zip", headers={"content-disposition": "attachment; filename=a.zip"}
    )
    site.pages["/"] = "<a href=/file>get</a>"
    fresh.open(site.url())
    done = fresh.watch("document.querySelector('a').click()")
    assert (tmp_path / "downloads" / "a.zip").read_text() == "data"
    assert not done.moved and done.unsettled == "" and done.events[0].kind == "download"


def test_without_monitor_nobody_looks_or_waits(page: Runs, site: Site) -> None:
    never = threading.Event()
    site.pages["/poll"] = Served("", wait=never)
    page.open(site.url())
    try:
        done = page.run("fetch('/poll'); 5")
        assert (done.value, done.before, done.after, done.unsettled) == (5, None, None, "")
    finally:
        never.set()


# -- pages that are in the way -------------------------------------------------------------------

HOSTILE = """<p>hostile</p><a href=/two>next</a><script>
    const bad = () => { throw new Error('overwritten') };
    JSON.stringify = JSON.parse = bad;
    for (const type of [Array, String, Function, Map, Set, Date, RegExp, Number, Object])
        for (const name of Object.getOwnPropertyNames(type.prototype))
            if (name !== 'constructor' && typeof type.prototype[name] === 'function') type.prototype[name] = bad;
    Promise.prototype.then = bad;
    for (const name of ['Promise', 'Array', 'Map', 'Set', 'WeakSet', 'Error', 'eval', 'Function']) window[name] = bad;
</script>"""


def test_a_page_that_overwrites_everything_changes_no_value(page: Runs, site: Site) -> None:
    site.pages["/"] = HOSTILE
    page.open(site.url())
    done = page.watch("const v = await (async () => ({a: [1, 'x', null], b: document.links}))(); v")
    assert (done.error, done.value) == ("", {"a": [1, "x", None], "b": ['<a href="/two">']})
    done = page.watch("return {late: await 1}")
    assert (done.error, done.value) == ("", {"late": 1})
    assert text_of(done.after).startswith("hostile")


def test_a_strict_content_security_policy_does_not_matter(page: Runs, site: Site) -> None:
    policy = {"content-security-policy": "default-src 'none'; require-trusted-types-for 'script'"}
    site.pages["/"] = Served("<p>strict</p>", headers=policy)
    page.open(site.url())
    assert page.watch("await 1; document.querySelector('p').textContent").value == "strict"
    assert page.watch("return [await 2]").value == [2]
