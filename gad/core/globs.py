"""Patterns of rules: paths, hosts, and the first words of a command.

A path may hold what a shell will only expand later (`gad.core.commands.ANY`, `UNKNOWN`). A pattern then *may* match it;
whether that is enough is for the rule to say.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from functools import lru_cache

from gad.core.commands import ANY, UNKNOWN

_OPEN = re.compile(f"[{ANY}{UNKNOWN}]+")
_WILD = re.compile(r"[*?\[]")


@lru_cache(maxsize=1024)
def _name(pattern: str) -> re.Pattern[str]:
    """Return a pattern of one name (`*`, `?`, `[abc]`, `[!abc]`) as a regular expression."""
    found = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        end = pattern.find("]", at + 2) if char == "[" else -1
        if char == "*":
            found.append(".*")
        elif char == "?":
            found.append(".")
        elif end > 0:
            inner = pattern[at + 1 : end].replace("\\", r"\\").replace("[", r"\[").replace("^", r"\^")
            inner = inner.replace("&", r"\&").replace("~", r"\~").replace("|", r"\|").replace("--", r"-\-")
            found.append(f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]")
            at = end
        else:
            found.append(re.escape(char))
        at += 1
    return re.compile("".join(found), re.DOTALL)


def check_pattern(pattern: str) -> None:
    """Raise ValueError for a path's pattern that cannot be used."""
    for name in pattern.split("/"):
        try:
            _name(name)
        except re.error as exc:
            raise ValueError(f"{name!r} is no pattern: {exc}") from None
        if "**" in name and name != "**":
            raise ValueError(f"** must stand alone between slashes, not as in {name!r}")


@lru_cache(maxsize=1024)
def _parts(pattern: str) -> tuple[str, tuple[str, ...]]:
    """Return what every path that matches begins with, and the pattern's names."""
    return literal_head(pattern) if pattern.startswith("/") else "/", tuple(filter(None, pattern.split("/")))


def literal_head(pattern: str) -> str:
    """Return the directory that a pattern's matches are all in, or the pattern itself when it has no wildcard."""
    names = pattern.split("/")
    first = next((at for at, name in enumerate(names) if _WILD.search(name)), len(names))
    return "/".join(names[:first]) or "/"


def matches_path(pattern: str, path: str, *, surely: bool = False, guess: bool = True) -> bool:
    """Return whether an absolute path is, or lies below, what a pattern names.

    `*` and `?` stay within a name, `**` stands for any number of names. Unless `surely`, a path that the shell has yet
    to expand matches when it may; without `guess`, a name of which nothing is known is not taken for a certain one.
    """
    head, wanted = _parts(pattern)
    if path.startswith(UNKNOWN):
        return all(name == "**" for name in wanted)
    if not path.startswith(head) and not _OPEN.search(path):
        return False
    names = [name for name in path.split("/") if name]
    states = _reach({0}, wanted)
    for name in names:
        if len(wanted) in states or not states:
            return bool(states)
        states = _reach(
            {at + 1 for at in states if wanted[at] != "**" and _fits(wanted[at], name, surely=surely, guess=guess)}
            | {at for at in states if wanted[at] == "**"},
            wanted,
        )
    return len(wanted) in states


def _reach(states: set[int], wanted: Sequence[str]) -> set[int]:
    """Return the states and those behind a `**`, which may stand for nothing."""
    for at in sorted(states):
        while at < len(wanted) and wanted[at] == "**":
            at += 1
            states.add(at)
    return states


def _fits(pattern: str, name: str, *, surely: bool, guess: bool) -> bool:
    if not _OPEN.search(name):
        return _name(pattern).fullmatch(name) is not None
    if surely:
        return pattern == "*"
    if name == UNKNOWN and not guess:
        return _WILD.search(pattern) is not None
    parts = _OPEN.split(name)
    if not _WILD.search(pattern):
        return re.fullmatch(".*".join(map(re.escape, parts)), pattern, re.DOTALL) is not None
    head, tail = _WILD.split(pattern)[0], re.split(r"[*?\]]", pattern)[-1]
    return _agree(parts[0], head) and _agree(parts[-1][::-1], tail[::-1])


def _agree(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def inside(path: str, directory: str) -> bool:
    """Return whether a path is a directory or lies below it; both are absolute and worked out."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def matches_host(pattern: str, host: str) -> bool:
    """Return whether a host is the one of a pattern or below it: `example.org` is `www.example.org` as well."""
    pattern, host = pattern.lower().strip("."), host.lower().rstrip(".")
    if _WILD.search(pattern):
        return _name(pattern).fullmatch(host) is not None
    return host == pattern or host.endswith("." + pattern)


def begins_with(words: Sequence[str], first: Sequence[str]) -> bool:
    """Return whether a command begins with exactly these words; the program's directory does not count."""
    if len(words) < len(first) or UNKNOWN in words[0]:
        return False
    return posixpath.basename(words[0]) == posixpath.basename(first[0]) and list(words[1 : len(first)]) == [*first[1:]]


def could_begin_with(words: Sequence[str], first: Sequence[str]) -> bool:
    """Return whether a command is of this program and has the other words in this order, whatever is between them."""
    if not words or posixpath.basename(words[0]) != posixpath.basename(first[0]):
        return False
    rest = iter(words[1:])
    return all(any(word == wanted for word in rest) for wanted in first[1:])
