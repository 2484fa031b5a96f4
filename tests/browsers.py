"""What tests of the browser share: calls as a session makes them, and the processes that belong to a browser."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from gad.browser.browser import WebBrowser
from gad.core.page import Node, Page
from gad.core.ports import ToolContext

ENVIRONMENT = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
"""What a browser may see in tests."""


def call(place: Path, session: str, *labels: str) -> ToolContext:
    """Return what a tool call of a session comes with; its directory is below `place`."""
    work = place / "work" / session
    work.mkdir(parents=True, exist_ok=True)
    return ToolContext(session, "c1", str(work), str(work), lambda text: None, ENVIRONMENT, labels=labels)


def shown(page: Page | None) -> str:
    """Return a page's text, without its structure."""
    assert page is not None
    found: list[str] = []
    stack: list[Node | str] = [page.root]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            found.append(node)
        else:
            stack.extend(reversed(node.children))
    return " ".join(found)


def marked(mark: str) -> set[int]:
    """Return the processes that carry NAME=value in their environment, and all that these have started."""
    children: dict[int, list[int]] = {}
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                state, parent = _status(int(entry))
                children.setdefault(parent, []).append(int(entry))
                if state != "Z" and mark.encode() in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.add(int(entry))
    stack = list(found)
    while stack:
        for child in children.get(stack.pop(), []):
            if child not in found:
                found.add(child)
                stack.append(child)
    return found


def alive(pids: set[int]) -> set[int]:
    """Return those that still run; one that only waits to be reaped does not."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            if _status(pid)[0] != "Z":
                found.add(pid)
    return found


def command(pid: int) -> str:
    """Return a process's command line."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Return whether a condition comes true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


class Clock:
    """Time that only a test turns."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def make_browser(place: Path, clock: Callable[[], float]) -> WebBrowser:
    return WebBrowser(str(place / "b"), environment=ENVIRONMENT, profiles=("shop",), clock=clock)


def processes(place: Path) -> set[int]:
    """Return the processes of the browsers that were started for a directory."""
    return marked(f"GAD_BROWSER={place / 'b'}")


def driver() -> int:
    """Return this process's Playwright driver."""
    (found,) = (pid for pid in children(os.getpid()) if "driver/node" in command(pid))
    return found


def children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def chromium(place: Path) -> int:
    """Return the main process of a directory's browser."""
    (found,) = (pid for pid in processes(place) if "--user-data-dir=" in command(pid) and "--type=" not in command(pid))
    return found


def _status(pid: int) -> tuple[str, int]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[1])
