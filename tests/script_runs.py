"""A browser in which tests run scripts as web_execute_js does, one context a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gad.browser import eyes
from gad.browser.chromium import Choices, Chromium, Running
from gad.browser.script import run_script
from gad.browser.visits import Visit
from gad.core.page import CONTROLS, Acted, Node, Page
from gad.core.ports import ToolContext
from tests.sites import Loop, Site


class Runs:
    """A session's view of the browser. `cwd` is where its relative paths start."""

    def __init__(self, loop: Loop, visit: Visit, cwd: Path) -> None:
        self.loop = loop
        self.visit = visit
        self.cwd = cwd
        self.context = ToolContext("s", "c", str(cwd), str(cwd), lambda text: None)

    def open(self, url: str) -> None:
        """Open an address in the active tab."""

        async def work() -> None:
            await (await self.visit.tab()).page.goto(url, wait_until="domcontentloaded")

        self.loop.run(work())

    def show(self, site: Site, html: str) -> None:
        """Make this the site's first page, and open it in the active tab."""
        site.pages["/"] = html
        self.open(site.url())

    def run(self, script: str, *, monitor: bool = False, seconds: float = 20.0) -> Acted:
        """Run a script in the active tab."""
        return self.loop.run(self.start(script, monitor=monitor, seconds=seconds))

    async def start(self, script: str, *, monitor: bool = False, seconds: float = 20.0) -> Acted:
        """Run a script in the active tab."""
        tab = await self.visit.tab()
        return await run_script(self.visit, tab, self.context, script, monitor=monitor, seconds=seconds)

    def watch(self, script: str, *, seconds: float = 20.0) -> Acted:
        """Run a script in the active tab, look before and after, and wait for what it sets off."""
        return self.run(script, monitor=True, seconds=seconds)

    def ref(self, words: str) -> int:
        """Return the ref of the control with these words on it, as a scan would show it."""

        async def look() -> eyes.Look:
            return await eyes.look((await self.visit.tab()).page, after=self.visit.refs)

        found = self.loop.run(look())
        self.visit.refs = found.last
        for node in found.page.root.walk():
            if node.kind in CONTROLS and words in (text_of(node).strip(), node.label, node.hint):
                return node.ref
        raise AssertionError(f"no control {words!r} in {text_of(found.page)}")


@contextmanager
def browser(loop: Loop, directory: Path) -> Iterator[Running]:
    """Run a browser for a module of tests."""
    chromium = Chromium(str(directory), Choices(), {"PATH": os.environ["PATH"]})
    running = loop.run(chromium.start())
    try:
        yield running
    finally:
        loop.run(running.close())
        loop.run(chromium.stop())


@contextmanager
def runs(loop: Loop, running: Running, cwd: Path) -> Iterator[Runs]:
    """Open a session's view of a browser for one test."""
    context = loop.run(running.browser.new_context(viewport={"width": 1000, "height": 700}))

    async def visit() -> Visit:
        return Visit(running, context, work=str(cwd))

    made = loop.run(visit())
    try:
        yield Runs(loop, made, cwd)
    finally:
        loop.run(made.close())


def text_of(node: Node | Page | None) -> str:
    """Return all text of a tree."""
    if node is None:
        return ""
    if isinstance(node, Page):
        return text_of(node.root)
    return " ".join(child if isinstance(child, str) else text_of(child) for child in node.children)
