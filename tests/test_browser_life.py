"""The browser's life: started when needed, closed when idle, started anew when it crashes, and gone with its daemon."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gad.browser.browser import WebBrowser
from gad.browser.chromium import find_chromium, install_command
from gad.core.page import Sight
from gad.errors import BrowserError
from tests.browsers import ENVIRONMENT, alive, call, command, marked, shown, until
from tests.sites import Loop, Site

COUNT = """<p id=n></p><script>
document.cookie = 'n=' + (1 + Number((document.cookie.match(/n=(\\d+)/) || [0, 0])[1])) + ';max-age=999';
n.textContent = document.cookie + ' ' + (localStorage.n = 1 + Number(localStorage.n || 0));
</script>"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site({"/": "<p>hello", "/count": COUNT}) as site:
        yield site


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    with Loop() as loop:
        yield loop


class Clock:
    """Time that only a test turns."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def browser(loop: Loop, tmp_path: Path, clock: Clock) -> Iterator[WebBrowser]:
    browser = loop.run(make(tmp_path, clock))
    yield browser
    loop.run(browser.close())
    assert until(lambda: not processes(tmp_path))


async def make(place: Path, clock: Callable[[], float]) -> WebBrowser:
    return WebBrowser(str(place / "b"), environment=ENVIRONMENT, profiles=("shop",), clock=clock)


def processes(place: Path) -> set[int]:
    """Return the processes of the browsers that were started for a directory."""
    return marked(f"GAD_BROWSER={place / 'b'}")


def driver() -> int:
    """Return this process's Playwright driver."""
    (found,) = (pid for pid in _children(os.getpid()) if "driver/node" in command(pid))
    return found


def _children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def chromium(place: Path) -> int:
    """Return the main process of a directory's browser."""
    (found,) = (pid for pid in processes(place) if "--user-data-dir=" in command(pid) and "--type=" not in command(pid))
    return found


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
    assert sight.tabs == () and sight.notes == (
        "the browser was not used for 300 s: its tabs were closed, cookies and logins were kept; "
        f"open were: {site.url('/count')}",
    )
    clock.now += 300
    loop.run(browser.sweep())
    assert until(lambda: not processes(tmp_path))
    assert os.listdir(tmp_path / "b") == []
    again = loop.run(browser.scan(ann, url=site.url("/count")))
    assert shown(again.page) == "n=2 2"
    assert again.notes == () and [tab.number for tab in again.tabs] == [2]
    told = loop.run(browser.scan(bob))
    assert shown(told.page) == "" and told.notes[0].endswith(f"open were: {site.url('/')}")
    assert loop.run(browser.scan(bob)).notes == ()


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
    assert sight.notes == (
        f"the browser crashed and was started anew; tabs, cookies and logins are gone; open were: {site.url('/count')}",
    )
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


def test_a_profile_survives_a_restart(loop: Loop, site: Site, tmp_path: Path, clock: Clock) -> None:
    for count in ("n=1 1", "n=2 2"):
        browser = loop.run(make(tmp_path, clock))
        assert shown(loop.run(browser.scan(call(tmp_path, "ann", "shop"), url=site.url("/count"))).page) == count
        loop.run(browser.close())
        assert until(lambda: not processes(tmp_path))
        os.symlink("another-host-1", tmp_path / "b" / "shop" / "SingletonLock")  # as after a crash elsewhere
    assert os.listdir(tmp_path / "b") == ["shop"]


def test_closing_while_it_starts(loop: Loop, tmp_path: Path, clock: Clock) -> None:
    async def both(turns: int) -> None:
        browser = await make(tmp_path, clock)
        task = asyncio.create_task(browser.scan(call(tmp_path, "ann")))
        for _ in range(turns):
            await asyncio.sleep(0.02)
        await browser.close()
        with pytest.raises(BrowserError, match=r"gad is being shut down"):
            await asyncio.wait_for(task, 10)
        with pytest.raises(BrowserError, match=r"gad is being shut down"):
            await browser.scan(call(tmp_path, "ann"))

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
        assert not any("driver/node" in command(pid) for pid in _children(os.getpid()))
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
