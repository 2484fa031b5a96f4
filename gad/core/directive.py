"""The read directive: one short line in the anchor that points into memory. It holds paths and line numbers, no bodies.

    memory: read /home/me/memory/sops/tidy-logs/SOP.md:1-40; /home/me/memory/facts/hosts.md:3,7-9

When that is too long, the root stands once: `memory: read below /home/me/memory: sops/tidy-logs/SOP.md:1-40; ...`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

LENGTH = 300
"""Characters of a directive at most; what does not fit is left out."""

_HEAD = "memory: read "
_BELOW = re.compile(r"below (?P<root>/.*): (?P<items>[^:].*)")


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in memory: a path relative to its root, and numbers of lines there, in order, from 1."""

    path: str
    lines: tuple[int, ...]


def render(root: str, spots: Iterable[Spot]) -> str:
    """Return the directive for some spots, the most important first; empty when there are none.

    Spots in one file are one item, which stands where the first of them does.
    """
    grouped: dict[str, set[int]] = {}
    for spot in spots:
        grouped.setdefault(spot.path, set()).update(spot.lines)
    items = [f"{path}:{_ranges(sorted(lines))}" for path, lines in grouped.items() if lines]
    if not items:
        return ""
    whole = _HEAD + "; ".join(posixpath.join(root, item) for item in items)
    if len(whole) <= LENGTH:
        return whole
    shown = f"{_HEAD}below {root}: {items[0]}"
    for item in items[1:]:
        if len(shown) + len(item) + 2 <= LENGTH:
            shown += f"; {item}"
    return shown


def remaining(directive: str, read: Collection[str]) -> str:
    """Return a directive without the items whose files are among `read`, absolute paths; empty when all are."""
    root, items = _parts(directive)
    left = [item for item in items if posixpath.join(root, _path(item)) not in read]
    if len(left) == len(items):
        return directive
    if not left:
        return ""
    return f"{_HEAD}below {root}: {'; '.join(left)}" if root else _HEAD + "; ".join(left)


def paths(directive: str) -> tuple[str, ...]:
    """Return the absolute paths that a directive names."""
    root, items = _parts(directive)
    return tuple(posixpath.join(root, _path(item)) for item in items)


def spots(directive: str) -> tuple[Spot, ...]:
    """Return what a directive names, each with its absolute path."""
    root, items = _parts(directive)
    return tuple(Spot(posixpath.join(root, _path(item)), _numbers(item.rpartition(":")[2])) for item in items)


def _parts(directive: str) -> tuple[str, list[str]]:
    """Return the root, empty when the items are absolute, and the items."""
    told = directive.removeprefix(_HEAD)
    below = _BELOW.fullmatch(told)
    root, items = (below["root"], below["items"]) if below else ("", told)
    return root, items.split("; ") if items else []


def _path(item: str) -> str:
    return item.rpartition(":")[0]


def _ranges(numbers: Sequence[int]) -> str:
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in found)


def _numbers(ranges: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)
