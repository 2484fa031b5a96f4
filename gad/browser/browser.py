"""The browser as sessions use it: started at first use, shared, closed when idle, started anew when it crashed."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, TypeVar

from gad.browser import eyes
from gad.browser.chromium import Choices, Chromium, Running, context_options, first_line
from gad.browser.visits import OpenTab, Visit
from gad.core.page import Acted, Event, Page, Sight
from gad.core.ports import ToolContext
from gad.errors import BrowserError

if TYPE_CHECKING:
    from playwright.async_api import Response, StorageState

T = TypeVar("T")
log = logging.getLogger(__name__)

REST_SECONDS = 2.0
"""How long a page that has been opened may take to come to rest; it is looked at then, whatever it does."""
QUIET_SECONDS = 0.1
"""A page that has not changed for so long, with no request in flight, is at rest."""
PROBE_SECONDS = 2.0
DOWNLOAD_SECONDS = 5.0
"""How long a download is waited for, when an address turns out to be one."""
MOST_REMEMBERED = 200
"""Sessions without open tabs whose cookies are kept."""
MOST_SEATS = 10_000
"""Sessions without open tabs of which is known which numbers they had for elements and tabs."""
MOST_STATE = 1_000_000
"""Characters of what one of them may keep in local storage."""
SWEEP_SECONDS = 15.0
"""How often to look what is idle, at most."""
LONGEST_URL = 300
"""Characters of an address that is told of."""
SCHEMES = frozenset({"http", "https", "about", "data", "file"})

FAILURES = {
    "ERR_NAME_NOT_RESOLVED": "there is no such host",
    "ERR_CONNECTION_REFUSED": "the host refuses the connection",
    "ERR_CONNECTION_RESET": "the connection was reset",
    "ERR_CONNECTION_CLOSED": "the connection was closed",
    "ERR_CONNECTION_TIMED_OUT": "the host does not answer",
    "ERR_TIMED_OUT": "the host does not answer",
    "ERR_INVALID_AUTH_CREDENTIALS": "it wants a user and a password: give them as http://user:password@host/",
    "ERR_ADDRESS_UNREACHABLE": "the host cannot be reached",
    "ERR_NETWORK_ACCESS_DENIED": "the network may not be used",
    "ERR_INTERNET_DISCONNECTED": "this machine has no network",
    "ERR_EMPTY_RESPONSE": "the server closed the connection without an answer",
    "ERR_TOO_MANY_REDIRECTS": "the server redirects without end",
    "ERR_PROXY_CONNECTION_FAILED": "the proxy cannot be reached",
    "ERR_TUNNEL_CONNECTION_FAILED": "the proxy refuses the connection",
    "ERR_FILE_NOT_FOUND": "there is no such file",
    "ERR_CERT_DATE_INVALID": "its certificate has expired or is not valid yet",
    "ERR_CERT_COMMON_NAME_INVALID": "its certificate is for another host",
    "ERR_CERT_AUTHORITY_INVALID": "its certificate is of an authority that nobody knows",
    "ERR_SSL_PROTOCOL_ERROR": "it does not speak TLS properly; is it http://?",
}
"""Chromium's names for what can go wrong (net_error_list.h), in words."""
FILES = {
    "application/pdf": "a PDF file",
    "image/svg": "",
    "image/": "an image",
    "video/": "a video",
    "audio/": "a sound",
}
"""What Chromium shows that is no page, by how its media type begins."""


@dataclass(slots=True)
class Seat:
    """What is kept of one session. `profile` is where its logins are kept; `used` is when it was used last."""

    profile: str
    used: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    visit: Visit | None = None
    refs: int = 0
    tabs: int = 0
    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()
    state: StorageState | None = None


class WebBrowser:
    """The port `Browser`. It also fits what a daemon runs beside its sessions: start, close.

    `directory` is where browsers keep their files and profiles; one process at a time may use it. `environment` is
    what Chromium may see. `profiles` are labels: sessions that have one share a context that is kept for good, in a
    directory of that name. `cdp_url` is the address of a person's browser, which is used instead of one of our own.
    `idle` is in seconds of `clock`. `load_seconds` is how long an address may take until its document is there,
    `patience` how long looking at it may take.
    """

    def __init__(
        self,
        directory: str,
        *,
        environment: Mapping[str, str],
        executable: str = "",
        headless: bool = True,
        cdp_url: str = "",
        profiles: Collection[str] = (),
        proxy: str = "",
        user_agent: str = "",
        idle: float = 300.0,
        sandbox: Literal["auto", "on", "off"] = "auto",
        clock: Callable[[], float] = time.monotonic,
        patience: float = 20.0,
        load_seconds: float = 30.0,
    ) -> None:
        self._choices = Choices(executable, headless, cdp_url, proxy, user_agent, sandbox)
        self._chromium = Chromium(directory, self._choices, environment)
        self._profiles = profiles
        self._idle = idle
        self._clock = clock
        self._patience = patience
        self._load_seconds = load_seconds
        self._seats: dict[str, Seat] = {}
        self._running: dict[str, Running] = {}  # by profile
        self._lock = asyncio.Lock()  # held while a browser, or a session's context, begins or ends
        self._opening: set[asyncio.Task[Visit]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._closing = False

    # -- the port --------------------------------------------------------------------------------

    async def scan(self, context: ToolContext, *, url: str = "", tab: int = 0, look: bool = True) -> Sight:
        """Look at a tab; see `gad.core.ports.Browser`."""
        address = read_address(url) if url else ""

        async def work(visit: Visit) -> Sight:
            notes: list[str] = []
            page: Page | None = None
            if address:
                chosen, status = await self._open(visit, address, tab)
                notes += status
            elif tab or look:
                chosen = await visit.tab(tab)
            if look:
                page, stopped = await visit.look(chosen, self._patience)
                notes += stopped
            return Sight(await visit.tabs(), page, visit.take_events(), tuple(notes))

        seat = self._seat(context)
        if not (address or tab or look or self._choices.cdp_url) and seat.visit is None:
            events, seat.events = seat.events, ()
            return Sight((), None, events, self._take_notes(seat))  # nothing is open, and nothing is to be
        sight, notes = await self._do(context, seat, work)
        return replace(sight, notes=notes + sight.notes)

    async def execute(self, context: ToolContext, script: str, *, tab: int = 0, monitor: bool = True) -> Acted:
        """Run JavaScript in a tab; see `gad.core.ports.Browser`."""
        from gad.browser.script import run_script

        async def work(visit: Visit) -> Acted:
            return await run_script(visit, await visit.tab(tab), context, script, monitor=monitor)

        acted, notes = await self._do(context, self._seat(context), work)
        return replace(acted, notes=notes + acted.notes)

    # -- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Be ready; the browser itself is started at first use."""
        self._closing = False

    async def close(self) -> None:
        """Close everything. Calls under way end with a BrowserError."""
        self._closing = True
        # A start that is under way is let come to its end, so that there is something to close.
        await asyncio.gather(*self._opening, return_exceptions=True)
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
            self._sweeper = None
        async with self._lock:
            for running in self._running.values():
                running.lose("gad is being shut down")
            visits = [seat.visit for seat in self._seats.values() if seat.visit is not None]
            self._seats.clear()
            await asyncio.gather(*(visit.close() for visit in visits))
            await asyncio.gather(*(running.close() for running in self._running.values()))
            self._running.clear()
            await self._chromium.stop()

    async def sweep(self) -> None:
        """Close what has been idle for too long: a session's tabs, then a browser without sessions, then the driver."""
        for seat in list(self._seats.values()):
            idle = self._clock() - seat.used >= self._idle
            if idle and seat.visit is not None and not seat.lock.locked() and not seat.visit.downloading:
                async with seat.lock, self._lock:
                    await self._leave(seat)
        async with self._lock:
            in_use = {id(seat.visit.running) for seat in self._seats.values() if seat.visit is not None}
            for profile, running in list(self._running.items()):
                if id(running) not in in_use:
                    del self._running[profile]
                    await running.close()
            if not self._running:
                await self._chromium.stop()
        self._forget_sessions()

    # -- sessions --------------------------------------------------------------------------------

    def _seat(self, context: ToolContext) -> Seat:
        if self._closing:
            raise BrowserError("gad is being shut down")
        seat = self._seats.pop(context.session, None)
        if seat is None:
            profile = next((label for label in self._profiles if label in context.labels), "")
            seat = Seat("" if self._choices.cdp_url else profile, self._clock())
        self._seats[context.session] = seat  # the one used last comes last
        return seat

    async def _do(
        self, context: ToolContext, seat: Seat, work: Callable[[Visit], Awaitable[T]]
    ) -> tuple[T, tuple[str, ...]]:
        """Do something in a session's browser; return what came of it and what there is to say of the browser."""
        async with seat.lock:
            seat.used = self._clock()
            try:
                visit = await self._visit(context, seat)
                visit.busy = True
                try:
                    found = await visit.running.guard(_run(work, visit))
                finally:
                    visit.busy = False
                return found, self._take_notes(seat)
            finally:
                seat.used = self._clock()

    async def _visit(self, context: ToolContext, seat: Seat) -> Visit:
        if seat.visit is not None and not await seat.visit.running.answers():
            await self._lost(seat, seat.visit)
        if seat.visit is None:
            # Whoever waits may be cancelled; a browser that is being started must not be lost sight of.
            task = asyncio.get_running_loop().create_task(self._open_visit(seat, context.work))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
            task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
            return await asyncio.shield(task)
        seat.visit.work = context.work
        return seat.visit

    async def _open_visit(self, seat: Seat, work: str) -> Visit:
        async with self._lock:
            if self._closing:
                raise BrowserError("gad is being shut down")
            try:
                running = await self._browser(seat.profile)
                context = running.context
                if not seat.profile and not running.attached:
                    context = await running.browser.new_context(**context_options(self._choices, seat.state))
            except Exception as exc:
                if not self._running:
                    await self._chromium.stop()
                raise exc if isinstance(exc, BrowserError) else BrowserError(first_line(exc)) from exc
            seat.visit = Visit(running, context, work=work, refs=seat.refs, last=seat.tabs, events=seat.events)
            seat.events, seat.state = (), None
            if self._sweeper is None:
                self._sweeper = asyncio.get_running_loop().create_task(self._sweep_now_and_then())
            return seat.visit

    async def _browser(self, profile: str) -> Running:
        """Return the browser of a profile; start it when it does not run, or not any more."""
        for name, running in list(self._running.items()):
            if not await running.answers():
                del self._running[name]
                await running.close()
        if profile not in self._running:
            if not self._running:
                # A driver that died would fail every start; a new one costs little more than a new browser.
                await self._chromium.stop()
            self._running[profile] = await self._chromium.start(profile)
        return self._running[profile]

    async def _leave(self, seat: Seat) -> None:
        """Close what an idle session has open, and keep what the next call is to find again."""
        visit = seat.visit
        if visit is None:
            return
        state = await visit.state()
        if state is not None and len(str(state)) > MOST_STATE:
            state = {"cookies": state["cookies"], "origins": []}
        self._keep(seat, visit)
        seat.state = state
        if visit.running.attached:
            kept = "its tabs stay open"
        elif state is None and not seat.profile:
            kept = "its tabs were closed; cookies and logins are gone, too"
        else:
            kept = "its tabs were closed, cookies and logins were kept"
        seat.notes = (f"the browser was not used for {self._idle:g} s: {kept}",)
        await visit.close()

    async def _lost(self, seat: Seat, visit: Visit) -> None:
        """Take note that a session's browser has gone by itself."""
        self._keep(seat, visit)
        running = visit.running
        if running.attached:
            said = "the connection to the browser was lost and was made anew"
        elif seat.profile:
            said = f"{running.lost} and was started anew; tabs are gone, logins were kept"
        else:
            said = f"{running.lost} and was started anew; tabs, cookies and logins are gone"
        seat.notes = (said,)
        await visit.close()

    def _keep(self, seat: Seat, visit: Visit) -> None:
        seat.visit = None
        seat.refs, seat.tabs, seat.events = visit.refs, visit.last, visit.take_events()
        if urls := [url[:LONGEST_URL] for url in visit.urls()]:
            seat.events += (Event("tab", f"open were: {' '.join(urls)}"),)

    def _take_notes(self, seat: Seat) -> tuple[str, ...]:
        notes, seat.notes = seat.notes, ()
        return notes

    def _forget_sessions(self) -> None:
        idle = [name for name, seat in self._seats.items() if seat.visit is None and not seat.lock.locked()]
        for name in idle[:-MOST_REMEMBERED]:
            seat = self._seats[name]
            if seat.state is not None:
                seat.state = None
                seat.notes = ("the browser was not used for long: tabs, cookies and logins are gone",)
        for name in idle[:-MOST_SEATS]:
            del self._seats[name]

    async def _sweep_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self._idle / 2 + 0.1))
            try:
                await self.sweep()
            except Exception:
                log.exception("closing what is idle in the browser failed")

    # -- pages -----------------------------------------------------------------------------------

    async def _open(self, visit: Visit, url: str, number: int) -> tuple[OpenTab, tuple[str, ...]]:
        """Open an address; return the tab and what there is to say. Raises BrowserError when nothing came of it."""
        tab = await visit.tab(number) if number else await visit.active()
        # A person's tab is left as it is, unless it was asked for.
        fresh = tab is None or not (tab.own or number)
        if tab is None or fresh:
            tab = await visit.open_tab()
        try:
            status = await self._load(visit, tab, url)
        except BaseException:
            if fresh:
                await visit.close_tab(tab)
            raise
        await self._rest(tab)
        return tab, (status,) if status else ()

    async def _load(self, visit: Visit, tab: OpenTab, url: str) -> str:
        """Go to an address and return what is to be noted of it."""
        visit.download_began.clear()
        try:
            response = await tab.page.goto(url, wait_until="domcontentloaded", timeout=self._load_seconds * 1000)
        except Exception as exc:
            said = first_line(exc)
            if "interrupted by another navigation" in said:  # the page has gone elsewhere by itself
                with contextlib.suppress(Exception):
                    await tab.page.wait_for_load_state("domcontentloaded", timeout=self._load_seconds * 1000)
                return ""
            if "ERR_ABORTED" in said or "Download is starting" in said:
                if await self._is_download(visit):
                    return "the address is a download; the tab shows what it showed before"
                return "the server answered without a page; the tab shows what it showed before"
            stopped = await visit.free(tab, min(PROBE_SECONDS, self._patience)) if "Timeout" in said else ""
            why = explain(said, self._load_seconds) + (f"; {stopped}" if stopped else "")
            raise BrowserError(f"{url} could not be opened: {why}") from None
        except asyncio.CancelledError:
            visit.stop_loading(tab)
            raise
        return "" if response is None else await _about(response)

    async def _is_download(self, visit: Visit) -> bool:
        """Return whether a download began just now; wait a while for its end, so that it can be told of."""
        try:
            await asyncio.wait_for(visit.download_began.wait(), 1)
        except TimeoutError:
            return False
        if visit.downloading:
            await asyncio.wait(visit.downloading, timeout=DOWNLOAD_SECONDS)
        return True

    async def _rest(self, tab: OpenTab) -> None:
        """Wait, not too long, until a page that has been opened is at rest."""
        deadline = time.monotonic() + REST_SECONDS
        try:
            await asyncio.wait_for(eyes.watch(tab.page), REST_SECONDS)
            while time.monotonic() < deadline:
                seen = None if tab.requests else await asyncio.wait_for(eyes.watched(tab.page), REST_SECONDS)
                if seen is not None and seen.quiet >= QUIET_SECONDS:
                    return
                await asyncio.sleep(0.02)
        except (TimeoutError, BrowserError):
            return  # it will be seen when it is looked at


async def _run(work: Callable[[Visit], Awaitable[T]], visit: Visit) -> T:
    return await work(visit)


async def _about(response: Response) -> str:
    """Return what is to be noted of an answer, in words of our own: those of the server are not to be trusted."""
    if response.status >= 400:
        phrase = next((each.phrase for each in HTTPStatus if each == response.status), "")
        return f"HTTP {response.status} {phrase}".rstrip()
    kind = (await response.header_value("content-type") or "").strip().lower()
    found = next((name for start, name in FILES.items() if kind.startswith(start)), "")
    return f"the address is {found}, of which no text can be read here" if found else ""


def read_address(url: str) -> str:
    """Return an address with its scheme: https where none is given, http for this machine and for IP addresses.

    Raises BrowserError for one that a session may not open.
    """
    url = url.strip()
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(?!\d+(/|$|\?|#))", url)
    if scheme is None:
        host = urllib.parse.urlsplit("//" + url.removeprefix("//")).hostname or ""
        local = host == "localhost" or host.endswith(".localhost")
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            local = True
        return f"http{'' if local else 's'}://{url.removeprefix('//')}"
    if scheme[1].lower() not in SCHEMES:
        raise BrowserError(f"{scheme[1]}: addresses cannot be opened; give one of http, https, file, data or about")
    return url


def explain(said: str, seconds: float) -> str:
    """Say in plain words why an address could not be opened, from what Playwright says."""
    code = re.search(r"ERR_[A-Z0-9_]+", said)
    if code:
        default = "its certificate is not valid" if code[0].startswith("ERR_CERT") else "the browser gave up"
        return f"{FAILURES.get(code[0], default)} ({code[0]})"
    if "Timeout" in said:
        return f"it did not load within {seconds:g} s"
    if "invalid URL" in said:
        return "it is not a valid address"
    return said
