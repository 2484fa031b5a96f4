r"""Writes a page as text for a language model: as few tokens as it can be, with all there is to read and to act on.

`structured` has the form below, `plain` only the text. Every line is a block; what is longer than it may be is cut by
`page_fit`.

    [Home](12)                              a link; the number is its ref
    [Send](13 button)                       other controls say what they are: an input its type (text, email, checkbox,
    [All](17 tab selected)                  ...), others button, select, textarea, editable or their role; then states
    [Agree](15 checkbox checked)            (one without "checked" is not checked)
    [E-mail](14 email required: a@b.c)      after a colon, the value
    [Search](18 search; shoes, say)         after a semicolon, the placeholder of an empty field
    [Country](16 select: Austria; Austria|Germany)      or the texts to choose from
    [Note](19 textarea: "a (b)\nc")          as JSON, where a value holds ( ) [ ] " | ; or line breaks
    ...text…+9800)                          of a long value or list of options, where not all of a page fits
    [](20 clickable)                        its content follows; or its name is that of the control or text beside it
    # Title, ## Title                       headings
    - item, 1. item                         list items; without "- " where each begins with a control
    a | b | c                               a row of a table; "---" is below the row of headers
    ```, > , ![alt]                         preformatted text, a quote, an image
    --- nav: Menu                           what follows is in this region, up to the next such line; "--- page" is
                                            outside of all
    --- [host](7 frame)                     an embedded document, up to "--- end 7"
    --- note: ...                           gad's own words
    (+37 like these: CSS selector)          left out: items like those before
    (… 4210 characters, 31 controls cut)    left out

The text of a page can pose as none of the controls, frames, notes and marks: see `_escape`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from urllib.parse import urlsplit

from gad.core.page import CONTROLS, STATES, Node, Page
from gad.core.page_fit import Part, fit, like_mark, measure

_DEPTH = 80
"""How deep nodes are nested; of those below, what they hold stays."""
_INDENTED = 6
"""How deep lists and quotes are indented."""
_LONG_ROW = 1500
"""Characters of a table's row beyond which it is shown as blocks, since a row is never cut."""
_SHORT_MENU = 400
"""Characters of a menu below another one's item that stands in the line of that item."""
_SHORT_VALUE = 200
"""Characters that are left of a control's value where not all of a page fits."""
_SHORT_OPTIONS = 20
_LONG_LABEL = 500
"""Characters of what a control holds beyond which it follows the control."""
_SELECTOR = 200
"""Characters of the longest selector that a mark holds."""

_INLINE = CONTROLS | {"break", "image", "mark"}
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_FIELDS = frozenset({"input", "select", "textarea", "editable"})
_FIELD_ROLES = frozenset({"checkbox", "radio", "switch", "slider", "combobox", "textbox", "spinbutton"})
_REGIONS = frozenset({"main", "article", "nav", "aside", "header", "footer", "search", "form", "dialog"})
_NAMED = frozenset({"article", "search", "form"})
"""Regions that are told of only when they have a name."""
_NOT_IN_ROWS = frozenset({"table", "pre", "frame"}) | _HEADINGS | _REGIONS
_NOT_IN_LABELS = frozenset({"table", "pre", "frame", "list", "group", "more"}) | CONTROLS | _REGIONS

# Invisible characters (soft hyphens, marks of direction and joints of no width) and the glyphs of icon fonts.
_UNSEEN = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ue000-\uf8ff\0]")
_LINE_ENDS = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_POSING = re.compile(r"\](?=\(\d)|\(… (?=\d)|\(\+(?=\d+ like these)")
_POSED = {"]": "] ", "(… ": "(…", "(+": "( +"}
_LINE_START = re.compile(r"--- |```")
_BARE = re.compile(r'(?!["\s])(?:(?!; )[^()\[\]|"\0-\x1f\x7f-\x9f\u2028\u2029])*(?<!\s)')
_MISREAD = re.compile(r"[\x7f-\x9f\u2028\u2029]|\](?=\()|(?<=\()[…+]")
_LETTER = re.compile(r"\w")
_ROLE = re.compile("[a-z][a-z0-9-]*")
_REGION_LINE = "--- "
_ENDS = (".", ",", ":", ";", "!", "?", "·", "。", "，", "：", "！", "？")


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


_Pieces = list[str | Part | None]
"""What stands in lines: text as the page gives it, images and controls, and None for the end of a line."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where blocks stand: what begins their lines, how deep that is, the region as its line names it, and its kind."""

    indent: str = ""
    depth: int = 0
    region: str = "page"
    kind: str = ""

    def deeper(self, indent: str) -> _Place:
        if self.depth >= _INDENTED:
            return self
        return replace(self, indent=self.indent + indent, depth=self.depth + 1)


class _Writer:
    """Makes the parts of one page's text."""

    def __init__(self, page: Page, *, plain: bool) -> None:
        self._plain = plain
        self._page = page
        self._root = _shallow(page.root)
        self._repeated, self._silent = (set(), set()) if plain else _repeats(self._root)
        self._regions = not plain and _tells_regions(self._root)

    def page(self) -> Part:
        """Return the whole text, measured."""
        remarks = () if self._plain else self._page.remarks
        notes = [Part(f"--- note: {_escape(_fold(remark))}\n") for remark in remarks]
        whole = Part(children=[*notes, *self._blocks(self._root, _Place())], lines=True)
        measure(whole)
        return whole

    # Blocks.

    def _blocks(self, node: Node, place: _Place, lead: Part | None = None) -> list[Part]:
        """Return what a node holds as parts that are lines. `lead` stands before it."""
        parts: list[Part] = []
        run: _Pieces = [lead] if lead else []
        for at, child in enumerate(node.children):
            if isinstance(child, str):
                if (id(node), at) not in self._repeated:
                    run.append(child)
                continue
            if child.kind in _INLINE:
                block = self._control_block(child, place) if child.kind in CONTROLS else None
                if block is None:
                    if (id(node), at) not in self._repeated:
                        run += self._pieces(child)
                    continue
            else:
                block = self._block(child, place)
            if block:
                parts += _lines(run, place.indent)
                run = []
                parts += block
            elif child.kind not in _INLINE:
                run.append(None)
        parts += _lines(run, place.indent)
        if self._regions:
            _resume(parts, f"--- {place.region}\n")
        return parts

    def _block(self, node: Node, place: _Place) -> list[Part]:
        kind = node.kind
        if kind in _HEADINGS:
            return self._heading(node, place)
        if kind == "list":
            return self._list(node, place)
        if kind == "item":
            return self._list(Node("list", (node,)), place)
        if kind == "table":
            return self._table(node, place)
        if kind == "row":
            return self._table(Node("table", (node,)), place)
        if kind == "pre":
            return self._pre(node, place)
        if kind == "frame":
            return self._frame(node)
        if kind == "more":
            return self._more(node, place)
        if kind == "quote":
            parts = self._blocks(node, place if self._plain else place.deeper("> "))
        elif kind == "group" and node.label and not self._plain:
            parts = [*_lines([f"{node.label}:"], place.indent), *self._blocks(node, place)]
        elif node.main or kind in _REGIONS:
            return self._region(node, place)
        else:
            parts = self._blocks(node, place)
        if not parts:
            return []
        box = _box(parts, node)
        # Paragraphs are no items of a list, however like they are; boxes are, and lines that are a link or so.
        if node.like and (box.lines or _begins_with_control(box)):
            box.like = (kind, node.like)
        return [box]

    def _heading(self, node: Node, place: _Place, control: Node | None = None) -> list[Part]:
        text, controls = self._flat(control or node)
        if control:
            head = self._control(control)
            text, controls = head.head, 1
        if not text:
            return []
        marks = "" if self._plain else "#" * int(node.kind[1]) + " "
        text = text if marks else _escape_line(text)
        return [Part(f"{place.indent}{marks}{text}\n", controls=controls)]

    def _list(self, node: Node, place: _Place) -> list[Part]:
        deeper = place if self._plain else place.deeper("  ")
        items: list[list[Part]] = []
        parts: list[Part | str] = []
        for child in node.children:
            if isinstance(child, Node) and child.kind == "item":
                inner = self._blocks(child, deeper)
                if not self._plain:
                    inner = _join_menu(inner)
                if inner:
                    items.append(inner)
                    box = _box(inner, child)
                    box.like = ("item", child.like)
                    parts.append(box)
            else:
                parts += self._blocks(Node("block", (child,)), place)
        ordered = node.type == "ordered"
        bullets = not ordered and not all(_begins_with_control(inner[0]) for inner in items)
        for number, inner in enumerate(items, 1):
            if not self._plain:
                mark = f"{number}. " if ordered else "- " if bullets else ""
                _begin(inner[0], deeper.indent, place.indent + mark)
        return [Part(children=parts, lines=True, selector=_selector(node))] if parts else []

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
        if len(cells) < 2 or any(_holds(cell, _NOT_IN_ROWS) for cell in cells):
            return None
        shown = [self._flat(cell, cell=True) for cell in cells]
        while shown and not shown[-1][0]:
            shown.pop()
        text = ("\t" if self._plain else " | ").join(text for text, _ in shown)
        if not text or len(text) > _LONG_ROW:
            return None
        text = text if self._plain else _escape_line(text.replace("|  |", "| |").lstrip())
        return Part(f"{place.indent}{text}\n", controls=sum(controls for _, controls in shown))

    def _pre(self, node: Node, place: _Place) -> list[Part]:
        pieces = self._pieces(node)
        children: list[Part | str] = []
        for piece in pieces:
            text = "\n" if piece is None else _LINE_ENDS.sub("\n", piece) if isinstance(piece, str) else piece
            if isinstance(text, str) and children and isinstance(children[-1], str):
                children[-1] += text
            else:
                children.append(text)
        children = [_escape(child) if isinstance(child, str) else child for child in children]
        written = "".join(child if isinstance(child, str) else child.head for child in children).strip()
        if not written:
            return []
        if "\n" not in written:
            mark = "" if self._plain or "`" in written else "`"
            return _lines([mark, *pieces, mark], place.indent)
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
        told = (
            self._regions
            and not place.depth
            and (kind not in _NAMED or bool(node.label))
            and not (kind in ("header", "footer") and place.kind in ("main", "article", "aside", "nav", "dialog"))
            and not kind == "main" == place.region
        )
        inner = replace(place, region=kind if told else place.region, kind=kind)
        parts = self._blocks(node, inner)
        if not parts:
            return []
        main = kind == "main"
        if not told:
            box = _box(parts, node)
            box.main = box.main or main
            box.like = (node.kind, node.like) if box.lines and node.kind == "article" else None
            return [box]
        label = _escape(_fold(node.label))
        name = f": {label}" if label and not _first_text(parts[0]).lstrip("# ").startswith(label) else ""
        return [Part(f"--- {kind}{name}\n", [*parts], lines=True, selector=_selector(node), main=main)]

    def _frame(self, node: Node) -> list[Part]:
        parts = self._blocks(node, _Place(region=f"frame {node.ref}", kind="frame"))
        if self._plain:
            return [_box(parts, node)] if parts else []
        control = self._control(node, " ".join(filter(None, (_fold(node.label), _host(node.url)))))
        if not parts:
            return [Part(f"{control.head}\n", controls=1)]
        return [Part(f"--- {control.head}\n", [*parts], f"--- end {node.ref}\n", lines=True, controls=1)]

    def _more(self, node: Node, place: _Place) -> list[Part]:
        return [Part(f"{place.indent}{like_mark(node.count, _selector(node))}\n")]

    def _control_block(self, node: Node, place: _Place) -> list[Part] | None:
        """Return a control that holds blocks as what it holds, None for one that stands in a line."""
        held = [child for child in node.children if isinstance(child, Node) or child.strip()]
        if len(held) == 1 and isinstance(held[0], Node) and held[0].kind in _HEADINGS and not self._follows(node):
            return self._heading(held[0], place, None if self._plain else node)
        if self._plain:
            return self._blocks(node, place) if _holds_blocks(node) else None
        if not self._follows(node) or not _holds_blocks(node):
            return None
        return [_box(self._blocks(node, place, self._control(node, _fold(node.label))), node)]

    # What stands in lines.

    def _pieces(self, node: Node, *, label: bool = False) -> _Pieces:
        """Return a node as pieces of lines. In a label, there are no marks and no images."""
        kind = node.kind
        if kind == "break":
            return [None]
        if kind == "image":
            alt = "" if self._plain or label else _escape(_fold(node.label))
            return [Part(f"![{alt}]")] if alt else []
        if kind in CONTROLS and not label:
            if self._plain:
                return self._plain_control(node)
            if not node.ref:  # it shows something, such as a progress bar, and cannot be acted on
                return [" ", ": ".join(dict.fromkeys(filter(None, (self._label(node), node.value)))), " "]
            if not self._follows(node):
                return [self._control(node)]
        if kind == "more":
            return [like_mark(node.count, _selector(node))]
        pieces: _Pieces = []
        if kind in CONTROLS and not label:
            pieces.append(self._control(node, _fold(node.label)))
        elif kind == "frame" and not self._plain:
            pieces.append(self._control(node, " ".join(filter(None, (_fold(node.label), _host(node.url))))))
        for at, child in enumerate(node.children):
            if (id(node), at) in self._repeated:
                continue
            if isinstance(child, str):
                pieces.append(child)
            else:
                pieces += self._pieces(child, label=label)
        if kind == "mark":
            return pieces if self._plain or label else _marked(node.type, pieces)
        if kind in _INLINE or kind == "pre":
            return pieces
        if kind == "group" and node.label and not self._plain:
            pieces.insert(0, f"{node.label}: ")
        return [None, *pieces, None]

    def _plain_control(self, node: Node) -> _Pieces:
        pieces: _Pieces = []
        for child in node.children:
            pieces += [child] if isinstance(child, str) else self._pieces(child)
        if not pieces:
            pieces = [node.value if node.kind in _FIELDS else node.label]
        return [" ", *pieces, " "] if node.kind != "link" else pieces

    def _flat(self, node: Node, *, label: bool = False, cell: bool = False) -> tuple[str, int]:
        """Return what a node holds in one line, and how many controls there are in it."""
        pieces: _Pieces = []
        for at, child in enumerate(node.children):
            if (id(node), at) not in self._repeated:
                pieces += [child] if isinstance(child, str) else self._pieces(child, label=label)
        text = ""
        controls = 0
        after_control = False  # nothing but a space is needed between two controls
        for run in _split(pieces):
            children = _assemble(run, cell=cell and not self._plain)
            line = "".join(child if isinstance(child, str) else child.head for child in children)
            if line:
                apart = self._plain or text.endswith(_ENDS) or (after_control and not isinstance(children[0], str))
                text += ("" if not text else " " if apart else " · ") + line
                controls += sum(child.controls for child in children if isinstance(child, Part))
                after_control = not isinstance(children[-1], str)
        return text, controls

    def _follows(self, node: Node) -> bool:
        """Return whether what a control holds follows it, since it is no label."""
        return _holds(node, _NOT_IN_LABELS) or _length(node) > _LONG_LABEL

    def _control(self, node: Node, label: str | None = None) -> Part:
        """Return a control. `label` is its label where what it holds is none."""
        value = node.value
        if label is None:
            label = self._label(node)
            if node.kind == "editable":
                held, _ = self._flat(node, label=True)
                if not value or _fold(value) == held:
                    value, label = value or held, _fold(node.label)
        if value == label and node.kind not in _FIELDS:
            value = ""
        elif value == label or node.ref in self._silent:
            label = ""
        if label.startswith("[") and label.endswith("]") and not re.search(r"[\[\]]", label[1:-1]):
            label = label[1:-1].strip()
        label = _escape(_balanced(label))
        words = " ".join([str(node.ref), *_words(node)])
        options = [_value(_fold(option)) for option in node.options]
        rest = "|".join(options)
        hint = _fold(node.hint)
        if not options and not value and hint != node.label:
            rest = _value(hint)
        control = Part(_spelled(label, words, value, rest), controls=1)
        long_value, long_options = len(value) > 1.1 * _SHORT_VALUE, len(options) > 1.3 * _SHORT_OPTIONS
        if long_value or long_options:
            if long_value:
                value = f"{value[:_SHORT_VALUE]}…+{len(value) - _SHORT_VALUE}"
            if long_options:
                rest = "|".join([*options[:_SHORT_OPTIONS], f"+{len(options) - _SHORT_OPTIONS}"])
            control.short = _spelled(label, words, value, rest)
        return control

    def _label(self, node: Node) -> str:
        """Return what a control is called: what it holds, and its name unless that is known from what it holds.

        A link that says anything is not given its name too, which is mostly a tooltip.
        """
        text, _ = self._flat(node, label=True)
        alts = [_fold(child.label) for child in node.walk() if child.kind == "image"] if node.children else []
        named = node.kind == "link" and len(_LETTER.findall(text)) > 2
        for name in alts if named else [*alts, _fold(node.label)]:
            if name.casefold() in text.casefold():
                continue
            text = name if text in name else f"{text} · {name}"
        return text


def _fold(text: str) -> str:
    """Return the text on one line, without what nobody sees."""
    return " ".join((text if text.isascii() and "\0" not in text else _UNSEEN.sub("", text)).split())


def _escape(text: str) -> str:
    """Return a text of the page in which nothing reads as a control or as a mark of what is left out."""
    return _POSING.sub(lambda found: _POSED[found[0]], text) if "(" in text else text


def _escape_line(text: str) -> str:
    """Return an escaped line of the page that reads as no region, frame or note and opens no fence."""
    return f"\\{text}" if _LINE_START.match(text) else text


def _balanced(label: str) -> str:
    """Return a label in which each bracket has its other, so that one can tell where it begins."""
    depth = 0
    for character in label:
        depth += (character == "[") - (character == "]")
        if depth < 0:
            break
    return label if depth == 0 else label.replace("[", "(").replace("]", ")")


def _value(text: str) -> str:
    """Return a control's value or option as it is, or as JSON where that could be misread."""
    if _BARE.fullmatch(text):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _MISREAD.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _spelled(label: str, words: str, value: str, rest: str) -> str:
    return f"[{label}]({words}{f': {_value(value)}' if value else ''}{f'; {rest}' if rest else ''})"


def _words(node: Node) -> list[str]:
    """Return what a control is, and its states."""
    kind = node.type if node.kind in ("input", "control", "link") and _ROLE.fullmatch(node.type) else ""
    if not kind or kind in STATES:
        kind = {"link": "", "input": "text"}.get(node.kind, node.kind)
    states = [state for state in node.state if state in STATES and state not in ("unchecked", "head")]
    return [kind, *states] if kind else states


def _marked(kind: str, pieces: _Pieces) -> _Pieces:
    """Return inline text with the marks of its meaning."""
    mark = {"deleted": "~~", "code": "`", "sup": "^"}.get(kind, "")
    if not mark or None in pieces or all(not isinstance(piece, str) or not piece.strip() for piece in pieces):
        return pieces
    if kind == "sup":
        return [mark, *pieces] if all(isinstance(piece, str) for piece in pieces) else pieces
    return [mark, *pieces, mark]


def _host(url: str) -> str:
    try:
        return _fold(urlsplit(url).netloc or url[:40])
    except ValueError:  # not a URL
        return _fold(url[:40])


def _cell(child: Node | str) -> Node:
    return child if isinstance(child, Node) and child.kind == "cell" else Node("cell", (child,))


def _selector(node: Node) -> str:
    selector = _escape(_fold(node.selector))
    return selector if len(selector) <= _SELECTOR else ""


def _split(pieces: _Pieces) -> Iterator[list[str | Part]]:
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


def _assemble(run: list[str | Part], *, cell: bool = False) -> list[Part | str]:
    """Return the pieces of one line with their texts joined, folded and escaped."""
    children: list[Part | str] = []
    for is_text, group in groupby(run, lambda piece: isinstance(piece, str)):
        if not is_text:
            children += group
            continue
        given = "".join(piece for piece in group if isinstance(piece, str))
        before = " " if children and given[:1].isspace() else ""
        after = " " if given[-1:].isspace() else ""
        text = _escape(_fold(given))
        if not text:
            after = after if children and not before else ""
        elif children and text[0] == "(" and text[1:2].isdigit():
            before = " "  # else an image and this would be a control
        if cell and "|" in text:
            text = text.replace("|", "¦")
        if text := before + text + after:
            children.append(text)
    if children and isinstance(children[-1], str):
        children[-1] = children[-1].rstrip()
        if not children[-1]:
            children.pop()
    return children


def _lines(pieces: _Pieces, indent: str) -> list[Part]:
    parts: list[Part] = []
    for run in _split(pieces):
        children = _assemble(run)
        if children:
            if isinstance(children[0], str):
                children[0] = _escape_line(children[0])
            parts.append(Part(indent, children, "\n"))
    return parts


def _box(parts: list[Part], node: Node) -> Part:
    return parts[0] if len(parts) == 1 else Part(children=[*parts], lines=True, selector=_selector(node))


def _first(part: Part) -> Part:
    """Return the first line in a part."""
    while part.lines and not part.head and isinstance(inner := part.children[0], Part):
        part = inner
    return part


def _first_text(part: Part) -> str:
    part = _first(part)
    return part.head + "".join(child if isinstance(child, str) else child.head for child in part.children[:3])


def _begins_with_control(part: Part) -> bool:
    """Return whether a part shows by its first line alone that it is an item: with a control or a heading."""
    part = _first(part)
    if not part.children:
        return part.head.lstrip().startswith("#")
    child = part.children[0]
    return not part.lines and isinstance(child, Part) and child.controls > 0


def _begin(part: Part, indent: str, mark: str) -> None:
    """Let the first line begin with `mark` in place of the indent that it has."""
    part = _first(part)
    if part.head.startswith(indent) and not part.lines:
        part.head = mark + part.head[len(indent) :]


def _join_menu(parts: list[Part]) -> list[Part]:
    """Return an item and the menu below it in one line, if the menu is short and holds nothing but controls."""
    if len(parts) != 2:
        return parts
    line, menu = parts
    if line.lines or not _begins_with_control(line) or not menu.lines or menu.head:
        return parts
    controls: list[Part] = []
    for entry in menu.children:
        if not isinstance(entry, Part) or entry.lines or not entry.children:
            return parts
        for child in entry.children:
            if isinstance(child, Part) and child.controls:
                child.like = entry.like
                controls.append(child)
            elif child != " ":
                return parts
    if sum(len(control.head) for control in controls) > _SHORT_MENU:
        return parts
    for control in controls:
        control.head = f" {control.head.lstrip()}"
        control.short = f" {control.short.lstrip()}" if control.short else ""
    line.children += controls
    line.selector = menu.selector
    return [line]


def _resume(parts: list[Part], line: str) -> None:
    """Let each part that follows another region begin with the line of the region that it is in."""
    away = False
    for part in parts:
        if away and not _first(part).head.startswith(_REGION_LINE):
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


def _holds(node: Node, kinds: frozenset[str]) -> bool:
    """Return whether there is anything of these kinds in a node."""
    return any(inner.kind in kinds for child in node.children if isinstance(child, Node) for inner in child.walk())


def _holds_blocks(node: Node) -> bool:
    return any(
        inner.kind not in _INLINE for child in node.children if isinstance(child, Node) for inner in child.walk()
    )


def _length(node: Node) -> int:
    return sum(len(child) for inner in node.walk() for child in inner.children if isinstance(child, str))


def _tells_regions(root: Node) -> bool:
    """Return whether there are regions to tell apart."""
    return any(
        node.kind in _REGIONS
        and node.kind != "main"
        and not node.main
        and (node.kind not in _NAMED or bool(node.label))
        for node in root.walk()
    )


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
        if isinstance(item, str):
            held[-1].append(item)
        elif known:
            children = tuple(held.pop())
            held[-1].append(replace(item, children=children))
        else:
            if depth <= _DEPTH:
                held.append([])
                stack.append((item, depth, True))
            elif item.kind in _INLINE or item.kind in ("frame", "more"):
                if item.kind != "mark":
                    held[-1].append(replace(item, children=()))
            else:
                held[-1].append(Node("break"))
                stack.append((Node("break"), depth, False))
            stack.extend((child, depth + 1, False) for child in reversed(item.children))
    root_again = held[0][0]
    return root_again if isinstance(root_again, Node) else root


_Key = tuple[int, int]
"""The id of a node, and the index of one of its children."""


@dataclass(frozen=True, slots=True)
class _Said:
    """A text, image or control in the order of the page. `seen` says that its name is text that is shown."""

    name: str
    key: _Key
    node: Node | None
    seen: bool

    @property
    def is_field(self) -> bool:
        return self.node is not None and (
            self.node.kind in _FIELDS or (self.node.kind == "control" and self.node.type in _FIELD_ROLES)
        )


def _repeats(root: Node) -> tuple[set[_Key], set[int]]:
    """Return which texts and images only say what stands beside them, and the refs of the links that do.

    A text goes where a field beside it has it as its label; an image's text and a link's name, where they are not
    shown as text, go where what stands beside them has the same one.
    """
    repeated: set[_Key] = set()
    silent: set[int] = set()
    before: _Said | None = None
    for now in _said(root):
        if before and now and now.name:
            _compare(before, now, repeated, silent)
        before = now
    return repeated, silent


def _compare(first: _Said, second: _Said, repeated: set[_Key], silent: set[int]) -> None:
    for one, other in ((first, second), (second, first)):
        if other.key in repeated or (other.node and other.node.ref in silent) or one.key in repeated:
            continue
        if one.node is None:
            # What follows a field is its label only where it can be ticked.
            ticked = other.node is not None and other.node.type in ("checkbox", "radio", "switch")
            if other.is_field and (one is first or ticked) and one.name.rstrip(" :*") == other.name:
                repeated.add(one.key)
        elif one.name != other.name or one.seen:
            continue
        elif one.node.kind == "image":
            repeated.add(one.key)
        elif one.node.kind == "link" and one.node.ref:
            silent.add(one.node.ref)


def _said(root: Node) -> Iterator[_Said | None]:
    """Yield what is said in the order of the page; None where something stands that has no name."""
    stack: list[tuple[Node | str, _Key, bool]] = [(root, (0, 0), False)]
    while stack:
        item, key, fixed = stack.pop()
        if isinstance(item, str):
            if text := _fold(item):
                yield None if fixed else _Said(text, key, None, True)
        elif item.kind == "image":
            yield _Said(_fold(item.label), key, item, False)
        elif item.kind in CONTROLS and not _holds(item, _NOT_IN_LABELS):
            texts = [child for inner in item.walk() for child in inner.children if isinstance(child, str)]
            alts = [inner.label for inner in item.walk() if inner.kind == "image"]
            text = _fold(" ".join(texts))
            yield _Said(text or _fold(item.label) or _fold(" ".join(alts)), key, item, bool(text))
        else:
            if item.kind in CONTROLS or item.kind == "frame":
                yield None
            # The text of a heading stays whatever follows it.
            fixed = fixed or item.kind in _HEADINGS or item.kind == "pre" or "head" in item.state
            stack.extend((child, (id(item), at), fixed) for at, child in reversed([*enumerate(item.children)]))
