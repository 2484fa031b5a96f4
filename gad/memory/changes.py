"""changes.jsonl: one line a commit, written before the file it tells of takes its place.

So it is also the write-ahead log. A line holds the digests of the file before and after; what every file should be is
a fold over the lines. `.digests.json` is that fold up to a place in the file, so that not all of it need be read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from gad.memory import files

FILE = "changes.jsonl"
STATE = ".digests.json"

_TOLD, _WIDTH = 40, 300
"""Changed lines that a change tells, and characters of each."""
_BEHIND = 200_000
"""Bytes that the state file may be behind."""


def digest(data: bytes) -> str:
    """Return what tells one content from another."""
    return hashlib.sha256(data).hexdigest()


def told(before: str | None, after: str | None) -> tuple[list[str], int, int]:
    """Return what changed as lines that begin with + or -, and how many lines were added and removed."""
    old, new = (before or "").splitlines(), (after or "").splitlines()
    lines = [f"-{line}" for line in _beyond(old, new)] + [f"+{line}" for line in _beyond(new, old)]
    added = sum(line.startswith("+") for line in lines)
    shown = [line if len(line) <= _WIDTH else line[:_WIDTH] + "..." for line in lines[:_TOLD]]
    if len(lines) > _TOLD:
        shown.append(f"... and {len(lines) - _TOLD} more")
    return shown, added, len(lines) - added


def _beyond(lines: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    """Yield the lines that are not among the others, as often as they are not: linear, where a true diff is not."""
    left = Counter(others)
    for line in lines:
        if left[line]:
            left[line] -= 1
        else:
            yield line


class Changes:
    """The file of changes. All methods but `path` need the memory lock to be held."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.path = os.path.join(root, FILE)
        self.digests: dict[str, str] = {}
        """What each file should be, as of the last `catch_up`; a removed file has none."""
        self.last: dict[str, Any] = {}
        """The last line, as of the last `catch_up`; empty when nothing has been read yet."""
        self._inode = 0
        self._offset = 0
        self._saved = -1

    def catch_up(self) -> None:
        """Read the lines that were added since the last time, and cut off a torn last one.

        A damaged line is passed over: what it told of is then found by its digest, as any other change.
        """
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            info = os.fstat(fd)
            if self._inode != info.st_ino or info.st_size < self._offset:
                self._load(info)
            data = os.pread(fd, info.st_size - self._offset, self._offset)
            whole = data[: data.rfind(b"\n") + 1]
            if len(whole) < len(data):
                os.ftruncate(fd, self._offset + len(whole))
                os.fsync(fd)
        finally:
            os.close(fd)
        for line in whole.splitlines():
            self._take(line)
        self._offset += len(whole)

    def append(self, entries: Sequence[dict[str, Any]]) -> None:
        """Write lines durably: after this they hold. Raises OSError, with nothing written."""
        data = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries).encode()
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            written = 0
            while written < len(data):
                written += os.write(fd, data[written:])
            os.fsync(fd)
        except OSError:
            os.ftruncate(fd, self._offset)
            raise
        finally:
            os.close(fd)
        for line in data.splitlines():
            self._take(line)
        self._offset += len(data)

    def save(self, *, now: bool = False) -> None:
        """Write the state file, when it is far behind or `now`."""
        if now or self._saved < 0 or self._offset - self._saved > _BEHIND:
            state = {"inode": self._inode, "offset": self._offset, "digests": self.digests, "last": self.last}
            files.write_aside(self._root, json.dumps(state, separators=(",", ":")).encode())
            files.place_aside(self._root, STATE)
            self._saved = self._offset

    def _load(self, info: os.stat_result) -> None:
        """Begin at what the state file knows. When the file of changes is another one, its digests still hold."""
        self.digests, self.last, self._offset, self._saved, self._inode = {}, {}, 0, -1, info.st_ino
        try:
            state = json.loads(files.read(self._root, STATE, files.OWN) or b"{}")
            self.digests = {str(path): str(value) for path, value in state["digests"].items()}
            if state["inode"] == info.st_ino and state["offset"] <= info.st_size:
                self._offset = self._saved = int(state["offset"])
                self.last = dict(state["last"])
        except (KeyError, TypeError, ValueError, AttributeError):  # absent or damaged: it is all in the changes
            self.digests = {}

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            path, after = str(entry["path"]), entry["after"]
        except (KeyError, TypeError, ValueError):
            return
        if after is None:
            self.digests.pop(path, None)
        else:
            self.digests[path] = str(after)
        self.last = entry
