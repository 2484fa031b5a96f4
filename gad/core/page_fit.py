"""Cuts a long text that is made as a tree, so that what is left is whole lines and every cut says how much is gone.

First, lists of like items keep their first few. When that is not enough, the room is shared out from the outside in:
at each level small parts stay whole and large ones get an equal share of the rest. Before that, the part that is
marked as the main one gets what it needs, up to `MAIN_SHARE` of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

KEPT = (50, 20, 10, 5)
"""How many of a run of like parts are kept: the first of these with which all fits."""

LEAST = 100
"""Characters that a part which is cut gets at least."""

MAIN_SHARE = 0.75
"""What the main part may take of the room, if it needs that much, before others get theirs."""

_LINE_SHARE = 4
_BOX_SHARE = 20
"""A line, or a part of many, that is cut gets at least this fraction of the room that it and its siblings have; one
that would be whole with twice as much is whole or absent. So of prose, the beginning is left and not bits of it all."""
_INSIDE = 80
"""Characters within which there is room for a mark and a few words."""
_RUN = 8
"""Like parts in a row that make a run."""
_LEVELS = range(len(KEPT) + 1)
"""Level 0 is uncut; at level n, runs keep `KEPT[n - 1]`."""
_MARK_ROOM = 64
"""Characters of the longest mark of a cut, with a space or a line break."""
_WORD = 30
"""Characters that are given up at most to cut a text at the end of a word."""
_BROKEN = re.compile(r"\s\S*\Z")


@dataclass(slots=True)
class Part:
    """A piece of a text: `head`, the children, `tail`. Without children it is whole or absent, never cut.

    A child that is a string is text, which may be cut at the end of any word. The children of a part that has `lines`
    end with line breaks, and room is shared among them; those of another part stand in one line, which is cut at its
    end. `short` is a head for when not all fits. `controls` counts the controls in the head, and after `measure` all
    within. `like` tells what a part has in common with others, None for nothing. `selector` finds a run of children.
    `main` is true of the main part, and after `measure` of all that hold it.
    """

    head: str = ""
    children: list[Part | str] = field(default_factory=list)
    tail: str = ""
    lines: bool = False
    short: str = ""
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
    main = _main(part)
    pieces = _fit(part, limit, min(main.sizes[0], int(limit * MAIN_SHARE)) if main else 0)
    return _join(pieces)


def _main(part: Part) -> Part | None:
    """Return the innermost of the parts that hold the main one, which is that one itself."""
    found = None
    while part.main:
        found = part
        part = next((child for child in part.children if isinstance(child, Part) and child.main), Part())
    return found


def _size(child: Part | str, level: int) -> int:
    return len(child) if isinstance(child, str) else child.sizes[level]


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


def _write(part: Part, level: int, pieces: _Pieces) -> None:
    pieces.append(part.short if level and part.short else part.head)
    for child in _thinned(part, level):
        if isinstance(child, str):
            pieces.append(child)
        else:
            _write(child, level, pieces)
    pieces.append(part.tail)


def _fit(part: Part, room: int, floor: int) -> _Pieces:
    """Return the part in at most `room` characters, which are its size or `LEAST` or more.

    `floor` is how much of the room is the main part's, if that is here.
    """
    pieces: _Pieces = []
    for level in _LEVELS:
        if part.sizes[level] <= room:
            _write(part, level, pieces)
            return pieces
    inside = room - len(part.head) - len(part.tail)
    if part.children and inside >= _INSIDE:
        pieces = _share(part, inside, floor) if part.lines else _front(part, inside)
    if any(isinstance(piece, str) for piece in pieces):
        return [part.head, *pieces, part.tail]
    return [_Gone(part.sizes[0], part.controls)]


def _front(part: Part, room: int) -> _Pieces:
    """Return the beginning of a line."""
    pieces: _Pieces = []
    room -= _MARK_ROOM
    level = _LEVELS[-1]
    children = _thinned(part, level)
    for at, child in enumerate(children):
        if _size(child, level) <= room:
            room -= _size(child, level)
            if isinstance(child, str):
                pieces.append(child)
            else:
                _write(child, level, pieces)
            continue
        head = _head(child, room) if isinstance(child, str) else ""
        rest = children[at:]
        return [
            *pieces,
            *([head] if head else []),
            _Gone(sum(_size(each, 0) for each in rest) - len(head), sum(map(_controls, rest))),
        ]
    return pieces


def _controls(child: Part | str) -> int:
    return child.controls if isinstance(child, Part) else 0


def _share(part: Part, room: int, floor: int) -> _Pieces:
    """Share `room` out among the children, which are lines or hold such."""
    children = [child for child in _thinned(part, _LEVELS[-1]) if isinstance(child, Part)]
    main = next((at for at, child in enumerate(children) if child.main), -1) if floor else -1
    floor = min(floor, room - 2 * _MARK_ROOM)
    if floor < LEAST:
        main = -1
    if main >= 0:
        room -= floor
    needs = _needs(children, room, main)
    spare = room - _MARK_ROOM * _gaps(needs, main) - sum(need for need in needs if need)
    shown: list[_Pieces] = [[_Gone(child.sizes[0], child.controls)] for child in children]
    # From the one that wants least to the one that wants most: what one does not take is for those after it.
    wanting = sorted((at for at, need in enumerate(needs) if need), key=lambda at: children[at].sizes[0] - needs[at])
    for done, at in enumerate(wanting):
        given = needs[at] + spare // (len(wanting) - done)
        shown[at] = _fit(children[at], given, 0)
        spare -= sum(len(str(piece)) for piece in shown[at]) + _breaks(shown[at]) - needs[at]
    if main >= 0:
        shown[main] = _fit(children[main], floor + max(spare, 0), floor)
    return _merge(chain.from_iterable(shown))


def _needs(children: list[Part], room: int, main: int) -> list[int]:
    """Return the least that each child gets, 0 for those that are left out: where `room` is short, the last ones."""
    line_least, box_least = max(LEAST, room // _LINE_SHARE), max(LEAST, room // _BOX_SHARE)
    needs = [0] * len(children)
    gap = False  # the one before is left out, and its mark is paid for
    for at, child in enumerate(children):
        if at == main:
            gap = False
            continue
        least = box_least if child.lines else line_least
        need = child.sizes[-1] if not child.children or child.sizes[-1] <= 2 * least else least
        # Whatever follows, before and after the main part, may have to be left out: the room of its marks is kept back.
        left = room - _MARK_ROOM * ((at + 1 < len(children)) + (at < main))
        if need > left and child.children and left >= LEAST:
            need = left
        if need <= left:
            needs[at] = need
            room -= need
            gap = False
        elif not gap:
            room -= _MARK_ROOM
            gap = True
    return needs


def _gaps(needs: list[int], main: int) -> int:
    """Return how many marks stand for the children that are left out."""
    gaps = 0
    before = True
    for at, need in enumerate(needs):
        kept = bool(need) or at == main
        gaps += before and not kept
        before = kept
    return gaps


def _breaks(pieces: _Pieces) -> int:
    """Return how many characters a mark in these pieces may take beyond its own."""
    return sum(isinstance(piece, _Gone) for piece in pieces)


def _head(text: str, room: int) -> str:
    """Return the beginning of a text, up to the end of a word if one is near."""
    head = text[: max(room, 0)]
    if head and not text[len(head)].isspace() and (broken := _BROKEN.search(head[-_WORD:])):
        head = head[: len(head) - len(broken[0])]
    return head.rstrip()


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
