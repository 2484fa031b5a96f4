"""page_diff: what changed between two looks, each change once, within the limit and in linear time."""

from __future__ import annotations

import random
import re
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
    (["[15 Agree](checkbox)"], ["[15 Agree](checkbox checked)"], ["~ [15 Agree](checkbox checked)"]),
    (["[1 Name](text)"], ["[1 Name](text: Ann)"], ["~ [1 Name](text: Ann)"]),
    (
        ['[2 Note](textarea: "a)")', "x"],
        ['[2 Note](textarea: "(b")', "x"],
        ['~ [2 Note](textarea: "(b")'],
    ),
    (["[5 Follow](button)"], ["[5 Following](button)"], ["- [5 Follow](button)", "+ [5 Following](button)"]),
    (["[1 Home], [2 News]"], ["[8 Home], [9 News]"], ["~ [8 Home], [9 News]"]),
    (
        ["[1 Home][2 News][3 Sport]"],
        ["[1 Home](current)[4 Shop][3 Sport]"],
        ["~ [1 Home](current)", "- [2 News]", "+ [4 Shop]"],
    ),
    (["  [1 A][2 B]", "x"], ["  [1 A][2 B][3 C]", "x"], ["+ [3 C]"]),
    (
        ["```", "# a", "--- dialog: Pay", "b", "```"],
        ["```", "# a", "--- dialog: Pay", "c", "--- end 3", "```"],
        ["-  b", "+  c", "+  --- end 3"],
    ),
    (["[1 Row]", "[2 Row]"], ["[2 Row]"], ["- [1 Row]"]),
    (["a", "b", "c"], ["b", "c", "a"], ["(1 line moved)"]),
    (["a", "b", "c", "d"], ["d", "x", "b", "a", "c"], ["+ x", "(2 lines moved)"]),
    (
        ["# Shop", "--- nav", "menu", "--- main", "## Cart", "empty", "## Help", "call"],
        ["# Shop", "--- nav", "menu", "--- main", "## Cart", "1 item", "## Help", "call", "or write"],
        ["  ## Cart", "- empty", "+ 1 item", "  ## Help", "+ or write"],
    ),
    (
        ["a"],
        ["a", "--- dialog: Sure?", "Delete it?", "[3 Yes](button)"],
        ["  --- dialog: Sure?", "+ Delete it?", "+ [3 Yes](button)"],
    ),
    (["--- nav", "a", "--- page", "b"], ["--- nav", "a", "--- page", "b", "---", "", "```"], []),
    (["a"], ["a", "--- [7 ads.example](frame)", "buy", "--- end 7"], ["+ --- [7 ads.example](frame)", "+ buy"]),
    (["## Old", "a"], ["## New", "a", "b"], ["- ## Old", "+ ## New", "+ b"]),
]


@pytest.mark.parametrize(("before", "after", "told"), CASES)
def test_changes(before: list[str], after: list[str], told: list[str]) -> None:
    assert difference(before, after, ENDLESS).split("\n") == (told or [""])


def changed(text: str, sign: str) -> Counter[str]:
    return Counter(line[2:] for line in text.split("\n") if line.startswith(f"{sign} "))


some_lines = st.lists(
    st.sampled_from(["a", "b", "c", "[1 x]", "[1 x](current)", "[2 x]", "# h", "--- nav"]), max_size=12
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
    text = difference([], ["[1 Home] " + "word " * 1000 + "[2 End]", "short"], 500)
    first, second = text.split("\n")
    assert first.startswith("+ [1 Home] word") and re.search(r"word \(… \d+ characters\)$", first)
    assert len(first) <= 300 and second == "+ short"


def test_a_long_control_is_not_cut() -> None:
    text = difference([], ["see [1 " + "word " * 1000 + "]", "short"], 500)
    assert re.fullmatch(r"\+ see \(… \d+ characters\)\n\+ short", text)


def test_ten_thousand_lines() -> None:
    """Quadratic work on any of these would take longer than a test may."""
    rng = random.Random(1)
    before = [f"[{at} Item {at}] {rng.randrange(10)}" for at in range(10_000)]
    after = [line if rng.random() < 0.5 else f"{line} new" for line in before]
    rng.shuffle(after)
    assert difference(before, after, 4000)
    difference(["[" * 50] * 5000 + ["[1 " * 5000], ["[1 x](" * 5000, *["same"] * 10_000], 4000)
    difference([], ["[1 a]" * 20_000, '[1](text: "' + "\\\\" * 20_000], 4000)
