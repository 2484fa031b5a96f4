"""The requests of a tab that are in flight, asked of the browser itself.

Playwright tells of requests too, but keeps the last 10,000 of them, with their headers and answers: 150 MB.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Frame, Page

UNCOUNTED = frozenset({"WebSocket", "EventSource", "Media", "Ping", "CSPViolationReport"})
"""Types of requests that go on while a page is at rest (`Network.ResourceType` of the DevTools protocol)."""


@dataclass(frozen=True, eq=False, slots=True)
class InFlight:
    """A request on its way: its address, and the frame and the document that it is for."""

    url: str
    frame: str
    document: str


class Traffic:
    """Keeps track of a tab's requests, those of frames included, from `start` on.

    `session` is the one with the tab's debugger, as soon as there is one.
    """

    def __init__(self, page: Page) -> None:
        self.session: CDPSession | None = None
        self._page = page
        self._found: dict[str, InFlight] = {}
        self._frames: set[Frame] = set()  # in processes of their own

    @property
    def requests(self) -> frozenset[InFlight]:
        """Those in flight now."""
        return frozenset(self._found.values())

    async def start(self) -> None:
        """Begin. Raises what Playwright does when the page has gone."""
        self._page.on("framenavigated", self._frame_navigated)
        self.session = await self._page.context.new_cdp_session(self._page)
        await self._listen(self.session)

    def stop(self) -> None:
        """Take note of no more documents; what is attached to goes with the page."""
        self._page.remove_listener("framenavigated", self._frame_navigated)
        self._found.clear()

    async def _frame_navigated(self, frame: Frame) -> None:
        if frame.parent_frame is None or frame in self._frames:
            return
        with contextlib.suppress(Exception):  # most frames are in their page's process and have no session of their own
            session = await self._page.context.new_cdp_session(frame)
            self._frames.add(frame)
            session.on("close", lambda _: self._frames.discard(frame))
            await self._listen(session)

    async def _listen(self, session: CDPSession) -> None:
        session.on("Network.requestWillBeSent", self._began)
        session.on("Network.loadingFinished", self._ended)
        session.on("Network.loadingFailed", self._ended)
        session.on("Page.frameNavigated", self._navigated)
        session.on("Page.frameDetached", self._detached)
        # What was received is of no interest here, so it need not be kept.
        await session.send("Network.enable", {"maxTotalBufferSize": 0, "maxResourceBufferSize": 0})
        await session.send("Page.enable")

    def _began(self, event: dict[str, Any]) -> None:
        if event.get("type") not in UNCOUNTED:
            found = InFlight(event["request"]["url"], event.get("frameId", ""), event.get("loaderId", ""))
            self._found[event["requestId"]] = found

    def _ended(self, event: dict[str, Any]) -> None:
        self._found.pop(event["requestId"], None)

    # The end of a document is the end of its requests, which is not always reported.

    def _navigated(self, event: dict[str, Any]) -> None:
        frame = event["frame"]
        for key, request in list(self._found.items()):
            if request.document != frame["loaderId"] and ("parentId" not in frame or request.frame == frame["id"]):
                del self._found[key]

    def _detached(self, event: dict[str, Any]) -> None:
        if event.get("reason") != "swap":  # it goes on in another process
            for key, request in list(self._found.items()):
                if request.frame == event["frameId"]:
                    del self._found[key]
