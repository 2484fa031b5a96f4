"""Waiting for what a script has set off: another page, requests, changes of what is shown, a new tab, downloads.

Nothing here waits for a fixed time where there is something to see: a page is at rest when none of the requests that
began since is in flight and it has not changed for a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import urllib.parse
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from gad.browser import eyes
from gad.errors import BrowserError

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page

    from gad.browser.traffic import InFlight
    from gad.browser.visits import OpenTab, Visit

ARRIVAL_SECONDS = 15.0
"""How long the document of a page may take that the tab goes to."""
REQUEST_SECONDS = 5.0
CHANGE_SECONDS = 2.0
"""How long a page may go on changing, when no request is in flight any more."""
DOWNLOAD_SECONDS = 5.0
POPUP_SECONDS = 2.0
"""How long a window that was opened may take to become a tab."""
QUIET_SECONDS = 0.2
"""A page that has not changed for so long is at rest."""
QUIET_AFTER_INPUT_SECONDS = 0.4
"""The same after input: fields that look for what is typed wait until one stops typing, 0.3 s being usual."""
POLL_SECONDS = 0.03
STUCK_SECONDS = 5.0
"""How long a page may be busy before it is not asked any more."""


class Travel:
    """Takes note of where a tab goes, from the moment that a script begins.

    `moved` says that another document is there now, `windows` how many were opened. Same-document navigation
    (pushState, fragments) is none.
    """

    def __init__(self, session: CDPSession) -> None:
        self.moved = False
        self.windows = 0
        self._frame = ""
        self._url = ""
        self._going = False  # a document was asked for and is not there yet
        self._loading = False  # it is there, in part
        self._change = asyncio.Event()
        listen: Any = session.on
        listen("Page.frameRequestedNavigation", self._requested)
        listen("Page.frameStartedNavigating", self._started)
        listen("Page.frameNavigated", self._navigated)
        listen("Page.domContentEventFired", self._loaded)
        listen("Page.frameStoppedLoading", self._stopped)
        listen("Page.windowOpen", self._opened)
        self._session = session

    async def begin(self) -> None:
        """Begin to take note."""
        await self._session.send("Page.enable")
        tree = await self._session.send("Page.getFrameTree")
        self._frame = tree["frameTree"]["frame"]["id"]

    @property
    def under_way(self) -> bool:
        """Return whether another document is on its way; until it is there the old one answers to nothing."""
        return self._going or self._loading

    async def arrive(self, seconds: float) -> bool:
        """Wait until nothing is on its way any more; return False when that takes longer."""
        deadline = time.monotonic() + seconds
        while self.under_way:
            self._change.clear()
            try:
                await asyncio.wait_for(self._change.wait(), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                return False
        return True

    async def give_up(self) -> str:
        """Stop waiting for a document; return what there is to say. The old one can be used again."""
        if not self._going:
            return "the page is still loading"
        self._going = False
        with contextlib.suppress(_playwright_error()):  # the tab may be closed
            await self._session.send("Page.stopLoading")
        return f"no answer came from {_place(self._url)}; going there was stopped"

    def _requested(self, event: dict[str, Any]) -> None:
        # Fragments are not told here; javascript: addresses and what another application opens never arrive.
        web = event["url"].partition(":")[0] in ("http", "https", "file", "data", "blob", "about")
        if event["frameId"] == self._frame and event["disposition"] == "currentTab" and web:
            self._going = True
            self._url = event["url"]

    def _started(self, event: dict[str, Any]) -> None:
        if event["frameId"] == self._frame:
            self._going = (
                "sameDocument" not in event["navigationType"] and "SameDocument" not in event["navigationType"]
            )
            self._change.set()

    def _navigated(self, event: dict[str, Any]) -> None:
        if "parentId" not in event["frame"]:
            self._frame = event["frame"]["id"]
            self.moved = True
            self._going = False
            self._loading = event["type"] == "Navigation"  # one from the back/forward cache is there at once
            self._change.set()

    def _loaded(self, event: dict[str, Any]) -> None:
        self._loading = False
        self._change.set()

    def _stopped(self, event: dict[str, Any]) -> None:
        # Also when no document came of it: a download, an answer without content, a failure.
        if event["frameId"] == self._frame:
            self._going = self._loading = False
            self._change.set()

    def _opened(self, event: dict[str, Any]) -> None:
        self.windows += 1


class Settled:
    """What waiting came to: the active `tab` at its end, None when all are closed, and what was still going on."""

    def __init__(self, visit: Visit) -> None:
        self.tab: OpenTab | None = None
        self._last = visit.last  # tabs with greater numbers are new
        self.unsettled: list[str] = []
        self.brief: dict[str, None] = {}

    async def wait(
        self, visit: Visit, tab: OpenTab, travel: Travel, earlier: Collection[InFlight], quiet: float
    ) -> None:
        """Wait for what a script in `tab` has set off; requests that are among the `earlier` do not count."""
        # A window may be opened by what comes later, so the tab is let come to rest first.
        await self._rest(tab, travel, earlier, quiet)
        active = await self._newest(visit, tab, travel)
        if active is not None and active.number <= self._last and not tab.page.is_closed():
            active = tab  # a person has gone to another tab
        if active is not None and active is not tab:
            await self._arrive_in_new(active)
            await self._rest(active, None, (), quiet)
        self.tab = active
        if visit.downloading:
            _, pending = await asyncio.wait(visit.downloading, timeout=DOWNLOAD_SECONDS)
            if pending:
                self.unsettled.append(_count(len(pending), "download"))

    async def _newest(self, visit: Visit, tab: OpenTab, travel: Travel) -> OpenTab | None:
        deadline = time.monotonic() + POPUP_SECONDS
        while True:
            active = await visit.active()
            if active is not tab or not travel.windows or time.monotonic() > deadline:
                return active
            await asyncio.sleep(POLL_SECONDS)

    async def _arrive_in_new(self, tab: OpenTab) -> None:
        try:
            await tab.page.wait_for_load_state("domcontentloaded", timeout=ARRIVAL_SECONDS * 1000)
            await eyes.watch(tab.page)
        except (BrowserError, _playwright_error()):
            self.unsettled.append(f"tab {tab.number} is still loading")

    async def _rest(self, tab: OpenTab, travel: Travel | None, earlier: Collection[InFlight], quiet: float) -> None:
        """Wait until a tab is at rest, or for as long as is worth it."""
        deadline = time.monotonic() + ARRIVAL_SECONDS  # for pages that lead to pages as well
        began = changing = time.monotonic()  # `changing` is when something was in flight last
        while not tab.page.is_closed():
            if travel is not None and travel.under_way:
                if not await travel.arrive(deadline - time.monotonic()):
                    self.unsettled.append(await travel.give_up())
                    return
                began = changing = time.monotonic()
            now = time.monotonic()
            requests = [request for request in tab.requests if request not in earlier]
            if requests and now - began <= REQUEST_SECONDS:
                changing = now
                await asyncio.sleep(POLL_SECONDS)
                continue
            seen = await self._watched(tab.page)
            if seen is None:
                if travel is not None and travel.under_way:
                    continue  # it left while it was asked
                if not tab.page.is_closed():
                    self.unsettled.append("the page does not answer")
                return
            left = quiet - min(seen.quiet, time.monotonic() - changing)
            if left <= 0 or now - changing > CHANGE_SECONDS:
                if requests:
                    hosts = ", ".join(sorted({_place(request.url) for request in requests})[:3])
                    self.unsettled.append(f"{_count(len(requests), 'request')}: {hosts}")
                if left > 0:
                    self.unsettled.append("the page keeps changing")
                return
            await asyncio.sleep(min(left + 0.002, 0.1))

    async def _watched(self, page: Page) -> eyes.Watched | None:
        """Return what is seen in a page; one that has just come is watched from now on. None: it cannot be seen."""
        try:
            seen = await asyncio.wait_for(eyes.watched(page), STUCK_SECONDS)
            if seen is None:
                await asyncio.wait_for(eyes.watch(page), STUCK_SECONDS)
                seen = eyes.Watched(0.0, ())
        except (BrowserError, TimeoutError):
            return None
        self.brief = dict.fromkeys(seen.brief)
        return seen


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def _place(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return f"{parts.netloc}{parts.path}"[:100]


def _playwright_error() -> type[Exception]:
    from playwright.async_api import Error

    return Error
