"""page_text and page_fit write every page, however it is made; quadratic work would take longer than a test may."""

from __future__ import annotations

import pytest

from gad.core.page import Node, Page
from gad.core.page_text import structured


def page_of(*children: Node | str) -> Page:
    return Page("", "", Node("block", children))


def block(*children: Node | str) -> Node:
    return Node("block", children)


def link(ref: int, text: str) -> Node:
    return Node("link", (text,), ref=ref)


def write(page: Page) -> None:
    assert 0 < len(structured(page, 35_000).text) <= 35_000


@pytest.mark.parametrize("like", ["hit", ""])
def test_fifty_thousand_nodes(like: str) -> None:
    items = tuple(
        Node("item", (link(at + 1, "Result"), block("about it, ", Node("mark", ("in short",)))), like=f"{like}{at % 3}")
        for at in range(10_000)
    )
    write(page_of(Node("list", items)))


def nested(kinds: tuple[str, ...], depth: int, inner: Node) -> Node:
    for at in range(depth):
        kind = kinds[at % len(kinds)]
        inner = Node(kind, ("x", inner), ref=10**5 + at if kind in ("link", "control", "frame") else 0)
    return inner


many = block(*(block(link(at + 1, f"word {at}")) for at in range(5_000)))
HARD = {
    "blocks": nested(("block",), 50_000, block("end")),
    "all kinds": nested(
        ("link", "item", "row", "cell", "nav", "quote", "list", "table", "frame", "h2", "pre"), 50_000, block("end")
    ),
    **{f"{kind} 70": nested((kind,), 70, many) for kind in ("control", "row", "h2", "list", "mark", "pre", "frame")},
    "headings": block(*(Node(f"h{at % 6 + 1}", ("x",)) for at in range(30_000))),
    "frames": block(*(Node("frame", ("x",), ref=at + 1) for at in range(10_000))),
    "brackets": block("[1" * 500_000, "(" * 500_000, "[" + "1" * 500_000),
    "cells": Node("row", tuple(Node("cell", ("a|b",)) for _ in range(30_000))),
    "fences": Node("pre", ("`" * 500_000 + "\n--- nav\n",)),
}


@pytest.mark.parametrize("name", HARD)
def test_a_hard_page(name: str) -> None:
    write(page_of(HARD[name]))
