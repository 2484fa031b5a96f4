"""What could be tidied up in memory: entries that stand there twice, entries that nearly do, SOPs that nobody uses.

An entry is a line that begins with `- `, with the indented lines that continue it. It belongs to the heading above it:
the same words under another heading may say something else (`- listens on port 80`), so only entries with equal words
and an equal heading are the same. White space and the count ` (used N)` at the end make no difference.

The functions only say what could be done; `without` says what a file is like when it has been done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from gad.core.retrieval import tokens

NEAR = 0.9
"""From this share of equal characters on (difflib's ratio), two entries are proposed as near duplicates."""
UNUSED_DAYS = 90
"""Days without a run or a change after which an SOP counts as unused."""

_DAY = 86400.0
_SHORT = 4
"""Entries with fewer tokens are compared by their characters alone."""
_USED = re.compile(r"\s\(used (\d+)\)$")


@dataclass(frozen=True, slots=True)
class Line:
    """One entry. `number` is its first line's in the file, from 1, `span` how many lines it takes.

    `text` is what it says on one line, without its count; `used` is the count.
    """

    path: str
    number: int
    span: int
    heading: str
    text: str
    used: int = 0


@dataclass(frozen=True, slots=True)
class Merge:
    """Entries that say the same: the one that stays, with the counts of all together, and those that go."""

    kept: Line
    gone: tuple[Line, ...]
    used: int


@dataclass(frozen=True, slots=True)
class Near:
    """Two entries that nearly say the same; `ratio` is difflib's, from 0 to 1."""

    first: Line
    second: Line
    ratio: float


def entries(path: str, content: str) -> list[Line]:
    """Return a file's entries in their order."""
    found: list[Line] = []
    heading, number, block = "", 0, list[str]()

    def close() -> None:
        if block:
            text = " ".join(" ".join(block).split()).removeprefix("- ")
            count = _USED.search(text)
            found.append(Line(path, number, len(block), heading, _USED.sub("", text), int(count[1]) if count else 0))
            block.clear()

    for at, line in enumerate(content.splitlines(), 1):
        if line.startswith("- "):
            close()
            number, block = at, [line]
        elif block and line[:1].isspace() and line.strip():
            block.append(line)
        else:
            close()
            if line.startswith("#"):
                heading = line.lstrip("#").strip()
    close()
    return found


def duplicates(lines: Iterable[Line]) -> list[Merge]:
    """Return the entries that are there more than once; the first one stays.

    With files in the order of their paths, what stays is in the file that comes first, or in the same one: who writes
    them in that order has an entry twice in between, and never not at all.
    """
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.heading, line.text), []).append(line)
    return [
        Merge(group[0], tuple(group[1:]), sum(line.used for line in group))
        for group in groups.values()
        if len(group) > 1
    ]


def near(lines: Iterable[Line], ratio: float = NEAR) -> list[Near]:
    """Return the pairs of entries, of different words, that are alike for more than `ratio`; the most alike first.

    Longer entries that share less than half of their words are not compared: comparing all takes minutes.
    """
    words = {line.text: line for line in reversed(list(lines))}  # of exact duplicates the first
    known = sorted(((text, frozenset(tokens(text))) for text in words), key=lambda one: len(one[0]))
    found = []
    matcher = SequenceMatcher(autojunk=False)
    for at, (text, own) in enumerate(known):
        matcher.set_seq2(text)
        for other, others in known[at + 1 :]:
            if 2 * len(text) <= ratio * (len(text) + len(other)):
                break  # too much longer, and all that follow are longer still
            fewer = min(len(own), len(others))
            if fewer >= _SHORT and 2 * len(own & others) < fewer:
                continue
            matcher.set_seq1(other)
            if matcher.quick_ratio() > ratio and (share := matcher.ratio()) > ratio:
                pair = sorted((words[text], words[other]), key=lambda line: (line.path, line.number))
                found.append(Near(pair[0], pair[1], share))
    return sorted(found, key=lambda pair: (-pair.ratio, pair.first.path, pair.first.number, pair.second.number))


def present(content: str | None, line: Line) -> bool:
    """Return whether a file's content (None: there is no file) still has an entry."""
    found = entries(line.path, content or "")
    return any((entry.heading, entry.text) == (line.heading, line.text) for entry in found)


def without(path: str, content: str, merges: Iterable[Merge]) -> str:
    """Return a file's content with `merges` done: what goes is taken out, what stays has the common count.

    Entries are found by heading and words, not by their numbers, so `content` may be newer than what was looked at.
    Of an entry that has come to stand in one file several times, the first stays. Counts are those of `content` and
    of what goes elsewhere.
    """
    at_hand = entries(path, content)
    lines = content.splitlines(keepends=True)
    drop: set[int] = set()
    for merge in merges:
        same = [line for line in at_hand if (line.heading, line.text) == (merge.kept.heading, merge.kept.text)]
        if not same:
            continue
        stays = same[0] if merge.kept.path == path else None
        for line in same:
            if line is not stays:
                drop.update(range(line.number, line.number + line.span))
        if stays is not None:
            elsewhere = sum(line.used for line in merge.gone if line.path != path)
            used = elsewhere + sum(line.used for line in same)
            if used != stays.used:
                last = stays.number + stays.span - 2
                text = lines[last]
                body = text.rstrip()
                lines[last] = f"{_USED.sub('', body)} (used {used}){text[len(body) :]}"
    return "".join(line for number, line in enumerate(lines, 1) if number not in drop)


def unused(last: Mapping[str, float], now: float, days: float = UNUSED_DAYS) -> list[str]:
    """Return the names whose last use (seconds since the epoch) is more than `days` ago, the oldest first."""
    return sorted((name for name, at in last.items() if now - at > days * _DAY), key=lambda name: (last[name], name))
