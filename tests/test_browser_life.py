"""The browser's life: found, started when it is needed, closed when it is idle or no more needed."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gad.browser.browser import WebBrowser
from gad.browser.chromium import find_chromium, install_command
from gad.core.page import Event
from gad.errors import BrowserError
from tests.browsers import (
    ENVIRONMENT,
    Clock,
    call,
    children,
    command,
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


def test_it_is_started_at_first_use_and_closed_when_idle(
    browser: WebBrowser, loop: Loop, site: Site, tmp_path: Path, clock: Clock
) -> None:
    ann, bob = call(tmp_path, "ann"), call(tmp_path, "bob")
    loop.run(browser.scan(ann, look=False))
    assert not processes(tmp_path)
    assert shown(loop.run(browser.scan(ann, url=site.url("/count"))).page) == "n=1 1"
    clock.now += 200
    loop.run(browser.scan(bob, url=site.url("/")))
    clock.now += 200
    loop.run(browser.sweep())
    assert processes(tmp_path)  # bob used it 200 seconds ago
    sight = loop.run(browser.scan(ann, look=False))
    assert (sight.tabs, sight.notes, sight.events) == (
        (),
        ("the browser was not used for 300 s: its tabs were closed, cookies and logins were kept",),
        (Event("tab", f"open were: {site.url('/count')}"),),
    )
    clock.now += 300
    loop.run(browser.sweep())
    assert until(lambda: not processes(tmp_path))
    assert os.listdir(tmp_path / "b") == []
    again = loop.run(browser.scan(ann, url=site.url("/count")))
    assert shown(again.page) == "n=2 2"
    assert (again.notes, again.events) == ((), ()) and [tab.number for tab in again.tabs] == [2]
    told = loop.run(browser.scan(bob))
    assert shown(told.page) == "" and told.events == (Event("tab", f"open were: {site.url('/')}"),)
    told = loop.run(browser.scan(bob))
    assert (told.notes, told.events) == ((), ())


def test_what_is_kept_of_idle_sessions_is_bounded_and_said(
    browser: WebBrowser, loop: Loop, site: Site, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gad.browser.browser.MOST_REMEMBERED", 1)
    ann, bob = call(tmp_path, "ann"), call(tmp_path, "bob")
    for context in (ann, bob):
        loop.run(browser.scan(context, url=site.url("/count")))
    clock.now += 1000
    loop.run(browser.sweep())
    first, second = (loop.run(browser.scan(context, url=site.url("/count"))) for context in (ann, bob))
    assert (shown(first.page), shown(second.page)) == ("n=1 1", "n=2 2")
    assert first.notes == ("the browser was not used for long: tabs, cookies and logins are gone",)
    assert [tab.number for tab in first.tabs] == [2]


def test_a_profile_survives_a_restart(loop: Loop, site: Site, tmp_path: Path, clock: Clock) -> None:
    for count in ("n=1 1", "n=2 2"):
        browser = loop.run(make_browser(tmp_path, clock))
        assert shown(loop.run(browser.scan(call(tmp_path, "ann", "shop"), url=site.url("/count"))).page) == count
        loop.run(browser.close())
        assert until(lambda: not processes(tmp_path))
        os.symlink("another-host-1", tmp_path / "b" / "shop" / "SingletonLock")  # as after a crash elsewhere
    assert os.listdir(tmp_path / "b") == ["shop"]


def test_closing_while_it_starts(loop: Loop, tmp_path: Path, clock: Clock) -> None:
    async def both(turns: int) -> None:
        browser = await make_browser(tmp_path, clock)
        task = asyncio.create_task(browser.scan(call(tmp_path, "ann")))
        for _ in range(turns):
            await asyncio.sleep(0.02)
        await browser.close()
        with pytest.raises(BrowserError, match=r"gad is being shut down"):
            await asyncio.wait_for(task, 10)
        with pytest.raises(BrowserError, match=r"gad is being shut down"):
            await browser.scan(call(tmp_path, "ann"))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    for turns in (0, 1, 15):
        loop.run(both(turns))
        assert until(lambda: not processes(tmp_path))


def test_cancelling_a_start_leaves_a_browser_that_is_used_or_closed(
    browser: WebBrowser, loop: Loop, site: Site, tmp_path: Path, clock: Clock
) -> None:
    async def break_off() -> None:
        task = asyncio.create_task(browser.scan(call(tmp_path, "ann")))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run(break_off())
    assert shown(loop.run(browser.scan(call(tmp_path, "bob"), url=site.url("/"))).page) == "hello"
    loop.run(break_off())
    clock.now += 1000
    loop.run(browser.sweep())
    assert until(lambda: not processes(tmp_path))


def test_a_browser_that_cannot_be_found(loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    with pytest.raises(BrowserError, match=f"install it with: {sys.executable} -m playwright install chromium"):
        find_chromium("", empty)
    assert install_command({"PATH": "/usr/bin"}) == "apt-get install chromium"
    with pytest.raises(BrowserError, match=r"browser.executable in gad.yaml: /nowhere is not a program"):
        find_chromium("/nowhere", ENVIRONMENT)

    async def missing() -> None:
        browser = WebBrowser(str(tmp_path / "b"), environment=empty)
        with pytest.raises(BrowserError, match="no Chromium was found; install it with"):
            await browser.scan(call(tmp_path, "ann"))
        assert not any("driver/node" in command(pid) for pid in children(os.getpid()))
        await browser.close()

    loop.run(missing())


def test_the_order_in_which_a_browser_is_looked_for(tmp_path: Path) -> None:
    own = tmp_path / "home/.cache/ms-playwright/chromium-1200/chrome-linux64/chrome"
    system = tmp_path / "bin/chromium"
    environ = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")}
    for path in (system, own, tmp_path / "chosen", tmp_path / "playwright"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    assert find_chromium(str(tmp_path / "chosen"), environ, str(tmp_path / "playwright")) == str(tmp_path / "chosen")
    assert find_chromium("", environ, str(tmp_path / "playwright")) == str(tmp_path / "playwright")
    assert find_chromium("", environ, "/nowhere") == str(own)
    own.unlink()
    assert find_chromium("", environ) == str(system)


def test_a_program_that_is_no_browser(loop: Loop, tmp_path: Path) -> None:
    async def start() -> None:
        browser = WebBrowser(str(tmp_path / "b"), environment=ENVIRONMENT, executable=shutil.which("false") or "")
        with pytest.raises(BrowserError, match="the browser cannot be started: "):
            await browser.scan(call(tmp_path, "ann"))
        await browser.close()

    loop.run(start())
