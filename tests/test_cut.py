"""cut, mark and what recognises a mark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gad.core.cut import copied_mark, cut, is_cut, join_ends, mark

TEXTS = st.text(st.sampled_from("ab\n 你🎉[]."), max_size=900)
PATHS = st.sampled_from(["", "/w/code_run-1.txt", "/工作/a b ...].txt"])


def test_what_a_mark_looks_like() -> None:
    assert mark(9000, 19_000, "/w/a.txt") == "[... 9,000 of 19,000 characters cut; all of it is in /w/a.txt ...]"
    assert mark(9000, 19_000, "") == "[... 9,000 of 19,000 characters cut ...]"
    assert mark(1, 2, "/a", 50_000) == "[... 1 of 2 characters cut; the first 50,000 are in /a ...]"


@given(st.integers(0, 10**12), st.integers(0, 10**12), PATHS, st.integers(0, 10**9), TEXTS)
def test_every_mark_is_recognised_in_any_text(gone: int, total: int, where: str, held: int, around: str) -> None:
    assert is_cut(around + mark(gone, total, where, held) + around)


@pytest.mark.parametrize(
    "text",
    ["", "[...]", "[... 5 characters ...]", "[... {gone:,} of {total:,} characters cut ...]",
     "... 1 of 2 characters cut ...", "[... 1 of 2 characters cut",
     "[... 1 of 2 characters cut; all of it is in\n/a ...]"],
)  # fmt: skip
def test_what_only_resembles_a_mark_is_none(text: str) -> None:
    assert not is_cut(text)


@given(TEXTS, st.integers(0, 1000), PATHS)
def test_a_cut_text_has_the_length_the_ends_and_the_figures(text: str, limit: int, where: str) -> None:
    short = cut(text, limit, where)
    assert len(short) <= limit or short == text == ""
    assert cut(short, limit, where) == short
    if len(text) <= limit:
        assert short == text
    elif is_cut(short):
        head, _, rest = short.partition("\n[... ")
        tail = rest.partition(" ...]\n")[2] if not where else rest.partition(f" in {where} ...]\n")[2]
        assert text.startswith(head) and text.endswith(tail)
        assert 0 <= len(head) - len(tail) <= 1
        gone = len(text) - len(head) - len(tail)
        assert short == f"{head}\n{mark(gone, len(text), where)}\n{tail}"
        assert limit - len(short) <= 4  # digits and commas that the number might have had
    else:
        assert short == text[:limit]
        assert limit < len(mark(len(text), len(text), where)) + 2


@given(st.text(st.sampled_from("ab\n你🎉"), min_size=1500, max_size=3000), st.data())
def test_cutting_again_is_cutting_the_whole(text: str, data: st.DataObject) -> None:
    where = data.draw(PATHS)
    once = cut(text, data.draw(st.integers(150, 1400)), where)
    limit = data.draw(st.integers(100, len(once) - 1))
    assert cut(once, limit, where) == cut(text, limit, where)
    assert cut(once, limit) == cut(text, limit, where)  # the path is in the mark
    # With the path known, what was put behind the result counts too.
    assert not where or mark(0, len(text) + 5, where).partition("of ")[2] in cut(once + " note", limit, where)


def test_a_quoted_mark_is_not_taken_for_the_texts_own() -> None:
    quoted = "x" * 500 + "\n" + mark(9000, 19_000, "/other") + "\n" + "y" * 500
    for where in ("", "/mine"):
        assert mark(0, len(quoted), where).partition("of ")[2] in cut(quoted, 300, where)
        assert "/other" not in cut(quoted, 300, where)
    assert is_cut(cut("x\n[... " + "9" * 5000 + " of 1 characters cut ...]\n" * 2, 200))


def test_ends_are_joined_as_cut_does_it() -> None:
    text = "".join(map(str, range(5000)))
    for limit in (0, 10, 70, 500, 1001):
        assert join_ends(text[:limit], text[len(text) - limit :], len(text), limit, "/a") == cut(text, limit, "/a")
    assert "; the first 300 are in /a ...]" in join_ends(text, text, len(text), 500, "/a", 300)


def test_a_copied_mark_is_named_with_the_way_to_the_text() -> None:
    ours, other = mark(5, 10, "/w/a.txt"), mark(5, 10, "")
    assert copied_mark("code", "print(1)") == ""
    refused = copied_mark("content", f"a\n{ours}\nb")
    assert refused.startswith(f"content holds a cut mark, {ours}: write everything out in full;")
    assert refused.endswith("is in /w/a.txt")
    assert "write everything out" in copied_mark("content", other)
    assert copied_mark("content", f"a {ours} b", "", f"x\n{ours}\n") == ""
    assert copied_mark("content", f"{ours}{other}", ours) != ""
