"""gad map: the same task for each line of a file, a session a line; results are printed in the lines' order.

A session's name follows from what it is to do, so a command that is given again finds what an earlier run has done.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gad.cli import Place, exits
from gad.cli.follow import NobodyWorks, at_rest
from gad.cli.submit import how_options, how_text
from gad.errors import Rejected
from gad.spool import drop, names
from gad.spool.lock import held

MOST = 10_000
"""Lines of input at most."""
HOLE = "{}"
"""What each line takes the place of in the prompt."""
AGAIN = frozenset({"failed", "stopped", "rejected"})
"""The states that --retry-failed does again."""
_LOOK = 0.05
"""Seconds between two looks at the sessions under way."""
GRACE = 3.0
"""Seconds without a daemon after which waiting is given up."""


@dataclass(frozen=True, slots=True)
class Item:
    """One line: its number from 1, its text, and the session that does it with its message."""

    index: int
    text: str
    session: str
    message: bytes


@click.command("map")
@click.argument("prompt")
@click.option("--input", "-i", "source", metavar="FILE|-", required=True, help="The lines; - reads standard input.")
@click.option("--jobs", "-j", type=click.IntRange(1, 1000), default=4, help="How many at the same time; by default 4.")
@click.option("--files", is_flag=True, help="Each line is a file's path: it must be there, and is made absolute.")
@click.option("--retry-failed", is_flag=True, help="Do again what an earlier run has left failed, stopped or rejected.")
@how_options
@click.pass_obj
def map_command(
    place: Place, /, prompt: str, source: str, jobs: int, files: bool, retry_failed: bool, **how: Any
) -> None:
    """Do PROMPT for each line of a file, with the line in the place of {}, each in a session of its own.

    A JSON line is printed for each, in the input's order: index, input, session, state, text (the result, when it is
    done), error and usd. The same command again takes what is finished as it is, waits for what runs, and does the
    rest. Lines of nothing but blanks are left out.
    """
    task = how_text(place, **how)
    items = items_of(prompt, lines_of(source), task or "", files=files, most=place.config().spool.max_bytes)
    work = Map(place.spool(), items, task, jobs=jobs, retry=retry_failed)
    try:
        code = work.run()
    except KeyboardInterrupt:
        click.echo(f"\ngad: {work.how_to_go_on()}", err=True)
        sys.exit(exits.INTERRUPTED)
    except NobodyWorks as exc:
        click.echo(f"gad: {exc}", err=True)
        sys.exit(exits.TEMPORARY)
    sys.exit(code)


def lines_of(source: str) -> list[str]:
    """Return the input's lines that hold something. Raises UsageError and OSError."""
    data = sys.stdin.buffer.read() if source == "-" else Path(os.path.expanduser(source)).read_bytes()
    what = "standard input" if source == "-" else source
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise click.UsageError(f"{what}, line {line}: not UTF-8; convert it with: iconv -t UTF-8") from None
    found = [line.rstrip("\r") for line in text.split("\n") if line.strip()]
    if not found:
        raise click.UsageError(f"{what} holds no lines, so there is nothing to do")
    if len(found) > MOST:
        raise click.UsageError(f"{what} holds {len(found):,} lines, more than {MOST:,}; split it")
    return found


def items_of(prompt: str, lines: Sequence[str], task: str, *, files: bool, most: int) -> list[Item]:
    """Return what is to be done. `task` is the task.yaml of each, `most` the bytes that a message may have.

    Raises UsageError.
    """
    if HOLE not in prompt:
        raise click.UsageError(f"the prompt has no {HOLE}, the place of each line: quote it, as in 'Summarise {HOLE}'")
    items = []
    for index, line in enumerate(lines, 1):
        text, version = _file(line, index) if files else (line, "")
        message = os.fsencode(prompt.replace(HOLE, text))
        try:
            drop.check_text(message, f"the task of line {index}", most)
        except Rejected as exc:
            raise click.UsageError(str(exc)) from None
        key = json.dumps([prompt, task, text, version]).encode()
        items.append(Item(index, text, f"map-{hashlib.sha256(key).hexdigest()[:10]}-{index:04d}", message))
    return items


def _file(line: str, index: int) -> tuple[str, str]:
    """Return a file's absolute path, and what changes when the file does."""
    path = os.path.abspath(os.path.expanduser(line))
    try:
        found = os.stat(path)
    except (OSError, ValueError) as exc:  # the latter for a NUL
        raise click.UsageError(f"line {index}: {line}: {getattr(exc, 'strerror', exc)}") from None
    return path, f"{found.st_size}-{found.st_mtime_ns}"


class Map:
    """One run over the items: at most `jobs` sessions under way, results printed as soon as they are due."""

    def __init__(self, spool: Path, items: Sequence[Item], task: str | None, *, jobs: int, retry: bool) -> None:
        self._spool = spool
        self._items = items
        self._task = task
        self._jobs = jobs
        self._retry = retry
        self._waiting = deque(items)
        self._under_way: dict[int, Item] = {}
        self._over: dict[int, dict[str, Any]] = {}
        self._working = self._looked = time.monotonic()

    def run(self) -> int:
        """See all of them through and return the exit code: the first one's that is not done. Raises NobodyWorks."""
        code = exits.DONE
        for item in self._items:
            while item.index not in self._over:
                if not self._step():
                    self._check_daemon()
                    time.sleep(_LOOK)
            row = row_of(self._spool / item.session, item, self._over.pop(item.index))
            code = code or exits.BY_STATE.get(row["state"], exits.FAILED)
            click.echo(json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace"))
            sys.stdout.flush()
        return code

    def how_to_go_on(self) -> str:
        """Return what to tell somebody who has interrupted this."""
        going = " ".join(item.session for item in self._under_way.values())
        goes = f"{len(self._under_way)} sessions go on (gad stop {going} halts them); " if going else ""
        return f"{goes}the same command again takes up where this one has stopped"

    def _step(self) -> bool:
        """Hand in what may be, and take note of what is at rest; return whether anything was."""
        while self._waiting and len(self._under_way) < self._jobs:
            item = self._waiting.popleft()
            self._begin(item)
            self._under_way[item.index] = item
        rested = {index: self._look(item) for index, item in self._under_way.items()}
        for index, status in rested.items():
            if status is not None:
                self._over[index] = status
                del self._under_way[index]
        return any(status is not None for status in rested.values())

    def _look(self, item: Item) -> dict[str, Any] | None:
        directory = self._spool / item.session
        if (status := at_rest(directory)) is not None:
            return status
        return None if directory.is_dir() else {"state": "removed", "error": "its directory was removed meanwhile"}

    def _begin(self, item: Item) -> None:
        """Hand an item in, unless an earlier run has done so; what that has left failed is done again if asked for."""
        directory = self._spool / item.session
        if not directory.is_dir() and drop.submit_once(self._spool, item.session, item.message, self._task):
            return
        status = at_rest(directory) if self._retry else None
        if status is not None and status["state"] in AGAIN:
            with contextlib.suppress(FileExistsError):  # another run does the same at this moment
                if self._task is not None and not (directory / names.TASK).exists():  # it was rejected
                    drop.put(directory, names.TASK, self._task.encode())
                drop.put(directory, names.INPUT, item.message)

    def _check_daemon(self) -> None:
        """Raise NobodyWorks when no daemon has run for a while."""
        now = time.monotonic()
        if now - self._looked < 0.5:
            return
        self._looked = now
        if held(str(self._spool)):
            self._working = now
        elif now - self._working >= GRACE:
            raise NobodyWorks(f"no daemon runs on {self._spool}, so nothing will happen; start one with: gad up. "
                              f"Then {self.how_to_go_on()}")  # fmt: skip


def row_of(directory: Path, item: Item, status: dict[str, Any]) -> dict[str, Any]:
    """Return what is printed of a session at rest. `usd` is what it and its children have cost; None: unknown."""
    done = status["state"] == "done"
    text = None
    if done:
        with contextlib.suppress(OSError):
            text = (directory / names.RESULT).read_text("utf-8", "replace").removesuffix("\n")
    costs = [status.get("cost_usd"), status.get("children_cost_usd", 0.0)]
    return {
        "index": item.index,
        "input": item.text,
        "session": item.session,
        "state": status["state"],
        "text": text,
        "error": None if done else status.get("question") or status.get("error"),
        "usd": round(sum(costs), 6) if all(isinstance(cost, float | int) for cost in costs) else None,
    }
