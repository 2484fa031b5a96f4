"""Showing a long download: a bar on a terminal, a line every tenth elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


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
    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.Lock()

    def __call__(self, what: str, done: int, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        with self._lock:
            if self._progress is None:
                columns = (TextColumn("gad: {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
                self._progress = Progress(*columns, console=Console(stderr=True))
                self._progress.start()
            if what not in self._tasks:
                self._tasks[what] = self._progress.add_task(what, total=total)
            self._progress.update(self._tasks[what], completed=done, total=total)
            if done >= total and all(task.finished for task in self._progress.tasks):
                self._progress.stop()
                self._progress, self._tasks = None, {}
