"""Showing a long download: a bar on a terminal, a line every tenth elsewhere."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable

import click

_PAUSE = 0.1
"""Seconds between two drawings of the bar."""
_WIDTH = 30


def show_progress() -> Callable[[str, int, int], None]:
    """Return a callback for (what, bytes done, bytes in all), to be called from any thread."""
    return _Bar() if sys.stderr.isatty() else _Lines()


class _Lines:
    def __init__(self) -> None:
        self._said: dict[str, int] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        tenth = done * 10 // total if total else 10
        if self._said.get(what) != tenth:
            self._said[what] = tenth
            click.echo(f"gad: {what}: {done / 1e6:.0f} of {total / 1e6:.0f} MB", err=True)


class _Bar:
    """One line, drawn only when there is news: whatever else is on the terminal meanwhile stays readable."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drawn = 0.0
        self._finished = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        with self._lock:
            complete = done >= total
            now = time.monotonic()
            if what == self._finished or (not complete and now - self._drawn < _PAUSE):
                return
            self._drawn, self._finished = now, what if complete else ""
            filled = _WIDTH * done // total if total else _WIDTH
            line = f"gad: [{'#' * filled}{'.' * (_WIDTH - filled)}] {done / 1e6:,.0f} of {total / 1e6:,.0f} MB, {what}"
            columns = shutil.get_terminal_size().columns
            sys.stderr.write(f"\r\x1b[K{line[: columns - 1]}" + ("\n" if complete else ""))
            sys.stderr.flush()
