"""A browser that crashes is noticed, told of, and started anew; a call under way ends with an error."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Page

from gad.browser.browser import WebBrowser
from gad.core.page import Event, Sight
from gad.errors import BrowserError
from tests.browsers import (
    Clock,
    alive,
    call,
    chromium,
    command,
    driver,
    make_browser,
    processes,
    shown,
    until,
)
from tests.sites import Loop, Site

COUNT = """<p id=n></p><script>
document.cookie = 'n=' + (1 + Number((document.cookie.match(/n=(\\d+)/) || [0, 0])[1])) + ';max-age=999';
n.textContent = document.cookie + ' ' + (localStorage.n = 1 + Number(localStorage.n || 0));
</script>"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site({"/": "<p>hello", "/count": COUNT}) as site:
        yield site


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def browser(loop: Loop, tmp_path: Path, clock: Clock) -> Iterator[WebBrowser]:
    browser = loop.run(make_browser(tmp_path, clock))
    yield browser
    loop.run(browser.close())
    assert until(lambda: not processes(tmp_path))


def test_a_crash_is_noticed_and_told(browser: WebBrowser, loop: Loop, site: Site, tmp_path: Path) -> None:
    ann, bob = call(tmp_path, "ann"), call(tmp_path, "bob", "shop")
    for context in (ann, bob):
        loop.run(browser.scan(context, url=site.url("/count")))
    before = processes(tmp_path)
    for pid in before:
        if "--user-data-dir=" in command(pid) and "--type=" not in command(pid):
            os.kill(pid, signal.SIGKILL)
    sight = loop.run(browser.scan(ann, url=site.url("/count")))
    assert shown(sight.page) == "n=1 1"
    assert sight.notes == ("the browser crashed and was started anew; tabs, cookies and logins are gone",)
    assert sight.events == (Event("tab", f"open were: {site.url('/count')}"),)
    other = loop.run(browser.scan(bob))
    assert other.notes[0].startswith("the browser crashed and was started anew; tabs are gone, logins were kept")
    assert [tab.number for tab in (*sight.tabs, *other.tabs)] == [2, 2]
    assert until(lambda: not alive(before))


def test_a_driver_that_dies_is_noticed(browser: WebBrowser, loop: Loop, site: Site, tmp_path: Path) -> None:
    context = call(tmp_path, "ann")
    loop.run(browser.scan(context, url=site.url("/")))
    before = processes(tmp_path)
    os.kill(driver(), signal.SIGKILL)
    sight = loop.run(browser.scan(context, url=site.url("/")))
    assert shown(sight.page) == "hello" and sight.notes[0].startswith("the browser crashed and was started anew")
    assert until(lambda: not alive(before))


@pytest.mark.parametrize("victim", [chromium, lambda place: driver()], ids=["browser", "driver"])
def test_a_call_under_way_when_it_crashes(
    browser: WebBrowser, loop: Loop, site: Site, tmp_path: Path, victim: Callable[[Path], int]
) -> None:
    from threading import Event

    from tests.sites import Served

    context, wait = call(tmp_path, "ann"), Event()
    site.pages["/slow"] = Served("late", wait=wait)
    loop.run(browser.scan(context, url=site.url("/")))

    async def crash() -> None:
        before = len(site.asked)
        task = asyncio.create_task(browser.scan(context, url=site.url("/slow")))
        while not any(asked.path == "/slow" for asked in site.asked[before:]):
            await asyncio.sleep(0.01)
        os.kill(await asyncio.to_thread(victim, tmp_path), signal.SIGKILL)
        with pytest.raises(BrowserError, match="the browser crashed during this call; the next one starts it anew"):
            await asyncio.wait_for(task, 10)

    loop.run(crash())
    wait.set()
    assert shown(loop.run(browser.scan(context, url=site.url("/"))).page) == "hello"


def test_a_tab_that_never_appears_is_asked_for_again(
    browser: WebBrowser, loop: Loop, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gad.browser.visits.OPENING", 2.0)
    real, asked = BrowserContext.new_page, []

    async def never_at_first(self: BrowserContext) -> Page:
        asked.append(self)
        if len(asked) == 1:
            await asyncio.Event().wait()
        return await real(self)

    monkeypatch.setattr(BrowserContext, "new_page", never_at_first)
    assert shown(loop.run(browser.scan(call(tmp_path, "ann"), url=site.url("/"))).page) == "hello"
    assert len(asked) == 2


def test_a_page_that_crashes(browser: WebBrowser, loop: Loop, site: Site, tmp_path: Path) -> None:
    context = call(tmp_path, "ann")
    loop.run(browser.scan(context, url=site.url("/")))
    for pid in processes(tmp_path):
        if "--type=renderer" in command(pid):
            os.kill(pid, signal.SIGKILL)

    async def told() -> Sight:
        while True:
            sight = await browser.scan(context, look=False)
            if sight.events:
                return sight

    sight = loop.run(told())
    assert [event.text for event in sight.events] == [f"tab 1 crashed and was closed; it showed {site.url('/')}"]
    assert shown(loop.run(browser.scan(context, url=site.url("/"))).page) == "hello"
