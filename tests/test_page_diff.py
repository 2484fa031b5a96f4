"""page_diff: what changed between two looks, each change once, within the limit and in linear time."""

from __future__ import annotations

import random
import re
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.page import Page
from gad.core.page_diff import difference
from gad.core.page_text import lines
from tests.pages import pages, parse

ENDLESS = 10**9

CASES: list[tuple[list[str], list[str], list[str]]] = [
    (["a", "b"], ["a", "b"], []),
    ([], [], []),
    (["a", "b", "c"], ["a", "x", "c"], ["- b", "+ x"]),
    (["a"], ["a", "b"], ["+ b"]),
    (["a", "b"], ["b"], ["- a"]),
    (["a", "a", "b"], ["a", "b"], ["- a"]),
    (["[Agree](15 checkbox)"], ["[Agree](15 checkbox checked)"], ["~ [Agree](15 checkbox checked)"]),
    (["[Name](1 text)"], ["[Name](1 text: Ann)"], ["~ [Name](1 text: Ann)"]),
    (
        ['[Note](2 textarea: "a)")', "x"],
        ['[Note](2 textarea: "(b")', "x"],
        ['~ [Note](2 textarea: "(b")'],
    ),
    (["[Follow](5 button)"], ["[Following](5 button)"], ["- [Follow](5 button)", "+ [Following](5 button)"]),
    (["[Home](1) [News](2)"], ["[Home](8) [News](9)"], ["~ [Home](8) [News](9)"]),
    (["[Row](1)", "[Row](2)"], ["[Row](2)"], ["- [Row](1)"]),
    (["a", "b", "c"], ["b", "c", "a"], ["(1 line moved)"]),
    (["a", "b", "c", "d"], ["d", "x", "b", "a", "c"], ["+ x", "(2 lines moved)"]),
    (
        ["# Shop", "--- nav", "menu", "--- main", "## Cart", "empty", "## Help", "call"],
        ["# Shop", "--- nav", "menu", "--- main", "## Cart", "1 item", "## Help", "call", "or write"],
        ["  ## Cart", "- empty", "+ 1 item", "  ## Help", "+ or write"],
    ),
    (
        ["a"],
        ["a", "--- dialog: Sure?", "Delete it?", "[Yes](3 button)"],
        ["  --- dialog: Sure?", "+ Delete it?", "+ [Yes](3 button)"],
    ),
    (["--- nav", "a", "--- page", "b"], ["--- nav", "a", "--- page", "b", "---", "", "```"], []),
    (["a"], ["a", "--- [ads.example](7 frame)", "buy", "--- end 7"], ["+ --- [ads.example](7 frame)", "+ buy"]),
    (["a"], ["--- note: an overlay covers the page", "a"], ["+ --- note: an overlay covers the page"]),
    (["## Old", "a"], ["## New", "a", "b"], ["- ## Old", "+ ## New", "+ b"]),
]


@pytest.mark.parametrize(("before", "after", "told"), CASES)
def test_changes(before: list[str], after: list[str], told: list[str]) -> None:
    assert difference(before, after, ENDLESS).split("\n") == (told or [""])


def changed(text: str, sign: str) -> Counter[str]:
    return Counter(line[2:] for line in text.split("\n") if line.startswith(f"{sign} "))


some_lines = st.lists(
    st.sampled_from(["a", "b", "c", "[x](1)", "[x](1 current)", "[x](2)", "# h", "--- nav"]), max_size=12
)


@settings(max_examples=200, deadline=None)
@given(before=some_lines, after=some_lines)
def test_the_new_lines_are_the_old_ones_with_the_changes(before: list[str], after: list[str]) -> None:
    text = difference(before, after, ENDLESS)
    kept = Counter(line for line in before if line != "--- nav") - changed(text, "-")
    now = Counter(line for line in after if line != "--- nav")
    unchanged = now - changed(text, "+") - changed(text, "~")
    assert unchanged.total() == now.total() - changed(text, "+").total() - changed(text, "~").total()
    assert (kept - unchanged).total() == changed(text, "~").total()
    assert not unchanged - kept
    assert not set(changed(text, "-")) & set(changed(text, "+"))


@settings(max_examples=40, deadline=None)
@given(before=pages, after=pages, limit=st.integers(100, 1500))
def test_any_two_pages_within_any_limit(before: Page, after: Page, limit: int) -> None:
    old, new = lines(before), lines(after)
    assert difference(new, new, limit) == ""
    text = difference(old, new, limit)
    assert len(text) <= limit
    now = {control.said for control in parse("\n".join(new))}
    then = {control.said for control in parse("\n".join(old))}
    assert {control.said for control in parse(text)} <= now | then


def test_what_has_no_room_is_counted() -> None:
    text = difference(["same"], ["same", *(f"line number {at}" for at in range(100))], 500)
    shown = len(re.findall(r"^\+ ", text, re.MULTILINE))
    assert text.endswith(f"\n(… {100 - shown} changes not shown)")
    assert 20 < shown < 30


def test_long_lines_leave_room_for_others() -> None:
    text = difference([], ["[Home](1) " + "word " * 1000 + "[End](2)", "short"], 500)
    first, second = text.split("\n")
    assert first.startswith("+ [Home](1) word") and re.search(r"word \(… \d+ characters\)$", first)
    assert len(first) <= 300 and second == "+ short"


def test_a_long_control_is_not_cut() -> None:
    text = difference([], ["see [" + "word " * 1000 + "](1)", "short"], 500)
    assert re.fullmatch(r"\+ see \(… \d+ characters\)\n\+ short", text)


def test_ten_thousand_lines_take_no_long_time() -> None:
    rng = random.Random(1)
    before = [f"[Item {at}]({at}) {rng.randrange(10)}" for at in range(10_000)]
    after = [line if rng.random() < 0.5 else f"{line} new" for line in before]
    rng.shuffle(after)
    began = time.process_time()
    difference(before, after, 4000)
    difference(["[" * 50] * 5000 + ["](1" * 5000], ["](1 " * 5000, *["same"] * 10_000], 4000)
    assert time.process_time() - began < 1
