"""One session's view of a browser: its tabs, and what happens in them between two calls.

Sessions that share a browser each have a context of their own. Where they share a context as well (a profile, or a
browser that a person uses), a session sees the tabs that it opened and those that these opened; in a person's browser
also the person's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import unicodedata
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from gad.browser import eyes
from gad.browser.chromium import Running, from_playwright
from gad.browser.traffic import InFlight, Traffic
from gad.core.page import Event, Page, Tab
from gad.errors import BrowserError

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Dialog, Download, StorageState
    from playwright.async_api import Page as Shown

MOST_TABS = 30
"""Tabs that a session may have; a page that opens more loses the oldest."""
MOST_EVENTS = 50
"""Events that are kept between two calls; of more, only their number is."""
MOST_DOWNLOADS = 10
"""Downloads of a session that may be under way at the same time."""
DIALOG_TEXT = 500
"""Characters of a dialog's text that are told."""
READY_SECONDS = 1.0
"""How long a tab may take until its requests are known; one that is stuck goes without."""
TITLE_SECONDS = 1.0
"""How long a page may take to say its title; one that is stuck does not."""
ARRIVAL_SECONDS = 15.0
"""How long a page may take that a tab is going to, before it is looked at as it is."""
FREE_SECONDS = 0.5
"""How long a page may take to answer when what held it up was stopped."""
RESORTS = (
    # While an address does not answer, nothing runs in the page that leads there.
    ("Page.stopLoading", "where it was going did not answer, and that was stopped"),
    ("Runtime.terminateExecution", "a script without end was stopped"),
)
"""What frees a page that does not answer, the mildest first, and what is said of it."""
UNHEARD = 10_000
"""More numbers than one look gives out."""
OPENING = 15.0
"""Seconds for a new tab to appear. One whose process dies at its birth never does, so another one is asked for."""
LONGEST_DOWNLOAD = 1800.0
"""Seconds that a download may take; there are some without end."""
DOWNLOADS = "downloads"
"""The directory in a session's own that holds them."""
LONGEST_URL = 2000
LONGEST_NAME = 200
"""Bytes of a downloaded file's name."""


class OpenTab:
    """A tab of a session.

    `own` is False for a tab that a person opened. `dialog` is the type of one that waits for a person's answer.
    `requests` are those in flight, as soon as `ready` is done.
    """

    def __init__(self, number: int, page: Shown, *, own: bool) -> None:
        self.number = number
        self.page = page
        self.own = own
        self.ready = asyncio.get_running_loop().create_task(self._begin())
        self._traffic = Traffic(page)
        self.title = ""
        self.dialog = ""
        self.target = ""  # the browser's own id of it, where it has been asked
        self.listeners: list[tuple[str, Callable[..., None]]] = []

    @property
    def requests(self) -> frozenset[InFlight]:
        """The requests in flight, those of frames included."""
        return self._traffic.requests

    async def _begin(self) -> None:
        with contextlib.suppress(Exception):  # a page that is being closed has no requests
            await self._traffic.start()

    def end(self) -> None:
        """Let go of the page."""
        self.ready.cancel()
        self._traffic.stop()
        for name, listener in self.listeners:
            self.page.remove_listener(name, listener)
        self.listeners = []

    @property
    def url(self) -> str:
        """The address shown, cut where it is endless."""
        url = self.page.url
        return url if len(url) <= LONGEST_URL else url[:LONGEST_URL] + "…"

    async def answers(self, seconds: float) -> bool:
        """Return whether the page lets a script run within that time."""
        return await self.send("Runtime.evaluate", seconds, expression="0")

    async def send(self, method: str, seconds: float, **parameters: Any) -> bool:
        """Return whether a command of the debugging protocol was done within that time, or the page has gone."""
        try:
            async with asyncio.timeout(seconds):
                if self._traffic.session is None:
                    await asyncio.wait((self.ready,))
                if self._traffic.session is not None:
                    await self._traffic.session.send(method, parameters)
        except TimeoutError:
            return False
        except Exception as exc:
            if not from_playwright(exc):
                raise
        return True


class Visit:
    """What one session has open, from its first call until its browser is idle, crashes or is closed.

    `work` is the session's directory. `refs` is the highest number that was given to an element, `last` to a tab;
    with `events`, these come from the visit before. `busy` says that a call is under way, `downloading` are downloads
    that are.
    """

    def __init__(
        self,
        running: Running,
        context: BrowserContext,
        *,
        work: str,
        refs: int = 0,
        last: int = 0,
        events: Sequence[Event] = (),
    ) -> None:
        self.running = running
        self.context = context
        self.work = work
        self.refs = refs
        self.last = last
        self.busy = False
        self.downloading: set[asyncio.Task[None]] = set()
        self.download_began = asyncio.Event()
        self._own_context = context is not running.context
        self._tabs: dict[Shown, OpenTab] = {}
        self._order: list[OpenTab] = []  # by when they were active last
        self._closing: list[OpenTab] = []  # closed, and perhaps by the end of the browser
        self._in_use: OpenTab | None = None  # by the call under way, or by the one before
        self._events = list(events)
        self._untold = 0
        self._tasks: set[asyncio.Task[None]] = set()
        context.on("page", self._appeared)
        if running.attached:
            for page in context.pages:
                if page not in running.claimed:
                    self._adopt(page, own=False)
            running.file_listeners.append(self._file)

    # -- tabs ------------------------------------------------------------------------------------

    async def tab(self, number: int = 0) -> OpenTab:
        """Return a tab and make it the active one; by default, the active one, made when there is none.

        Raises BrowserError that names the tabs there are.
        """
        if not number:
            tab = await self.active() or await self.open_tab()
        else:
            found = [tab for tab in self._order if tab.number == number]
            if not found:
                there = ", ".join(str(tab.number) for tab in self._tabs.values()) or "none"
                raise BrowserError(f"there is no tab {number}; open are: {there}")
            tab = found[0]
            self._activate(tab)
            if self.running.visible:
                await tab.page.bring_to_front()
        if tab.dialog and await tab.answers(TITLE_SECONDS):
            tab.dialog = ""
        if tab.dialog:
            raise BrowserError(f"tab {tab.number} shows a dialog ({tab.dialog}) that waits for the person's answer")
        return await self._use(tab)

    async def _use(self, tab: OpenTab) -> OpenTab:
        self._in_use = tab
        await asyncio.wait((tab.ready,), timeout=READY_SECONDS)
        return tab

    async def active(self) -> OpenTab | None:
        """Return the active tab, if any is open. A person's browser is asked which one the person sees."""
        if self.running.attached and len(self._order) > 1:
            for target in await self.running.targets():
                for tab in self._order:
                    if await self._target(tab) == target:
                        self._activate(tab)
                        return tab
        return self._order[-1] if self._order else None

    async def open_tab(self) -> OpenTab:
        """Open a new, empty tab; it is the active one."""
        async with self.running.opening:
            page = await self._new_page()
            self.running.claimed.add(page)
            tab = self._adopt(page, own=True)
        self._activate(tab)
        return await self._use(tab)

    async def _new_page(self) -> Shown:
        for _ in range(2):
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(self.context.new_page(), OPENING)
        raise BrowserError("the browser opened no tab; try again")

    async def close_tab(self, tab: OpenTab) -> None:
        """Close a tab, one that does not answer as well; of a person's, only stop to look at it."""
        self._forget(tab)
        if tab.own:
            with contextlib.suppress(Exception):  # it may be closed or crashed already
                await asyncio.wait_for(tab.page.close(), 5)

    async def tabs(self) -> tuple[Tab, ...]:
        """Return the tabs as they are told of, by number."""
        active = await self.active()
        tabs = sorted(self._order, key=lambda tab: tab.number)
        await asyncio.gather(*(self._read_title(tab) for tab in tabs))
        return tuple(Tab(tab.number, tab.url, tab.title, tab is active) for tab in tabs)

    def urls(self) -> list[str]:
        """Return the addresses that are open, without empty tabs."""
        tabs = sorted([*self._order, *self._closing], key=lambda tab: tab.number)
        return [tab.url for tab in tabs if tab.url != "about:blank"]

    async def _read_title(self, tab: OpenTab) -> None:
        if tab.dialog:
            return
        with contextlib.suppress(Exception):  # it is stuck, navigates or is being closed: the title known last
            tab.title = (await asyncio.wait_for(tab.page.title(), TITLE_SECONDS))[:LONGEST_URL]

    async def _target(self, tab: OpenTab) -> str:
        if not tab.target:
            with contextlib.suppress(Exception):  # a tab that is being closed has none
                session = await self.context.new_cdp_session(tab.page)
                tab.target = (await session.send("Target.getTargetInfo"))["targetInfo"]["targetId"]
                self.detach(session)
        return tab.target

    def _activate(self, tab: OpenTab) -> None:
        if tab in self._order:
            self._order.remove(tab)
            self._order.append(tab)

    def _appeared(self, page: Shown) -> None:
        """Take in a page that the context has: all of a context of one's own, else what nobody claims."""
        if self._own_context:
            self._adopt(page, own=True)
        elif self.running.attached:
            self._spawn(self._adopt_person_s(page))

    async def _adopt_person_s(self, page: Shown) -> None:
        async with self.running.opening:  # a session that opens a tab claims it before this goes on
            if page not in self.running.claimed and not page.is_closed():
                self._adopt(page, own=False)

    def _popped_up(self, opener: OpenTab, page: Shown) -> None:
        own = not self.running.attached or self.busy
        if own:
            self.running.claimed.add(page)
        tab = self._adopt(page, own=own)
        if own:
            self._activate(tab)
            self._tell("tab", f"tab {tab.number} was opened by tab {opener.number} and is the active one now")

    def _adopt(self, page: Shown, *, own: bool) -> OpenTab:
        if page in self._tabs:
            return self._tabs[page]
        self.last += 1
        tab = OpenTab(self.last, page, own=own)
        self._tabs[page] = tab
        self._order.insert(len(self._order) if own else 0, tab)
        listen: list[tuple[str, Callable[..., None]]] = [
            ("popup", lambda popup: self._popped_up(tab, popup)),
            ("close", lambda _: self._closed(tab)),
            ("crash", lambda _: self._crashed(tab)),
            ("dialog", lambda dialog: self._spawn(self._answer(tab, dialog))),
            ("download", self._download),
        ]
        on: Any = page.on
        for name, listener in listen:
            on(name, listener)
        tab.listeners = listen
        own_tabs = [each for each in self._order if each.own]
        if len(own_tabs) > MOST_TABS:
            oldest = next(each for each in own_tabs if each is not self._in_use)
            self._tell("tab", f"tab {oldest.number} was closed: there were more than {MOST_TABS}")
            self._spawn(self.close_tab(oldest))
        return tab

    def _forget(self, tab: OpenTab) -> bool:
        """Take a tab out; return whether it was there."""
        if self._tabs.pop(tab.page, None) is None:
            return False
        self._order.remove(tab)
        self.running.claimed.discard(tab.page)
        tab.end()
        return True

    def _closed(self, tab: OpenTab) -> None:
        if self._forget(tab):
            self._closing.append(tab)
            self._spawn(self._tell_closed(tab))

    async def _tell_closed(self, tab: OpenTab) -> None:
        # The end of the browser closes all tabs first; what was open is still of interest then.
        if await self.running.answers():
            self._closing.remove(tab)
            self._tell("tab", f"tab {tab.number} was closed")

    def _crashed(self, tab: OpenTab) -> None:
        self._tell("page", f"tab {tab.number} crashed and was closed; it showed {tab.url}")
        self._spawn(self.close_tab(tab))

    # -- looking ---------------------------------------------------------------------------------

    async def look(self, tab: OpenTab, seconds: float) -> tuple[Page, tuple[str, ...]]:
        """Look at a tab; return what it shows, and notes of what had to be stopped for that.

        Waiting for the page and looking at it may take so long each. Raises BrowserError.
        """
        said = await self.free(tab, min(seconds, ARRIVAL_SECONDS))
        try:
            page = await self._look(tab, seconds)
        except BrowserError:
            # It may have begun to go elsewhere meanwhile.
            more = "" if tab.page.is_closed() else await self.free(tab, FREE_SECONDS)
            if not more:
                raise
            said = more
            page = await self._look(tab, seconds)
        return page, (f"tab {tab.number}: {said}",) if said else ()

    async def _look(self, tab: OpenTab, seconds: float) -> Page:
        try:
            found = await asyncio.wait_for(eyes.look(tab.page, after=self.refs), seconds)
        except BaseException as exc:
            self.refs += UNHEARD  # it may have given out numbers before it failed
            if isinstance(exc, TimeoutError):
                raise BrowserError(f"tab {tab.number} could not be read within {seconds:g} s; try again") from None
            raise
        self.refs = max(self.refs, found.last)
        return found.page

    async def free(self, tab: OpenTab, seconds: float) -> str:
        """Wait so long for a tab to answer, then see to it; return what had to be stopped, if anything.

        Raises BrowserError when nothing helped and the tab was closed.
        """
        said = ""
        for method, done in RESORTS:
            if self.running.lost or await tab.answers(seconds):
                return said
            await tab.send(method, FREE_SECONDS)
            said, seconds = done, FREE_SECONDS
        if self.running.lost or await tab.answers(seconds):
            return said
        await self.close_tab(tab)
        end = "was closed" if tab.own else "is left alone"
        raise BrowserError(f"tab {tab.number} {end}: a script of its page runs without end")

    def stop_loading(self, tab: OpenTab) -> None:
        """Give up where a tab is going."""

        async def stop() -> None:
            await tab.send("Page.stopLoading", FREE_SECONDS)

        self._spawn(stop())

    def detach(self, session: CDPSession) -> None:
        """End a session with a tab's debugger. Nobody waits for it: it takes as long as the tab goes somewhere."""
        self._spawn(session.detach())

    # -- events ----------------------------------------------------------------------------------

    def take_events(self) -> tuple[Event, ...]:
        """Return what happened since the last call of this, the oldest first."""
        events, self._events = self._events, []
        if self._untold:
            events.append(Event("page", f"{self._untold} more events"))
            self._untold = 0
        return tuple(events)

    def _tell(self, kind: str, text: str) -> None:
        if len(self._events) < MOST_EVENTS:
            self._events.append(Event(kind, text))
        else:
            self._untold += 1

    async def _answer(self, tab: OpenTab, dialog: Dialog) -> None:
        """Answer a dialog, as a page with one does nothing else. What it asks, a script can answer in the page."""
        text = " ".join(dialog.message.split())[:DIALOG_TEXT]
        text = f"{dialog.type}: {text}" if text else dialog.type
        if self.running.attached and not self.busy:
            tab.dialog = dialog.type  # it is the person's
        elif dialog.type in ("alert", "beforeunload"):
            self._tell("dialog", f"{text} (accepted)")
            await dialog.accept()
        else:
            self._tell("dialog", f"{text} (dismissed)")
            await dialog.dismiss()

    # -- downloads -------------------------------------------------------------------------------

    def _download(self, download: Download) -> None:
        name = clean_name(download.suggested_filename)
        self.download_began.set()

        async def save(path: str) -> None:
            try:
                async with asyncio.timeout(LONGEST_DOWNLOAD):
                    await download.save_as(path)
            except TimeoutError:
                self._spawn(download.cancel())
                raise OSError(0, f"it took longer than {LONGEST_DOWNLOAD:g} s") from None

        if len(self.downloading) >= MOST_DOWNLOADS:
            self._tell("download", f"{name} was not saved: {MOST_DOWNLOADS} others are under way")
            self._spawn(download.cancel())
        else:
            self._keep(name, save)

    def _file(self, target: str, name: str, source: str) -> None:
        """Take a file that a person's browser has downloaded for a tab of this session."""

        async def copy(path: str) -> None:
            await asyncio.to_thread(shutil.copyfile, source, path)

        async def keep() -> None:
            own = [tab for tab in self._order if tab.own]
            if target in [await self._target(tab) for tab in own]:
                self._keep(clean_name(name), copy)

        self._spawn(keep())

    def _keep(self, name: str, save: Callable[[str], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._save(name, save))
        self.downloading.add(task)
        task.add_done_callback(self.downloading.discard)

    async def _save(self, name: str, save: Callable[[str], Awaitable[None]]) -> None:
        # Commands of the session may be changing what lies in its directory meanwhile: the browser writes elsewhere.
        aside = f"{self.work}.{secrets.token_hex(6)}.download"
        directory = -1
        try:
            directory = await asyncio.to_thread(open_downloads, self.work)
            await save(aside)
            path, size = await asyncio.to_thread(keep, aside, directory, name)
        except Exception as exc:
            why = exc.strerror if isinstance(exc, OSError) else str(exc).splitlines()[0].rpartition(": ")[2]
            self._tell("download", f"{name} was not saved: {why}")
        else:
            self._tell("download", f"saved {os.path.join(self.work, DOWNLOADS, path)} ({size:,} bytes)")
        finally:  # a download that is broken off leaves no half of a file
            with contextlib.suppress(OSError):
                os.unlink(aside)
            if directory >= 0:
                os.close(directory)

    # -- the end ---------------------------------------------------------------------------------

    async def state(self) -> StorageState | None:
        """Return cookies and local storage, to go on with in another context; None where a profile keeps them."""
        if not self._own_context:
            return None
        with contextlib.suppress(Exception):  # a page that is stuck keeps its local storage for itself
            return await asyncio.wait_for(self.context.storage_state(), 5)
        with contextlib.suppress(Exception):
            cookies: Any = await asyncio.wait_for(self.context.cookies(), 5)
            return {"cookies": cookies, "origins": []}
        return None

    async def close(self) -> None:
        """Close what the session opened. In a person's browser its tabs stay: the person may want to go on there."""
        self.context.remove_listener("page", self._appeared)
        if self.running.attached:
            self.running.file_listeners.remove(self._file)
        tasks = [*self.downloading, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        tabs = list(self._order)
        for tab in tabs:
            self._forget(tab)
        if self.running.lost or self.running.attached:
            return
        with contextlib.suppress(Exception):  # it is gone already
            if self._own_context:
                await asyncio.wait_for(self.context.close(), 10)
            else:
                await asyncio.wait_for(asyncio.gather(*(tab.page.close() for tab in tabs)), 10)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the calls. What the browser says against it is of no interest: the page has gone."""

        async def quietly() -> None:
            with contextlib.suppress(Exception):
                await work

        task = asyncio.get_running_loop().create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def clean_name(name: str) -> str:
    """Return a file name that is safe to use, from one that a page chose: no path, no control characters, no dot first.

    At most `LONGEST_NAME` bytes in UTF-8; what says the type, after the last dot, stays.
    """
    name = unicodedata.normalize("NFC", name.replace("\\", "/").rpartition("/")[2])
    name = "".join(char for char in name if unicodedata.category(char)[0] != "C").strip(" .")
    stem, dot, extension = name.rpartition(".")
    if not dot or len(extension.encode()) > 20:
        stem, dot, extension = name, "", ""
    room = LONGEST_NAME - len((dot + extension).encode())
    stem = stem.encode()[:room].decode(errors="ignore").rstrip(" .")
    return stem + dot + extension or "download"


def open_downloads(work: str) -> int:
    """Open the directory of a session's downloads, and make it; a link in its place is an error."""
    os.makedirs(work, exist_ok=True)
    path = os.path.join(work, DOWNLOADS)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def keep(source: str, directory: int, name: str) -> tuple[str, int]:
    """Copy a file into an open directory under that name, or name-2.ext and so on where there is one.

    Return the name and the size. Raises OSError, with nothing left there.
    """
    stem, dot, extension = name.rpartition(".") if "." in name else (name, "", "")
    number, chosen = 1, name
    while True:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            target = os.open(chosen, flags, 0o600, dir_fd=directory)
            break
        except FileExistsError:
            number += 1
            chosen = f"{stem}-{number}{dot}{extension}"
    try:
        with os.fdopen(target, "wb") as there, open(source, "rb") as here:
            shutil.copyfileobj(here, there, 1 << 20)
            return chosen, there.tell()
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(chosen, dir_fd=directory)
        raise
