"""What is to be known of a page's tree before it is written: how deep it is, what each node holds, what repeats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gad.core.page import CONTROLS, Node
from gad.core.page_words import fold

INLINE = CONTROLS | {"break", "image", "mark"}
HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
FIELDS = frozenset({"input", "select", "textarea", "editable"})
REGIONS = frozenset({"main", "article", "nav", "aside", "header", "footer", "search", "form", "dialog"})

_DEPTH = 80
"""How deep nodes are nested; of those below, what they hold stays."""
_CONTROL = 8
"""Characters that a control takes beside its label."""
_SHOWN_ALONE = CONTROLS | {"image", "frame", "more"}
_BREAK = Node("break")
_LONG_LINE = 1500
"""Characters of what a heading or a cell holds beyond which it is shown as blocks, since its line is never cut."""
_LONG_LABEL = 500
"""Characters of what a control holds beyond which it is no label."""
_NOT_IN_LINES = frozenset({"table", "row", "pre", "frame"}) | HEADINGS | REGIONS
_NOT_IN_LABELS = frozenset({"table", "pre", "frame", "list", "group", "more"}) | CONTROLS | REGIONS


class Tree:
    """A page's tree, not too deep. `root` is its root."""

    def __init__(self, root: Node) -> None:
        self.root = _shallow(root)
        self._below: dict[int, tuple[frozenset[str], int]] = {}
        self._measure(self.root)
        self._silent: set[int] = set()
        self._find_silent()

    def holds_blocks(self, node: Node) -> bool:
        """Return whether there are blocks in a node."""
        return not self._measure(node)[0] <= INLINE

    def holds_frames(self, node: Node) -> bool:
        """Return whether there are embedded documents in a node."""
        return "frame" in self._measure(node)[0]

    def is_line(self, node: Node) -> bool:
        """Return whether what a heading or a cell of a table holds can stand in a line."""
        kinds, length = self._measure(node)
        return length <= _LONG_LINE and kinds.isdisjoint(_NOT_IN_LINES)

    def is_label(self, control: Node) -> bool:
        """Return whether what a control holds can stand in its brackets."""
        kinds, length = self._measure(control)
        return length <= _LONG_LABEL and kinds.isdisjoint(_NOT_IN_LABELS)

    def is_named_beside(self, link: Node) -> bool:
        """Return whether a link shows no text, and its name is that of the text or link beside it.

        So it is with the picture and the title of a ware that lead to the same place.
        """
        return link.ref in self._silent

    def _measure(self, node: Node) -> tuple[frozenset[str], int]:
        """Return the kinds of all that a node holds, and about how many characters it takes."""
        # A node that the writer has made is not kept, since its id may be another one's later.
        if found := self._below.get(id(node)):
            return found
        kinds: set[str] = set()
        length = 0
        for child in node.children:
            if isinstance(child, str):
                length += len(child)
            else:
                inner = self._below[id(child)] = self._measure(child)
                kinds.add(child.kind)
                kinds |= inner[0]
                length += inner[1] + (_CONTROL if child.kind in CONTROLS else 0)
        return frozenset(kinds), length

    def _find_silent(self) -> None:
        before = _Said("")
        for now in self._said():
            for one, other in ((before, now), (now, before)):
                if one.link and one.name == other.name and other.link not in self._silent:
                    self._silent.add(one.link)
            before = now

    def _said(self) -> Iterator[_Said]:
        """Yield the texts, controls and images of the page in their order."""
        stack: list[Node | str] = [self.root]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                if text := fold(item):
                    yield _Said(text)
            elif item.kind == "image":
                yield _Said(fold(item.label))
            elif item.kind in CONTROLS and self.is_label(item):
                text = fold(
                    " ".join(child for inner in item.walk() for child in inner.children if isinstance(child, str))
                )
                alts = fold(" ".join(inner.label for inner in item.walk() if inner.kind == "image"))
                link = item.ref if item.kind == "link" and not text else 0
                yield _Said(text or fold(item.label) or alts, link)
            else:
                if item.kind in CONTROLS or item.kind == "frame":
                    yield _Said("")
                stack.extend(reversed(item.children))


@dataclass(frozen=True, slots=True)
class _Said:
    """What stands in the page. `link` is the ref of a link that shows no text."""

    name: str
    link: int = 0


def _shallow(root: Node) -> Node:
    """Return the tree in which what is nested too deep stands side by side, since writing it takes recursion."""
    deepest = 0
    stack: list[tuple[Node | str, int, bool]] = [(root, 1, False)]
    while stack:
        item, depth, _ = stack.pop()
        deepest = max(deepest, depth)
        if isinstance(item, Node):
            stack.extend((child, depth + 1, False) for child in item.children if isinstance(child, Node))
    if deepest <= _DEPTH:
        return root
    held: list[list[Node | str]] = [[]]
    stack = [(root, 1, False)]
    while stack:
        item, depth, known = stack.pop()
        if isinstance(item, str) or item.kind == "break":
            held[-1].append(item)
        elif known:
            children = tuple(held.pop())
            held[-1].append(replace(item, children=children))
        else:
            if depth <= _DEPTH:
                held.append([])
                stack.append((item, depth, True))
            elif item.kind in _SHOWN_ALONE:
                held[-1].append(replace(item, children=()))
            # What a block holds that is too deep stands in lines of its own.
            ends = [(_BREAK, depth, False)] if depth > _DEPTH and item.kind not in INLINE else []
            stack += ends
            stack.extend((child, depth + 1, False) for child in reversed(item.children))
            stack += ends
    shallow = held[0][0]
    return shallow if isinstance(shallow, Node) else root
