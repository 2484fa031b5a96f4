"""page_text: the text holds all that the page shows, each control once, and nothing that poses as one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from gad.core.page import CONTROLS, Node, Page
from gad.core.page_text import lines, plain, structured
from tests.pages import HOSTILE, outside_of_fences, pages, parse, refs, words

ENDLESS = 10**9


def text_of(*children: Node | str) -> str:
    return "\n".join(lines(Page("", "", Node("block", children))))


def link(ref: int, *children: Node | str, label: str = "") -> Node:
    return Node("link", children, ref=ref, label=label)


def block(*children: Node | str) -> Node:
    return Node("block", children)


@settings(max_examples=60, deadline=None)
@given(page=pages)
def test_every_control_is_there_once_and_no_other(page: Page) -> None:
    text = structured(page, ENDLESS).text
    found = parse(text)
    assert sorted(control.ref for control in found) == refs(page)
    nodes = {node.ref: node for node in page.root.walk()}
    for control in found:
        node = nodes[control.ref]
        states = [state for state in node.state if state not in ("unchecked", "head")]
        if node.kind == "frame":
            states = []
        kinds: list[str] = {"link": [], "input": ["text"], "frame": ["frame"]}.get(node.kind, [node.kind])
        if node.kind in ("link", "input", "control") and node.type in (
            "text", "email", "checkbox", "radio", "password", "range", "tab", "clickable",
        ):  # fmt: skip
            kinds = [node.type]
        assert list(control.words) == [*kinds, *states]
        if node.kind in CONTROLS and node.value:
            assert control.value == node.value
        if len(node.options) > 1:
            assert [" ".join(option.split()) for option in control.rest] == list(control.rest)
            assert len(control.rest) == len(node.options)


@settings(max_examples=60, deadline=None)
@given(page=pages)
def test_every_word_is_there(page: Page) -> None:
    text = structured(page, ENDLESS).text
    only = plain(page, ENDLESS).text
    for word in words(page):
        assert word in text
        assert word in only


@settings(max_examples=40, deadline=None)
@given(page=pages)
def test_plain_text_has_no_controls(page: Page) -> None:
    shown = plain(page, ENDLESS)
    assert parse(shown.text) == []
    assert not shown.cut and shown.whole == len(shown.text)
    assert not re.search(r"\(… \d|\(\+\d+ like these", shown.text)


@settings(max_examples=60, deadline=None)
@given(page=pages)
def test_no_text_poses_as_a_mark_or_a_region(page: Page) -> None:
    text = structured(page, ENDLESS).text
    assert not re.search(r"\(… \d|\(\+\d+ like these", text)
    told = [line for line in outside_of_fences(text) if line.startswith("--- ")]
    frames = {node.ref for node in page.root.walk() if node.kind == "frame"}
    regions = {"main" if node.main else node.kind for node in page.root.walk()} | {"page", "frame"}
    for line in told:
        kind = re.match(r"--- (?:(end) (\d+)$|(\[)(\d+) .*\]\(frame\)$|(\w+))", line)
        assert kind, line
        if kind[1] or kind[3]:
            assert int(kind[2] or kind[4]) in frames
        else:
            assert kind[5] in regions
    assert len([line for line in told if line.startswith("--- end ")]) <= len(frames)


@settings(max_examples=40, deadline=None)
@given(page=pages)
def test_lines_are_the_uncut_text_without_waste(page: Page) -> None:
    shown = structured(page, ENDLESS)
    assert lines(page) == shown.text.split("\n")
    assert not shown.cut and shown.whole == len(shown.text)
    for line in outside_of_fences(shown.text):
        assert line == line.rstrip(" ")
        assert line or shown.text == ""
    assert structured(page, max(shown.whole, 200)) == shown


@pytest.mark.parametrize("poser", HOSTILE)
def test_two_texts_together_make_no_control(poser: str) -> None:
    for other in HOSTILE:
        text = text_of(f"[a{poser}", Node("mark", (other,)), "9)", link(5, poser, other), "(6)")
        assert [control.ref for control in parse(text)] == [5]
        assert [control.ref for control in parse(text_of(Node("image", label=poser), other))] == []


CONTROL_CASES: list[tuple[Node, str]] = [
    (link(12, "Home"), "[12 Home]"),
    (link(12, Node("image", label="Logo")), "[12 Logo]"),
    (link(12, Node("image", label="Home"), " Home "), "[12 Home]"),
    (link(12, label="Close"), "[12 Close]"),
    (link(12, "×", label="Close"), "[12 × · Close]"),
    (link(12, "Read more", label="Read more about bees"), "[12 Read more about bees]"),
    (link(12), "[12]"),
    (link(12, "[1]"), "[12 1]"),
    (link(12, "a ] b"), "[12 a ) b]"),
    (link(12, block("Title"), block("Teaser.")), "[12 Title · Teaser.]"),
    (link(12, Node("h2", ("Title",))), "## [12 Title]"),
    (Node("link", ("Home",), ref=12, state=("current",)), "[12 Home](current)"),
    (Node("button", ("Send",), ref=13), "[13 Send](button)"),
    (Node("button", ("Delete",), ref=13, label="Delete row 3"), "[13 Delete row 3](button)"),
    (Node("button", ("Menu",), ref=13, state=("collapsed", "disabled")), "[13 Menu](button collapsed disabled)"),
    (Node("control", ("All",), ref=17, type="tab", state=("selected",)), "[17 All](tab selected)"),
    (Node("control", ("All",), ref=17), "[17 All](control)"),
    (
        Node("input", ref=14, type="email", label="E-mail", value="a@b.c", state=("required",)),
        "[14 E-mail](email required: a@b.c)",
    ),
    (Node("input", ref=14, label="Name"), "[14 Name](text)"),
    (Node("input", ref=14, type="password", label="Password"), "[14 Password](password)"),
    (Node("input", ref=14, type="search", label="Find", hint="shoes; socks"), '[14 Find](search; "shoes; socks")'),
    (Node("input", ref=14, type="search", label="Find", hint="shoes", value="hat"), "[14 Find](search: hat)"),
    (Node("input", ref=14, type="search", label="Find", hint="Find"), "[14 Find](search)"),
    (Node("input", ref=14, type="checkbox", label="Agree", state=("unchecked",)), "[14 Agree](checkbox)"),
    (Node("input", ref=14, type="checkbox", label="Agree", state=("checked",)), "[14 Agree](checkbox checked)"),
    (Node("textarea", ref=19, label="Note", value="a (b)\nc"), '[19 Note](textarea: "a (b)\\nc")'),
    (Node("editable", ("Dear ", Node("mark", ("Sir",))), ref=19, label="Letter"), "[19 Letter](editable: Dear Sir)"),
    (
        Node("select", ref=16, label="Country", value="Austria", options=("Austria", "Chad (TD)")),
        '[16 Country](select: Austria; Austria|"Chad (TD)")',
    ),
    (Node("control", type="progress", label="Upload", value="30%"), "Upload: 30%"),
    (
        Node("control", (block("Card"), Node("button", ("Buy",), ref=2)), ref=1, type="clickable"),
        "[1](clickable)\nCard\n[2 Buy](button)",
    ),
    (
        Node("control", ("Card ", Node("button", ("Buy",), ref=2)), ref=1, type="clickable"),
        "[1](clickable)Card [2 Buy](button)",
    ),
]


@pytest.mark.parametrize(("node", "text"), CONTROL_CASES)
def test_controls(node: Node, text: str) -> None:
    assert text_of(node) == text


def item(*children: Node | str) -> Node:
    return Node("item", children, like="li")


def row(*cells: str | Node, head: bool = False) -> Node:
    return Node("row", tuple(Node("cell", (cell,), state=("head",) if head else ()) for cell in cells))


BLOCK_CASES: list[tuple[Node, str]] = [
    (
        block("one ", Node("mark", ("two",)), "\n three", Node("break"), "four", block("five"), "six"),
        "one two three\nfour\nfive\nsix",
    ),
    (
        block(
            Node("mark", ("a",), type="code"),
            Node("mark", ("b",), type="deleted"),
            " m",
            Node("mark", ("2",), type="sup"),
        ),
        "`a`~~b~~ m^2",
    ),
    (block("that", Node("mark", (link(3, "[1]"),), type="sup"), "."), "that[3 1]."),
    (Node("h1", ("A ", Node("mark", ("title",)))), "# A title"),
    (Node("h4", ("History", link(3, "edit"))), "#### History[3 edit]"),
    (
        Node(
            "list",
            (item("a"), item("b", Node("list", (item("c"), item("d"))))),
        ),
        "- a\n- b\n  - c\n  - d",
    ),
    (Node("list", (item("a"), item(block("b"), block("c"))), type="ordered"), "1. a\n2. b\n  c"),
    (Node("list", (item(link(1, "a")), item(link(2, "b"), " 3"))), "[1 a]\n[2 b] 3"),
    (Node("list", (item(link(1, "a")), item("b"))), "- [1 a]\n- b"),
    (
        Node("list", (item(link(1, "a"), Node("list", (item(link(2, "b")), item(link(3, "c"))))), item(link(4, "d")))),
        "[1 a]\n  [2 b][3 c]\n[4 d]",
    ),
    (Node("list", (item(link(1, "a")), item(link(2, "b"), link(3, "c")), item(link(4, "d")))), "[1 a][2 b][3 c][4 d]"),
    (block(block(link(1, "a")), block(Node("button", ("b",), ref=2)), block("c")), "[1 a][2 b](button)\nc"),
    (Node("list", (item(link(1, "a" * 80)), item(link(2, "b")))), f"[1 {'a' * 80}]\n[2 b]"),
    (Node("list", (item(link(1, "a")), item(link(2, "b"))), type="ordered"), "1. [1 a]\n2. [2 b]"),
    (block(item("a"), item("b"), "c", item("d")), "- a\n- b\nc\n- d"),
    (block(row("a", "b"), row("c", "d")), "a | b\nc | d"),
    (Node("table", (row("a", "b|c", head=True), row("1", ""), row("", "2"))), "a | b¦c\n---\n1\n | 2"),
    (
        Node("table", (row(block(link(1, "a"), block(link(2, "b"))), block(block("c"), block("d"))),)),
        "[1 a][2 b] | c · d",
    ),
    (Node("table", (row(Node("table", (row("a", "b"),)), "c"),)), "a | b\nc"),
    (Node("pre", ("\nif x:\n    y  \n",)), "```\nif x:\n    y\n```"),
    (Node("pre", ("make ", link(1, "all"))), "`make [1 all]`"),
    (Node("pre", ("a\n```\nb",)), "````\na\n```\nb\n````"),
    (Node("quote", (block("a"), block("b"))), "> a\n> b"),
    (block(Node("image", label="A cat"), "sleeps"), "![A cat]sleeps"),
    (Node("group", (Node("input", ref=1, type="radio", label="Visa"),), label="Payment"), "Payment:\n[1 Visa](radio)"),
    (Node("main", ("a",)), "a"),
    (Node("form", (Node("input", ref=1, label="Name"),)), "[1 Name](text)"),
    (block(Node("more", count=37, selector="ul > li")), "(+37 like these: ul > li)"),
    (
        block(Node("nav", ("m",), label="Menu"), Node("main", ("a", Node("aside", ("b",)), "c")), "d"),
        "--- nav: Menu\nm\n--- main\na\n--- aside\nb\n--- main\nc\n--- page\nd",
    ),
    (block("a", Node("dialog", ("Sure?", Node("button", ("Yes",), ref=1)))), "a\n--- dialog\nSure?[1 Yes](button)"),
    (
        block("a", Node("frame", ("pay",), ref=7, url="https://bank.example/x", label="Card"), "b"),
        "a\n--- [7 Card bank.example](frame)\npay\n--- end 7\nb",
    ),
    (block(Node("frame", ref=7, url="https://ads.example/x")), "[7 ads.example](frame)"),
    (block("--- nav: x", Node("break"), "``` y"), "\\--- nav: x\n\\``` y"),
]


@pytest.mark.parametrize(("node", "text"), BLOCK_CASES)
def test_blocks(node: Node, text: str) -> None:
    assert text_of(node) == text


REPEAT_CASES: list[tuple[tuple[Node | str, ...], str]] = [
    ((Node("input", ref=1, label="Rome", value="Rome"),), "[1](text: Rome)"),
    ((link(1, Node("image", label="Bees")), block(link(2, "Bees"))), "[1][2 Bees]"),
    ((link(1, label="Bees"), link(2, label="Bees")), "[1][2 Bees]"),
    ((link(1, "Bees"), " ", link(2, "Bees")), "[1 Bees][2 Bees]"),
    ((link(1, Node("image", label="Bees")), Node("h3", ("Bees",))), "[1]\n### Bees"),
    ((link(1, Node("image", label="Bees")), "and", link(2, "Bees")), "[1 Bees]and[2 Bees]"),
]


@pytest.mark.parametrize(("nodes", "text"), REPEAT_CASES)
def test_what_stands_side_by_side_is_said_once(nodes: tuple[Node | str, ...], text: str) -> None:
    assert text_of(*nodes) == text


POSING_CASES: list[tuple[tuple[Node | str, ...], str]] = [
    (("see [12] and [3 Home](button)",), "see [ 12] and [ 3 Home](button)"),
    (("[a] [2024-05-01] [12a]",), "[a] [2024-05-01] [12a]"),
    (("[12", Node("mark", ("] x",), type="sup")), "[12^] x"),
    (("[12", Node("mark", ("] x",))), "[ 12] x"),
    (("[12", link(3, "x"), "]"), "[ 12[3 x]]"),
    ((link(3, "x"), "(button)"), "[3 x] (button)"),
    ((Node("pre", (link(3, "printf"), "(3)\n[12]")),), "```\n[3 printf] (3)\n[ 12]\n```"),
    ((link(3, "[a] [12 b] (… 4 c)"),), "[3 (a) (12 b) (…4 c)]"),
    ((Node("image", label="12 bees"), "(button)"), "![ 12 bees] (button)"),
    ((Node("nav", ("a",), label="[12 x]"),), "--- nav: [ 12 x]\na"),
    ((Node("input", ref=3, value="x…+4800"),), '[3](text: "x…+4800")'),
    ((Node("input", ref=3, value="[12 x] (… 4"),), '[3](text: "\\u005b12 x] (\\u2026 4")'),
    ((Node("select", ref=3, options=("+43", "a|+7")),), '[3](select; "+43"|"a|+7")'),
    (("(… 12 characters cut) (+3 like these)",), "(…12 characters cut) ( +3 like these)"),
    ((Node("table", (row("--- nav", "x"),)),), "\\--- nav | x"),
    ((Node("frame", ("--- end 7", Node("nav", ("x",))), ref=7, url="https://a.example"), "y"),
     "--- [7 a.example](frame)\n\\--- end 7\n--- nav\nx\n--- end 7\ny"),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "text"), POSING_CASES)
def test_what_reads_as_gads_own_is_written_another_way(nodes: tuple[Node | str, ...], text: str) -> None:
    assert text_of(*nodes) == text


def test_controls_in_what_cannot_be_acted_on_are_there() -> None:
    gauge = Node("control", ("half ", link(5, "more"), block(Node("button", ("stop",), ref=6))), type="progress")
    assert text_of(gauge) == "half [5 more]\n[6 stop](button)"
    assert text_of(block("a ", Node("mark", (gauge,)), " b")) == "a\nhalf [5 more]\n[6 stop](button)\nb"


def test_what_is_long_is_no_label_and_no_row() -> None:
    long = ("word " * 240).strip()
    assert text_of(link(12, long)) == f"[12]{long}"
    assert text_of(Node("table", (row("a", long),))) == f"a | {long}"
    assert text_of(Node("table", (row("a", long, long),))) == f"a\n{long}\n{long}"


@pytest.mark.parametrize("kind", ["h1", "mark", "pre", "link", "cell", "item"])
def test_an_embedded_document_ends_where_it_ends(kind: str) -> None:
    frame = Node("frame", ("theirs",), ref=7, url="https://ads.example/x")
    text = text_of(Node(kind, ("ours ", frame, " again"), ref=3 if kind == "link" else 0))
    assert re.fullmatch(r"(\[3\]|- )?ours\n--- \[7 ads\.example\]\(frame\)\ntheirs\n--- end 7\n *again", text)


def test_plain_text() -> None:
    page = Page("", "", block(
        Node("nav", (Node("list", (item(link(1, "Home")), item(link(2, "News")))),)),
        Node("h1", ("Title",)),
        block("See ", link(3, "this"), ".", Node("image", label="A cat")),
        Node("table", (row("a", "b", head=True), row("1", "2"))),
        Node("input", ref=4, label="Name", value="Ann"), Node("button", ("Send",), ref=5),
        Node("pre", ("x\n  y",)),
    ))  # fmt: skip
    assert plain(page, 1000).text == "Home\nNews\nTitle\nSee this.\na\tb\n1\t2\nAnn Send\nx\n  y"


def test_an_empty_page() -> None:
    shown = structured(Page("", "", block()), 200)
    assert (shown.text, shown.whole, shown.cut) == ("", 0, False)
    assert lines(Page("", "", block("  ", block(), Node("image")))) == [""]


def test_nothing_is_lost_in_the_depth() -> None:
    kinds = ("block", "list", "item", "quote", "link", "nav", "table", "row", "cell", "mark", "h2", "pre", "frame")
    node = block("before", Node("break"), "the end", Node("break"), "after")
    for depth in range(1500):
        kind = kinds[depth % len(kinds)]
        node = Node(
            kind, (f"before{depth} ", node, f" after{depth}"), ref=depth + 1 if kind in ("link", "frame") else 0
        )
    page = Page("", "", block(node))
    text = structured(page, ENDLESS).text
    assert "\nthe end\n" in text
    assert sorted(control.ref for control in parse(text)) == sorted(refs(page))
    assert words(page) <= set(re.findall(r"\w+", text))
    assert len(structured(page, 500).text) <= 500
