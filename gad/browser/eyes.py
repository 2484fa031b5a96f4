"""Looking at pages: runs a script in every frame of a tab, and puts what it finds together.

The script, made of `SCRIPTS`, is a Playwright selector engine for an isolated world, so that a page can neither see nor
disturb it. What it answers is the text of an element that it makes and never puts into the document.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from gad.core.page import Page, read_node
from gad.errors import BrowserError

if TYPE_CHECKING:
    from playwright.async_api import Frame, Locator, Playwright
    from playwright.async_api import Page as Tab

ENGINE = "gad"
SCRIPTS = ("engine.js", "kinds.js", "sight.js", "look.js", "tidy.js", "watch.js")
LOOK_SECONDS = 15.0  # for a tab's own document; the script itself takes less than 3 on the longest pages
FRAME_SECONDS = 2.0  # for an embedded document, which may never load
FRAMES_SECONDS = 6.0  # for all of them
PING_SECONDS = 1.0  # for one to say that it is there at all
DEEPEST = 5  # levels of documents in documents
MOST_FRAMES = 30


@dataclass(frozen=True)
class Look:
    """One look at a tab. `last` is the highest ref that has been given out."""

    page: Page
    last: int


@dataclass(frozen=True)
class Watched:
    """What `watch` has noticed: seconds since the last change, and texts that were shown and are so no more."""

    quiet: float
    brief: tuple[str, ...]


@cache
def _script() -> str:
    parts = [files("gad.browser").joinpath(name).read_text("utf-8") for name in SCRIPTS]
    return "\n".join(["(() => {", "'use strict';", *parts, "return engine;", "})()"])


async def install(playwright: Playwright) -> None:
    """Make the engine known to this Playwright, once and before its first page."""
    await playwright.selectors.register(ENGINE, _script(), content_script=True)


async def look(page: Tab, *, after: int) -> Look:
    """Look at a whole tab, frames included. New refs are greater than `after`. Raises BrowserError."""
    frames = _Frames(after)
    try:
        found = await _ask(page.main_frame, f"look {after}", LOOK_SECONDS)
    except _playwright_error() as exc:
        raise BrowserError(f"the page cannot be looked at: {_first_line(exc)}") from None
    frames.last = found["last"]
    remarks = list(found["remarks"])
    await frames.fill(page.main_frame, found["root"], remarks, 1)
    if frames.unloaded:
        remarks.append(f"{frames.unloaded} frames could not be loaded")
    _one_main(found["root"])
    return Look(Page(found["url"], found["title"], read_node(found["root"]), tuple(remarks)), frames.last)


class _Frames:
    """Puts the trees of embedded documents into the tree of the document that embeds them."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.left = MOST_FRAMES
        self.unloaded = 0
        self.until = time.monotonic() + FRAMES_SECONDS

    async def fill(self, frame: Frame, tree: list[Any], remarks: list[str], depth: int) -> None:
        """Fill every frame node of a document's tree."""
        nodes = _frame_nodes(tree)
        taken = self.left if depth <= DEEPEST else 0
        if len(nodes) > taken:
            remarks.append(f"{len(nodes) - taken} frames were not looked at: there are too many, or too deep")
        nodes = nodes[:taken]
        self.left -= len(nodes)
        # One after the other, since no number may be given twice; those that do not answer are waited for together.
        children = await asyncio.gather(*(_content(frame, node[1]["ref"]) for node in nodes))
        for node, child in zip(nodes, children, strict=True):
            if child is None or time.monotonic() > self.until:
                node.append("(this frame cannot be read: it has not loaded)")
                continue
            try:
                found = await _ask(child, f"look {self.last}", FRAME_SECONDS)
            except _playwright_error():
                node.append("(this frame cannot be read)")
                continue
            self.last = max(self.last, found["last"])
            if found["url"].startswith("chrome-error:"):  # Chromium's own page, which says that it has none
                self.unloaded += 1
                continue
            node[1]["url"] = found["url"]
            remarks.extend(f"in the frame {node[1]['ref']}: {remark}" for remark in found["remarks"])
            await self.fill(child, found["root"], remarks, depth + 1)
            root = found["root"]
            if not root[1]:
                node.extend(root[2:])
            elif len(root) > 2:
                node.append(root)


def _nodes(tree: list[Any]) -> Iterator[list[Any]]:
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            yield node
            stack.extend(reversed(node[2:]))


def _frame_nodes(tree: list[Any]) -> list[list[Any]]:
    return [node for node in _nodes(tree) if node[0] == "frame"]


def _one_main(tree: list[Any]) -> None:
    # Each document marks its own; the page's is the one with the most to say.
    marked = [
        (sum(len(text) for part in _nodes(node) for text in part[2:] if isinstance(text, str)), node)
        for node in _nodes(tree)
        if node[1].get("main")
    ]
    for _, node in sorted(marked, key=lambda pair: -pair[0])[1:]:
        del node[1]["main"]


async def _content(frame: Frame, ref: int) -> Frame | None:
    # The document in a frame, None when there is none that answers.
    try:
        owner = await frame.locator(f"{ENGINE}=ref {ref}").element_handle(timeout=1000 * FRAME_SECONDS)
        child = await owner.content_frame()
        await owner.dispose()
        if child is not None:
            await _ask(child, "ping", PING_SECONDS)
    except _playwright_error():
        return None
    return child


async def _ask(frame: Frame, command: str, seconds: float) -> Any:
    return json.loads(await frame.locator(f"{ENGINE}={command}").text_content(timeout=1000 * seconds) or "null")


async def _ask_all(frames: Sequence[Frame], command: str) -> list[tuple[Frame, Any]]:
    # The answers of those embedded documents that answer; a simple question is answered at once or not at all.
    async def ask(frame: Frame) -> Any:
        try:
            return await _ask(frame, command, PING_SECONDS)
        except _playwright_error():
            return None

    answers = await asyncio.gather(*(ask(frame) for frame in frames))
    return [(frame, answer) for frame, answer in zip(frames, answers, strict=True) if answer is not None]


def _children(page: Tab) -> list[Frame]:
    return [frame for frame in page.frames if frame is not page.main_frame and not frame.is_detached()][:MOST_FRAMES]


# The frames of each tab that answered when watching began: one that never loads must not hold up every question.
_watching: WeakKeyDictionary[Tab, tuple[Frame, ...]] = WeakKeyDictionary()


async def watch(page: Tab) -> None:
    """Begin to take note of changes in all frames that there are now. Raises BrowserError."""
    try:
        await _ask(page.main_frame, "watch", LOOK_SECONDS)
    except _playwright_error() as exc:
        raise BrowserError(f"the page cannot be watched: {_first_line(exc)}") from None
    _watching[page] = tuple(frame for frame, _ in await _ask_all(_children(page), "watch"))


async def watched(page: Tab) -> Watched | None:
    """Return what has been noticed since `watch`, None when another document is there now. Raises BrowserError."""
    try:
        found = await _ask(page.main_frame, "watched", LOOK_SECONDS)
    except _playwright_error() as exc:
        raise BrowserError(f"the page cannot be watched: {_first_line(exc)}") from None
    if found is None:
        return None
    frames = [frame for frame in _watching.get(page, ()) if not frame.is_detached()]
    answers = [found, *(answer for _, answer in await _ask_all(frames, "watched"))]
    brief = dict.fromkeys(text for answer in answers for text in answer["brief"])
    return Watched(min(float(answer["quiet"]) for answer in answers), tuple(brief))


async def find(page: Tab, ref: int | str) -> Locator:
    """Return the element with a ref, or the first that a CSS selector finds, in whatever frame it is.

    Raises BrowserError that says what to do.
    """
    if isinstance(ref, int) or re.fullmatch(r"\d+", ref.strip()):
        selector = f"{ENGINE}=ref {ref}"
        missing = f"there is no element {ref} on the page now: look again with web_scan"
    else:
        selector = f"css={ref}"
        missing = f"the selector {ref!r} finds nothing on the page: look again with web_scan"
    try:
        await _ask(page.main_frame, "ping", LOOK_SECONDS)  # counting has no time limit of its own
        locator = page.main_frame.locator(selector)
        if await locator.count():
            return locator.first
    except _playwright_error() as exc:
        raise BrowserError(f"{ref!r} cannot be found: {_first_line(exc)}") from None
    for frame, _ in await _ask_all(_children(page), "ping"):
        try:
            locator = frame.locator(selector)
            if await locator.count():
                return locator.first
        except _playwright_error():
            continue  # it has gone in the meantime
    raise BrowserError(missing)


def _playwright_error() -> type[Exception]:
    from playwright.async_api import Error  # it takes 0.3 s to import, and most runs of gad need no browser

    return Error


def _first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0] or type(exc).__name__
