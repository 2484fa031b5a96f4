"""Tells what changed between two looks at a page, from the lines of their structured texts.

    - old                   a line that is gone
    + new                   a line that is new
    ~ [15 Agree](checkbox checked)      a line in which only controls changed: state, value or ref; as it is now
      ## Title              the heading or region that the changes after it are below
    (3 lines moved)
    (… 12 changes not shown)

Lines are compared as sets that count, not as sequences: that takes time in proportion to their number, and a line
that only moved is no change. Of a menu, it is the controls that are compared.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gad.core.page_fit import beginning

_LONG = 300
"""Characters that each line is cut to where not all changes fit."""
_LONG_CONTEXT = 120
_MARKS_ROOM = 80
_CONTROL = re.compile(r'\[(\d+)((?: [^\[\]\n]*)?)\](?:\((?:[^()"]|"(?:[^"\\]|\\.)*")*\))?')
_FENCE = re.compile("```+")
_HEADING = re.compile(r"#{1,6} ")


@dataclass(slots=True)
class _Group:
    """Changes that stand side by side."""

    context: str
    changes: list[str] = field(default_factory=list)


def difference(before: Sequence[str], after: Sequence[str], limit: int) -> str:
    """Return what changed, in at most `limit` characters; "" when nothing did."""
    before, after = [*_compared(before)], [*_compared(after)]
    start, end = _alike(before, after)
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    context = next((line for line in reversed(after[:start]) if _is_context(line)), "")
    groups, moved = _compare(old, new, context)
    return _write(groups, f"({moved} line{'s' * (moved > 1)} moved)" if moved else "", limit)


def _compared(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines to be compared."""
    fence = ""
    for line in lines:
        if fence:
            if line == fence:
                fence = ""
            else:
                yield f" {line}"  # which reads as no heading and no region, whatever it is
        elif _FENCE.fullmatch(line):
            fence = line
        elif line.lstrip().startswith("[") and not _CONTROL.sub("", line).strip():
            yield from (found[0] for found in _CONTROL.finditer(line))
        else:
            yield line


def _alike(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """Return how many lines at the beginning and at the end are the same."""
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    most = shorter - start
    return start, next((at for at in range(most) if before[-1 - at] != after[-1 - at]), most)


def _is_region(line: str) -> bool:
    return line.startswith("--- ") and not line.startswith(("--- [", "--- end "))


def _is_context(line: str) -> bool:
    return _is_region(line) or bool(_HEADING.match(line))


def _says_nothing(line: str) -> bool:
    """Return whether a line only says something about those around it."""
    return _is_region(line) or line.strip() in ("", "---") or line.startswith("--- end ")


def _compare(old: Sequence[str], new: Sequence[str], context: str) -> tuple[list[_Group], int]:
    """Return the changes in the order of the page, and how many lines moved."""
    matches = _match(old, new)
    matched = set(matches.values())
    gone = deque(at for at, line in enumerate(old) if at not in matched and not _says_nothing(line))
    groups = [_Group(context)]
    added: list[str] = []

    def close(until: int) -> None:
        """Put what is gone before the line `until`, and then what is new, into the open group."""
        while gone and gone[0] < until:
            groups[-1].changes.append(f"- {old[gone.popleft()]}")
        groups[-1].changes.extend(added)
        added.clear()

    for at, line in enumerate(new):
        if at not in matches:
            if not _says_nothing(line):
                added.append(f"+ {line}")
            elif _is_region(line):
                close(0)
                groups.append(_Group(line))
            continue
        close(matches[at])
        if old[matches[at]] != line:
            groups[-1].changes.append(f"~ {line}")
        elif _is_context(line):
            groups.append(_Group(line))
    close(len(old))
    order = [there for at, there in sorted(matches.items()) if not _says_nothing(new[at])]
    return [group for group in groups if group.changes], len(order) - _longest_rise(order)


def _match(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Return which old line each new one is: one that is the same, else one that differs only in its controls."""
    matches: dict[int, int] = {}
    taken: set[int] = set()
    keys: tuple[Callable[[str], str], ...] = (str, _without_states, _without_refs)
    for key in keys:
        free: defaultdict[str, deque[int]] = defaultdict(deque)
        for at, line in enumerate(old):
            if at not in taken and (key is str or "[" in line):
                free[key(line)].append(at)
        for at, line in enumerate(new):
            if at not in matches and (key is str or "[" in line) and (same := free.get(key(line))):
                matches[at] = same.popleft()
                taken.add(matches[at])
    return matches


def _without_states(line: str) -> str:
    return _CONTROL.sub(r"[\1\2]", line)


def _without_refs(line: str) -> str:
    return _CONTROL.sub(r"[\2]", line)


def _longest_rise(numbers: Iterable[int]) -> int:
    """Return the length of the longest rising subsequence (by patience sorting)."""
    tops: list[int] = []
    for number in numbers:
        at = bisect_left(tops, number)
        tops[at : at + 1] = [number]
    return len(tops)


def _write(groups: list[_Group], moved: str, limit: int) -> str:
    whole = "\n".join(line for line in [*_told(groups), moved] if line)
    if len(whole) <= limit:
        return whole
    room = limit - _MARKS_ROOM
    shown: list[str] = []
    left = sum(len(group.changes) for group in groups)
    for line in _told(groups, _LONG):
        if len(line) + 1 > room:
            break
        room -= len(line) + 1
        shown.append(line)
        left -= not line.startswith("  ")
    if shown and shown[-1].startswith("  "):
        shown.pop()
    if left:
        shown.append(f"(… {left} change{'s' * (left > 1)} not shown)")
    return "\n".join([*shown, *([moved] if moved else [])])[: max(limit, 0)]


def _told(groups: list[_Group], longest: int = 0) -> Iterable[str]:
    """Yield the lines of all groups, each after its heading unless that was told. No line of a change is longer."""
    told = ""
    for group in groups:
        if group.context and group.context != told and len(group.context) <= _LONG_CONTEXT:
            told = group.context
            yield f"  {told}"
        for line in group.changes:
            yield _shorten(line, longest) if longest else line


def _shorten(line: str, longest: int) -> str:
    """Return the beginning of a line, to the end of a word and of a control, with a mark for what is left out."""
    if len(line) <= longest:
        return line
    mark = f" (… {len(line)} characters)"
    end = longest - len(mark)
    for control in _CONTROL.finditer(line):
        if control.start() < end < control.end():
            return line[: control.start()].rstrip() + mark
    return beginning(line, end) + mark
