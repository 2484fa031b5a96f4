"""What `gad.click(ref)` and its like do: trusted input, by Playwright, to elements that web_scan has numbered.

A call comes from a script in a page, so the page may be behind it: what reaches beyond the page, a file of this
machine or an address that is none of the web, must stand word for word in the script.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from gad.browser import eyes
from gad.browser.browser import explain, read_address
from gad.browser.chromium import first_line
from gad.core.ports import ToolContext
from gad.errors import BrowserError

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

ACTION_SECONDS = 5.0
"""How long an element may take until it can be acted on: shown, enabled, at rest, with nothing in front of it."""
GOTO_SECONDS = 15.0
"""How long a server may take to answer."""
TYPED = 200
"""Characters that are typed key by key at most; a longer text is put in at once."""
SET_TYPES = frozenset({"date", "time", "datetime-local", "month", "week", "color", "range", "number"})
"""Types of inputs whose value is set, as it cannot be typed as it is written."""
MOST_OPTIONS = 20
WEB = frozenset({"http", "https"})

KEYS = {
    "ctrl": "Control", "cmd": "Meta", "command": "Meta", "win": "Meta", "option": "Alt", "esc": "Escape",
    "return": "Enter", "del": "Delete", "ins": "Insert", "space": "Space", "up": "ArrowUp", "down": "ArrowDown",
    "left": "ArrowLeft", "right": "ArrowRight", "pgup": "PageUp", "pgdn": "PageDown", "enter": "Enter", "tab": "Tab",
    "backspace": "Backspace", "shift": "Shift", "alt": "Alt", "control": "Control", "meta": "Meta", "home": "Home",
    "end": "End", "escape": "Escape", "delete": "Delete", "pageup": "PageUp", "pagedown": "PageDown",
}  # fmt: skip
"""Names of keys as people write them, in the words of UI Events (KeyboardEvent.key)."""

Ref = int | float | str
Put = Callable[["Locator"], Awaitable[None]]


class Actions:
    """The functions of `gad` for one script in one tab. `used` says that one was called.

    `put` hands an element to the script. Every function raises BrowserError in one line that says what is in the way.
    """

    def __init__(self, page: Page, context: ToolContext, script: str, put: Put) -> None:
        self.used = False
        self._page = page
        self._context = context
        self._script = script
        self._put = put
        self._functions: dict[str, tuple[Callable[..., Awaitable[None]], int, int]] = {  # with the numbers of arguments
            "click": (self._click, 1, 1),
            "type": (self._type, 2, 2),
            "press": (self._press, 1, 2),
            "select": (self._select, 2, 1000),
            "drag": (self._drag, 2, 2),
            "hover": (self._hover, 1, 1),
            "upload": (self._upload, 2, 1000),
            "goto": (self._goto, 1, 1),
            "back": (self._back, 0, 0),
            "el": (self._el, 1, 1),
        }

    async def do(self, name: str, arguments: Sequence[Ref]) -> None:
        """Do what a script asks for. Raises BrowserError."""
        self.used = True
        function, least, most = self._functions[name]
        if not least <= len(arguments) <= most:
            raise BrowserError(f"it takes {least if least == most else f'at least {least}'} arguments")
        try:
            await function(*arguments)
        except _playwright_error() as exc:
            raise BrowserError(reason(str(exc))) from None

    async def _find(self, ref: Ref) -> Locator:
        if isinstance(ref, float):
            raise BrowserError(f"{ref} is no ref")
        return await eyes.find(self._page, ref)

    async def _click(self, ref: Ref) -> None:
        # Playwright would also wait for the page that a click leads to, however long that takes.
        await (await self._find(ref)).click(timeout=ACTION_SECONDS * 1000, no_wait_after=True)

    async def _hover(self, ref: Ref) -> None:
        await (await self._find(ref)).hover(timeout=ACTION_SECONDS * 1000)

    async def _type(self, ref: Ref, text: Ref) -> None:
        locator = await self._find(ref)
        text = str(text)
        kind = (await locator.get_attribute("type", timeout=ACTION_SECONDS * 1000) or "").lower()
        if kind in SET_TYPES or len(text) > TYPED or "\n" in text:  # as a key, a line break would send a message
            await locator.fill(text, timeout=ACTION_SECONDS * 1000)
            return
        await locator.fill("", timeout=ACTION_SECONDS * 1000)
        await locator.press_sequentially(text, timeout=ACTION_SECONDS * 1000)

    async def _press(self, key: Ref, ref: Ref | None = None) -> None:
        parts = re.split(r"\+(?=.)", str(key).strip() or " ")
        key = "+".join(KEYS.get(part.lower(), part) if len(part) > 1 else part for part in parts)
        if ref is None:
            await self._page.keyboard.press(key)
        else:
            await (await self._find(ref)).press(key, timeout=ACTION_SECONDS * 1000, no_wait_after=True)

    async def _select(self, ref: Ref, *values: Ref) -> None:
        locator = await self._find(ref)
        try:
            await locator.select_option([str(value) for value in values], timeout=ACTION_SECONDS * 1000)
        except _playwright_error() as exc:
            if "did not find some options" not in str(exc):
                raise
            texts = [" ".join(text.split()) for text in await locator.locator("option").all_text_contents()]
            more = f" and {len(texts) - MOST_OPTIONS} more" if len(texts) > MOST_OPTIONS else ""
            there = ", ".join(repr(text) for text in texts[:MOST_OPTIONS])
            raise BrowserError(f"no such option (or one too many); there are {there}{more}") from None

    async def _drag(self, source: Ref, target: Ref) -> None:
        start, end = await self._find(source), await self._find(target)
        await start.drag_to(end, timeout=ACTION_SECONDS * 1000, steps=5)  # some pages want to see it move

    async def _upload(self, ref: Ref, *paths: Ref) -> None:
        files = [checked_file(str(path), self._context.cwd, self._script) for path in paths]
        locator = await self._find(ref)
        try:
            await locator.set_input_files(files, timeout=ACTION_SECONDS * 1000)
            return
        except _playwright_error() as exc:
            if "not an HTMLInputElement" not in str(exc) and "not an input" not in str(exc).lower():
                raise
        async with self._page.expect_file_chooser(timeout=ACTION_SECONDS * 1000) as chooser:
            await locator.click(timeout=ACTION_SECONDS * 1000, no_wait_after=True)
        await (await chooser.value).set_files(files, timeout=ACTION_SECONDS * 1000)

    async def _goto(self, url: Ref) -> None:
        address = checked_address(str(url), self._page.url, self._script)
        try:
            await self._page.goto(address, wait_until="commit", timeout=GOTO_SECONDS * 1000)
        except _playwright_error() as exc:
            said = first_line(exc)
            if "Download is starting" in said or "interrupted by another navigation" in said:
                return
            if "ERR_ABORTED" in said:
                raise BrowserError(f"{address}: the server answered without a page") from None
            raise BrowserError(f"{address} could not be opened: {explain(said, GOTO_SECONDS)}") from None

    async def _back(self) -> None:
        if await self._page.go_back(wait_until="commit", timeout=GOTO_SECONDS * 1000) is None:
            url = self._page.url
            raise BrowserError(f"there is no page before {url[:200]}")

    async def _el(self, ref: Ref) -> None:
        await self._put(await self._find(ref))


def checked_file(path: str, cwd: str, script: str) -> str:
    """Return the absolute path of a file that may be given to a page.

    Raises BrowserError unless the path stands in the script as a literal and leads to a regular file.
    """
    if not _stands_in(script, path):
        raise BrowserError(f"the path must stand in the script as it is, in quotes: {path[:200]}")
    found = os.path.normpath(os.path.join(cwd, path))
    if not os.path.isfile(found):
        raise BrowserError(f"there is no file {found}")
    return found


def checked_address(url: str, base: str, script: str) -> str:
    """Return the absolute address that `url` stands for on the page `base`. Raises BrowserError for one not allowed.

    A page could send itself to any web address anyway; others must stand in the script.
    """
    # Browsers do not see these characters, wherever they stand (https://url.spec.whatwg.org/#concept-basic-url-parser).
    plain = re.sub(r"[\t\n\r]", "", url).strip("".join(map(chr, range(33))))
    if not plain:
        raise BrowserError("the address is empty")
    address = urllib.parse.urljoin(base, plain) if plain[0] in "/?#." else read_address(plain)
    scheme = urllib.parse.urlsplit(address).scheme.lower()
    if scheme not in WEB and address != "about:blank" and not _stands_in(script, url):
        raise BrowserError(f"a {scheme}: address must stand in the script as it is, in quotes: {address[:200]}")
    read_address(address)  # the base may have a scheme that is never allowed
    return address


def _stands_in(script: str, text: str) -> bool:
    """Return whether a script has that literal: no part of a longer one, which a page might choose to its liking."""
    return any(f"{quote}{text}{quote}" in script for quote in "'\"`")


def reason(said: str) -> str:
    """Return in one line what kept Playwright from acting, from its error with the log of what it tried."""
    lines = [re.sub(r"^(- |\d+ × )+", "", line.strip()) for line in said.splitlines()]
    for line in reversed(lines):
        if line.endswith("intercepts pointer events"):
            return f"something is in front of it: {line.removesuffix(' intercepts pointer events')[:300]}"
        if line.startswith("element is not "):
            state = line.removeprefix("element is not ")
            return f"it is not {state}" if state != "stable" else "it does not stop moving"
        if line == "element is outside of the viewport":
            return "it lies outside of what can be scrolled to"
        if line.startswith(("element was detached", "element is not attached")):
            return "it is no more on the page: look again with web_scan"
    first = re.sub(r"^[A-Za-z]+\.[a-z_]+: (Error: )?", "", lines[0])
    if "is not a <select> element" in first:
        return "it is no <select>: click it, look with web_scan, then click the option"
    if first.startswith("Element is not an <input>"):
        return "nothing can be typed into it"
    if first.startswith("Timeout") and 'waiting for event "filechooser"' in said:
        return "it opens no file chooser when clicked"
    if first.startswith("Timeout"):
        waits = any(line.startswith("locator resolved to") for line in lines)
        return "the page did not react in time" if waits else "it is no more on the page: look again with web_scan"
    return first


def _playwright_error() -> type[Exception]:
    from playwright.async_api import Error

    return Error
