"""Sessions in one browser: their tabs, cookies, dialogs, downloads and popups."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gad.browser import eyes
from gad.browser.browser import WebBrowser
from gad.browser.visits import LONGEST_NAME, MOST_TABS, clean_name
from gad.core.page import Sight
from gad.core.ports import ToolContext
from gad.errors import BrowserError
from tests.browsers import ENVIRONMENT, call, shown
from tests.sites import Loop, Served, Site

if TYPE_CHECKING:
    from playwright.async_api import Page as Shown

COUNTER = """<title>visit</title><p id=n></p><script>
const seen = name => (document.cookie.match(name + '=([^;]*)') || [])[1] || '';
document.cookie = 'who=' + (seen('who') || location.search.slice(1));
localStorage.who = localStorage.who || location.search.slice(1);
document.getElementById('n').textContent = 'cookie ' + seen('who') + ' storage ' + localStorage.who;
</script>"""


def attachment(name: str, body: bytes = b"abc") -> Served:
    return Served(body, type="application/octet-stream", headers={"content-disposition": f"attachment; filename{name}"})


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site({"/": "<title>start</title><p>hello", "/two": "<title>two</title><p>second", "/count": COUNTER}) as site:
        yield site


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("b")


@pytest.fixture(scope="module")
def browser(loop: Loop, place: Path) -> Iterator[WebBrowser]:
    async def make() -> WebBrowser:
        made = WebBrowser(str(place / "browser"), environment=ENVIRONMENT, profiles=("shop",), patience=0.5)
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


def test_a_download_without_end_is_broken_off(
    browser: WebBrowser, loop: Loop, site: Site, session: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gad.browser.visits.LONGEST_DOWNLOAD", 0.3)
    served = attachment("=endless.bin", b"1000\r\n%b\r\n" % bytes(0x1000))  # the last chunk never comes
    site.pages["/endless"] = Served(served.body, 200, served.type, served.headers | {"transfer-encoding": "chunked"})
    told = events(loop.run(browser.scan(session, url=site.url("/endless"))))
    assert told == [("download", "endless.bin was not saved: it took longer than 0.3 s")]
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


def test_a_look_that_fails_leaves_no_number_for_another_element(
    browser: WebBrowser, loop: Loop, site: Site, session: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pages |= {"/a": "<button>a</button>", "/b": "<button>b</button>"}
    see = eyes.look

    async def unheard(page: Shown, *, after: int) -> eyes.Look:
        await see(page, after=after)
        raise BrowserError("lost")

    def refs(sight: Sight) -> set[int]:
        assert sight.page is not None
        return {node.ref for node in sight.page.root.walk()} - {0}

    with monkeypatch.context() as patched:
        patched.setattr("gad.browser.eyes.look", unheard)
        with pytest.raises(BrowserError, match="lost"):
            loop.run(browser.scan(session, url=site.url("/a")))
    loop.run(browser.execute(session, f"open('{site.url('/b')}')"))
    second = refs(loop.run(browser.scan(session)))
    assert second and not second & refs(loop.run(browser.scan(session, tab=1)))
