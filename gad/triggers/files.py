"""Files by pattern, and when they have settled. For plugins as well.

A pattern is a path with `*`, `?` and `[...]` in names, and `**` for any number of directories. Hidden names are
passed over unless the pattern spells out the dot. Links to directories are not followed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from typing import Any

Mark = tuple[int, int]
"""A file's size in bytes, and when it was last written, in nanoseconds."""

_MAGIC = re.compile(r"[*?\[]")


class Pattern:
    """One pattern, absolute or relative to `home`."""

    def __init__(self, pattern: str, home: str = os.sep) -> None:
        whole = os.path.normpath(os.path.join(home, os.path.expanduser(pattern)))
        parts = whole.split(os.sep)
        plain = next((n for n, part in enumerate(parts) if _MAGIC.search(part)), len(parts) - 1)
        self.base = os.sep.join(parts[:plain]) or os.sep
        self._depth = len(parts) - plain
        self._deep = "**" in parts
        self._hidden = any(part.startswith(".") for part in parts[plain:])
        self._regex = re.compile(_translate(parts[plain:]), re.DOTALL)

    def look(self) -> tuple[dict[str, Mark], list[str]]:
        """Return the regular files by path, and the directories in which one may appear."""
        files: dict[str, Mark] = {}
        directories: list[str] = []
        todo = [(self.base, "", 1)]
        while todo:
            directory, inside, depth = todo.pop()
            try:
                entries = list(os.scandir(directory))
            except OSError:
                continue
            directories.append(directory)
            for entry in entries:
                name = f"{inside}{entry.name}"
                if entry.name.startswith(".") and not self._hidden:
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if self._deep or depth < self._depth:
                            todo.append((entry.path, f"{name}/", depth + 1))
                    elif self._regex.fullmatch(name):
                        found = entry.stat()
                        if stat.S_ISREG(found.st_mode):
                            files[entry.path] = (found.st_size, found.st_mtime_ns)
                except OSError:  # it has gone meanwhile
                    continue
        return files, directories


def scan(patterns: Iterable[str], home: str = os.sep) -> dict[str, Mark]:
    """Return the regular files that patterns name, by path."""
    found: dict[str, Mark] = {}
    for pattern in patterns:
        found |= Pattern(pattern, home).look()[0]
    return found


def settled(found: Mapping[str, Mark], waiting: dict[str, Any], now: float, seconds: float) -> list[str]:
    """Return the paths of `found` whose marks have not changed for so many seconds, sorted.

    `waiting` holds, from call to call, since when each has had its mark; keep it in `trigger.state`.
    """
    for path in [path for path in waiting if path not in found]:
        del waiting[path]
    for path, mark in found.items():
        known = waiting.get(path)
        if known is None or known[:2] != list(mark) or known[2] > now:
            waiting[path] = [*mark, now]
    return sorted(path for path, (_, _, since) in waiting.items() if now - since >= seconds)


def changed(
    found: Mapping[str, Mark], state: dict[str, Any], now: float, seconds: float, *, existing: bool = False
) -> dict[str, Mark]:
    """Return the files that are new or are no longer as they were last returned, once they have settled.

    `state` holds what is known from call to call; keep it in `trigger.state`. At the first call all files are known
    already, unless `existing` says that they count as new.
    """
    known = state.get("known", {} if existing else {path: list(mark) for path, mark in found.items()})
    state["known"] = known = {path: mark for path, mark in known.items() if path in found}
    fresh = {path: mark for path, mark in found.items() if known.get(path) != list(mark)}
    ready = settled(fresh, state.setdefault("waiting", {}), now, seconds)
    for path in ready:
        known[path] = list(fresh[path])
        del state["waiting"][path]
    return {path: fresh[path] for path in ready}


def _translate(parts: list[str]) -> str:
    regex = ""
    for n, part in enumerate(parts):
        last = n == len(parts) - 1
        if part == "**":
            regex += ".*" if last else "(?:[^/]+/)*"
            continue
        for piece in re.findall(r"\*+|\?|\[!?\]?[^\]]*\]|.", part, re.DOTALL):
            if piece[0] == "*":
                regex += "[^/]*"
            elif piece == "?":
                regex += "[^/]"
            elif piece[0] == "[" and len(piece) > 2:
                inner = piece[2:-1] if piece[1] == "!" else piece[1:-1]
                regex += ("[^" if piece[1] == "!" else "[") + re.sub(r"([\\\[\]^&~|])", r"\\\1", inner) + "]"
            else:
                regex += re.escape(piece)
        regex += "" if last else "/"
    return regex
