"""The one line that stays of a turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.messages import Assistant, Text, Thinking, ToolCall, ToolResult
from gad.core.summary import LENGTH, summarise
from tests import strategies

CODE = "```python\nprint('no')\n```\n"


def said(text: str) -> str:
    return summarise(Assistant((Text(text),)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<summary>Found the bug.</summary> It is in a.py.", "Found the bug."),
        ("I looked. <summary>Found\n  the   bug</summary>", "Found the bug"),
        ("<summary>cut off in the mid", "cut off in the mid"),
        ("First.\n<summary>one</summary><summary>two</summary>", "one"),
        ("<summary>改好了配置。</summary>", "改好了配置。"),
        ("<summary> \n</summary>Done. More.", "Done."),
        ("<summary></summary>\n", "<summary></summary>"),  # nothing else is there
    ],
)
def test_the_models_own_line_comes_first(text: str, expected: str) -> None:
    assert said(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Let me look. Then I act.", "Let me look."),
        ("Is it there? Yes.", "Is it there?"),
        ("Version 1.2.3 of a.py is in /etc. Good.", "Version 1.2.3 of a.py is in /etc."),
        ("先看一下目录。然后再改。", "先看一下目录。"),
        ("真的吗？是的！", "真的吗？"),
        ("no full stop\nnext line", "no full stop"),
        ("no end", "no end"),
        ("## Result\n\nIt works.", "Result"),
        ("---\n\nAll good. Bye.", "All good."),
        ("#\n\nAll good.", "All good."),
        ("- **Fixed** it.", "Fixed** it."),
        ("1. Read the file. 2. Patch it.", "Read the file."),
        (f"{CODE}It prints. Really.", "It prints."),
        (f"<thinking>Hm. Hm.</thinking>{CODE}<think>Or?</think>Yes. No.", "Yes."),
        ("Look:\n```\nunclosed. code", "Look:"),
        ("<thinking>never closed. At all", "<thinking>never closed. At all"),
        (CODE, "```python print('no') ```"),
        ("---", "---"),
        ("", "said nothing"),
        (" \n\u3000", "said nothing"),
    ],
)
def test_else_the_first_sentence(text: str, expected: str) -> None:
    assert said(text) == expected


def test_thinking_parts_are_not_what_was_said() -> None:
    assert summarise(Assistant((Thinking("Secretly. So."), Text("Openly. So.")))) == "Openly."


Made = tuple[str, dict[str, Any], Any]
"""A call: its name, its arguments, and its result's status, or "" when it has none."""


def turn(*calls: Made, text: str = "") -> str:
    made = tuple(ToolCall(str(n), name, arguments) for n, (name, arguments, _) in enumerate(calls))
    results = [ToolResult(str(n), status, "out") for n, (*_, status) in enumerate(calls) if status]
    return summarise(Assistant((Text(text), *made) if text else made), results)


READ: Made = ("file_read", {"path": "a.py", "start": 3}, "ok")
FAILED: Made = ("code_run", {"type": "bash", "code": "make\ntest"}, "error")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (turn(READ), "file_read a.py: ok"),
        (turn(FAILED), "code_run make test: error"),
        (turn(("web_scan", {}, "interrupted")), "web_scan: interrupted"),
        (turn(("ask_user", {"question": "哪一个？"}, "")), "ask_user 哪一个？: not run"),
        (turn(("file_read", {"path": ["odd"]}, "ok")), "file_read ['odd']: ok"),
        (turn(READ, FAILED), "code_run make test: error; file_read a.py: ok"),
        (turn(READ, text="Reading. Then more."), "Reading."),
        (turn(READ, FAILED, FAILED, text="Testing. Then more."), "Testing. (code_run failed)"),
        (turn(FAILED, text="<summary>All tests pass</summary>"), "All tests pass (code_run failed)"),
        (turn(("a", {}, ""), ("b", {}, "error"), text="Go on"), "Go on (a, b failed)"),
        (turn(FAILED, text=CODE), "code_run make test: error"),
    ],
)
def test_calls_and_how_they_went(line: str, expected: str) -> None:
    assert line == expected


def test_long_lines_are_cut_and_still_name_the_failure() -> None:
    line = turn(FAILED, text="word " * 100)
    assert len(line) <= LENGTH and line.startswith("word word") and line.endswith("… (code_run failed)")
    line = turn(*[("file_read", {"path": f"/very/long/{'x' * 80}/{n}"}, "ok") for n in range(5)], FAILED)
    assert len(line) <= LENGTH and "code_run make test: error" in line
    line = turn(("made up " * 40, {}, "error"), text="word " * 100)
    assert len(line) <= LENGTH and line.startswith("word word")


@settings(max_examples=300, deadline=None)
@given(st.data(), strategies.answers(), st.lists(strategies.any_texts, max_size=2))
def test_any_turn_has_a_summary_on_one_line(data: st.DataObject, answer: Assistant, texts: list[str]) -> None:
    message = Assistant((*answer.parts, *map(Text, texts)))
    results = [data.draw(strategies.results(call)) for call in message.calls]
    line = summarise(message, results)
    assert 0 < len(line) <= LENGTH and line.strip() == line
    assert line.splitlines() == [line]
    assert line == summarise(message, results)
