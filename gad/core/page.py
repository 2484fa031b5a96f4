"""What a web page shows, as one tree of values: the joint between the browser that looks and the text that is made.

A script in the page (`gad/browser/look.js`) gives each document as JSON: a text is a string, and anything else is
`[kind, attributes, child, ...]`. `read_node` turns that into a `Node`. Only what a person could see is in it, in the
order of the document; elements without a meaning of their own are dissolved into their children.

Kinds of blocks:
    block                   a paragraph or any other block without a meaning
    h1 ... h6
    list, item              `type` is "ordered" for a numbered list
    table, row, cell        of a cell, `state` holds "head" for a header and `count` is how many columns it spans
    pre                     its text is kept as it is, with line breaks; all other text has its white space folded
    quote
    main, article, nav, aside, header, footer, search, form, group, dialog
                            regions; `label` is the name that the page gives them (of a group, its legend)
    frame                   an embedded document: `url`, and its tree as the children
    more                    stands for `count` further like siblings that are not listed; `selector` finds them all

Kinds within a line:
    break                   a line break
    image                   `label` is its text alternative; an image without one is not there
    link, button, input, select, textarea, editable, control
                            what can be acted on. Children are what is shown on it; `label` is its name where that says
                            more than the children do. `type` is an input's type, and of a control its role (tab,
                            menuitem, option, switch, slider, clickable, ...). `value` is what it holds at the moment
                            (never that of a password), `hint` its placeholder. `options` are a select's texts; the
                            chosen ones are in `value`, joined by ", ".
    mark                    inline text with a meaning: `type` is "deleted", "code" or "sup"
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

STATES = (
    "checked", "unchecked", "mixed", "disabled", "readonly", "required", "expanded", "collapsed", "selected", "pressed",
    "current", "invalid", "focused", "multiple", "head",
)  # fmt: skip
"""Words of `Node.state`."""

CONTROLS = frozenset({"link", "button", "input", "select", "textarea", "editable", "control"})


@dataclass(frozen=True, slots=True)
class Node:
    """One thing that a page shows.

    `ref` is the number by which it can be acted on, 0 for none. `like` tells siblings of the same make from others:
    those that have the same kind and the same `like` are items of one list. `selector`, of a node with many like
    children, is a CSS selector that finds these children. `main` marks the page's main content.
    """

    kind: str
    children: tuple[Node | str, ...] = ()
    ref: int = 0
    label: str = ""
    value: str = ""
    hint: str = ""
    type: str = ""
    state: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    url: str = ""
    count: int = 0
    like: str = ""
    selector: str = ""
    main: bool = False

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it, in the order of the page."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(child for child in reversed(node.children) if isinstance(child, Node))


@dataclass(frozen=True, slots=True)
class Page:
    """One look at a page. `root` is a block that holds everything.

    `remarks` are gad's own words on what is not in the tree, such as content that an overlay covers.
    """

    url: str
    title: str
    root: Node
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab that a session can use. Numbers are not used again."""

    number: int
    url: str
    title: str
    active: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in the browser since the last call, in words that hold nothing but `text` of the page.

    `kind` is dialog, download, tab or page.
    """

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Sight:
    """What web_scan sees. `notes` are gad's own words (a browser that crashed and was started anew)."""

    tabs: tuple[Tab, ...]
    page: Page | None = None
    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Acted:
    """What running a script came to.

    `value` is JSON, None also for undefined (then `returned` is False). `error` says what went wrong in the script,
    with its line. `before` and `after` are the page at both ends, None when nobody looked; `moved` says that another
    document is shown now. `brief` are texts that were shown in between and had gone at the end. `unsettled` says what
    was still going on when waiting for it was given up.
    """

    tabs: tuple[Tab, ...]
    value: Any = None
    returned: bool = False
    error: str = ""
    before: Page | None = None
    after: Page | None = None
    moved: bool = False
    brief: tuple[str, ...] = ()
    unsettled: str = ""
    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()


def read_node(data: Any) -> Node:
    """Return the tree that look.js gave as JSON. Raises ValueError for what is none."""
    # Deep pages must not meet the recursion limit, so the tree is built from the leaves with a stack of one's own.
    done: list[Node | str] = []
    stack: list[tuple[Any, bool]] = [(data, False)]
    while stack:
        item, known = stack.pop()
        if isinstance(item, str):
            done.append(item)
        elif not (isinstance(item, list) and len(item) >= 2 and isinstance(item[0], str) and isinstance(item[1], dict)):
            raise ValueError(f"not a node: {str(item)[:80]}")
        elif known:
            size = len(item) - 2
            children = tuple(done[len(done) - size :])
            del done[len(done) - size :]
            done.append(_node(item[0], item[1], children))
        else:
            stack.append((item, True))
            stack.extend((child, False) for child in reversed(item[2:]))
    root = done[0]
    return root if isinstance(root, Node) else Node("block", (root,))


def _node(kind: str, attributes: dict[str, Any], children: tuple[Node | str, ...]) -> Node:
    try:
        found: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in attributes.items()
        }
        return Node(kind, children, **found)
    except TypeError as exc:
        raise ValueError(f"not a node: {kind}: {exc}") from None
