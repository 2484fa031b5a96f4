"""How much memory looking at web pages takes in the daemon: `python -m bench.scan_memory [scans]` prints a JSON line.

Pages of some hundred elements, scripts and requests each are opened one after the other in one session. What is
counted is the resident memory of this process, where gad's part runs; Chromium's processes are not in it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
from pathlib import Path

from gad.browser.browser import WebBrowser
from tests.browsers import ENVIRONMENT, call
from tests.sites import Asked, Served, Site

WARM_UP = 20
"""Scans until all that is imported and cached is there."""


def page(asked: Asked) -> Served:
    number = asked.path.partition("?")[2]
    rows = "".join(
        f"<tr><td>{number}-{row}</td><td><a href='/item?{row}'>item {row} of page {number}</a></td></tr>"
        for row in range(400)
    )
    images = "".join(f"<img alt='{image}' src='/image?{number}-{image}'>" for image in range(20))
    return Served(f"<title>page {number}</title><main><table>{rows}</table>{images}</main><input value={number}>")


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    gc.collect()
    fields = Path("/proc/self/status").read_text().split("VmRSS:")[1].split()
    return int(fields[0]) * 1024


async def measure(scans: int) -> dict[str, float]:
    """Scan so often after a warm-up; return megabytes before and after, and how much more that is."""
    with tempfile.TemporaryDirectory(prefix="gad-") as place, Site({"/page": page, "/image": ""}) as site:
        browser = WebBrowser(str(Path(place) / "b"), environment=ENVIRONMENT)
        context = call(Path(place), "bench")
        try:
            for number in range(WARM_UP):
                await browser.scan(context, url=site.url(f"/page?{number}"))
            before = resident()
            for number in range(scans):
                await browser.scan(context, url=site.url(f"/page?{WARM_UP + number}"))
            site.asked.clear()
            after = resident()
        finally:
            await browser.close()
    return {"scans": scans, "before_mb": before / 1e6, "after_mb": after / 1e6, "growth_mb": (after - before) / 1e6}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 50))))
