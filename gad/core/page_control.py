"""Writes one thing of a page that can be acted on: its ref, what it is called, what it is and what it holds.

The form is told in `page_text`.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from gad.core import page_words as words
from gad.core.page import STATES, Node
from gad.core.page_fit import Part
from gad.core.page_tree import FIELDS, INLINE, Tree

_SHORT_VALUE = 200
"""Characters that are left of a control's value where not all of a page fits."""
_SHORT_OPTIONS = 20
_HOST = 40
"""Characters that are shown of an address that has no host."""
_ROLE = re.compile("[a-z][a-z0-9-]*")


def control(node: Node, tree: Tree) -> Part:
    """Return a control with what it holds as its label, or as its value if it is for writing in."""
    label, value = name(node), node.value
    if node.kind == "editable":
        held = _held(node)
        if not value or words.fold(value) == held:
            value, label = value or held, words.fold(node.label)
    if value == label and node.kind not in FIELDS:
        value = ""
    elif value == label or tree.is_named_beside(node):
        label = ""
    return _written(node, label, value)


def bare_control(node: Node) -> Part:
    """Return a control, or a frame, whose content follows it."""
    label = words.fold(node.label)
    if node.kind == "frame":
        label = f"{label} {_host(node.url)}".strip()
    return _written(node, label, "" if node.value == label else node.value)


def name(node: Node) -> str:
    """Return what a control is called: what it holds, and its names unless they are known from what it holds."""
    text = _held(node)
    alts = [child.label for child in node.walk() if child.kind == "image"]
    for other in map(words.fold, [*alts, node.label]):
        if other.casefold() not in text.casefold():
            text = other if text in other else f"{text} · {other}"
    return text


def _held(node: Node) -> str:
    """Return the text that a control holds, in one line."""
    lines: list[str] = [""]

    def add(inner: Node) -> None:
        for child in inner.children:
            if isinstance(child, str):
                lines[-1] += child
            elif child.kind == "break":
                lines.append("")
            elif child.kind in INLINE:
                add(child)  # of an image, whose text comes last, this is nothing
            else:
                lines.append("")
                add(child)
                lines.append("")

    add(node)
    return words.join_lines(map(words.fold, lines))


def _written(node: Node, label: str, value: str) -> Part:
    """Return a control as it is written; where not all of a page fits, with the beginning of what is long."""
    options = [words.value(words.fold(option)) for option in node.options]
    rest = "|".join(options)
    hint = words.fold(node.hint)
    if not options and not value and hint != node.label:
        rest = words.value(hint)
    said = (f"[{node.ref} {text}]" if (text := words.label(label)) else f"[{node.ref}]", _what(node))
    written = Part(_spelled(*said, words.value(value), rest), controls=1)
    long_value, long_options = len(value) > 1.1 * _SHORT_VALUE, len(options) > 1.3 * _SHORT_OPTIONS
    if long_value or long_options:
        start = words.value(value)
        if long_value:
            start = f"{words.value(value[:_SHORT_VALUE])}…+{len(value) - _SHORT_VALUE}"
        if long_options:
            rest = "|".join([*options[:_SHORT_OPTIONS], f"+{len(options) - _SHORT_OPTIONS}"])
        written.short = _spelled(*said, start, rest)
    return written


def _spelled(name: str, what: str, value: str, rest: str) -> str:
    said = f"{what}{f': {value}' if value else ''}{f'; {rest}' if rest else ''}"
    return f"{name}({said})" if said else name


def _what(node: Node) -> str:
    """Return what a control is, and its states."""
    kind = node.type if node.kind in ("input", "control", "link") and _ROLE.fullmatch(node.type) else ""
    if not kind or kind in STATES:
        kind = {"link": "", "input": "text"}.get(node.kind, node.kind)
    states = [state for state in node.state if state in STATES and state not in ("unchecked", "head")]
    return " ".join([kind, *states] if kind else states)


def _host(url: str) -> str:
    try:
        return words.fold(urlsplit(url).netloc or url[:_HOST])
    except ValueError:  # not a URL
        return words.fold(url[:_HOST])
