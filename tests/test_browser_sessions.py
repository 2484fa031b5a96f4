"""Sessions in one browser: their tabs, cookies, dialogs, downloads and popups, and what opening an address says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gad.browser.browser import WebBrowser, explain, read_address
from gad.browser.visits import LONGEST_NAME, MOST_TABS, clean_name
from gad.core.page import Sight
from gad.core.ports import ToolContext
from gad.errors import BrowserError
from tests.browsers import ENVIRONMENT, call, shown
from tests.sites import Asked, Loop, Served, Site

COUNTER = """<title>visit</title><p id=n></p><script>
const seen = name => (document.cookie.match(name + '=([^;]*)') || [])[1] || '';
document.cookie = 'who=' + (seen('who') || location.search.slice(1));
localStorage.who = localStorage.who || location.search.slice(1);
document.getElementById('n').textContent = 'cookie ' + seen('who') + ' storage ' + localStorage.who;
</script>"""


def attachment(name: str, body: bytes = b"abc") -> Served:
    return Served(body, type="application/octet-stream", headers={"content-disposition": f"attachment; filename{name}"})


def echo(asked: Asked) -> Served:
    return Served(f"<p>agent {asked.headers['User-Agent']} cookies {asked.headers.get('Cookie', 'none')}")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site({"/": "<title>start</title><p>hello", "/two": "<title>two</title><p>second", "/count": COUNTER}) as site:
        yield site


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    with Loop() as loop:
        yield loop


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("b")


@pytest.fixture(scope="module")
def browser(loop: Loop, place: Path) -> Iterator[WebBrowser]:
    async def make() -> WebBrowser:
        made = WebBrowser(
            str(place / "browser"), environment=ENVIRONMENT, profiles=("shop",), patience=0.5, load_seconds=1.5
        )
        made.start()
        return made

    browser = loop.run(make())
    yield browser
    loop.run(browser.close())
    assert os.listdir(place / "browser") in ([], ["shop"])


@pytest.fixture
def session(place: Path, request: pytest.FixtureRequest) -> ToolContext:
    return call(place, request.node.name)


def events(sight: Sight) -> list[tuple[str, str]]:
    return [(event.kind, event.text) for event in sight.events]


def test_two_sessions_at_once_never_mix(browser: WebBrowser, loop: Loop, site: Site, place: Path) -> None:
    async def visit(name: str) -> list[Sight]:
        return [await browser.scan(call(place, name), url=site.url("/count?" + name)) for _ in range(3)]

    async def both() -> list[list[Sight]]:
        return list(await asyncio.gather(visit("ann"), visit("bob")))

    for name, sights in zip(("ann", "bob"), loop.run(both()), strict=True):
        for sight in sights:
            assert shown(sight.page) == f"cookie {name} storage {name}"
            assert [(tab.number, tab.url, tab.active) for tab in sight.tabs] == [(1, site.url("/count?" + name), True)]
    with pytest.raises(BrowserError, match=r"there is no tab 2; open are: 1"):
        loop.run(browser.scan(call(place, "ann"), tab=2))


def test_a_session_without_tabs(browser: WebBrowser, loop: Loop, session: ToolContext) -> None:
    assert loop.run(browser.scan(session, look=False)) == Sight(())
    sight = loop.run(browser.scan(session))
    assert [(tab.number, tab.url, tab.active) for tab in sight.tabs] == [(1, "about:blank", True)]
    assert shown(sight.page) == ""


def test_refs_go_on_where_they_were(browser: WebBrowser, loop: Loop, site: Site, session: ToolContext) -> None:
    site.pages["/links"] = "<a href=/>a</a> <a href=/two>b</a>"
    found = []
    for _ in range(2):
        page = loop.run(browser.scan(session, url=site.url("/links"))).page
        assert page is not None
        found.append([node.ref for node in page.root.walk() if node.kind == "link"])
    assert found == [[1, 2], [3, 4]]


def test_scripts_run_in_the_session_s_tab(browser: WebBrowser, loop: Loop, site: Site, place: Path) -> None:
    for name in ("eve", "dan"):
        loop.run(browser.scan(call(place, name), url=site.url("/count?" + name)))
    for name in ("eve", "dan"):
        acted = loop.run(browser.execute(call(place, name), "localStorage.who + document.cookie", monitor=False))
        assert (acted.value, acted.error, [tab.number for tab in acted.tabs]) == (f"{name}who={name}", "", [1])


def test_dialogs_are_answered_and_told(browser: WebBrowser, loop: Loop, site: Site, session: ToolContext) -> None:
    site.pages["/ask"] = """<p id=p></p><script>alert('look\\nhere ' + 'x'.repeat(600));
        const said = [confirm('sure?'), prompt('name?', 'me')]; p.textContent = JSON.stringify(said);
        onbeforeunload = () => 'stay';</script>"""
    sight = loop.run(browser.scan(session, url=site.url("/ask")))
    assert shown(sight.page) == "[false,null]"
    told = events(sight)
    assert [kind for kind, _ in told] == ["dialog"] * 3
    assert told[0][1] == "alert: look here " + "x" * 490 + " (accepted)"
    assert [text for _, text in told[1:]] == ["confirm: sure? (dismissed)", "prompt: name? (dismissed)"]
    assert shown(loop.run(browser.scan(session, url=site.url("/"))).page) == "hello"


def test_popups_become_tabs(browser: WebBrowser, loop: Loop, site: Site, session: ToolContext) -> None:
    site.pages["/open"] = (
        """<p>opener</p><script>setTimeout(() => { open('/two'); open('/', '', 'noopener') })</script>"""
    )
    first = loop.run(browser.scan(session, url=site.url("/open")))
    second = loop.run(browser.scan(session))
    told = sorted(events(first) + events(second))
    assert told == [("tab", f"tab {n} was opened by tab 1 and is the active one now") for n in (2, 3)]
    assert [tab.number for tab in second.tabs] == [1, 2, 3]
    active = next(tab for tab in second.tabs if tab.active)
    assert active.number in (2, 3) and second.page is not None and second.page.url == active.url
    back = loop.run(browser.scan(session, tab=1))
    assert [tab.active for tab in back.tabs] == [True, False, False] and shown(back.page) == "opener"


def test_the_tab_before_is_active_when_one_closes(
    browser: WebBrowser, loop: Loop, site: Site, session: ToolContext
) -> None:
    site.pages["/brief"] = "<title>brief</title><script>setTimeout(() => close(), 300)</script>"
    site.pages["/opens"] = "<p>opens</p><script>open('/brief')</script>"
    told = events(loop.run(browser.scan(session, url=site.url("/opens"))))
    while ("tab", "tab 2 was closed") not in told:
        told += events(loop.run(browser.scan(session, look=False)))
    sight = loop.run(browser.scan(session, look=False))
    assert [(tab.number, tab.active) for tab in sight.tabs] == [(1, True)]


def test_a_flood_of_popups_is_bounded(browser: WebBrowser, loop: Loop, site: Site, session: ToolContext) -> None:
    site.pages["/flood"] = (
        "<script>setTimeout(() => { for (let i = 0; i < 40; i++) open('about:blank') }, 300)</script>"
    )
    loop.run(browser.scan(session, url=site.url("/flood"), look=False))

    async def settled() -> Sight:
        while True:
            sight = await browser.scan(session, look=False)
            if max(tab.number for tab in sight.tabs) == 41 and len(sight.tabs) <= MOST_TABS:
                return sight

    sight = loop.run(settled())
    assert len(sight.tabs) == MOST_TABS and (sight.tabs[0].number, sight.tabs[-1].number) == (1, 41)


@pytest.mark.parametrize(
    ("chosen", "name"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\x.exe", "x.exe"),
        (".bashrc", "bashrc"),
        ("a\tb\n.txt", "ab.txt"),
        ("文書\u202efdp.exe", "文書fdp.exe"),
        ("x" * 300 + ".pdf", "x" * 196 + ".pdf"),
        ("", "download"),
        ("...", "download"),
        ("/", "download"),
        ("a/", "download"),
    ],
)
def test_a_name_is_cleaned(chosen: str, name: str) -> None:
    assert clean_name(chosen) == name


def test_downloads_are_saved_under_clean_names(
    browser: WebBrowser, loop: Loop, site: Site, session: ToolContext
) -> None:
    directory = Path(session.work)
    loop.run(browser.scan(session, url=site.url("/")))
    for name in ("=report.pdf", '="../../etc/passwd"', "=.bashrc", "*=UTF-8''a%09b%E2%80%AE.txt", "=report.pdf"):
        site.pages["/file"] = attachment(name)
        before = set(os.listdir(directory / "downloads")) if (directory / "downloads").exists() else set()
        sight = loop.run(browser.scan(session, url=site.url("/file")))
        assert sight.notes == ("the address is a download; the tab shows what it showed before",)
        assert shown(sight.page) == "hello"
        (saved,) = set(os.listdir(directory / "downloads")) - before
        assert events(sight) == [("download", f"saved {directory}/downloads/{saved} (3 bytes)")]
        assert clean_name(saved) == saved
        assert (directory / "downloads" / saved).read_bytes() == b"abc"
    assert {"report.pdf", "report-2.pdf"} < set(os.listdir(directory / "downloads"))
    assert os.listdir(directory) == ["downloads"]


@given(st.text(alphabet=st.characters(), max_size=300) | st.text(alphabet="./\\ a文\u202e\0\n", max_size=300))
def test_a_clean_name_is_one_part_of_a_path(name: str) -> None:
    cleaned = clean_name(name)
    assert cleaned and "/" not in cleaned and "\\" not in cleaned and not cleaned.startswith(".")
    assert cleaned.isprintable() or not cleaned.isascii()
    assert not set(cleaned) & {"\0", "\n", "\u202e"}
    assert len(cleaned.encode()) <= LONGEST_NAME
    assert clean_name(cleaned) == cleaned


def test_a_download_that_breaks_off_is_told_and_leaves_nothing(
    browser: WebBrowser, loop: Loop, site: Site, session: ToolContext
) -> None:
    served = attachment("=cut.bin")
    site.pages["/cut"] = Served(served.body, 200, served.type, served.headers | {"content-encoding": "gzip"})
    told = events(loop.run(browser.scan(session, url=site.url("/cut"))))
    assert told and told[0][0] == "download" and told[0][1].startswith("cut.bin was not saved: "), told
    assert os.listdir(Path(session.work) / "downloads") == []


def test_a_profile_is_shared_by_its_label_only(browser: WebBrowser, loop: Loop, site: Site, place: Path) -> None:
    def look(name: str, *labels: str) -> Sight:
        return loop.run(browser.scan(call(place, name, *labels), url=site.url("/count?" + name)))

    assert shown(look("first", "x", "shop").page) == "cookie first storage first"
    second = look("second", "shop")
    assert shown(second.page) == "cookie first storage first"
    assert [tab.number for tab in second.tabs] == [1]
    assert shown(look("third").page) == "cookie third storage third"
    site.pages["/pop"] = "<script>open('/two')</script>"
    loop.run(browser.scan(call(place, "first", "shop"), url=site.url("/pop")))
    assert len(loop.run(browser.scan(call(place, "first", "shop"))).tabs) == 2
    assert len(loop.run(browser.scan(call(place, "second", "shop"))).tabs) == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://nowhere.invalid/x", r"http://nowhere.invalid/x could not be opened: there is no such host"),
        ("http://127.0.0.1:9/", "ERR_UNSAFE_PORT"),
        ("http://127.0.0.1:2/", "could not be opened: the host refuses the connection"),
        ("http://", "it is not a valid address"),
        ("file:///nowhere/x", "there is no such file"),
        ("javascript:alert(1)", "javascript: addresses cannot be opened"),
        ("chrome://settings", "chrome: addresses cannot be opened"),
        ("view-source:http://a", "view-source: addresses cannot be opened"),
    ],
)
def test_an_address_that_cannot_be_opened(
    browser: WebBrowser, loop: Loop, session: ToolContext, url: str, said: str
) -> None:
    with pytest.raises(BrowserError, match=said):
        loop.run(browser.scan(session, url=url))
    assert loop.run(browser.scan(session, look=False)).tabs == ()  # it left no tab


def test_what_a_server_answers_with(browser: WebBrowser, loop: Loop, site: Site, session: ToolContext) -> None:
    site.pages |= {"/gone": Served("<p>nothing here", 410), "/empty": Served("", 204)}
    sight = loop.run(browser.scan(session, url=site.url("/gone")))
    assert (shown(sight.page), sight.notes) == ("nothing here", ("HTTP 410 Gone",))
    sight = loop.run(browser.scan(session, url=site.url("/empty")))
    assert sight.notes == ("the server answered without a page; the tab shows what it showed before",)
    site.pages["/away"] = "<script>location = '/two'</script>"
    assert shown(loop.run(browser.scan(session, url=site.url("/away"))).page) == "second"
    site.pages["/echo"] = echo
    assert "Chrome/" in shown(loop.run(browser.scan(session, url=site.url("/echo"))).page)


def test_a_page_that_renders_late_is_waited_for(
    browser: WebBrowser, loop: Loop, site: Site, session: ToolContext
) -> None:
    site.pages["/late"] = """<p id=p>loading</p><script>
        fetch('/data').then(r => r.text()).then(t => setTimeout(() => { p.textContent = t }, 50))</script>"""
    site.pages["/data"] = "loaded"
    assert shown(loop.run(browser.scan(session, url=site.url("/late"))).page) == "loaded"


@pytest.mark.parametrize(
    "page", ["<p>x<script>while (1);</script>", "<p>x<script>setTimeout(() => {while (1);}, 30)</script>"]
)
def test_a_page_that_is_stuck(browser: WebBrowser, loop: Loop, site: Site, session: ToolContext, page: str) -> None:
    site.pages["/stuck"] = page
    with pytest.raises(BrowserError, match="tab 1 was closed: a script of its page runs without end"):
        loop.run(browser.scan(session, url=site.url("/stuck")))
    sight = loop.run(browser.scan(session, url=site.url("/")))
    assert shown(sight.page) == "hello" and [tab.number for tab in sight.tabs] == [2]


def test_a_server_that_does_not_answer(browser: WebBrowser, loop: Loop, site: Site, session: ToolContext) -> None:
    from threading import Event

    wait = Event()
    site.pages["/never"] = Served("late", wait=wait)
    try:
        with pytest.raises(BrowserError, match=r"it did not load within 1\.5 s"):
            loop.run(browser.scan(session, url=site.url("/never")))
    finally:
        wait.set()


def test_a_cancelled_call_lets_the_next_one_work(
    browser: WebBrowser, loop: Loop, site: Site, session: ToolContext
) -> None:
    from threading import Event

    wait = Event()
    site.pages["/held"] = Served("late", wait=wait)

    async def break_off() -> None:
        task = asyncio.create_task(browser.scan(session, url=site.url("/held")))
        while not any(asked.path == "/held" for asked in site.asked):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run(break_off())
    wait.set()
    sight = loop.run(browser.scan(session, url=site.url("/")))
    assert shown(sight.page) == "hello" and len(sight.tabs) == 1


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("example.com", "https://example.com"),
        ("example.com:8443/x", "https://example.com:8443/x"),
        ("localhost:8000", "http://localhost:8000"),
        ("a.localhost/x", "http://a.localhost/x"),
        ("192.168.1.2:80/a?b", "http://192.168.1.2:80/a?b"),
        ("[::1]:80", "http://[::1]:80"),
        ("//example.com/x", "https://example.com/x"),
        (" HTTP://example.com ", "HTTP://example.com"),
        ("about:blank", "about:blank"),
        ("data:text/html,x", "data:text/html,x"),
    ],
)
def test_an_address_gets_its_scheme(given: str, read: str) -> None:
    assert read_address(given) == read


def test_failures_in_words() -> None:
    assert explain("net::ERR_CERT_DATE_INVALID at https://x/", 30).startswith("its certificate has expired")
    assert explain("net::ERR_CERT_WEAK_KEY at https://x/", 30) == "its certificate is not valid (ERR_CERT_WEAK_KEY)"
    assert explain("Timeout 30000ms exceeded.", 30) == "it did not load within 30 s"
