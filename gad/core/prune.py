"""Cuts an HTML text as a tree, so that what is left is well-formed and every cut says how much is gone.

The page is read leniently (unclosed and stray tags are mended; comments, declarations, scripts and styles dropped) and
written in one normal form. When that is too long, long runs of like siblings keep their first few; then the room is
shared out from the outside in: at each level small elements stay whole and large ones get an equal part of the rest.

Pages are hostile: the reading takes time in proportion to the length, whatever the text (html.parser does not), and
nesting is flattened beyond a depth.
"""

from __future__ import annotations

import html
import re
from bisect import bisect
from dataclasses import dataclass, field
from itertools import accumulate, chain

LEAST = 100
"""Characters that a cut element gets at least; with less it is dropped, since little more than marks would be left."""

_MARK_ROOM = 40
"""Characters of the longest mark of a cut."""
_KEPT = (50, 20, 10, 5)
"""How many of a run of like siblings are kept: the first of these with which the page fits, else the last."""
_DEPTH = 100
"""How deep elements are nested; the tags of those below are dropped, their content stays."""
_WORD = 30
"""Characters that are given up at most to cut a text at the end of a word."""

_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)
_CLOSES = {
    "li": {"li"}, "p": {"p"}, "option": {"option"}, "dt": {"dt", "dd"}, "dd": {"dt", "dd"},
    "td": {"td", "th"}, "th": {"td", "th"}, "tr": {"td", "th", "tr"},
}  # fmt: skip
"""Which open elements a start tag ends."""

# One of the alternatives matches at any position, to the end of the text if need be: no part is looked at twice. (No
# possessive groups: Python 3.11.2, which Debian 12 has, matches them wrongly.)
_TOKEN = re.compile(
    r"""<!--(?P<comment>.*?)(?:-->|\Z)
    | <(?P<raw>script|style)(?![a-z0-9:._-]).*?(?:</(?P=raw)[^>]*(?:>|\Z)|\Z)
    | </(?P<end>[a-z][a-z0-9:._-]*)[^>]*(?:>|\Z)
    | <(?P<start>[a-z][a-z0-9:._-]*)(?P<attributes>(?:[^=>]+|=\s*"[^"]*(?:"|\Z)|=\s*'[^']*(?:'|\Z)|=)*)(?:>|\Z)
    | <[!?/][^>]*(?:>|\Z)
    | (?P<text>(?:[^<]+|<(?![a-z!?/]))+)""",
    re.ASCII | re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]+)(?:\s*=\s*(?:"([^"]*)"?|'([^']*)'?|([^\s"'>][^\s>]*)))?""")
_CLOSED = re.compile(r"""(?:\A|[\s"'])/\Z""")
_MARK = re.compile(r" [0-9,]+ (?:more [a-z0-9:._-]+|characters cut) ")


@dataclass(slots=True)
class _Element:
    """An element with its tags as they are written. `size` is how many characters all of it takes.

    A child that is a string is escaped text or, when it begins with "<", a mark.
    """

    start: str
    end: str
    like: tuple[str, str]
    children: list[_Element | str] = field(default_factory=list)
    size: int = 0


def prune(text: str, limit: int) -> str:
    """Return an HTML text in at most `limit` characters, every element closed, with a comment for each cut.

    A text in the normal form that fits is returned unchanged. A limit below `LEAST` counts as `LEAST`.
    """
    limit = max(limit, LEAST)
    page = _parse(text)
    root = _thin(page, len(text))
    for kept in _KEPT:
        if root.size <= limit:
            break
        root = _thin(page, kept)
    return _join(_fit(root, limit))


def _parse(text: str) -> _Element:
    """Read a page. Sizes are not known yet."""
    root = _Element("", "", ("", ""))
    stack = [root]
    ignored = 0  # open elements that are too deep
    for token in _TOKEN.finditer(text):
        if token["text"]:
            stack[-1].children.append(_escape(_unescape(token["text"])))
        elif token["comment"] and _MARK.fullmatch(token["comment"]):
            stack[-1].children.append(token[0])
        elif token["start"]:
            tag = token["start"].lower()
            while stack[-1].like[0] in _CLOSES.get(tag, ()):
                stack.pop()
            element = _element(tag, token["attributes"])
            opens = bool(element.end) and not _CLOSED.search(token["attributes"])
            if len(stack) <= _DEPTH or not element.end:
                stack[-1].children.append(element)
                if opens:
                    stack.append(element)
            elif opens:
                ignored += 1
        elif token["end"] and ignored:
            ignored -= 1
        elif token["end"]:
            tag = token["end"].lower()
            depth = next((at for at in range(len(stack) - 1, 0, -1) if stack[at].like[0] == tag), len(stack))
            del stack[depth:]
    return root


def _element(tag: str, attributes: str) -> _Element:
    start, kind = f"<{tag}", ""
    for name, *values in _ATTRIBUTE.findall(attributes):
        value = _unescape("".join(values))
        start += f" {name}" + (f'="{_escape(value).replace(chr(34), "&quot;")}"' if value else "")
        if name == "class":
            kind = value
    return _Element(f"{start}>", "" if tag in _VOID else f"</{tag}>", (tag, kind))


def _unescape(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # the number of a character has thousands of digits
        return text


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _thin(element: _Element, kept: int) -> _Element:
    """Return a copy, with its sizes, in which runs of like siblings have their first `kept` and a mark."""
    children: list[_Element | str] = []
    like, run = ("", ""), 0
    for child in [*element.children, ""]:  # the empty text ends the last run
        if isinstance(child, str) and child.isspace():
            if run <= kept:
                children.append(child)
            continue
        if isinstance(child, _Element) and child.like == like:
            run += 1
        else:
            if run > kept:
                children.append(f"<!-- {run - kept:,} more {like[0]} -->")
            like, run = child.like if isinstance(child, _Element) else ("", ""), 1
        if run <= kept:
            children.append(_thin(child, kept) if isinstance(child, _Element) else child)
    size = len(element.start) + len(element.end) + sum(map(_size, children))
    return _Element(element.start, element.end, element.like, children, size)


def _size(node: _Element | str) -> int:
    return len(node) if isinstance(node, str) else node.size


def _fit(node: _Element | str, room: int) -> list[str | int]:
    """Return the node in at most `room` characters: pieces of HTML, and numbers that stand for characters cut there.

    `room` is the node's size, or `LEAST` or more.
    """
    size = _size(node)
    if isinstance(node, str):
        if size <= room:
            return [node]
        head = "" if node.startswith("<") else _head(node, room - _MARK_ROOM)
        return [head, size - len(head)] if head else [size]
    inside = room - len(node.start) - len(node.end)
    if size > room and inside < LEAST:
        return [size]
    return [node.start + _join(_share(node.children, inside)) + node.end]


def _share(children: list[_Element | str], room: int) -> list[str | int]:
    """Share `room` out among siblings; where it is not enough for `LEAST` or the size of each, the last ones go."""
    sizes = [_size(child) for child in children]
    least = list(accumulate(min(size, LEAST) for size in sizes))
    kept = len(sizes) if not least or least[-1] <= room else bisect(least, room - _MARK_ROOM)
    gone = sum(sizes[kept:])
    if gone:
        room -= _MARK_ROOM
    shown: list[list[str | int]] = [[]] * kept
    # From the smallest to the largest: what one does not need is for those after it.
    for done, at in enumerate(sorted(range(kept), key=sizes.__getitem__)):
        shown[at] = _fit(children[at], min(sizes[at], room // (kept - done)))
        room -= sum(len(_written(piece)) for piece in shown[at])
    return [*chain.from_iterable(shown), *([gone] if gone else [])]


def _join(pieces: list[str | int]) -> str:
    """Write the pieces, with one mark for numbers that stand side by side."""
    merged: list[str | int] = []
    for piece in pieces:
        if isinstance(piece, int) and merged and isinstance(merged[-1], int):
            merged[-1] += piece
        else:
            merged.append(piece)
    return "".join(map(_written, merged))


def _written(piece: str | int) -> str:
    return piece if isinstance(piece, str) else f"<!-- {piece:,} characters cut -->"


def _head(text: str, room: int) -> str:
    """Return the beginning of an escaped text, up to the end of a word if one is near, and of whole entities."""
    head = text[:room]
    if not text[room].isspace() and (broken := re.search(r"\s\S*\Z", head[-_WORD:])):
        head = head[: len(head) - len(broken[0])]
    return re.sub(r"&[a-z]*\Z", "", head)
