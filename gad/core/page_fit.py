"""Cuts a long text that is made as a tree, so that what is left is whole lines and every cut says how much is gone.

First, lists of like items keep their first few. When that is not enough, the main part gets what it needs, up to
`MAIN_SHARE` of the room, and the parts beside it share the rest: small ones stay whole, large ones get equal shares.
What a part has no room for is cut from its end: it reads from its beginning to the cut, and of what comes after, the
headings stay as an outline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

KEPT = (50, 20, 10, 5)
"""How many of a run of like parts are kept: the first of these with which all fits."""

LEAST = 100
"""Characters that a part which is cut gets at least."""

MAIN_SHARE = 0.75
"""What the main part may take of the room, if it needs that much, before others get theirs."""

OUTLINE_SHARE = 0.25
"""What the headings below a cut may take of a part's room; those of the lower levels go first."""

_RUN = 8
"""Like parts in a row that make a run."""
_LEVELS = range(len(KEPT) + 1)
"""Level 0 is uncut; at level n, runs keep `KEPT[n - 1]`."""
_WORD = 30
"""Characters that are given up at most to cut a text at the end of a word."""
_BROKEN = re.compile(r"\s\S*\Z")
_OPENED = re.compile(r"\[\d*\Z")


@dataclass(slots=True, eq=False)
class Part:
    """A piece of a text: `head`, the children, `tail`. Without children it is whole or absent, never cut.

    A child that is a string is text, which may be cut at the end of any word. The children of a part that has `lines`
    end with line breaks; those of another part stand in one line or fence, which is cut at its end. `short` is a head
    for when not all fits. `heading` is a heading's level from 1 to 6. `controls` counts the controls in the head, and
    after `measure` all within. `like` tells what a part has in common with others, None for nothing. `selector` finds
    a run of children. `main` is true of the main part, and after `measure` of all that hold it.
    """

    head: str = ""
    children: list[Part | str] = field(default_factory=list)
    tail: str = ""
    lines: bool = False
    short: str = ""
    heading: int = 0
    controls: int = 0
    like: tuple[str, str] | None = None
    selector: str = ""
    main: bool = False
    sizes: tuple[int, ...] = ()
    """Characters at each level; see `measure`."""


@dataclass(slots=True)
class _Gone:
    """What is left out at one place."""

    characters: int
    controls: int

    def __str__(self) -> str:
        controls = f", {self.controls} control{'s' * (self.controls > 1)}" if self.controls else ""
        return f"(… {self.characters} characters{controls} cut)"


_Pieces = list[str | _Gone]


def like_mark(count: int, selector: str) -> str:
    """Return the mark that stands for `count` further like items, which the CSS selector finds."""
    return f"(+{count} like these: {selector})" if selector else f"(+{count} like these)"


def beginning(text: str, room: int) -> str:
    """Return the beginning of a text that is longer than `room`, up to the end of a word if one is near."""
    head = text[: max(room, 0)]
    if head and not text[len(head)].isspace() and (broken := _BROKEN.search(head[-_WORD:])):
        head = head[: len(head) - len(broken[0])]
    # What is left of "[12a" would read as a control with what comes after it.
    return _OPENED.sub("", head.rstrip()).rstrip()


def measure(part: Part) -> None:
    """Compute the sizes, and the sums of what is within. To be called once, on the whole tree."""
    sizes = [len(part.head) + len(part.tail)] * len(_LEVELS)
    if part.short:
        sizes[1:] = [len(part.short) + len(part.tail)] * len(KEPT)
    varied = bool(part.short)
    for child in part.children:
        if isinstance(child, Part):
            measure(child)
            part.controls += child.controls
            part.main = part.main or child.main
            varied = varied or child.sizes[0] != child.sizes[-1]
    varied = varied or any(True for _ in _runs(part))
    for level in _LEVELS if varied else (0,):
        sizes[level] += sum(_size(child, level) for child in _thinned(part, level))
    part.sizes = tuple(sizes) if varied else (sizes[0],) * len(_LEVELS)


def fit(part: Part, limit: int) -> str:
    """Return the text of a measured part in at most `limit` characters, 200 or more, with marks for what is gone."""
    main = _innermost(part)
    # Where nothing is the main part, all that there is on the page shares the room.
    if main:
        return _join(_fit(part, limit, main))
    return _join(_whole(part, limit) or _share(part, limit, None) or _flow(part, limit))


# -- lists of like items -------------------------------------------------------------------------


def _size(child: Part | str, level: int) -> int:
    return len(child) if isinstance(child, str) else child.sizes[level]


def _controls(child: Part | str) -> int:
    return 0 if isinstance(child, str) else child.controls


def _runs(part: Part) -> Iterator[tuple[int, int]]:
    """Yield where each run of like children begins and how long it is."""
    children = part.children
    start, like = 0, None
    if len(children) < _RUN:
        return
    for at, child in enumerate(children):
        now = child.like if isinstance(child, Part) else None
        if now is None or now != like:
            if like is not None and at - start >= _RUN:
                yield start, at - start
            start, like = at, now
    if like is not None and len(children) - start >= _RUN:
        yield start, len(children) - start


def _thinned(part: Part, level: int) -> list[Part | str]:
    """Return the children in which each run keeps its first few and has a mark for the others."""
    children = part.children
    if not level or len(children) <= KEPT[level - 1]:
        return children
    kept = KEPT[level - 1]
    shown: list[Part | str] = []
    end = 0
    for start, length in _runs(part):
        if length > kept:
            shown += children[end : start + kept]
            end = start + length
            shown.append(_rest(part, children[start + kept : end]))
    return shown + children[end:] if end else children


def _rest(part: Part, rest: list[Part | str]) -> Part:
    """Return the mark for the rest of a run. At level 0 it has the size of what it stands for."""
    mark = like_mark(len(rest), part.selector)
    mark = f"{mark}\n" if part.lines else f" {mark}"
    whole = sum(_size(child, 0) for child in rest)
    return Part(mark, controls=sum(map(_controls, rest)), sizes=(whole, *[len(mark)] * len(KEPT)))


# -- sharing and cutting -------------------------------------------------------------------------


def _innermost(part: Part) -> Part | None:
    """Return the innermost of the parts that hold the main one, which is that one itself."""
    found = None
    while part.main:
        found = part
        part = next((child for child in part.children if isinstance(child, Part) and child.main), Part())
    return found


def _whole(part: Part, room: int) -> _Pieces:
    """Return a part with all lists as long as there is room for, nothing where there is none."""
    level = next((level for level in _LEVELS if part.sizes[level] <= room), None)
    return [] if level is None else _written(part, level)


def _fit(part: Part, room: int, main: Part | None) -> _Pieces:
    """Return a part in at most `room` characters, which are its size or `LEAST` or more. `main` is the main part."""
    if pieces := _whole(part, room):
        return pieces
    if part.main and part is not main:
        shared = _share(part, room - len(part.head) - len(part.tail), main)
        pieces = [part.head, *shared, part.tail] if shared else []
    pieces = pieces or (_flow(part, room) if part.lines else _front(part, room))
    return pieces if any(isinstance(piece, str) for piece in pieces) else [_gone([part])]


def _written(part: Part, level: int) -> _Pieces:
    pieces: _Pieces = []

    def write(part: Part) -> None:
        pieces.append(part.short if level and part.short else part.head)
        for child in _thinned(part, level):
            if isinstance(child, str):
                pieces.append(child)
            else:
                write(child)
        pieces.append(part.tail)

    write(part)
    return pieces


def _gone(parts: Sequence[Part | str], kept: int = 0) -> _Gone:
    """Return what is left out with these parts, but for `kept` characters."""
    return _Gone(sum(_size(part, 0) for part in parts) - kept, sum(map(_controls, parts)))


def _share(part: Part, room: int, main: Part | None) -> _Pieces:
    """Return the children of a part, which are lines, each in its share of the room.

    Nothing where the shares are too small. What one does not take is for those that want more than it.
    """
    children = [child for child in _thinned(part, _LEVELS[-1]) if isinstance(child, Part)]
    at = next((at for at, child in enumerate(children) if child.main), -1)
    floor = 0
    if at >= 0 and main:
        # In a list that is cut to its first items, the main part may be one of the others.
        floor = min(main.sizes[-1], children[at].sizes[-1], int(room * MAIN_SHARE))
    needs = _needs(children, main)
    if _least_share(needs, room - floor) < LEAST and at >= 0:
        # Too many to share among: what is before the main part is cut as one, and so is what is after it.
        before, after = _together(children[:at]), _together(children[at + 1 :])
        children = [*before, children[at], *after]
        at = len(before)
        needs = _needs(children, main)
    if _least_share(needs, room - floor) < LEAST:
        return []
    shown: list[_Pieces] = [[] for _ in children]
    left = room - floor
    order = sorted(range(len(children)), key=needs.__getitem__)
    for done, each in enumerate(order):
        share = left // (len(order) - done)
        if each == at:
            floor += min(needs[each], share)
            left -= min(needs[each], share)
        else:
            shown[each] = _fit(children[each], share, main)
            left -= _length(shown[each])
    if at >= 0:
        shown[at] = _fit(children[at], floor + left, main)
    return _merge(chain.from_iterable(shown))


def _needs(children: list[Part], main: Part | None) -> list[int]:
    """Return what each needs; of the one with the main part, what is beside that."""
    return [max(0, child.sizes[-1] - (main.sizes[-1] if child.main and main else 0)) for child in children]


def _least_share(needs: list[int], room: int) -> int:
    """Return the share of those that get less than they need, when all others get what they need."""
    for done, need in enumerate(sorted(needs)):
        share = room // (len(needs) - done)
        if need > share:
            return share
        room -= need
    return LEAST


def _together(parts: list[Part]) -> list[Part]:
    """Return parts as one, if there are any."""
    if not parts:
        return []
    sizes = tuple(map(sum, zip(*(part.sizes for part in parts), strict=True)))
    return [Part(children=[*parts], lines=True, controls=sum(map(_controls, parts)), sizes=sizes)]


def _front(part: Part, room: int) -> _Pieces:
    """Return the beginning of a line or of a fence."""
    level = _LEVELS[-1]
    left = room - len(part.head) - len(part.tail) - _mark_room(part)
    pieces: _Pieces = [part.head]
    children = _thinned(part, level)
    for at, child in enumerate(children):
        if _size(child, level) <= left:
            left -= _size(child, level)
            pieces += [child] if isinstance(child, str) else _written(child, level)
            continue
        head = beginning(child, left) if isinstance(child, str) else ""
        if not head and len(pieces) == 1:
            return []
        cut = _gone(children[at:], len(head))
        # The mark stands in the line, but not in the fence, where it would be taken for something of the page.
        return [*pieces, head, cut, part.tail] if part.tail == "\n" else [*pieces, head, part.tail, cut]
    return []


@dataclass(slots=True)
class _Line:
    """A line of a part, or the head of a part in it. `end` is then the index of what comes after that inner part.

    `cost` is what the line takes, with the tail and a mark if it is a head; `kept` what it takes in the outline with
    the mark that follows it, 0 if it does not stand there.
    """

    part: Part
    end: int = 0
    cost: int = 0
    kept: int = 0

    def is_told(self, level: int) -> bool:
        """Return whether it stands in an outline with headings down to this level; at 0 it is heads, below nothing."""
        return (self.end > 0 and level >= 0) or 0 < self.part.heading <= level


def _flow(part: Part, room: int) -> _Pieces:
    """Return a part that is lines up to where the room ends, and the headings of the rest."""
    lines: list[_Line] = []
    _unfold(part, lines)
    mark = _mark_room(part)
    for line in lines:
        if line.end:
            line.cost = len(line.part.head) + (len(line.part.tail) + mark if line.part.tail else 0)
        else:
            line.cost = line.part.sizes[1]
    # All headings if there is room for them, else those of fewer levels, and of one more as many as there is room for.
    more = -1
    for level in [*sorted({line.part.heading for line in lines} - {0}, reverse=True), 0, -1]:
        for line in lines:
            line.kept = line.cost + mark if line.is_told(level) else 0
        told = sum(line.kept for line in lines)
        cut, left = _cut(lines, room - mark - told)
        spare = int(room * OUTLINE_SHARE) - sum(line.kept for line in lines[cut:])
        if spare >= 0:
            break
        more = level
    if more >= 0:
        cut, left = _cut(lines, room - mark - told - spare)
        for line in lines[cut:]:
            if not line.kept and line.is_told(more) and line.cost + mark <= spare:
                line.kept = line.cost + mark
                spare -= line.kept
        left += spare
    return _merge(_outlined(lines, cut, left))


def _mark_room(part: Part) -> int:
    """Return how many characters a mark in a part takes at most, with what sets it apart."""
    return len(f" {_gone([part])}")


def _unfold(part: Part, lines: list[_Line]) -> None:
    """Add a part's lines, and the heads of what is in it."""
    line = _Line(part)
    if part.head or not part.lines:
        lines.append(line)
    if part.lines:
        for child in _thinned(part, 1):
            if isinstance(child, Part):
                _unfold(child, lines)
        line.end = len(lines)


def _cut(lines: list[_Line], left: int) -> tuple[int, int]:
    """Return how many lines are shown before the cut, and what is left of the room that is not the outline's."""
    for at, line in enumerate(lines):
        if line.cost - line.kept > left:
            return at, left
        left -= line.cost - line.kept
    return len(lines), left


def _outlined(lines: list[_Line], cut: int, left: int) -> _Pieces:
    pieces: _Pieces = []
    open_tails: list[tuple[int, str]] = []
    for at, line in enumerate(lines):
        while open_tails and open_tails[-1][0] <= at:
            pieces.append(open_tails.pop()[1])
        part = line.part
        if line.end:
            own = part.controls - sum(map(_controls, part.children))
            if at < cut or line.kept:
                pieces.append(part.head)
                open_tails.append((line.end, part.tail))
            else:
                pieces.append(_Gone(len(part.head) + len(part.tail), own))
        elif at < cut or line.kept:
            pieces += _written(part, 1)
        elif at == cut and left >= LEAST:
            pieces += _fit(part, left, None)
        else:
            pieces.append(_gone([part]))
    pieces += [tail for _, tail in reversed(open_tails)]
    return pieces


# -- writing -------------------------------------------------------------------------------------


def _length(pieces: _Pieces) -> int:
    return sum(len(piece) if isinstance(piece, str) else 1 + len(str(piece)) for piece in pieces)


def _merge(pieces: Iterable[str | _Gone]) -> _Pieces:
    """Return the pieces with one mark for all that is gone side by side."""
    merged: _Pieces = []
    for piece in pieces:
        if isinstance(piece, str):
            if piece:
                merged.append(piece)
            continue
        last = merged[-1] if merged else ""
        if last == "\n" and len(merged) > 1 and isinstance(merged[-2], _Gone):
            last = merged[-2]  # one at the end of a line and one on the next
        if isinstance(last, _Gone):
            last.characters += piece.characters
            last.controls += piece.controls
        else:
            merged.append(piece)
    return merged


def _join(pieces: _Pieces) -> str:
    """Write the pieces."""
    written: list[str] = []
    for piece in _merge(pieces):
        if isinstance(piece, str):
            written.append(piece)
        elif not written or written[-1].endswith("\n"):
            written.append(f"{piece}\n")
        else:
            written.append(str(piece) if written[-1].endswith(" ") else f" {piece}")
    return "".join(written)
