"""Following a session by its files alone: when it is at rest, and what it has said since.

A session is at rest when no client file is waiting in it, the journal ends with a round's end or a question,
and status.txt says so. They are looked at in this order, the reverse of the order in which the daemon writes
them, so a message that was handed in before the first look is never mistaken for an answered one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gad.errors import GadError
from gad.spool.names import INPUT, JOURNAL, OUTPUT, REPLY, RESTING, STOP, parse_claim
from gad.spool.status import read_status

_FASTEST = 0.01
_SLOWEST = 0.2
_GRACE = 3.0
_BESIDE = frozenset({"context", "child", "child_used", "stop", "rejected", "judged"})
"""Records that can follow a round's end without opening a new one."""
_ENDS = frozenset({"ended", "asked"})


class TimedOut(GadError):
    """The time that the caller gave has passed."""


class NobodyWorks(GadError):
    """No daemon runs on this spool."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a session's files were before something was handed in."""

    output: int = 0
    journal: int = 0
    inode: int = 0


def mark(directory: Path) -> Mark:
    """Return how far a session's files are now."""
    try:
        journal = os.stat(directory / JOURNAL)
    except OSError:
        return Mark(_size(directory / OUTPUT))
    return Mark(_size(directory / OUTPUT), journal.st_size, journal.st_ino)


def at_rest(directory: Path) -> dict[str, Any] | None:
    """Return the session's status when nothing will happen until a client does something, else None."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if any(name in (INPUT, REPLY, STOP) or parse_claim(name) for name in names):
        return None
    last = _last_kind(directory / JOURNAL)
    status = read_status(directory)
    if status.get("state") not in RESTING or (last is not None and last not in _ENDS):
        return None
    return status


def refusal(directory: Path, before: Mark) -> str | None:
    """Return why a reply that was handed in after `before` was not accepted, or None when it was."""
    error = None
    try:
        with open(directory / JOURNAL, "rb") as file:
            if os.fstat(file.fileno()).st_ino == before.inode:
                file.seek(before.journal)
            for line in file:
                record = _record(line)
                if record.get("file") == REPLY:
                    error = str(record.get("error", "")) if record.get("kind") == "rejected" else None
    except OSError:
        return None
    return error


def follow(
    directory: Path,
    *,
    until: Callable[[], dict[str, Any] | None] | None,
    write: Callable[[bytes], None] | None = None,
    start: int = 0,
    timeout: float | None = None,
    working: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Pass output.txt on as it grows, and return what `until` returns once that is not None.

    `start` is the first byte to pass on, `timeout` is in seconds. `working` tells whether a daemon runs;
    when it has said no for a few seconds, NobodyWorks is raised. Raises TimedOut.
    """
    output = Output(directory / OUTPUT, start)
    begun = seen_working = looked = time.monotonic()
    pause = _FASTEST
    while True:
        status = until() if until else None
        passed = output.pass_on(write) if write else False
        if status is not None:
            return status
        now = time.monotonic()
        if timeout is not None and now - begun >= timeout:
            raise TimedOut(
                f"{directory.name} is not at rest after {timeout:g} s; it goes on (gad tail {directory.name})"
            )
        if working and now - looked >= 0.5:
            looked = now
            if working():
                seen_working = now
            elif now - seen_working >= _GRACE:
                raise NobodyWorks(
                    f"no daemon runs on {directory.parent}, so nothing will happen to {directory.name}; "
                    f"what was handed in stays. Start one with: gad up"
                )
        left = _SLOWEST if timeout is None else max(0.0, begun + timeout - now)
        pause = _FASTEST if passed else min(pause * 1.3, _SLOWEST)
        time.sleep(min(pause, left))


class Output:
    """Reads output.txt on from where it was, also when it is not there yet or has made room for a new one."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self._path = path
        self._at = start
        self._inode = 0

    def pass_on(self, write: Callable[[bytes], None]) -> bool:
        """Write what is new; return whether there was anything."""
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        if found.st_size < self._at or (self._inode and found.st_ino != self._inode):
            self._at = 0
        self._inode = found.st_ino
        if found.st_size == self._at:
            return False
        with open(self._path, "rb") as file:
            file.seek(self._at)
            while block := file.read(1 << 16):
                self._at += len(block)
                write(block)
        return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _last_kind(path: Path) -> str | None:
    """Return the kind of the last record that moves a round, or None when the journal does not tell."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            reach = 1 << 14
            while True:
                file.seek(max(0, size - reach))
                lines = file.read(size - max(0, size - reach)).split(b"\n")
                whole = lines[1:] if reach < size else lines
                for line in reversed(whole):
                    kind = _record(line).get("kind") if line else None
                    if line and kind is None:
                        return None
                    if kind and kind not in _BESIDE:
                        return str(kind)
                if reach >= size:
                    return None
                reach *= 8
    except OSError:
        return None


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
