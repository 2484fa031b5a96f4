r"""Writes a page as text for a language model: as few tokens as it can be, with all there is to read and to act on.

`structured` has the form below, `plain` only the text. Every line is a block; what is longer than it may be is cut by
`page_fit`.

    [12 Home]                               a link; the number is its ref
    [13 Send](button)                       other controls say what they are: an input its type (text, email, checkbox,
    [17 All](tab selected)                  ...), others button, select, textarea, editable or their role; then states
    [15 Agree](checkbox checked)            (one without "checked" is not checked)
    [14 E-mail](email required: a@b.c)      after a colon, the value
    [18 Search](search; shoes, say)         after a semicolon, the placeholder of an empty field
    [16 Country](select: Austria; Austria|Germany)      or the texts to choose from
    [19 Note](textarea: "a (b)\nc")         as JSON, where a value holds ( ) [ ] " | ; or line breaks
    ...text…+9800)                          of a long value or list of options, where not all of a page fits
    [20](clickable)                         its content follows; or its name is that of the control or text beside it
    [12 Home][21 News]                      menus, and all else that is controls side by side
    # Title, ## Title                       headings
    - item, 1. item                         list items; without "- " where each begins with a control
    a | b | c                               a row of a table; "---" is below the row of headers
    ```, > , ![alt]                         preformatted text, a quote, an image
    --- nav: Menu                           what follows is in this region, up to the next such line; "--- page" is
                                            outside of all
    --- [7 host](frame)                     an embedded document, up to "--- end 7"
    (+37 like these: CSS selector)          left out: items like those before
    (… 4210 characters, 31 controls cut)    left out

The text of a page can pose as none of the controls, frames and marks: see `page_words`. What gad itself has to say of
a page is not in here, but where no page can write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from gad.core import page_lines
from gad.core import page_words as words
from gad.core.page import CONTROLS, Node, Page
from gad.core.page_control import bare_control, control, name
from gad.core.page_fit import Part, fit, like_mark, measure
from gad.core.page_lines import Pieces, assemble, begin, begins_with_control, first_line, join_menus, marked, split
from gad.core.page_tree import FIELDS, HEADINGS, INLINE, REGIONS, Tree

_INDENTED = 6
"""How deep lists and quotes are indented."""
_LONG_ROW = 1500
"""Characters of a table's row beyond which it is shown as blocks, since a row is never cut."""
_SELECTOR = 200
"""Characters of the longest selector that a mark holds."""
_NAMED = frozenset({"article", "search", "form"})
"""Regions that are told of only when they have a name."""
_HOLDERS = {"item": "list", "row": "table"}
_LINE_ENDS = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_REGION_LINE = "--- "


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a page. `whole` is how many characters the uncut text has; `cut` says that it did not fit."""

    text: str
    whole: int
    cut: bool


def structured(page: Page, limit: int) -> Shown:
    """Return the page with its controls and structure in at most `limit` characters, 200 or more."""
    return _shown(_Writer(page, plain=False).page(), limit)


def plain(page: Page, limit: int) -> Shown:
    """Return nothing but the page's text, a line for each block, in at most `limit` characters, 200 or more."""
    return _shown(_Writer(page, plain=True).page(), limit)


def lines(page: Page) -> list[str]:
    """Return the lines of the uncut structured text."""
    whole = _Writer(page, plain=False).page()
    return fit(whole, whole.sizes[0]).rstrip("\n").split("\n")


def _shown(whole: Part, limit: int) -> Shown:
    # The line break at the very end is not shown.
    size = max(whole.sizes[0] - 1, 0)
    return Shown(fit(whole, limit + 1 if size <= limit else limit).rstrip("\n"), size, size > limit)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where blocks stand: what begins their lines, how deep that is, and the region as its line names it."""

    indent: str = ""
    depth: int = 0
    region: str = "page"

    def deeper(self, indent: str) -> _Place:
        if self.depth >= _INDENTED:
            return self
        return replace(self, indent=self.indent + indent, depth=self.depth + 1)


class _Writer:
    """Makes the parts of one page's text."""

    def __init__(self, page: Page, *, plain: bool) -> None:
        self._plain = plain
        self._tree = Tree(page.root)
        self._regions = not plain and _tells_regions(self._tree.root)

    def page(self) -> Part:
        """Return the whole text, measured."""
        root = self._tree.root
        whole = Part(children=[*self._blocks(root, _Place())], lines=True, main=root.main)
        measure(whole)
        return whole

    # Blocks.

    def _blocks(self, node: Node, place: _Place, lead: Part | None = None) -> list[Part]:
        """Return what a node holds as parts that are lines. `lead` stands before it."""
        parts: list[Part] = []
        run: Pieces = [lead] if lead else []
        for child in _gathered(node.children, node.selector):
            if isinstance(child, str):
                run.append(child)
                continue
            inline = child.kind in INLINE
            block = self._block_inline(child, place) if inline else self._block(child, place)
            if block:
                parts += [*page_lines.lines(run, place.indent), *block]
                run = []
            elif inline:
                run += self._pieces(child)
            else:
                run.append(None)
        parts += page_lines.lines(run, place.indent)
        if not self._plain:
            parts = join_menus(parts, _selector(node))
        if self._regions:
            _resume(parts, f"--- {place.region}\n")
        return parts

    def _block(self, node: Node, place: _Place) -> list[Part]:
        kind = node.kind
        if kind in HEADINGS:
            return self._heading(node, place)
        if kind == "list":
            return self._list(node, place)
        if kind == "table":
            return self._table(node, place)
        if kind == "pre" and not self._tree.holds_frames(node):
            return self._pre(node, place)
        if kind == "frame":
            return self._frame(node)
        if kind == "more":
            return [Part(f"{place.indent}{like_mark(node.count, _selector(node))}\n")]
        if kind == "quote":
            parts = self._blocks(node, place if self._plain else place.deeper("> "))
        elif kind == "group" and node.label and not self._plain:
            parts = [*page_lines.lines([f"{node.label}:"], place.indent), *self._blocks(node, place)]
        elif node.main or kind in REGIONS:
            return self._region(node, place)
        else:
            parts = self._blocks(node, place)
        if not parts:
            return []
        box = _box(parts, node)
        # Paragraphs are no items of a list, however like they are; boxes are, and lines that are a link or so.
        if node.like and (box.lines or begins_with_control(box)):
            box.like = (kind, node.like)
        return [box]

    def _heading(self, node: Node, place: _Place, link: Node | None = None) -> list[Part]:
        """Return a heading; `link` is the control that holds nothing but it."""
        if not self._tree.is_line(node):
            return self._blocks(node, place)
        if link:
            text, controls = control(link, self._tree).head, 1
        else:
            text, controls = self._flat(node)
        if not text:
            return []
        level = int(node.kind[1])
        text = words.escape_line(text) if self._plain else f"{'#' * level} {text}"
        return [Part(f"{place.indent}{text}\n", heading=level, controls=controls)]

    def _list(self, node: Node, place: _Place) -> list[Part]:
        deeper = place if self._plain else place.deeper("  ")
        items: list[Part] = []
        parts: list[Part] = []
        for child in node.children:
            if isinstance(child, Node) and child.kind == "item":
                inner = self._blocks(child, deeper)
                if inner:
                    box = _box(inner, child)
                    box.like = ("item", child.like)
                    items.append(box)
                    parts.append(box)
            else:
                parts += self._blocks(Node("block", (child,)), place)
        ordered = node.type == "ordered"
        bullets = not ordered and not all(map(begins_with_control, items))
        if not self._plain:
            for number, item in enumerate(items, 1):
                mark = f"{number}. " if ordered else "- " if bullets else ""
                begin(item, deeper.indent, place.indent + mark)
            if not bullets and not ordered:
                parts = join_menus(parts, _selector(node))
        return [Part(children=[*parts], lines=True, selector=_selector(node))] if parts else []

    def _table(self, node: Node, place: _Place) -> list[Part]:
        rows: list[Part | str] = []
        told = False
        for child in node.children:
            if not (isinstance(child, Node) and child.kind == "row"):
                rows += self._blocks(Node("block", (child,)), place)
                continue
            cells = [_cell(cell) for cell in child.children]
            heads = ["head" in cell.state for cell in cells if cell.children]
            line = self._row(cells, place)
            if line is None:
                parts = self._blocks(Node("block", tuple(cells)), place)
            elif not told and len(heads) > 1 and all(heads) and not self._plain:
                told = True
                rows.append(Part(f"{line.head}{place.indent}---\n", controls=line.controls))
                continue
            else:
                parts = [line]
            if parts:
                box = _box(parts, child)
                box.like = ("row", child.like)
                rows.append(box)
        return [Part(children=rows, lines=True, selector=_selector(node))] if rows else []

    def _row(self, cells: list[Node], place: _Place) -> Part | None:
        """Return a row in one line, None when its cells are better shown as blocks."""
        if len(cells) < 2 or not all(map(self._tree.is_line, cells)):
            return None
        shown = [self._flat(cell, cell=True) for cell in cells]
        while shown and not shown[-1][0]:
            shown.pop()
        text = ("\t" if self._plain else " | ").join(text for text, _ in shown)
        if not text or len(text) > _LONG_ROW:
            return None
        text = text if self._plain else words.escape_line(text)
        return Part(f"{place.indent}{text}\n", controls=sum(controls for _, controls in shown))

    def _pre(self, node: Node, place: _Place) -> list[Part]:
        pieces = self._held(node)
        children: list[Part | str] = []
        for is_part, group in groupby(pieces, lambda piece: isinstance(piece, Part)):
            if is_part:
                children += [piece for piece in group if piece is not None]
                continue
            text = "".join("\n" if piece is None else str(piece) for piece in group)
            text = words.escape(_LINE_ENDS.sub("\n", text))
            children.append(f" {text}" if children and text.startswith("(") else text)
        written = "".join(child if isinstance(child, str) else child.head for child in children).strip()
        if not written:
            return []
        if "\n" not in written:
            mark = "" if self._plain or "`" in written else "`"
            return page_lines.lines([mark, *pieces, mark], place.indent)
        if isinstance(children[0], str):
            children[0] = re.sub(r"\A\s*\n", "", children[0])
        if isinstance(children[-1], str):
            children[-1] = children[-1].rstrip()
        if self._plain:
            return [Part(children=children, tail="\n")]
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", written)), default=0))
        return [Part(f"{fence}\n", children, f"\n{fence}\n")]

    def _region(self, node: Node, place: _Place) -> list[Part]:
        kind = "main" if node.main else node.kind
        told = self._regions and not place.depth and (kind not in _NAMED or bool(node.label))
        parts = self._blocks(node, replace(place, region=kind) if told else place)
        if not parts:
            return []
        if not told:
            box = _box(parts, node)
            box.main = box.main or kind == "main"
            box.like = (node.kind, node.like) if box.lines and node.kind == "article" else None
            return [box]
        label = words.escape(words.fold(node.label))
        head = f"--- {kind}: {label}\n" if label else f"--- {kind}\n"
        return [Part(head, [*parts], lines=True, selector=_selector(node), main=kind == "main")]

    def _frame(self, node: Node) -> list[Part]:
        parts = self._blocks(node, _Place(region=f"frame {node.ref}"))
        if self._plain:
            return [_box(parts, node)] if parts else []
        frame = bare_control(node)
        if not parts:
            return [Part("", [frame], "\n")]
        return [Part(f"--- {frame.head}\n", [*parts], f"--- end {node.ref}\n", lines=True, controls=1)]

    def _block_inline(self, node: Node, place: _Place) -> list[Part]:
        """Return a control, or a mark, that holds blocks as what it holds; nothing for what stands in a line."""
        if not node.children:
            return []
        if node.kind not in CONTROLS:
            return self._blocks(node, place) if self._tree.holds_blocks(node) else []
        held = [child for child in node.children if isinstance(child, Node) or child.strip()]
        label = self._tree.is_label(node)
        if len(held) == 1 and isinstance(held[0], Node) and held[0].kind in HEADINGS and label:
            return self._heading(held[0], place, None if self._plain or not node.ref else node)
        if (label and not self._plain) or not self._tree.holds_blocks(node):
            return []
        lead = bare_control(node) if node.ref and not self._plain else None
        parts = self._blocks(node, place, lead)
        return [_box(parts, node)] if parts else []

    # What stands in lines.

    def _pieces(self, node: Node) -> Pieces:
        """Return a node as pieces of lines."""
        kind = node.kind
        if kind == "break":
            return [None]
        if kind == "more":
            return [Part(f" {like_mark(node.count, _selector(node))}")]
        if kind == "image":
            alt = "" if self._plain else words.fold(node.label)
            return [Part(words.escape(f"![{alt}]"))] if alt else []
        held = self._held(node)
        if kind in CONTROLS:
            return self._plain_control(node, held) if self._plain else self._control(node, held)
        if kind == "mark":
            return held if self._plain else marked(node.type, held)
        if kind == "group" and node.label and not self._plain:
            held.insert(0, f"{node.label}: ")
        return [None, *held, None]

    def _held(self, node: Node) -> Pieces:
        held: Pieces = []
        for child in node.children:
            held += [child] if isinstance(child, str) else self._pieces(child)
        return held

    def _control(self, node: Node, held: Pieces) -> Pieces:
        if self._tree.is_label(node):
            if node.ref:
                return [control(node, self._tree)]
            # It shows something, such as how far a task is, and cannot be acted on.
            return [" ", ": ".join(dict.fromkeys(filter(None, (name(node), node.value)))), " "]
        return [bare_control(node), *held] if node.ref else held

    def _plain_control(self, node: Node, held: Pieces) -> Pieces:
        if not held:
            held = [node.value if node.kind in FIELDS else node.label]
        return held if node.kind == "link" else [" ", *held, " "]

    def _flat(self, node: Node, *, cell: bool = False) -> tuple[str, int]:
        """Return what a node holds in one line, and how many controls there are in it."""
        runs = [assemble(run, cell=cell and not self._plain) for run in split(self._held(node))]
        text = words.join_lines(
            "".join(child if isinstance(child, str) else child.head for child in run) for run in runs
        )
        return text, sum(child.controls for run in runs for child in run if isinstance(child, Part))


def _gathered(children: Iterable[Node | str], selector: str) -> Iterator[Node | str]:
    """Yield children, with items that stand in no list as one, and rows that stand in no table as one."""
    for kind, group in groupby(children, lambda child: child.kind if isinstance(child, Node) else ""):
        if kind in _HOLDERS:
            yield Node(_HOLDERS[kind], tuple(group), selector=selector)
        else:
            yield from group


def _cell(child: Node | str) -> Node:
    return child if isinstance(child, Node) and child.kind == "cell" else Node("cell", (child,))


def _selector(node: Node) -> str:
    selector = words.escape(words.fold(node.selector))
    return selector if len(selector) <= _SELECTOR else ""


def _box(parts: list[Part], node: Node) -> Part:
    return parts[0] if len(parts) == 1 else Part(children=[*parts], lines=True, selector=_selector(node))


def _resume(parts: list[Part], line: str) -> None:
    """Let each part that follows another region begin with the line of the region that it is in."""
    away = False
    for part in parts:
        if away and not first_line(part).head.startswith(_REGION_LINE):
            part.head = line + part.head
        away = _ends_away(part, line)


def _ends_away(part: Part, line: str) -> bool:
    """Return whether what follows a part would be taken for something of another region."""
    while part.lines and not part.tail:
        if part.head.startswith(_REGION_LINE) and not part.head.startswith(line):
            return True
        last = part.children[-1]
        if not isinstance(last, Part):
            break
        part = last
    return False


def _tells_regions(root: Node) -> bool:
    """Return whether there are regions to tell apart."""
    return any(
        node.kind in REGIONS and node.kind != "main" and not node.main and (node.kind not in _NAMED or bool(node.label))
        for node in root.walk()
    )
