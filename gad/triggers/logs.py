"""Following a log that is rotated, and finding lines in it with their context. For plugins as well.

A place in a log is kept with its inode, the bytes in front of it and the log's first ones. So a log is found again
after it was renamed (a new one has come in its place), truncated, or copied and truncated: what was not read of the
old one is read from where it now lies beside the new one, unless it has been compressed or moved elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

MOST = 4 << 20
"""Bytes that one call reads of a log at most; the next call reads on. As lines they take fifty times that."""
_BEFORE = 64
"""Bytes in front of a place, and at the beginning of the log, that are compared."""


def follow(
    path: str,
    places: dict[str, Any],
    *,
    from_end: bool = False,
    before: Mapping[str, Any] | None = None,
    followed: Collection[str] = (),
) -> list[str]:
    """Return the complete lines that a log has got since the last call, without their line ends.

    `places` holds the places of all logs from call to call; keep it in `trigger.state`. A log that is new there is
    read from its beginning, or from its end. A log that cannot be read has no lines. When several are looked at at
    once, `followed` are their paths, and `before` the places as they were before the first of them was read.
    """
    place = places.get(path)
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        # Who writes it may go on with the old one for some time, until there is a new one.
        lines, behind = _read_moved(path, place, followed, to_end=False) if place is not None else ([], None)
        places[path] = behind or {"inode": 0, "at": 0, "before": ""}
        return lines
    except OSError:
        return []
    with file:
        found = os.fstat(file.fileno())
        lines = []
        if place is None or place["inode"] != found.st_ino or not _continues(file.fileno(), place):
            if place is not None:
                lines, behind = _read_moved(path, place, followed, to_end=True)
                if behind is not None:  # there is more of it: for the next call
                    places[path] = behind
                    return lines
            # One that was renamed or copied to this name has been read under the other.
            others = [one for other, one in (places if before is None else before).items() if other != path]
            known = [one for one in others if _is_of(file.fileno(), found, one)]
            start = found.st_size if from_end and place is None else 0
            first = {"at": start, "before": _bytes_before(file.fileno(), start)}
            place = max(known, key=lambda one: int(one["at"]), default=first) | {"inode": found.st_ino}
        new, places[path] = _read(file.fileno(), place)
        return lines + new


def search(
    paths: Iterable[str], state: dict[str, Any], pattern: str, context: int, *, from_end: bool = False
) -> Iterator[tuple[str, str, str]]:
    """Yield what logs have got since the last call: an id of the excerpt, the log's path, the excerpt.

    An excerpt is yielded when its last lines are there, or when the log has got nothing more until the next call.
    `state` is kept from call to call, in `trigger.state`. `from_end` is as in `follow`.
    """
    places, searches = state.setdefault("places", {}), state.setdefault("searches", {})
    before, followed = dict(places), dict.fromkeys(paths)
    for path in followed:
        lines = follow(path, places, from_end=from_end, before=before, followed=followed)
        excerpts = Excerpts(pattern, context, searches.setdefault(path, {}))
        for n, excerpt in enumerate([*excerpts.feed(lines), *(() if lines else excerpts.flush())]):
            where = f"{places[path]['inode']}:{places[path]['at']}:{n}:{excerpt}"
            yield hashlib.sha256(where.encode()).hexdigest()[:16], path, excerpt


class Excerpts:
    """Finds lines and gathers those around them; no line is shown twice.

    `state` is kept from call to call, in `trigger.state`.
    """

    def __init__(self, pattern: str, context: int, state: dict[str, Any]) -> None:
        self._regex = re.compile(pattern)
        self._context = context
        self._state = state
        state.setdefault("before", [])
        state.setdefault("begun", [])
        state.setdefault("left", 0)

    def feed(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the excerpts that are complete: each found line with `context` lines before and after it."""
        state = self._state
        for line in lines:
            if self._regex.search(line):
                state["begun"] = [*(state["begun"] or state["before"]), line]
                state["left"] = self._context
            elif state["begun"]:
                state["begun"].append(line)
                state["left"] -= 1
            state["before"] = [*state["before"], line][-self._context :] if self._context else []
            if state["begun"] and (state["left"] <= 0 or len(state["begun"]) >= 200):
                yield from self.flush()

    def flush(self) -> Iterator[str]:
        """Yield the excerpt that waits for lines behind it, if there is one."""
        if self._state["begun"]:
            yield "\n".join(self._state["begun"])
            self._state["begun"], self._state["before"], self._state["left"] = [], [], 0


def _read(descriptor: int, place: dict[str, Any], *, to_end: bool = False) -> tuple[list[str], dict[str, Any]]:
    """Return the complete lines from a place on, and the place behind them; `to_end`: the last one is complete too."""
    data = os.pread(descriptor, MOST, place["at"])
    end = data.rfind(b"\n") + 1
    if (to_end and len(data) < MOST) or (not end and len(data) == MOST):
        end = len(data)
    at = place["at"] + end
    lines = [line.decode("utf-8", "replace").rstrip("\r") for line in data[:end].split(b"\n")]
    if not lines[-1]:
        lines.pop()
    return lines, {"inode": place["inode"], "at": at, "before": _bytes_before(descriptor, at)}


def _read_moved(
    path: str, place: dict[str, Any], followed: Collection[str], *, to_end: bool
) -> tuple[list[str], dict[str, Any] | None]:
    """Return what comes next of a log that has gone from its path, and the place behind it; None: it is not found.

    `to_end`: nobody writes it any more. Its last line is complete, also without a line end, and there is no place
    behind that. What is `followed` by itself is read there.
    """
    if not place["inode"]:
        return [], None
    directory, name = os.path.split(path)
    stem = name.split(".")[0]
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            if entry.name == name or not entry.name.startswith(stem) or entry.path in followed:
                continue
            if not entry.is_file(follow_symlinks=False):
                continue
            with contextlib.suppress(OSError), open(entry.path, "rb") as file:
                found = os.fstat(file.fileno())
                if _is_of(file.fileno(), found, place):
                    lines, behind = _read(file.fileno(), place, to_end=to_end)
                    over = to_end and os.fstat(file.fileno()).st_size <= behind["at"]
                    return lines, None if over else behind
    return [], None


def _is_of(descriptor: int, found: os.stat_result, place: dict[str, Any]) -> bool:
    """Return whether a file is the one that a place is in, or a copy of it that goes on behind the place."""
    same = found.st_ino == place["inode"] or (place["before"] and found.st_size >= place["at"])
    return bool(same) and _continues(descriptor, place)


def _continues(descriptor: int, place: dict[str, Any]) -> bool:
    """Return whether a file is the one that a place is in: long enough, and the same in front of the place."""
    if os.fstat(descriptor).st_size < place["at"]:
        return False
    return _bytes_before(descriptor, place["at"]) == str(place["before"])


def _bytes_before(descriptor: int, at: int) -> str:
    # The file's first bytes as well: lines that are all alike at their ends come again after a truncation.
    start = max(0, at - _BEFORE)
    return (os.pread(descriptor, min(at, _BEFORE), 0) + os.pread(descriptor, at - start, start)).hex()
