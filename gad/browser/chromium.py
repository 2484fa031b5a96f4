"""Chromium's life: where it is found, how it is started or attached to, how it ends, and that it never outlives us.

Chromium is a child of Playwright's driver (Node.js), which is a child of the daemon. When the daemon is killed the
driver reads the end of its input and closes Chromium; when the driver is killed as well, Chromium reads the end of its
debugging pipe and leaves by itself. All that it writes lies below a directory of ours, `.run/` of which is removed at
the next start, after whatever a crash has left running was ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import shutil
import signal
import socket
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from gad.browser import eyes
from gad.errors import BrowserError

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, CDPSession, Page, Playwright, ProxySettings, StorageState

T = TypeVar("T")
log = logging.getLogger(__name__)

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = (
    "/snap/bin/chromium",
    "/opt/google/chrome/chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
BUILDS = ("chromium-*/chrome-*/chrome", "chromium-*/chrome-mac*/*.app/Contents/MacOS/*", "chromium_*/*/*headless*shell")
"""Where Playwright puts browsers, below its cache directory."""

NOWHERE = "http://127.0.0.1:9"
"""An address that Chromium itself refuses to ask: a port that is kept for another protocol."""
FLAGS = (
    # Playwright switches off most of what reports to a vendor; these are left.
    "--disable-quic",
    "--disable-domain-reliability",
    "--disable-client-side-phishing-detection",
    "--safebrowsing-disable-auto-update",
    "--no-pings",
    f"--gaia-url={NOWHERE}",  # asked at the start for accounts that are signed in
    f"--autofill-server-url={NOWHERE}",  # told of every form
    f"--component-updater=url-source={NOWHERE}",
    "--hide-crash-restore-bubble",
)
START_SECONDS = 30.0
PING_SECONDS = 5.0
"""How long a browser that works may take to say so."""
END_SECONDS = 10.0
"""How long closing in good order may take."""
IN_USE_SECONDS = 5.0
"""How long the browser before may take to let go of a profile."""
LONGEST_TMP = 60
"""Chromium puts a socket below its directory for temporary files; a socket's path has 107 bytes at most (unix(7))."""
MARK = "GAD_BROWSER"
RUN = ".run"


@dataclass(frozen=True, slots=True)
class Choices:
    """What can be chosen about a browser; see `browser` in gad.yaml. An empty text is no choice."""

    executable: str = ""
    headless: bool = True
    cdp_url: str = ""
    proxy: str = ""
    user_agent: str = ""
    sandbox: Literal["auto", "on", "off"] = "auto"


def find_chromium(setting: str, environ: Mapping[str, str], own: str = "") -> str:
    """Return the path of the browser to use: the setting, else Playwright's `own` or another of its, else the system's.

    Raises BrowserError with the command that installs one.
    """
    if setting:
        if _runs(setting):
            return setting
        raise BrowserError(f"browser.executable in gad.yaml: {setting} is not a program that can be run")
    if own and _runs(own):
        return own
    home = environ.get("HOME") or os.path.expanduser("~")
    caches = (os.path.join(home, ".cache", "ms-playwright"), os.path.join(home, "Library", "Caches", "ms-playwright"))
    for cache in (environ["PLAYWRIGHT_BROWSERS_PATH"],) if environ.get("PLAYWRIGHT_BROWSERS_PATH") else caches:
        for build in BUILDS:
            with contextlib.suppress(OSError):
                for found in sorted(Path(cache).glob(build), reverse=True):
                    if _runs(str(found)):
                        return str(found)
    for name in NAMES:
        if path := shutil.which(name, path=environ.get("PATH", os.defpath)):
            return path
    for place in PLACES:
        if _runs(place):
            return place
    raise BrowserError(f"no Chromium was found; install it with: {install_command(environ)}")


def install_command(environ: Mapping[str, str]) -> str:
    """Return the one command that installs a browser here."""
    if shutil.which("apt-get", path=environ.get("PATH", os.defpath)):
        return "apt-get install chromium"
    return f"{sys.executable} -m playwright install chromium"


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


class Running:
    """A browser that runs, and its own context: that of a profile, of a person's browser, or an empty one.

    `lost` says why it is no more there. `opening` is held while a session opens a tab, and `claimed` are pages that a
    session opened: so nobody else in the context takes them. `visible` says that a person may see its windows.
    """

    def __init__(
        self, browser: Browser, context: BrowserContext, cdp: CDPSession, *, cdp_url: str, visible: bool
    ) -> None:
        self.browser = browser
        self.context = context
        self.attached = bool(cdp_url)
        self.visible = visible
        self.lost = ""
        self.opening = asyncio.Lock()
        self.claimed: set[Page] = set()
        self.file_listeners: list[Callable[[str, str, str], None]] = []
        self._cdp = cdp
        self._cdp_url = cdp_url
        self._gone = asyncio.Event()
        self._files: dict[str, tuple[str, str]] = {}
        browser.on("disconnected", lambda _: self.lose("the browser crashed"))

    def lose(self, why: str) -> None:
        """Take note that the browser is gone; calls under way end with a BrowserError that says why."""
        self.lost = self.lost or why
        self._gone.set()

    async def answers(self) -> bool:
        """Return whether the browser is still there, and the driver through which it is asked."""
        if not self.lost:
            try:
                await asyncio.wait_for(self._cdp.send("Browser.getVersion"), PING_SECONDS)
            except TimeoutError:
                self.lose("the browser hung")
            except Exception:  # whatever Playwright says when its driver or the browser has gone
                self.lose("the browser crashed")
        return not self.lost

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something with the browser. Raises BrowserError when it is lost meanwhile."""
        task = asyncio.get_running_loop().create_task(work)
        gone = asyncio.get_running_loop().create_task(self._gone.wait())
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                try:
                    return task.result()
                except Exception as exc:
                    if not isinstance(exc, BrowserError) and not from_playwright(exc):
                        raise
                    if await self.answers():
                        raise exc if isinstance(exc, BrowserError) else BrowserError(first_line(exc)) from None
            raise BrowserError(f"{self.lost} during this call; the next one starts it anew")
        finally:
            for each in (task, gone):
                each.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    async def targets(self) -> list[str]:
        """Return the ids of a person's tabs, the one used last first (`/json/list` is in that order)."""
        parts = urllib.parse.urlsplit(self._cdp_url)
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        try:
            found = await asyncio.to_thread(_get_json, f"{scheme}://{parts.netloc}/json/list")
            return [target["id"] for target in found if target["type"] == "page"]
        except (OSError, ValueError, KeyError, TypeError):
            return []  # it speaks the protocol but does not list its tabs

    async def watch_files(self) -> None:
        """Be told of files that a person's browser downloads, and leave it to the browser where they go."""

        def begins(event: dict[str, Any]) -> None:
            self._files[event["guid"]] = (event.get("frameId", ""), event.get("suggestedFilename", ""))

        def goes_on(event: dict[str, Any]) -> None:
            if event.get("state") == "inProgress":
                return
            target, name = self._files.pop(event["guid"], ("", ""))
            if event.get("state") == "completed" and event.get("filePath"):
                for listener in self.file_listeners:
                    listener(target, name, event["filePath"])

        self._cdp.on("Browser.downloadWillBegin", begins)
        self._cdp.on("Browser.downloadProgress", goes_on)
        await self._cdp.send("Browser.setDownloadBehavior", {"behavior": "default", "eventsEnabled": True})

    async def close(self, why: str = "the browser was closed") -> None:
        """Close the browser; from a person's, only take leave."""
        self.lose(why)
        with contextlib.suppress(Exception):  # it has gone already, or is ended with the driver
            await asyncio.wait_for(self.browser.close(), END_SECONDS)


class Chromium:
    """Starts browsers, all through one driver. `directory` is where they write; profiles are directories in it.

    A person's browser is attached to once a driver: `stop` comes before the next time.
    """

    def __init__(self, directory: str, choices: Choices, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._run = os.path.join(directory, RUN)
        self._choices = choices
        self._environment = environment
        self._playwright: Playwright | None = None
        self._sandbox = choices.sandbox != "off"

    async def start(self, profile: str = "") -> Running:
        """Start a browser with a profile or, by default, an empty one; or attach to a person's. Raises BrowserError."""
        try:
            if self._choices.cdp_url:
                return await self._attach(await self._start_driver())
            if self._playwright is None:
                await eyes.install(await self._start_driver())
            assert self._playwright is not None
            return await self._launch(self._playwright, profile)
        except OSError as exc:
            raise BrowserError(f"the browser cannot be started: {exc}") from None
        except Exception as exc:
            if not from_playwright(exc):
                raise
            raise BrowserError(f"the browser cannot be started: {_log_line(exc)}") from None

    async def stop(self) -> None:
        """End the driver, and with it every browser that it started."""
        playwright, self._playwright = self._playwright, None
        if playwright is None:
            return
        with contextlib.suppress(Exception):  # it has gone already
            await asyncio.wait_for(playwright.stop(), END_SECONDS)
        await asyncio.to_thread(self._sweep)

    async def _start_driver(self) -> Any:
        api = await asyncio.to_thread(importlib.import_module, "playwright.async_api")  # takes 0.3 s
        await asyncio.to_thread(self._sweep)
        starting = api.async_playwright()
        self._playwright = await starting.start()
        return self._playwright

    def _sweep(self) -> None:
        """End what a crash has left running, and remove what it has left lying about."""
        end_left_over(self._directory)
        shutil.rmtree(self._run, ignore_errors=True)

    async def _attach(self, playwright: Playwright) -> Running:
        url = self._choices.cdp_url
        files = os.path.join(self._run, "files")
        os.makedirs(files, mode=0o700, exist_ok=True)
        try:
            browser = await playwright.chromium.connect_over_cdp(
                url, artifacts_dir=files, no_defaults=True, timeout=START_SECONDS * 1000
            )
        except Exception as exc:
            if not from_playwright(exc):
                raise
            raise BrowserError(
                f"no browser answers at browser.cdp_url, {url}: {first_line(exc)}; start it with "
                f"--remote-debugging-port={urllib.parse.urlsplit(url).port or 9222} and a --user-data-dir of its own, "
                "and answer the dialog that one of its tabs may show"
            ) from None
        # A context that was there before us gets the selector engine only when it is registered after this.
        await eyes.install(playwright)
        cdp = await browser.new_browser_cdp_session()
        running = Running(browser, browser.contexts[0], cdp, cdp_url=url, visible=True)
        await running.watch_files()
        return running

    async def _launch(self, playwright: Playwright, profile: str) -> Running:
        choices = self._choices
        executable = find_chromium(choices.executable, self._environment, playwright.chromium.executable_path)
        data = os.path.join(self._directory, profile) if profile else os.path.join(self._run, "shared")
        for path in (data, os.path.join(self._run, "files")):
            os.makedirs(path, mode=0o700, exist_ok=True)
        await _let_go(data)
        if self._sandbox and os.geteuid() == 0:
            self._without_sandbox("Chromium's sandbox does not work for root")
        options: dict[str, Any] = {
            "user_data_dir": data,
            "executable_path": executable,
            "headless": choices.headless,
            "args": list(FLAGS),
            "env": self._variables(),
            "artifacts_dir": os.path.join(self._run, "files"),
            "timeout": START_SECONDS * 1000,
            **context_options(choices),
        }
        if choices.proxy:
            options["proxy"] = proxy_settings(choices.proxy)
        launch = playwright.chromium.launch_persistent_context
        try:
            context = await launch(**options, chromium_sandbox=self._sandbox)
        except Exception as exc:
            if not self._sandbox or not from_playwright(exc):
                raise
            if choices.sandbox == "on":
                self._without_sandbox(f"the browser cannot be started with its sandbox: {_log_line(exc)}")
            context = await launch(**options, chromium_sandbox=False)
            self._without_sandbox(f"Chromium's sandbox does not work here: {_log_line(exc)}")
        browser = context.browser
        assert browser is not None  # only that of an Android device has none
        if choices.headless:  # with windows, the last one to be closed would end the browser
            for page in context.pages:
                await page.close()
        cdp = await browser.new_browser_cdp_session()
        return Running(browser, context, cdp, cdp_url="", visible=not choices.headless)

    def _without_sandbox(self, why: str) -> None:
        if self._choices.sandbox == "on":
            raise BrowserError(f"{why}; set browser.sandbox: auto in gad.yaml to do without it")
        log.warning("%s; the browser runs without it", why)
        self._sandbox = False

    def _variables(self) -> dict[str, str]:
        """Return the environment of a browser. A service user's home may be missing or closed, so it gets another."""
        home = os.path.join(self._run, "home")
        tmp = os.path.join(self._run, "tmp")
        found = dict(self._environment)
        if not self._choices.headless and found.get("HOME"):
            found.setdefault("XAUTHORITY", os.path.join(found["HOME"], ".Xauthority"))
        found |= {"HOME": home, MARK: self._directory}
        for name in ("CONFIG", "CACHE", "DATA", "STATE"):
            found[f"XDG_{name}_HOME"] = os.path.join(home, name.lower())
        if len(tmp.encode()) <= LONGEST_TMP:
            found["TMPDIR"] = tmp
        for path in (home, tmp):
            os.makedirs(path, mode=0o700, exist_ok=True)
        return found


def context_options(choices: Choices, state: StorageState | None = None) -> dict[str, Any]:
    """Return what a new context is made with. `state` is what it begins with: cookies and local storage."""
    options: dict[str, Any] = {}
    if choices.user_agent:
        options["user_agent"] = choices.user_agent
    if not choices.headless:
        options["no_viewport"] = True  # a page is as large as its window
    if state is not None:
        options["storage_state"] = state
    return options


def proxy_settings(url: str) -> ProxySettings:
    """Return a proxy's address as Playwright wants it. This machine itself is asked without it."""
    parts = urllib.parse.urlsplit(url)
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    port = f":{parts.port}" if parts.port else ""
    found: ProxySettings = {"server": f"{parts.scheme}://{host}{port}", "bypass": "localhost,127.0.0.1,[::1]"}
    if parts.username:
        found["username"] = urllib.parse.unquote(parts.username)
        found["password"] = urllib.parse.unquote(parts.password or "")
    return found


def end_left_over(directory: str) -> int:
    """Kill every browser that was started for `directory` and still runs; return how many processes that hit."""
    mark = f"{MARK}={directory}".encode()
    groups = set()
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    groups.add(os.getpgid(int(entry)))  # what it has started is in its group
    groups.discard(os.getpgid(0))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    if groups:
        log.warning("ended %d groups of browser processes that were left over", len(groups))
    return len(groups)


async def _let_go(data: str) -> None:
    """Wait until the browser before has let go of a profile; remove a lock that nobody holds any more.

    Chromium's lock is a link that names the host and the process. It outlives a crash, and a host that got another
    name; but only one daemon uses a home.
    """
    lock = os.path.join(data, "SingletonLock")
    for _ in range(int(IN_USE_SECONDS / 0.1)):
        try:
            host, _dash, pid = os.readlink(lock).rpartition("-")
        except OSError:
            return
        if host != socket.gethostname() or not pid.isdigit() or not _alive(int(pid)):
            break
        await asyncio.sleep(0.1)
    else:
        raise BrowserError(f"the profile {data} is in use by another browser, process {pid}; close that one")
    for name in ("SingletonLock", "SingletonSocket", "SingletonCookie"):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(data, name))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _get_json(url: str) -> Any:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=PING_SECONDS) as answer:
        return json.load(answer)


def from_playwright(exc: Exception) -> bool:
    """Return whether this is an error that Playwright raises on purpose, without importing it to know."""
    return type(exc).__module__.startswith("playwright.") or "reading from the driver" in str(exc)


def first_line(exc: Exception) -> str:
    """Return what Playwright says is wrong, without the method's name and the log behind it."""
    line = (str(exc).strip() or type(exc).__name__).splitlines()[0]
    if "has been closed" in line:
        return "the tab was closed during this call"
    head, colon, rest = line.partition(": ")
    return rest if colon and "." in head and " " not in head else line


def _log_line(exc: Exception) -> str:
    """Return what is wrong with a start: the browser's own last word on it, where there is one."""
    said = [line for line in str(exc).splitlines() if "][err]" in line and ("FATAL" in line or "ERROR" in line)]
    return said[-1].partition("][err] ")[2] if said else first_line(exc)
