"""Trees of pages for tests: hypothesis strategies, and a parser that reads the structured text back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from gad.core.page import CONTROLS, STATES, Node, Page

HOSTILE = (
    "[7]", "[3 x](button)", "](", "(button)", "[12", "[7 ", "7]", "[[8 y]]", "[9\n", "[1\u200b0]", "](text: x)",
    "(… 12 characters cut)", "(…", " 4 characters cut)", "(+3 like these: li)", "--- nav: Menu", "--- end 1",
    "--- [7 a.example](frame)", "```", "`", "\n", " ", "a | b", "[", "]", "[1]", "]]", "(", ")", "# x", "- x", "> x",
    "\\", "中文字。", "🎉👩\u200d👩\u200d👧", "שלום", "مرحبا", "\u200b", "soft\u00adhyphen", "\u2028", "\x85", "\0",
    "\ud83d", "\ue001", "𝒳𝒴", "word word", "word", "x" * 60, "a\tb\r\nc", "!", "٣", "[٣ x]",
)  # fmt: skip
texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=12), st.just("some words of it"))
labels = st.one_of(st.just(""), texts)
_states = st.lists(st.sampled_from(STATES), max_size=2, unique=True).map(tuple)
_likes = st.sampled_from(["", "", "hit", "hit", "p.a"])

_images = st.builds(lambda label: Node("image", label=label), labels)
_fields = st.one_of(
    st.builds(
        lambda kind, role, label, value, hint, state: Node(
            kind, ref=1, type=role, label=label, value=value, hint=hint, state=state
        ),
        st.sampled_from(["input", "input", "textarea", "editable"]),
        st.sampled_from(["text", "email", "checkbox", "radio", "password", "range", "odd role", "checked"]),
        labels,
        st.one_of(labels, st.text(max_size=30), st.just("v " * 200)),
        labels,
        _states,
    ),
    st.builds(
        lambda label, options, state: Node(
            "select", ref=1, label=label, options=tuple(options), value=", ".join(options[:1]), state=state
        ),
        labels,
        st.lists(texts, max_size=30),
        _states,
    ),
)
leaves: st.SearchStrategy[Node | str] = st.one_of(texts, texts, _images, _fields, st.just(Node("break")))


def _holding(inner: st.SearchStrategy[Node | str]) -> st.SearchStrategy[Node | str]:
    children = st.lists(inner, max_size=6).map(tuple)
    few = st.lists(inner, max_size=3).map(tuple)
    lists = st.builds(
        lambda items, times, like, kind: Node(
            "list",
            tuple(Node("item", item, like=like) for item in items for _ in range(times)),
            type=kind,
            selector="ul.a > li",
        ),
        st.lists(few, max_size=4),
        st.sampled_from([1, 1, 1, 1, 9, 12]),
        _likes,
        st.sampled_from(["", "ordered"]),
    )
    tables = st.builds(
        lambda rows, head: Node(
            "table",
            tuple(
                Node("row", tuple(Node("cell", cell, state=("head",) if head and not at else ()) for cell in row))
                for at, row in enumerate(rows)
            ),
        ),
        st.lists(st.lists(few, max_size=3), max_size=4),
        st.booleans(),
    )
    blocks = st.builds(
        lambda kind, held, like, label, main: Node(kind, held, like=like, label=label, main=main),
        st.sampled_from(
            ["block", "block", "block", "h1", "h3", "pre", "quote", "main", "article", "nav", "aside", "header",
             "footer", "search", "form", "group", "dialog", "item", "row", "cell", "unheard-of"]
        ),
        children,
        _likes,
        labels,
        st.sampled_from([False, False, False, True]),
    )  # fmt: skip
    frames = st.builds(
        lambda held, label: Node("frame", held, ref=1, label=label, url="https://ads.example/x?y"), children, labels
    )
    controls = st.builds(
        lambda kind, held, label, role, state: Node(kind, held, ref=1, label=label, type=role, state=state),
        st.sampled_from(["link", "link", "link", "button", "control", "editable"]),
        few,
        labels,
        st.sampled_from(["", "tab", "clickable", "checkbox"]),
        _states,
    )
    marks = st.builds(
        lambda kind, held: Node("mark", held, type=kind), st.sampled_from(["deleted", "code", "sup"]), few
    )
    return st.one_of(blocks, blocks, lists, tables, frames, controls, controls, marks)


def numbered(root: Node) -> Node:
    """Return the tree with its refs numbered in the order of the page, from 1."""
    count = 0

    def again(node: Node) -> Node:
        nonlocal count
        ref = 0
        if node.ref:
            count += 1
            ref = count
        children = tuple(again(child) if isinstance(child, Node) else child for child in node.children)
        return replace(node, ref=ref, children=children)

    return again(root)


def _page(children: list[Node | str]) -> Page:
    return Page("https://a.example/", "A page", numbered(Node("block", tuple(children))))


trees = st.recursive(leaves, _holding, max_leaves=25)
pages: st.SearchStrategy[Page] = st.lists(trees, max_size=6).map(_page)
"""Pages of everything that there can be, with texts that try to pose as what they are not."""


@dataclass(frozen=True)
class Control:
    """A control as it is read back. `said` is all of it; `words` are what it is and its states."""

    ref: int
    label: str
    words: tuple[str, ...]
    value: str
    rest: tuple[str, ...]
    said: str


_START = re.compile(r"\[(?=\d+(?:[\s\]]|\Z))")
_CONTROL = re.compile(
    r"""\[(?P<ref>[0-9]+)(?:\ (?P<label>[^\[\]\n]+))?\]
    (?:\((?P<words>[a-z0-9-]*(?:\ [a-z0-9-]+)*)
    (?::\ (?P<value>"(?:[^"\\]|\\.)*"(?:…\+[0-9]+)?|(?:(?!;\ )[^()\[\]|"])*))?
    (?:;\ (?P<rest>(?:"(?:[^"\\]|\\.)*"|[^()\[\]"])*))?\))?(?!\()""",
    re.VERBOSE,
)
_OPTION = re.compile(r'"(?:[^"\\]|\\.)*"|[^|"]*')


def _unquoted(text: str) -> str:
    quoted, mark, rest = text.rpartition("…+") if re.search(r'"…\+[0-9]+$', text) else (text, "", "")
    return f"{json.loads(quoted)}{mark}{rest}" if quoted.startswith('"') else text


def parse(text: str) -> list[Control]:
    """Read all controls and frames of a structured text."""
    return list(_parse(text))


def _parse(text: str) -> Iterator[Control]:
    for start in _START.finditer(text):
        found = _CONTROL.match(text, start.start())
        assert found, f"not a control: {text[start.start() - 40 : start.start() + 80]!r}"
        yield Control(
            int(found["ref"]),
            found["label"] or "",
            tuple((found["words"] or "").split()),
            _unquoted(found["value"] or ""),
            tuple([] if found["rest"] is None else _options(found["rest"])),
            found[0],
        )


def _options(text: str) -> list[str]:
    options: list[str] = []
    at = 0
    while True:
        found = _OPTION.match(text, at)
        assert found
        options.append(_unquoted(found[0]))
        at = found.end()
        if at >= len(text):
            return options
        assert text[at] == "|", text
        at += 1


def outside_of_fences(text: str) -> list[str]:
    """Return the lines that are not preformatted text."""
    found: list[str] = []
    fence = ""
    for line in text.split("\n"):
        if fence:
            if line == fence:
                fence = ""
        elif re.fullmatch("```+", line):
            fence = line
        else:
            found.append(line)
    assert not fence, "a fence is open at the end"
    return found


def refs(page: Page) -> list[int]:
    return [node.ref for node in page.root.walk() if node.ref]


def words(page: Page) -> set[str]:
    """Return every word that the page shows as text."""
    return {
        word
        for node in page.root.walk()
        for child in node.children
        if isinstance(child, str)
        for word in re.findall(r"[^\W_]+", child)
    }


def acted_on(page: Page) -> list[Node]:
    return [node for node in page.root.walk() if node.kind in CONTROLS]
