"""page_fit: what is shown of a page that is too long has whole controls, within the limit, and says what is gone."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.page import Node, Page
from gad.core.page_text import Shown, lines, plain, structured
from tests.pages import pages, parse

GONE = re.compile(r"\(… (\d+) characters(?:, (\d+) controls?)? cut\)")
LIKE = re.compile(r"\(\+(\d+) like these(?:: ([^)\n]*))?\)")


def page_of(*children: Node | str) -> Page:
    return Page("", "", Node("block", children))


def block(*children: Node | str, main: bool = False) -> Node:
    return Node("block", children, main=main)


def link(ref: int, text: str) -> Node:
    return Node("link", (text,), ref=ref)


def results(count: int, like: str = "hit") -> Node:
    return Node(
        "list",
        tuple(Node("item", (link(at + 1, f"Result {at + 1}"), " of them"), like=like) for at in range(count)),
        selector="ul.hits > li",
    )


def prose(name: str, size: int) -> str:
    return (f"{name} lorem ipsum dolor " * size)[:size].rstrip()


@settings(max_examples=60, deadline=None)
@given(page=pages, limit=st.integers(200, 1500))
def test_what_is_shown_is_within_the_limit_and_whole(page: Page, limit: int) -> None:
    uncut = {control.ref: control for control in parse("\n".join(lines(page)))}
    shown = structured(page, limit)
    assert len(shown.text) <= limit
    assert shown.cut == (shown.whole > limit)
    assert shown.cut or shown.text == "\n".join(lines(page))
    found = parse(shown.text)
    assert len({control.ref for control in found}) == len(found)
    for control in found:
        assert control.said == uncut[control.ref].said or (
            control.label == uncut[control.ref].label
            and control.words == uncut[control.ref].words
            and re.search(r"…\+\d+|\|\+\d+\)", control.said)
        )
    if shown.cut:
        assert GONE.search(shown.text) or LIKE.search(shown.text) or re.search(r"…\+\d+|\|\+\d+\)", shown.text)
    only = plain(page, limit)
    assert len(only.text) <= limit and parse(only.text) == []


@settings(max_examples=10, deadline=None)
@given(page=pages)
def test_one_limit_after_the_other(page: Page) -> None:
    whole = structured(page, 10**9).whole
    for limit in range(200, min(whole, 700) + 1, 13):
        assert len(structured(page, limit).text) <= limit


def controls_gone(shown: Shown) -> int:
    return sum(int(controls or 0) for _, controls in GONE.findall(shown.text)) + sum(
        int(count) for count, _ in LIKE.findall(shown.text)
    )


def test_long_lists_keep_the_first_with_which_all_fits() -> None:
    page = page_of(Node("h1", ("Hits",)), results(400), block("the end"))
    assert structured(page, 10_500).cut is False
    for limit, kept in ((1600, 50), (700, 20), (320, 10), (200, 5)):
        text = structured(page, limit).text
        assert re.findall(r"Result (\d+)\]", text) == [str(at + 1) for at in range(kept)]
        assert f"\n(+{400 - kept} like these: ul.hits > li)\nthe end" in text


@pytest.mark.parametrize("kind", ["list", "block"])
def test_a_long_menu_keeps_its_first_and_names_the_rest(kind: str) -> None:
    inner = "item" if kind == "list" else "block"
    entries = tuple(Node(inner, (link(at + 1, f"Entry {at}"),), like="li") for at in range(400))
    text = structured(page_of(Node(kind, entries, selector=".menu > *"), block("the end")), 1500).text
    assert text.startswith("[1 Entry 0][2 Entry 1]")
    assert text.endswith("[50 Entry 49] (+350 like these: .menu > *)\nthe end")


def test_unlike_siblings_are_no_list() -> None:
    items = tuple(Node("item", (link(at + 1, f"Result {at + 1}"),), like=f"hit{at}") for at in range(400))
    shown = structured(page_of(Node("list", items)), 1000)
    assert "like these" not in shown.text
    assert len(parse(shown.text)) + controls_gone(shown) == 400


def test_paragraphs_are_no_list() -> None:
    paragraphs = [Node("block", (prose(f"p{at}", 300),), like="p") for at in range(100)]
    shown = structured(page_of(*paragraphs), 10_000)
    assert "like these" not in shown.text
    assert len(shown.text) > 9000


def test_nested_lists_are_thinned_too() -> None:
    menu = Node("list", tuple(Node("item", (link(at, f"Entry {at}"), prose("x", 20)), like="li") for at in range(60)))
    page = page_of(*(block(Node("h2", (f"Part {at}",)), menu) for at in range(5)))
    text = structured(page, 6000).text
    assert [int(count) for count, _ in LIKE.findall(text)] == [40] * 5
    assert text.count("## Part") == 5


def test_the_numbers_in_the_marks_add_up() -> None:
    paragraphs = [block(prose(f"p{at}", 3 * at), link(at + 1, "x")) for at in range(200)]
    page = page_of(*paragraphs)
    for limit in (200, 1000, 5000, 20_000, 50_000):
        shown = structured(page, limit)
        kept = GONE.sub("", shown.text)
        gone = sum(int(count) for count, _ in GONE.findall(shown.text))
        marks = len(GONE.findall(shown.text))
        assert abs(len(kept) + gone - shown.whole) <= 2 * marks
        assert len(parse(shown.text)) + controls_gone(shown) == 200
        assert len(shown.text) > limit * 0.7


def test_the_main_region_comes_first() -> None:
    page = page_of(
        Node("nav", tuple(block(link(at + 1, prose(f"n{at}", 60))) for at in range(200))),
        Node("main", tuple(block(prose(f"m{at}", 200)) for at in range(30)), main=True),
        Node("footer", (block(prose("f", 5000)), block("imprint"))),
    )
    shown = structured(page, 8000)
    assert len(shown.text) <= 8000
    assert all(f"m{at} lorem" in shown.text for at in range(29))
    assert shown.text.startswith("--- nav\n[1 n0 lorem")
    assert "--- footer\nf lorem" in shown.text
    nav, main, footer = re.split("--- main|--- footer", shown.text)
    assert len(nav) > 500 and len(footer) > 500
    assert len(main) > 5800


def test_a_main_region_that_is_too_long_leaves_room_for_others() -> None:
    page = page_of(
        Node("nav", (block(link(1, "Home")),)),
        Node("main", tuple(block(prose(f"m{at}", 200)) for at in range(300)), main=True),
        Node("aside", tuple(block(prose(f"a{at}", 200)) for at in range(300))),
    )
    text = structured(page, 10_000).text
    assert 9000 < len(text) <= 10_000
    main, aside = text.split("--- aside")
    assert "[1 Home]" in main
    assert 7000 < len(main) < 8000
    assert len(aside) > 1500


def test_small_parts_stay_whole_and_large_ones_share() -> None:
    page = page_of(
        Node("header", ("menu",)),
        Node("article", tuple(block(prose("one", 100)) for _ in range(100)), label="A"),
        Node("article", tuple(block(prose("two", 100)) for _ in range(200)), label="B"),
        Node("footer", ("imprint",)),
    )
    text = structured(page, 4000).text
    assert text.startswith("--- header\nmenu\n--- article: A\none") and text.endswith("--- footer\nimprint")
    first, second = text.split("--- article: B")
    assert abs(len(first) - len(second)) < 250
    assert len(text) > 3500


def test_marks_that_stand_side_by_side_are_one() -> None:
    page = page_of(*(block(prose("p", 900)) for _ in range(50)))
    assert len(GONE.findall(structured(page, 2000).text)) == 1


def test_a_text_is_cut_at_the_end_of_a_word() -> None:
    shown = structured(page_of(prose("word", 5000)), 1000)
    assert re.search(r"\b(word|lorem|ipsum|dolor) \(… \d+ characters cut\)$", shown.text)
    assert len(structured(page_of("字" * 5000), 1000).text) > 950


def test_rows_and_headings_are_whole_or_absent() -> None:
    rows = tuple(Node("row", tuple(Node("cell", (f"{at} {column}",)) for column in "abcd")) for at in range(300))
    page = page_of(*(block(Node("h2", (prose(f"Title {at}", 90),))) for at in range(100)), Node("table", rows))
    uncut = set(lines(page))
    for limit in range(200, 6000, 371):
        for line in structured(page, limit).text.split("\n"):
            assert line in uncut or GONE.fullmatch(line) or LIKE.fullmatch(line)


def test_a_frame_and_a_fence_are_closed_when_they_are_cut() -> None:
    page = page_of(
        Node("frame", tuple(block(prose("f", 90)) for _ in range(50)), ref=1, url="https://a.example"),
        Node("pre", ("\n".join(f"line {at} of the code" for at in range(200)),)),
    )
    text = structured(page, 2000).text
    assert re.match(r"--- \[1 a\.example\]\(frame\)\nf lorem", text)
    assert re.search(r"cut\)\n--- end 1\n```\nline 0 of", text)
    assert re.search(r"\w\n```\n\(… \d+ characters cut\)$", text)


def test_long_values_and_options_are_shortened_when_not_all_fits() -> None:
    select = Node("select", ref=1, label="Country", value="C0", options=tuple(f"C{at}" for at in range(250)))
    note = Node("textarea", ref=2, label="Note", value="v" * 5000)
    page = page_of(select, note, "x")
    assert [len(control.rest) for control in parse(structured(page, 10_000).text)] == [250, 0]
    text = structured(page, 1000).text
    assert text.startswith("[1 Country](select: C0; C0|C1|") and "|C19|+230)" in text
    assert f"[2 Note](textarea: {'v' * 200}…+4800)" in text


def test_a_control_that_has_no_room_is_left_out_whole() -> None:
    shown = structured(page_of(link(1, "Home"), block(link(2, "word " * 90)), block(link(3, "End"))), 300)
    assert [control.ref for control in parse(shown.text)] == [1, 3]
    assert controls_gone(shown) == 1


def test_every_level_of_a_deep_page_is_cut() -> None:
    node = block(prose("end", 300))
    for depth in range(1000):
        node = Node("block", (prose(f"b{depth}", 100), node, prose(f"a{depth}", 100)))
    for limit in (200, 5000, 35_000):
        assert limit * 0.4 < len(structured(page_of(node), limit).text) <= limit


def section(level: int, name: str, *inside: Node, size: int = 900) -> Node:
    return block(Node(f"h{level}", (name,)), *(block(prose(f"{name} {at}", size // 3)) for at in range(3)), *inside)


def article() -> Node:
    chapters = [
        section(2, f"Chapter {at}", *(section(3, f"Part {at}.{part}") for part in range(3))) for at in range(12)
    ]
    return Node("main", (Node("h1", ("Title",)), block(prose("summary", 400)), *chapters), main=True)


def test_a_long_article_is_whole_to_the_cut_and_an_outline_from_there() -> None:
    page = page_of(Node("nav", (link(1, "Home"),)), article(), Node("footer", ("imprint",)))
    whole = structured(page, 10**9).text
    shown = structured(page, 20_000)
    assert shown.cut and 18_000 < len(shown.text) <= 20_000
    before, after = shown.text.split(" (… ", 1)
    assert len(before) > 16_000 and whole.startswith(before)
    headings = [line for line in whole.split("\n") if line.startswith("#")]
    assert [line for line in shown.text.split("\n") if line.startswith("#")] == headings
    for line in after.split("\n")[1:]:
        assert line.startswith("#") or line in ("--- footer", "imprint") or GONE.fullmatch(line)
    last = headings[-1]
    assert re.search(rf"\n{last}\n\(… 9\d\d characters cut\)\n--- footer\nimprint$", shown.text)


def test_where_headings_are_too_many_those_of_lower_levels_go_first() -> None:
    text = structured(page_of(article()), 3000).text
    assert len(text) > 2500
    outline = text[text.index("(… ") :]
    assert re.findall("## Chapter (.*)", outline) == [str(at) for at in range(1, 12)]
    parts = re.findall("### Part (.*)", outline)
    assert parts and parts == ["0.2", "1.0", "1.1", "1.2", "2.0", "2.1", "2.2"][: len(parts)]
    text = structured(page_of(article()), 1000).text
    assert len(text) > 900
    outline = text[text.index("(… ") :]
    assert re.findall("## Chapter (.*)", outline) == ["1", "2", "3", "4", "5", "6"]


def test_what_has_headings_only_leaves_room_for_text() -> None:
    page = Page("", "", Node("block", tuple(Node("h2", (f"Heading {at}",)) for at in range(2000)), main=True))
    text = structured(page, 5000).text
    assert text.startswith("## Heading 0\n## Heading 1\n") and 4000 < len(text) <= 5000
    assert GONE.search(text)


def test_a_page_that_is_all_main_is_cut_at_one_place() -> None:
    fences = [Node("pre", ("\n".join(f"{name}{at}" for at in range(200)),)) for name in "abcdefgh"]
    text = structured(Page("", "", Node("block", tuple(fences), main=True)), 5000).text
    assert len(GONE.findall(text)) == 1 and text.endswith("cut)")
    assert len(text) > 4900 and "a199\n```\n```\nb0" in text


def test_regions_and_frames_below_the_cut_are_told_of() -> None:
    frame = Node("frame", (block(prose("theirs", 3000)),), ref=9, url="https://ads.example/")
    aside = Node("aside", (Node("h2", ("See also",)), block(*(link(at + 10, f"Link {at}") for at in range(90)))))
    page = page_of(Node("main", (block(prose("text", 9000)), frame, aside), main=True))
    text = structured(page, 3000).text
    assert re.search(
        r" \(… \d+ characters cut\)\n--- \[9 ads\.example\]\(frame\)\n\(… 3000 characters cut\)\n--- end 9\n"
        r"--- aside\n## See also\n\(… \d+ characters, 90 controls cut\)$",
        text,
    )


def test_what_is_beside_the_main_region_has_room_however_deep_that_is() -> None:
    inner = block(
        Node("header", (block(prose("head", 2000)),)), article(), Node("aside", (block(prose("side", 2000)),))
    )
    page = page_of(Node("nav", (block(prose("menu", 2000)),)), inner, Node("footer", (block(prose("foot", 2000)),)))
    text = structured(page, 8000).text
    for name in ("menu", "head", "side", "foot"):
        assert 300 < len(re.findall(rf"(?:{name} lorem ipsum dolor ?)+", text)[0]) < 1000


def test_many_small_parts_before_the_main_region_do_not_take_its_room() -> None:
    lines_before = [block(prose(f"b{at}", 90)) for at in range(300)]
    text = structured(page_of(*lines_before, article(), *lines_before), 8000).text
    assert text.startswith("b0 lorem") and "# Title\nsummary lorem" in text
    assert text.index("# Title") < 1300


def test_a_main_region_that_a_cut_list_leaves_out_takes_no_room() -> None:
    items = [Node("item", ("few",), like="li")] * 9 + [Node("item", (block("m " * 100, main=True),), like="li")] * 9
    page = page_of(block(prose("before", 180)), Node("list", tuple(items)))
    for limit in range(200, 500):
        assert len(structured(page, limit).text) <= limit


def test_a_heading_that_holds_a_page_is_cut_like_one() -> None:
    links = [block(link(at + 1, f"Link {at}")) for at in range(2000)]
    for kind in ("h1", "mark", "link", "quote", "cell"):
        shown = structured(page_of(Node(kind, tuple(links), ref=9999 if kind == "link" else 0)), 5000)
        assert len(shown.text) > 4000 and len(parse(shown.text)) > 100


@pytest.mark.parametrize("limit", range(200, 216))
def test_the_beginning_of_a_number_in_brackets_makes_no_control_with_the_mark(limit: int) -> None:
    page = page_of("x" * 100 + "[1234567890a" * 100)
    assert parse(structured(page, limit).text) == []
