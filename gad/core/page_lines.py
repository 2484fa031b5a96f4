"""Puts together what stands in one line: texts and controls, and menus of controls that stand below one another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from gad.core import page_words as words
from gad.core.page_fit import Part

_SHORT = 60
"""Characters of a control up to which those below one another stand in one line."""

Pieces = list[str | Part | None]
"""What stands in lines: text as the page gives it, images and controls, and None for the end of a line."""


def split(pieces: Pieces) -> Iterator[list[str | Part]]:
    """Yield the pieces of each line."""
    run: list[str | Part] = []
    for piece in pieces:
        if piece is not None:
            run.append(piece)
        elif run:
            yield run
            run = []
    if run:
        yield run


def assemble(run: list[str | Part], *, cell: bool = False) -> list[Part | str]:
    """Return the pieces of one line with their texts joined, folded and escaped."""
    children: list[Part | str] = []
    for is_text, group in groupby(run, lambda piece: isinstance(piece, str)):
        if not is_text:
            children += group
            continue
        given = "".join(piece for piece in group if isinstance(piece, str))
        text = words.escape(words.fold(given))
        if not text:
            continue  # between two controls, no space is needed
        before = " " if children and (given[:1].isspace() or text[0] == "(") else ""
        after = " " if given[-1:].isspace() else ""
        children.append(before + (text.replace("|", "¦") if cell else text) + after)
    if children and isinstance(children[-1], str):
        children[-1] = children[-1].rstrip()
    return children


def lines(pieces: Pieces, indent: str) -> list[Part]:
    """Return the lines of these pieces, each as a part that can be cut."""
    parts: list[Part] = []
    for run in split(pieces):
        children = assemble(run)
        if children:
            if isinstance(children[0], str):
                children[0] = words.escape_line(children[0])
            parts.append(Part(indent, children, "\n"))
    return parts


def first_line(part: Part) -> Part:
    """Return the first line in a part."""
    while part.lines and not part.head and isinstance(inner := part.children[0], Part):
        part = inner
    return part


def begins_with_control(part: Part) -> bool:
    """Return whether a part shows by its first line alone that it is an item: with a control or a heading."""
    part = first_line(part)
    if not part.children:
        return part.heading > 0
    child = part.children[0]
    return not part.lines and isinstance(child, Part) and child.controls > 0


def begin(part: Part, indent: str, mark: str) -> None:
    """Let the first line begin with `mark` in place of the indent that it has."""
    part = first_line(part)
    if part.head.startswith(indent) and not part.lines:
        part.head = mark + part.head[len(indent) :]


def _controls(part: Part) -> list[Part]:
    """Return the controls of a line that holds nothing else, nothing for another part."""
    if part.lines or part.tail != "\n":
        return []
    controls = [child for child in part.children if isinstance(child, Part) and child.controls]
    return controls if len(controls) == len(part.children) else []


def join_menus(parts: list[Part], selector: str) -> list[Part]:
    """Return the parts with one line for lines below one another that are nothing but short controls."""
    joined: list[Part] = []
    menu: Part | None = None
    for part in parts:
        controls = _controls(part)
        if not controls or any(len(control.head) > _SHORT for control in controls):
            menu = None
            joined.append(part)
            continue
        if len(controls) == 1 and part.like:
            controls[0].like = part.like
        if menu and menu.head == part.head:
            menu.children += controls
            menu.selector = selector
        else:
            menu = part
            joined.append(part)
    return joined


def marked(kind: str, pieces: Pieces) -> Pieces:
    """Return inline text with the marks of its meaning."""
    mark = {"deleted": "~~", "code": "`", "sup": "^"}.get(kind, "")
    if not mark or None in pieces or all(not isinstance(piece, str) or not piece.strip() for piece in pieces):
        return pieces
    if kind == "sup":
        return [mark, *pieces] if all(isinstance(piece, str) for piece in pieces) else pieces
    return [mark, *pieces, mark]
