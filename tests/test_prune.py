"""prune: an HTML text cut as a tree stays well-formed, keeps its order, and says what is gone."""

from __future__ import annotations

import html
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.prune import prune

VOID = {"br", "img", "input", "hr", "meta", "link", "source", "col", "area", "base", "embed", "track", "wbr"}
NAME = r"[a-z][a-z0-9:._-]*"
TOKEN = re.compile(
    rf"<!-- [0-9,]+ (?:more {NAME}|characters cut) -->"
    rf"|<({NAME})((?: [^\s\"'<>/=]+(?:=\"[^\"<]*\")?)*)>|</({NAME})>|([^<&]|&(?:amp|lt);)+"
)


def texts(page: str) -> str:
    """Check strictly that a page is well-formed and return the text in it."""
    stack: list[str] = []
    found: list[str] = []
    at = 0
    while at < len(page):
        token = TOKEN.match(page, at)
        assert token, f"not well-formed at {page[at : at + 60]!r}"
        at = token.end()
        if token[1] and token[1] not in VOID:
            stack.append(token[1])
        elif token[3]:
            assert stack and stack.pop() == token[3], f"</{token[3]}> closes nothing"
        elif token[4]:
            found.append(token[0])
    assert not stack, f"not closed: {stack}"
    return html.unescape("".join(found))


def is_subsequence(part: str, whole: str) -> bool:
    characters = iter(whole)
    return all(character in characters for character in part)


PIECES = st.sampled_from(
    ["<div>", "</div>", "<ul>", "<li>", "<li class=a>", "</li>", "</ul>", "<p>", "</P>", "<br>", "<br/>", "<x/>", "<",
     "&", "&lt;", "&#60;", "&#", "<!--", "-->", "<!doctype html>", "<a href='x>y'>", '<a title="a&quot;<b" x', '"', "'",
     "=", "/", " ", ">", "\n", "<script>", "</script>", "<style>b{}", "<script", "</", "<td>", "<tr>", "<table>", "\0",
     "word word word", "<!-- 3 more li -->", "<!-- 3 characters cut -->", "<![CDATA[", "<?php", "x" * 300, "w " * 300,
     "<b>" * 120, "<li>y</li>" * 70, "<svg viewBox='0 0 1 1'><path d='M0'/></svg>", "&#" + "9" * 5000 + ";", "é你🎉",
     "<\u017fpan>", '<i data-x="' + "v" * 150 + '">']
)  # fmt: skip
JUNK = st.lists(PIECES | st.text(max_size=8), max_size=40).map("".join)


@settings(max_examples=500, deadline=None)
@given(page=JUNK, limit=st.integers(200, 3000))
def test_any_text_becomes_a_well_formed_page_within_the_limit(page: str, limit: int) -> None:
    pruned = prune(page, limit)
    assert len(pruned) <= limit
    kept = texts(pruned)
    assert prune(pruned, limit) == pruned
    assert is_subsequence(kept, texts(prune(page, 10**9)))
    shorter = prune(pruned, 200)
    assert len(shorter) <= 200
    assert is_subsequence(texts(shorter), kept)


WORDS = st.text(st.sampled_from('ab你 \n🎉&<>"'), max_size=60)
Page = tuple[str, str]
"""A page, and the text in it."""
TAGS = st.sampled_from([("div", ""), ("div", ' class="a b"'), ("section", ""), ("span", ' title="x &amp; &quot;y"')])


def element(tag: tuple[str, str], inner: list[Page], times: int) -> Page:
    page, text = "".join(page for page, _ in inner), "".join(text for _, text in inner)
    times = times if len(page) < 150 else 1
    return f"<{tag[0]}{tag[1]}>{page}</{tag[0]}>" * times, text * times


TREES: st.SearchStrategy[Page] = st.recursive(
    WORDS.map(lambda text: (html.escape(text, quote=False), text)),
    lambda inner: st.builds(element, TAGS, st.lists(inner, max_size=6), st.sampled_from([1, 1, 1, 8, 60])),
    max_leaves=25,
)


@settings(max_examples=150, deadline=None)
@given(tree=TREES, limit=st.integers(200, 3000))
def test_what_is_kept_of_a_good_page_is_in_its_order(tree: tuple[str, str], limit: int) -> None:
    page, text = tree
    assert texts(prune(page, 10**9)) == text
    pruned = prune(page, limit)
    assert is_subsequence(texts(pruned), text)
    if len(pruned) < len(page.replace("&gt;", ">")):
        assert re.search("<!-- [0-9,]+ (more [a-z]+|characters cut) -->", pruned)


@pytest.mark.parametrize(
    ("page", "read"),
    [
        ('<ul class="a b"><li>a</li><li>b<br></li></ul>', '<ul class="a b"><li>a</li><li>b<br></li></ul>'),
        ("<ul><li>a<li>b</ul>x", "<ul><li>a</li><li>b</li></ul>x"),
        ("<table><tr><td>1<td>2<tr><td>3</table>", "<table><tr><td>1</td><td>2</td></tr><tr><td>3</td></tr></table>"),
        ("<P>a<b>c</P>d</i>", "<p>a<b>c</b></p>d"),
        ("<!doctype html><!-- c -->a<script>if (a<b) '</p>'</SCRIPT >b<style>x{}</style>", "ab"),
        ("1 < 2 & 3 > 2 &copy; &lt;b>", "1 &lt; 2 &amp; 3 > 2 © &lt;b>"),
        ("<a href=/x/ title='say \"hi\"' hidden>t</a>", '<a href="/x/" title="say &quot;hi&quot;" hidden>t</a>'),
        ("<p title=it's>a</p>b", '<p title="it\'s">a</p>b'),
        ('<img alt="a>b"/><svg><path d="M0"/></svg>', '<img alt="a>b"><svg><path d="M0"></path></svg>'),
        ("<script>never closed", ""),
    ],
)  # fmt: skip
def test_a_page_is_read_leniently(page: str, read: str) -> None:
    assert prune(page, 1000) == read
    assert prune(read, len(read)) == read


def test_long_runs_keep_the_first_and_say_how_many_are_gone() -> None:
    items = "\n".join(f'<li class="hit">result {n}</li>' for n in range(400))
    pruned = prune(f"<h1>Hits</h1><ul>{items}</ul><p>the end</p>", 2500)
    assert pruned.startswith('<h1>Hits</h1><ul><li class="hit">result 0</li>\n')
    assert pruned.count("<li") == 50
    assert "<!-- 350 more li --></ul><p>the end</p>" in pruned
    assert prune(f"<ul>{items}</ul>", 1000).count("<li") == 20


def test_unlike_siblings_are_no_run() -> None:
    rows = "".join(f'<tr class="r{n}"><td>{n}</td></tr>' for n in range(100))
    assert " more tr" not in prune(f"<table>{rows}</table>", 1000)


def test_the_room_is_shared_out_fairly() -> None:
    long = "lorem ipsum " * 1000
    page = f"<header>menu</header><main><p>{long}</p></main><aside>{long}</aside><footer>imprint</footer>"
    pruned = prune(page, 2000)
    assert pruned.startswith("<header>menu</header><main><p>lorem ipsum")
    assert pruned.endswith("</aside><footer>imprint</footer>")
    first, second = re.findall("<!-- ([0-9,]+) characters cut -->", pruned)
    assert abs(int(first.replace(",", "")) - int(second.replace(",", ""))) < 40
    assert 1900 < len(pruned) <= 2000
    assert re.search(r"(lorem|ipsum)<!-- ", pruned)  # at a word's end


def test_the_numbers_in_the_marks_add_up() -> None:
    page = "<div>" + "".join(f'<p class="c{n}">{"字" * n}</p>' for n in range(200)) + "</div>"
    for limit in (200, 3000, 20_000):
        pruned = prune(page, limit)
        gone = [int(number.replace(",", "")) for number in re.findall("<!-- ([0-9,]+) characters cut -->", pruned)]
        assert len(re.sub("<!-- [0-9,]+ characters cut -->", "", pruned)) + sum(gone) == len(page)
        assert len(pruned) > limit * 0.8


def test_no_entity_is_cut() -> None:
    page = f"<p>{'&amp;' * 500}</p>"
    for limit in range(200, 210):
        texts(prune(page, limit))


@pytest.mark.parametrize("piece", ['<a "', "<a b='", "<!--", "<![foo", "</a ", "<a =", "<script>", "<", "<div>", "&#x"])
def test_hostile_pages_take_no_long_time(piece: str) -> None:
    began = time.process_time()
    texts(prune(piece * 50_000, 5000))
    assert time.process_time() - began < 2
