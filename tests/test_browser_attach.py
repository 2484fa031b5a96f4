"""Attaching to a browser that a person uses: its tabs and logins are seen, and nothing of it is ever closed."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gad.browser.browser import WebBrowser
from gad.browser.chromium import Choices, Chromium
from gad.browser.visits import Visit
from gad.core.page import Sight
from gad.errors import BrowserError
from tests.browsers import ENVIRONMENT, call, shown, until
from tests.sites import Loop, Served, Site

COUNT = """<title>count</title><p id=n></p><script>
document.cookie = 'n=' + (1 + Number((document.cookie.match(/n=(\\d+)/) || [0, 0])[1]));
n.textContent = document.cookie;
</script>"""


class Person:
    """A person's browser, and what the person does with it."""

    def __init__(self, place: Path) -> None:
        command = [shutil.which("chromium") or "chromium", "--headless", "--no-sandbox", "--no-first-run"]
        quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        where = ["--remote-debugging-port=0", f"--user-data-dir={place / 'person'}", "about:blank"]
        self.process = subprocess.Popen(
            [*command, *quiet, *where],
            env=ENVIRONMENT | {"HOME": str(place)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        port = place / "person" / "DevToolsActivePort"
        assert until(lambda: port.exists() and "\n" in port.read_text())
        self.url = f"http://127.0.0.1:{port.read_text().split()[0]}"

    def ask(self, path: str, method: str = "GET") -> Any:
        with urllib.request.urlopen(urllib.request.Request(self.url + path, method=method), timeout=5) as answer:
            said = answer.read()
        return json.loads(said) if said[:1] in b"{[" else said.decode()

    def open(self, url: str) -> str:
        before = len(self.urls())
        target: str = self.ask("/json/new?" + url, "PUT")["id"]
        assert until(lambda: len(self.urls()) == before + 1 and url in self.urls())
        return target

    def show(self, target: str) -> None:
        self.ask("/json/activate/" + target)
        assert until(lambda: self.ask("/json/list")[0]["id"] == target)

    def urls(self) -> list[str]:
        return [target["url"] for target in self.ask("/json/list") if target["type"] == "page"]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site({"/": "<title>start</title><p>hello", "/count": COUNT, "/two": "<title>two</title><p>second"}) as site:
        yield site


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    person = Person(tmp_path_factory.mktemp("person"))
    yield person
    person.process.terminate()
    person.process.wait(10)


@pytest.fixture
def browser(person: Person, loop: Loop, tmp_path: Path) -> Iterator[WebBrowser]:
    async def make() -> WebBrowser:
        return WebBrowser(str(tmp_path / "b"), environment=ENVIRONMENT, cdp_url=person.url)

    browser = loop.run(make())
    yield browser
    loop.run(browser.close())
    assert person.process.poll() is None


def active(sight: Sight) -> str:
    (found,) = [tab.url for tab in sight.tabs if tab.active]
    return found


def test_tabs_logins_and_the_tab_that_the_person_sees(
    browser: WebBrowser, person: Person, loop: Loop, site: Site, tmp_path: Path
) -> None:
    ann, bob = call(tmp_path, "ann"), call(tmp_path, "bob")
    counted, two = person.open(site.url("/count")), person.open(site.url("/two"))
    person.show(counted)
    first = loop.run(browser.scan(ann))
    assert active(first) == site.url("/count") and shown(first.page) == "n=1"
    assert {tab.title for tab in first.tabs} >= {"count", "two"}
    person.show(two)
    assert shown(loop.run(browser.scan(ann)).page) == "second"
    # An address gets a tab of its own, which no other session sees, and the person's cookies.
    opened = loop.run(browser.scan(ann, url=site.url("/count?ann")))
    assert shown(opened.page) == "n=2" and active(opened) == site.url("/count?ann")
    assert {site.url("/count"), site.url("/two")} <= {tab.url for tab in opened.tabs}
    other = loop.run(browser.scan(bob))
    assert site.url("/count?ann") not in {tab.url for tab in other.tabs} and active(other) == site.url("/two")
    # What the person opens meanwhile is seen by both.
    third = person.open(site.url("/?third"))
    for context in (ann, bob):
        assert until(lambda: active(loop.run(browser.scan(context, look=False))) == site.url("/?third"))  # noqa: B023
    # Turning to a tab shows it to the person.
    number = next(tab.number for tab in opened.tabs if tab.url == site.url("/two"))
    assert shown(loop.run(browser.scan(ann, tab=number)).page) == "second"
    assert person.ask("/json/list")[0]["id"] == two
    before = set(person.urls())
    loop.run(browser.close())
    assert set(person.urls()) == before and site.url("/count?ann") in before
    for target in (counted, two, third):
        person.ask("/json/close/" + target)


def test_a_dialog_is_the_person_s_to_answer(person: Person, loop: Loop, site: Site, tmp_path: Path) -> None:
    # A tab that shows a dialog from its very beginning is not told of by the browser until that is answered.
    site.pages["/ask"] = (
        "<title>ask</title><p id=p>asks<script>setTimeout(() => { p.textContent = confirm('pay?') }, 1000)</script>"
    )

    async def look_on() -> None:
        chromium = Chromium(str(tmp_path / "b"), Choices(cdp_url=person.url), ENVIRONMENT)
        running = await chromium.start()
        visit = Visit(running, running.context, work=str(tmp_path))
        try:
            target = await asyncio.to_thread(person.open, site.url("/ask"))
            with pytest.raises(BrowserError, match=r"shows a dialog \(confirm\) that waits for the person's answer"):
                while True:
                    await visit.tab()
            assert visit.take_events() == ()
            await asyncio.to_thread(person.ask, "/json/close/" + target)
        finally:
            await visit.close()
            await running.close()
            await chromium.stop()

    loop.run(look_on())


def test_a_dialog_during_a_call_is_answered(browser: WebBrowser, loop: Loop, site: Site, tmp_path: Path) -> None:
    site.pages["/asks"] = "<title>asks</title><p id=p><script>p.textContent = confirm('pay?')</script>"
    asked = loop.run(browser.scan(call(tmp_path, "ann"), url=site.url("/asks")))
    assert shown(asked.page) == "false" and [event.kind for event in asked.events] == ["dialog"]


def test_downloads_stay_where_the_person_has_them_and_come_to_the_session_too(
    browser: WebBrowser, person: Person, loop: Loop, site: Site, tmp_path: Path
) -> None:
    for target in person.ask("/json/list"):  # so that there is no other tab to tell its own from
        if target["type"] == "page":
            person.ask("/json/close/" + target["id"])
    assert until(lambda: not person.urls())
    ann = call(tmp_path, "ann")
    site.pages["/get"] = "<p>get<script>setTimeout(() => { location = '/file' }, 300)</script>"
    site.pages["/file"] = Served(b"abc", headers={"content-disposition": "attachment; filename=a.bin"})
    told = loop.run(browser.scan(ann, url=site.url("/get"))).events
    while not told:
        told = loop.run(browser.scan(ann)).events
    assert told[0].text == f"saved {ann.work}/downloads/a.bin (3 bytes)"
    assert Path(ann.work, "downloads", "a.bin").read_bytes() == b"abc"


def test_a_browser_that_does_not_answer(loop: Loop, tmp_path: Path) -> None:
    async def attach() -> None:
        browser = WebBrowser(str(tmp_path / "b"), environment=ENVIRONMENT, cdp_url="http://127.0.0.1:2")
        with pytest.raises(
            BrowserError, match=r"no browser answers at browser.cdp_url, http://127.0.0.1:2: .*start it"
        ):
            await browser.scan(call(tmp_path, "ann"))
        await browser.close()

    loop.run(attach())


def test_a_person_who_closes_the_browser(loop: Loop, site: Site, tmp_path: Path) -> None:
    async def make() -> WebBrowser:
        return WebBrowser(str(tmp_path / "b"), environment=ENVIRONMENT, cdp_url=own.url)

    own = Person(tmp_path)
    try:
        browser = loop.run(make())
        loop.run(browser.scan(call(tmp_path, "ann"), url=site.url("/")))
    finally:
        own.process.terminate()
        own.process.wait(10)
    with pytest.raises(BrowserError, match="no browser answers at"):
        loop.run(browser.scan(call(tmp_path, "ann")))
    loop.run(browser.close())
