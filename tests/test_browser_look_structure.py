"""What the eyes make of a page: blocks, lists and tables, and how texts join."""

from __future__ import annotations

import random
import re
import struct
import zlib
from collections.abc import Iterator

import pytest

from gad.core.page import Node
from tests.looking import Eyes, drawn, open_eyes, text_of
from tests.sites import Served


@pytest.fixture(scope="module")
def eye() -> Iterator[Eyes]:
    with open_eyes() as eye:
        yield eye


def test_wrappers_dissolve_and_blocks_keep_apart(eye: Eyes) -> None:
    page = eye.see(
        "<div><div><section><div>One</div></section></div><div></div><div>  <span> two <b>bold</b>,</span>"
        "<i>three</i></div>"
        "four<div><p>five</p>six</div><br><br>seven<br>eight</div>"
    )
    assert drawn(page.root) == "((One)|(two bold,three)|(four)|(five)|(six)|(seven|break|eight))"


NAMES = "div span p b i ul li section h2 article pre blockquote figure a"


def random_page(chance: random.Random, depth: int = 0) -> str:
    if depth > 5 or chance.random() < 0.4:
        return f"w{chance.randrange(10**6)}{chance.choice(['', ' ', chr(10)])}"
    name = chance.choice(NAMES.split())
    inner = "".join(random_page(chance, depth + 1) for _ in range(chance.randint(0, 4)))
    return f"<{name}{' href=x' if name == 'a' else ''}>{inner}</{name}>"


@pytest.mark.parametrize("seed", range(12))
def test_words_are_those_that_chromium_shows_and_no_two_run_together(eye: Eyes, seed: int) -> None:
    chance = random.Random(seed)
    page = eye.see("".join(random_page(chance) for _ in range(8)))

    def words(node: Node) -> str:
        gap = "" if node.kind in ("link", "mark") else " "
        return gap + "".join(child if isinstance(child, str) else words(child) for child in node.children) + gap

    assert re.findall(r"\w+", words(page.root)) == re.findall(r"\w+", str(eye.run("document.body.innerText")))


def test_regions_and_headings(eye: Eyes) -> None:
    page = eye.see(
        "<header><h1>Site</h1></header><nav aria-label=Main><ul><li><a href=a>A</a></ul></nav>"
        "<main><article><header><h2>Post</h2></header><blockquote>Said</blockquote>"
        "<div role=heading aria-level=3>Sub</div></article></main>"
        "<aside>By the way</aside><div role=search><input type=search></div>"
        "<form><fieldset><legend>Colour</legend><label><input type=radio>Red</label></fieldset></form><form>"
        "<p>no controls</p></form>"
        "<footer>End</footer>"
    )
    assert drawn(page.root) == (
        "(header(h1(Site))|nav[label=Main](list(item(link(A))))|main(article(h2(Post)|quote(Said)|h3(Sub)))"
        "|aside(By the way)"
        "|search(input[type=search])|form(group[label=Colour](input[type=radio "
        "label=Red state=unchecked]))|(no controls)|footer(End))"
    )


def test_marks_and_images(eye: Eyes) -> None:
    page = eye.see(
        "<p>Was <del>10</del> 8 m<sup>2</sup>, run <code>ls -l</code> <img alt='A cat' width=30 height=30>"
        "<img width=30 height=30>"
        "<img alt=pixel "
        "width=1 height=1 src='data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=='></p>"
    )
    assert drawn(page.root) == (
        "(Was |mark[type=deleted](10)| 8 m|mark[type=sup](2)|, run |mark[type=code](ls -l)| |image[label=A cat])"
    )


def test_white_space_is_as_it_is_seen(eye: Eyes) -> None:
    page = eye.see(
        "<p>a\n   b&nbsp;&nbsp;c <b> d</b><i> e</i></p><pre>  x\n    y\n</pre>"
        "<p style='white-space:pre-line'>l1\nl2</p>"
        "<p>co&shy;operate <span>one</span><span>word</span> x<wbr>y</p>"
        "<div style='display:flex'><span>flex</span><span style='margin-left:9px'>items</span></div>"
        "<p><span style='display:inline-block'>l</span><span style='display:inline-block'>etters</span>"
        "<span style='display:inline-block;padding-left:8px'>apart</span></p>"
        "<p style='text-transform:uppercase'>kept</p><p>👨‍👩‍👧 a‍b</p>"
    )
    assert drawn(page.root) == (
        "((a b c d e)|pre(  x\n    y)|(l1|break|l2)|(cooperate oneword xy)|(flex "
        "items)|(letters apart)|(kept)|(👨‍👩‍👧 a‍b))"
    )


def test_code_outside_of_pre_keeps_its_indentation(eye: Eyes) -> None:
    page = eye.see(
        "<div style='white-space:pre'>if x:\n    y()</div>"
        "<div style='white-space:pre'>for <b>i</b>:</div><div style='white-space:pre'>    <b>f</b>(i)</div>"
    )
    assert drawn(page.root) == "(pre(if x:\n    y())|(for i:)|(    f(i)))"


def test_languages_without_spaces_and_from_right_to_left(eye: Eyes) -> None:
    page = eye.see(
        "<p>日本<b>語の</b><i>文章</i>です。</p><p dir=rtl>שלום <a href=x>עולם</a></p>"
        "<p>العربية</p><p>𠮷野家</p><p><ruby>漢"
        "<rt>かん</rt></ruby></p>"
    )
    assert drawn(page.root).startswith("((日本語の文章です。)|(שלום |link(עולם))|(العربية)|(𠮷野家)|(漢")


def test_a_page_that_reads_from_right_to_left_is_all_there(eye: Eyes) -> None:
    page = eye.see(
        "<p>ראשון</p><p style='position:absolute;left:-300px;top:90px'>שמאל</p>"
        "<p style='position:absolute;right:-900px;top:90px'>HIDDEN</p>",
        head="<style>html{direction:rtl}</style>",
    )
    said = text_of(page.root)
    assert "שמאל" in said
    assert "HIDDEN" not in said


def test_data_tables(eye: Eyes) -> None:
    page = eye.see(
        "<table><caption>Prices</caption><thead><tr><th>Name<th colspan=2>Cost</thead><tbody><tr><td>Tea<td>1<td></tr>"
        "<tr><td></td><td></td><td></td></tr></table>"
        "<table><tr><td>a<td>b<tr><td>c<td>d</table>"
        "<div role=table><div role=row><span role=columnheader>K</span><span role=columnheader>V</span></div>"
        "<div role=row><span role=cell>k</span><span role=cell>v</span></div></div>"
    )
    assert drawn(page.root) == (
        "(table[label=Prices](row(cell[state=head](Name)|cell[state=head](Cost))|row(cell(Tea)|cell(1)|cell))"
        "|table(row(cell(a)|cell(b))|row(cell(c)|cell(d)))"
        "|table(row(cell[state=head](K)|cell[state=head](V))|row(cell(k)|cell(v))))"
    )
    assert [node.count for node in page.root.walk() if node.kind == "cell"][:2] == [0, 2]


def test_cells_stand_in_their_columns_below_cells_that_span_rows(eye: Eyes) -> None:
    page = eye.see(
        "<table><tr><th>A<th>B<th>C</tr><tr><td rowspan=2>1<td>2<td>3</tr><tr><td>4<td>5</tr>"
        "<tr><td>6<td rowspan=2 colspan=2>7</tr><tr><td>8</tr></table>"
    )
    rows = [drawn(node) for node in page.root.walk() if node.kind == "row"][1:]
    assert rows == ["row(cell(1)|cell(2)|cell(3))", "row(cell|cell(4)|cell(5))", "row(cell(6)|cell(7))",
                    "row(cell(8)|cell)"]  # fmt: skip


@pytest.mark.parametrize(
    "table",
    [
        "<table role=presentation><tr><td>Left<td>Right<tr><td>Down<td>x</table>",
        "<table><tr><td>Left<td>Right</table>",
        "<table><tr><td>Left<tr><td>Right</table>",
        "<table><tr><td><h2>Left</h2><td><ul><li>Right</ul><tr><td><form><input></form><td>x</table>",
    ],
)
def test_tables_that_only_lay_out_are_none(eye: Eyes, table: str) -> None:
    page = eye.see(table)
    assert not {"table", "row", "cell"} & {node.kind for node in page.root.walk()}
    assert "Left" in text_of(page.root)
    assert "Right" in text_of(page.root)


def test_like_children_are_told_with_a_selector_that_finds_them(eye: Eyes) -> None:
    page = eye.see(
        "<ul id=list>" + "".join(f"<li>Item {i}</li>" for i in range(12)) + "</ul>"
        "<div class='grid x1'>"
        + "".join(f"<div class=card><b>C{i}</b></div>" for i in range(7))
        + "<div class=ad>Other</div></div>"
        "<div><div>"
        + "".join(f"<div class='row r{(i % 2 and 'odd') or 'even'}'><a href=/{i}>R{i}</a></div>" for i in range(8))
        + "</div></div>"
        "<ol>" + "".join(f"<li>N{i}" for i in range(3)) + "</ol>" + "".join(f"<p>Prose {i}</p>" for i in range(9))
    )
    parents = {node.selector: node for node in page.root.walk() if node.selector}
    assert {"#list > li", ".grid > .card"} <= set(parents)
    for selector, node in parents.items():
        likes = [child for child in node.children if isinstance(child, Node) and child.like]
        assert eye.run(f"document.querySelectorAll({selector!r}).length") == len(likes), selector
        assert len({child.like for child in likes}) == 1
        assert len(likes) >= 6
    assert not [
        node for node in page.root.walk() if node.like and node.children and str(node.children[0]).startswith("Prose")
    ]


def test_a_selector_is_short_and_finds_nothing_else_or_there_is_none(eye: Eyes) -> None:
    items = "".join(f"<li><a href=/{i}>Item {i}</a></li>" for i in range(7))
    page = eye.see(
        f"<div class=menu><div><nav><ul>{items}</ul></nav></div></div><section><ul>{items}</ul></section>"
        f"<section><ul>{items}</ul></section><div><ul>{items.replace('<li>', '<li class=entry>')}</ul></div>"
    )
    found = [node.selector for node in page.root.walk() if node.kind == "list"]
    assert found == [".menu li", "", "", ".entry"]
    assert eye.run("document.querySelectorAll('.menu li').length") == 7


def test_the_main_content_is_marked_once(eye: Eyes) -> None:
    menu = "<ul>" + "".join(f"<li><a href=/{i}>Link number {i} of the menu</a>" for i in range(30)) + "</ul>"
    prose = "".join(f"<p>{'Words of the article. ' * 10}</p>" for i in range(5))
    for html in (
        f"{menu}<main>{prose}</main>",
        f"{menu}<div role=main>{prose}</div>",
        f"{menu}<article>{prose}</article><p>x</p>",
        f"<div>{menu}</div><div><div>{prose}</div><div>aside</div></div>",
    ):
        page = eye.see(html)
        marked = [node for node in page.root.walk() if node.main]
        assert len(marked) == 1, html[-60:]
        said = text_of(marked[0])
        assert "article" in said
        assert "menu" not in said
    assert not [node for node in eye.see("<p>Short</p>").root.walk() if node.main]


def test_plain_text_and_json(eye: Eyes) -> None:
    assert text_of(eye.see(Served("line 1\n  line <2>\n", type="text/plain")).root) == "line 1\n  line <2>"
    assert '{"a": [1, 2]}' in text_of(eye.see(Served('{"a": [1, 2]}', type="application/json")).root)


def test_xml_svg_and_images(eye: Eyes) -> None:
    assert "Hello" in text_of(eye.see(Served("<?xml version='1.0'?><a><b>Hello</b></a>", type="text/xml")).root)
    svg = "<svg xmlns='http://www.w3.org/2000/svg' width='200' height='50'><text x='5' y='20'>Drawn</text></svg>"
    assert "Drawn" in text_of(eye.see(Served(svg, type="image/svg+xml")).root)

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = zlib.compress(b"\0\xff\xff\xff" * 1)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + part(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
        + part(b"IDAT", row)
        + part(b"IEND", b"")
    )
    eye.open(Served(png, type="image/png"), "/dot.png")
    assert "dot.png" in text_of(eye.look().page.root)
