"""Opening addresses: what comes of it, what is waited for, and what is said where nothing comes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gad.browser.browser import WebBrowser, explain, read_address
from gad.core.ports import ToolContext
from gad.errors import BrowserError
from tests.browsers import ENVIRONMENT, call, shown
from tests.sites import Asked, Loop, Served, Site

GIF = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\4\1\0\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"


def echo(asked: Asked) -> Served:
    return Served(f"<p>agent {asked.headers['User-Agent']} cookies {asked.headers.get('Cookie', 'none')}")


def locked(asked: Asked) -> Served:
    if "Authorization" in asked.headers:
        return Served("<p>open")
    return Served("<p>locked", 401, headers={"www-authenticate": 'Basic realm="x"'})


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site({"/": "<title>start</title><p>hello", "/two": "<title>two</title><p>second"}) as site:
        yield site


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("b")


@pytest.fixture(scope="module")
def browser(loop: Loop, place: Path) -> Iterator[WebBrowser]:
    async def make() -> WebBrowser:
        made = WebBrowser(str(place / "browser"), environment=ENVIRONMENT, patience=0.5, load_seconds=1.5)
        made.start()
        return made

    browser = loop.run(make())
    yield browser
    loop.run(browser.close())
    assert os.listdir(place / "browser") == []


@pytest.fixture
def session(place: Path, request: pytest.FixtureRequest) -> ToolContext:
    return call(place, request.node.name)


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
    site.pages |= {"/image": Served(GIF, type="image/gif"), "/locked": locked}
    sight = loop.run(browser.scan(session, url=site.url("/gone")))
    assert (shown(sight.page), sight.notes) == ("nothing here", ("HTTP 410 Gone",))
    sight = loop.run(browser.scan(session, url=site.url("/empty")))
    assert sight.notes == ("the server answered without a page; the tab shows what it showed before",)
    sight = loop.run(browser.scan(session, url=site.url("/image")))
    assert sight.notes == ("the address is an image, of which no text can be read here",)
    with pytest.raises(BrowserError, match="it wants a user and a password"):
        loop.run(browser.scan(session, url=site.url("/locked")))
    sight = loop.run(browser.scan(session, url=site.url("/locked").replace("://", "://a:b@")))
    assert shown(sight.page) == "open"
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


def test_a_page_that_is_stuck(browser: WebBrowser, loop: Loop, site: Site, session: ToolContext) -> None:
    site.pages["/stuck"] = "<p>stuck<script>setTimeout(() => {while (1);}, 30)</script>"
    sight = loop.run(browser.scan(session, url=site.url("/stuck")))
    assert (shown(sight.page), sight.notes) == ("stuck", ("tab 1: a script without end was stopped",))
    site.pages["/stuck"] = "<p>half<script>while (1);</script>"
    with pytest.raises(BrowserError, match=r"it did not load within 1\.5 s; a script without end was stopped"):
        loop.run(browser.scan(session, url=site.url("/stuck")))
    assert shown(loop.run(browser.scan(session)).page) == "half"


def test_a_page_that_replaced_what_scripts_are_made_of_is_not_stuck(
    browser: WebBrowser, loop: Loop, site: Site, session: ToolContext
) -> None:
    site.pages["/spoilt"] = """<p>spoilt<script>Map = Set = Promise = JSON = undefined;
        Array.prototype.push = Function.prototype.call = () => { throw 1 }</script><img src=/held>"""
    site.pages["/held"] = Served("", wait=(wait := threading.Event()))
    sight = loop.run(browser.scan(session, url=site.url("/spoilt")))
    wait.set()
    assert (shown(sight.page), sight.notes) == ("spoilt", ())


def test_a_page_that_goes_where_nothing_answers(
    browser: WebBrowser, loop: Loop, site: Site, session: ToolContext
) -> None:
    site.pages["/never"] = Served("late", wait=(wait := threading.Event()))
    site.pages["/leaves"] = "<p>leaves<script>setTimeout(() => { location = '/never' }, 50)</script>"
    sight = loop.run(browser.scan(session, url=site.url("/leaves")))
    wait.set()
    assert shown(sight.page) == "leaves"
    assert sight.notes == ("tab 1: where it was going did not answer, and that was stopped",)


def test_a_server_that_does_not_answer(browser: WebBrowser, loop: Loop, site: Site, session: ToolContext) -> None:
    wait = threading.Event()
    site.pages["/never"] = Served("late", wait=wait)
    try:
        with pytest.raises(BrowserError, match=r"it did not load within 1\.5 s"):
            loop.run(browser.scan(session, url=site.url("/never")))
    finally:
        wait.set()


def test_a_cancelled_call_lets_the_next_one_work(
    browser: WebBrowser, loop: Loop, site: Site, session: ToolContext
) -> None:
    wait = threading.Event()
    site.pages["/held"] = Served("late", wait=wait)

    async def break_off() -> None:
        task = asyncio.create_task(browser.scan(session, url=site.url("/held")))
        while not any(asked.path == "/held" for asked in site.asked):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run(browser.scan(session, url=site.url("/")))
    loop.run(break_off())
    sight = loop.run(browser.scan(session))
    wait.set()
    assert (shown(sight.page), sight.notes, len(sight.tabs)) == ("hello", (), 1)


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
