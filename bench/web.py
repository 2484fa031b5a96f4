"""web_scan and web_execute_js, from the call to the answer, in real Chromium on pages served over loopback.

The memory that is counted is the resident one of this process, where gad's part runs; Chromium's are not in it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.measure import Row, Scale, single, spread
from gad.browser.browser import WebBrowser
from gad.core.page_text import structured
from tests.browsers import ENVIRONMENT, call
from tests.sites import Asked, Served, Site
from tests.test_page_hard import HARD, page_of

WARM_UP = 15
"""Pages until all that is imported and cached is there."""
GOAL_MS = 300.0
GOAL_MB = 20.0


def typical(asked: Asked) -> Served:
    """Answer with a page of 2,000 elements: a table with a link, a button and an input in each row."""
    rows = "".join(
        f"<tr><td>{row}<td><a href='/item?{row}'>item {row}</a><td><button>buy</button><td><input name=n{row}>"
        for row in range(250)
    )
    return Served(f"<title>shop</title><main><h1>Items</h1><table>{rows}</table></main>")


def varied(asked: Asked) -> Served:
    """Answer with a page of some hundred elements and twenty requests, another one each time."""
    number = asked.path.partition("?")[2]
    rows = "".join(
        f"<tr><td>{number}-{row}</td><td><a href='/item?{row}'>item {row} of page {number}</a></td></tr>"
        for row in range(400)
    )
    images = "".join(f"<img alt='{image}' src='/image?{number}-{image}'>" for image in range(20))
    return Served(f"<title>page {number}</title><main><table>{rows}</table>{images}</main><input value={number}>")


def web(scale: Scale, place: Path) -> list[Row]:
    """The browser's start, looks at an open page, scripts on it, and what looking at many pages takes for good."""
    starts, looks, scripts = asyncio.run(_calls(scale, place))
    grown = asyncio.run(growth(scale.scans, place))
    goal = {"p50": GOAL_MS}
    return [
        spread("first web_scan, with the browser's start", "s", starts, {}),
        spread("web_scan of an open page of 2,000 elements", "ms", looks, goal),
        spread("web_execute_js on it, with both looks", "ms", scripts, {}),
        single("text of the hardest tree", "ms", _hardest(), 1000),
        single(f"memory that {scale.scans} web_scans take", "MB", grown / 1e6, GOAL_MB, note="resident, of the daemon"),
    ]


def _hardest() -> float:
    """Return the most milliseconds that the text of one of the hard trees takes, of the better of two tries each."""
    times: list[float] = []
    for tree in HARD.values():
        tries = []
        for _ in range(2):
            began = time.process_time()
            structured(page_of(tree), 35_000)
            tries.append(1000 * (time.process_time() - began))
        times.append(min(tries))
    return max(times)


async def _calls(scale: Scale, place: Path) -> tuple[list[float], list[float], list[float]]:
    """Return the seconds of first scans, and the milliseconds of scans and scripts."""
    context = call(place, "calls")
    browser = WebBrowser(str(place / "browser"), environment=ENVIRONMENT)
    with Site({"/": typical}) as site:
        starts = []
        try:
            for _ in range(scale.starts):
                await browser.close()
                browser.start()
                starts.append(await _seconds(lambda: browser.scan(context, url=site.url("/"))))
            looks = await _many(lambda: browser.scan(context), scale.samples, scale.warm)
            scripts = await _many(lambda: browser.execute(context, "document.title"), scale.commands, scale.warm)
        finally:
            await browser.close()
    return starts, looks, scripts


async def _many(work: Callable[[], Awaitable[object]], samples: int, warm: int) -> list[float]:
    return [1000 * await _seconds(work) for _ in range(samples + warm)][warm:]


async def _seconds(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def growth(scans: int, place: Path) -> int:
    """Return by how many bytes this process grows when so many pages are opened and looked at, after a warm-up."""
    context = call(place, "memory")
    browser = WebBrowser(str(place / "browser"), environment=ENVIRONMENT)
    with Site({"/page": varied, "/image": ""}) as site:
        try:
            before = 0
            for number in range(WARM_UP + scans):
                if number == WARM_UP:
                    before = _resident()
                await browser.scan(context, url=site.url(f"/page?{number}"))
            site.asked.clear()
            return _resident() - before
        finally:
            await browser.close()


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) * 1024
