"""Measure how small web_scan makes real pages, and what of them is left.

    python -m bench.pages FOLDER [NAME ...] [--json] [--write DIRECTORY]

FOLDER holds one folder a page, with source.html (the page as it was saved) and main.txt (the text of its article), as
the test collection of mozilla/readability (Apache-2.0) can give them. Each page is served over loopback and shown in
real Chromium without a network. Printed for each:

- raw          characters and o200k_base tokens of source.html;
- scan, text   the same of what web_scan gives, with refs in 35,000 characters or as plain text in 10,000, and the
               tokens in per cent of the raw ones;
- main         the share of main.txt's distinct words (for Chinese and Japanese: characters) that the scan holds;
- controls     the share of visible controls whose ref the scan holds. Visible is what Chromium says is (checkVisibility
               with opacity and visibility) and what has a box that can be scrolled to and is not clipped away;
- ms           the time from the browser to the text, the median of five scans.

The last line has medians.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import http.server
import json
import os
import re
import statistics
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.weights import counter
from gad.browser.chromium import find_chromium
from gad.browser.eyes import find, install, look
from gad.core.page_text import Shown, plain, structured

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page, Route

SCAN, TEXT = 35_000, 10_000
"""Characters that web_scan gives at most: with refs, and as plain text."""
LOOKS = 5

_REF = re.compile(r"\[([0-9]+)[ \]]")
_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")

VISIBLE = """() => {
    const clipped = (element, box) => {
        for (let up = element.parentElement; up; up = up.parentElement) {
            const style = getComputedStyle(up), outer = up.getBoundingClientRect();
            if (up === document.body || up === document.documentElement || style.display === "contents") continue;
            if (["hidden", "clip"].includes(style.overflowX) && (box.right <= outer.left || box.left >= outer.right))
                return true;
            if (["hidden", "clip"].includes(style.overflowY) && (box.bottom <= outer.top || box.top >= outer.bottom))
                return true;
        }
        return false;
    };
    let count = 0;
    for (const element of document.querySelectorAll("a, button, input, select, textarea")) {
        const box = element.getBoundingClientRect();
        if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
        if (box.width < 1 || box.height < 1) continue;
        if (box.right + scrollX <= 0 || box.bottom + scrollY <= 0 || clipped(element, box)) continue;
        element.setAttribute("data-bench", String(count++));
    }
    return count;
}"""


@dataclass(frozen=True, slots=True)
class Size:
    """A text's size, and what of the page is in it."""

    characters: int
    tokens: int
    main: float
    cut: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """One page's figures. `controls` is the share that is in the scan, of `visible`; `ms` is a look and its text."""

    name: str
    characters: int
    tokens: int
    scan: Size
    text: Size
    controls: float
    visible: int
    ms: float


async def measure(folder: Path, names: Sequence[str], write: Path | None) -> list[Measured]:
    """Show each page and measure it."""
    from playwright.async_api import async_playwright

    found = []
    with served(folder) as address:
        async with async_playwright() as playwright:
            await install(playwright)
            browser = await playwright.chromium.launch(executable_path=find_chromium("", os.environ))
            context = await browser.new_context()
            await context.route("**/*", functools.partial(_local, address))
            for name in names:
                row = await _measure(context, folder / name, f"{address}/{name}/source.html", write)
                found.append(row)
            await browser.close()
    return found


async def _local(address: str, route: Route) -> None:
    await (route.continue_() if route.request.url.startswith(address) else route.abort())


async def _measure(context: BrowserContext, folder: Path, url: str, write: Path | None) -> Measured:
    raw = (folder / "source.html").read_text("utf-8", "replace")
    main = (folder / "main.txt").read_text("utf-8")
    page = await context.new_page()
    await page.goto(url, wait_until="load")
    times = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        seen = await look(page, after=0)
        scan = structured(seen.page, SCAN)
        times.append(1000 * (time.perf_counter() - began))
    text = plain(seen.page, TEXT)
    visible = await page.evaluate(VISIBLE)
    kept = await _kept(page, scan)
    if write is not None:
        (write / f"{folder.name}.md").write_text(scan.text, "utf-8")
        (write / f"{folder.name}.txt").write_text(text.text, "utf-8")
    await page.close()
    return Measured(
        folder.name,
        len(raw),
        counter("o200k_base")(raw),
        _size(scan, main),
        _size(text, main),
        kept / visible if visible else 1.0,
        visible,
        statistics.median(times),
    )


async def _kept(page: Page, scan: Shown) -> int:
    """Return how many of the marked controls have a ref in the text."""
    found = set()
    for ref in set(_REF.findall(scan.text)):
        found.add(await (await find(page, int(ref))).get_attribute("data-bench"))
    return len(found - {None})


def _size(shown: Shown, main: str) -> Size:
    wanted = words(main)
    found = len(wanted & words(shown.text)) / len(wanted)
    return Size(len(shown.text), counter("o200k_base")(shown.text), found, shown.cut)


def words(text: str) -> set[str]:
    """Return a text's distinct words; of a text that is mostly Chinese or Japanese, its characters."""
    text = unicodedata.normalize("NFKC", text).replace("\u00ad", "")
    signs = set(_IDEOGRAPH.findall(text))
    return signs if len(_IDEOGRAPH.findall(text)) > len(text) / 4 else set(re.findall(r"\w+", text))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port of loopback; gives its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def guess_type(self, path: object) -> str:
            return "text/html; charset=utf-8"

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def table(rows: Sequence[Measured]) -> str:
    """Return the figures as a table."""
    lines = [f"{'':20}{'raw':>16}{'scan':>21}{'text':>20}{'main':>12}{'controls':>15}{'ms':>6}"]
    lines.append(f"{'':20}{'chars':>9}{'tok':>7}{'chars':>8}{'tok':>7}{'%':>6}{'chars':>8}{'tok':>7}{'%':>5}"
                 f"{'scan':>6}{'text':>6}{'recall':>8}{'of':>7}")  # fmt: skip
    for row in rows:
        cut = "+" if row.scan.cut else " "
        lines.append(
            f"{row.name:20}{row.characters:9,}{row.tokens:7,}{row.scan.characters:8,}{row.scan.tokens:7,}"
            f"{100 * row.scan.tokens / row.tokens:5.1f}{cut}{row.text.characters:8,}{row.text.tokens:7,}"
            f"{100 * row.text.tokens / row.tokens:5.1f}{row.scan.main:6.2f}{row.text.main:6.2f}"
            f"{row.controls:8.3f}{row.visible:7,}{row.ms:6.0f}"
        )
    share = statistics.median(row.scan.tokens / row.tokens for row in rows)
    shorter = statistics.median(row.text.tokens / row.tokens for row in rows)
    main = statistics.median(row.scan.main for row in rows)
    controls = statistics.median(row.controls for row in rows)
    lines.append(f"median: scan {100 * share:.1f} %, text {100 * shorter:.1f} % of the raw tokens; "
                 f"main {main:.3f}, controls {controls:.3f}; + longer than {SCAN:,} characters")  # fmt: skip
    return "\n".join(lines)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="folders of pages; all by default")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--write", type=Path, metavar="DIRECTORY", help="write what web_scan gives there")
    chosen = parser.parse_args()
    there = sorted(path.parent.name for path in chosen.folder.glob("*/source.html"))
    if not there or set(chosen.names) - set(there):
        parser.error(f"{chosen.folder} must hold a folder with source.html and main.txt for each page; "
                     f"there are: {', '.join(there) or 'none'}")  # fmt: skip
    if chosen.write:
        chosen.write.mkdir(parents=True, exist_ok=True)
    rows = asyncio.run(measure(chosen.folder, chosen.names or there, chosen.write))
    print(json.dumps([asdict(row) for row in rows], indent=2) if chosen.json else table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
