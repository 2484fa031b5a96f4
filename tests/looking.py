"""The eyes in real Chromium for tests: one tab, pages that a test writes down, and trees as short texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.async_api import Browser, Playwright, async_playwright
from playwright.async_api import Page as Tab

from gad.browser import eyes
from gad.core.page import CONTROLS, Node, Page
from tests.sites import Loop, Served, Site

CHROMIUM = "/usr/bin/chromium"


class Eyes:
    """One tab of one browser, and a site whose pages the tests set."""

    def __init__(self, loop: Loop, site: Site, tab: Tab) -> None:
        self.loop = loop
        self.site = site
        self.tab = tab

    def open(self, html: str | Served, path: str = "/", *, head: str = "", wait: str = "load") -> None:
        self.site.pages[path] = (
            f"<!doctype html><html><head>{head}</head><body>{html}</body></html>" if isinstance(html, str) else html
        )
        self.loop.run(self.tab.goto(self.site.url(path), wait_until=wait))  # type: ignore[arg-type]

    def see(self, html: str | Served, *, head: str = "", after: int = 0) -> Page:
        self.open(html, head=head)
        return self.look(after).page

    def look(self, after: int = 0) -> eyes.Look:
        return self.loop.run(eyes.look(self.tab, after=after))

    def run(self, script: str) -> object:
        return self.loop.run(self.tab.evaluate(script))


@contextmanager
def open_eyes() -> Iterator[Eyes]:
    """Start a browser with one tab of 1000 x 700, and a site."""
    with Loop() as loop, Site() as site:

        async def start() -> tuple[Playwright, Browser, Tab]:
            playwright = await async_playwright().start()
            await eyes.install(playwright)
            browser = await playwright.chromium.launch(executable_path=CHROMIUM)
            return playwright, browser, await browser.new_page(viewport={"width": 1000, "height": 700})

        async def stop() -> None:
            await browser.close()
            await playwright.stop()

        playwright, browser, tab = loop.run(start())
        yield Eyes(loop, site, tab)
        loop.run(stop())


def text_of(node: Node) -> str:
    """All that a node says, in the order of the page, blocks on lines of their own."""
    parts: list[str] = []

    def visit(node: Node) -> None:
        block = node.kind not in CONTROLS and node.kind not in ("image", "mark", "break")
        if block or node.kind == "break":
            parts.append("\n")
        parts.extend([node.label] if node.label else [])
        for child in node.children:
            if isinstance(child, str):
                parts.append(child)
            else:
                visit(child)
        if block:
            parts.append("\n")

    visit(node)
    return re.sub(r"\n+", "\n", "".join(parts)).strip("\n")


def drawn(node: Node | str) -> str:
    """A node on one line: `kind[attributes](children)`, a block without attributes as `(children)`."""
    if isinstance(node, str):
        return node
    attributes = [
        f"{name}={value if isinstance(value, str) else ','.join(value)}"
        for name in ("type", "label", "value", "hint", "state", "options")
        if (value := getattr(node, name))
    ]
    inner = "|".join(drawn(child) for child in node.children)
    shown = f"[{' '.join(attributes)}]" if attributes else ""
    return f"{'' if node.kind == 'block' else node.kind}{shown}" + (f"({inner})" if node.children else "")


def controls(page: Page) -> list[Node]:
    return [node for node in page.root.walk() if node.kind in CONTROLS]


def only(page: Page, kind: str) -> Node:
    found = [node for node in page.root.walk() if node.kind == kind]
    assert len(found) == 1, found
    return found[0]
