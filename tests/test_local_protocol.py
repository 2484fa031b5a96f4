"""The text protocol: what is written is read back, whatever the model says is read as something, nothing raises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gad.core.messages import Assistant, Message, Text, ToolCall, ToolResult, User
from gad.core.ports import Request, ToolSchema
from gad.core.prompt import SYSTEM
from gad.providers.local.chat import TEMPERATURES, TextChat
from gad.providers.local.examples import EXAMPLES, example_messages
from gad.providers.local.grammar import BLOCKS, grammar, offered
from gad.providers.local.protocol import (
    HIDDEN,
    RESULT_LIMIT,
    AnswerStream,
    next_call_id,
    offer,
    parse,
    render_messages,
    system_text,
    write_call,
)
from gad.providers.local.steering import failures_in_a_row, files_in, first_look, next_grammar, repeated_tool
from gad.tools.toolset import all_schemas

TOOLS: tuple[ToolSchema, ...] = all_schemas()
line = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1).filter(
    lambda text: text == text.strip()
)
block = st.text(st.characters(exclude_categories=["Cs"])).filter(
    lambda text: not re.search(r"^```", text, re.MULTILINE) and not text.endswith("\n")
)


@given(st.sampled_from(offer(TOOLS)), st.data())
def test_calls_are_read_back_as_they_were_written(tool: ToolSchema, data: st.DataObject) -> None:
    arguments = {}
    for name, schema in tool.parameters["properties"].items():
        kinds = {"integer": st.integers(0, 999), "number": st.integers(0, 999)}
        text = st.sampled_from(schema["enum"]) if "enum" in schema else block if name in BLOCKS else line
        arguments[name] = data.draw(kinds.get(schema["type"], text))
    if "content" in arguments:  # a file's last line ends with a line end
        arguments["content"] += "\n"
    (call,) = parse(write_call(tool.name, arguments), TOOLS, "call-1")
    assert call == ToolCall("call-1", tool.name, arguments)


@given(st.text(), st.booleans())
def test_any_reply_is_read_as_something(reply: str, cut: bool) -> None:
    parts = parse(reply, TOOLS, "call-1", cut=cut)
    assert parts
    assert Assistant(parts).text or Assistant(parts).calls or not reply.strip().removeprefix("answer").strip()


@given(st.sampled_from(TOOLS), st.text("path: content:\n`<é"))
def test_any_argument_text_gives_a_call_with_arguments_or_a_problem(tool: ToolSchema, text: str) -> None:
    (call,) = parse(f"{tool.name}\n{text}", TOOLS, "call-1")
    assert isinstance(call, ToolCall)
    assert call.problem or set(tool.parameters.get("required", [])) <= set(call.arguments)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("file_write\npath: a.txt", "missing: content"),
        ("file_write\npath: a.txt\ncontent:\n```\nhalf", "the block of content has no end"),
        ("file_read\nfile: a.txt", "not a parameter line: 'file: a.txt'"),
        ("file_read\nread it", "not a parameter line: 'read it'"),
    ],
)
def test_a_broken_call_carries_its_problem(reply: str, problem: str) -> None:
    (call,) = parse(reply, TOOLS, "call-1")
    assert isinstance(call, ToolCall)
    assert (call.problem, call.arguments) == (problem, {})


def test_a_call_cut_off_at_the_limit_is_never_run() -> None:
    (call,) = parse("code_run\ntype: bash\ncode:\n```\nrm -rf build\n```", TOOLS, "call-1", cut=True)
    assert isinstance(call, ToolCall)
    assert "cut off" in call.problem


@given(st.lists(st.integers(1, 7), min_size=1), st.sampled_from(["你好 🎉\nanswer\n\nfile_read", "one line"]))
def test_an_answer_streams_whole_however_it_is_cut(cuts: list[int], answer: str) -> None:
    stream, shown, rest, at = AnswerStream(), "", f"answer\n{answer}", 0
    while rest:
        size = cuts[at % len(cuts)]
        shown, rest, at = shown + stream.feed(rest[:size]), rest[size:], at + 1
    assert shown == answer
    assert stream.rest(answer) == ""


def test_an_action_does_not_stream() -> None:
    stream = AnswerStream()
    assert [stream.feed(piece) for piece in ("file", "_read\npa", "th: answer\nanswer\n")] == ["", "", ""]


def test_rendering_only_ever_appends() -> None:
    history: list[Message] = [User((Text("请改好 a.txt"),))]
    before: list[Message] = []
    for turn in range(6):
        rendered = render_messages(history)
        assert rendered[: len(before)] == before
        assert [type(message) for message in rendered] == [type(message) for message in history]
        before = rendered
        call = ToolCall(next_call_id(history), "file_read", {"path": f"{turn}.txt"})
        result = ToolResult(call.id, "error" if turn % 2 else "ok", f"line {turn}", {"lines": 3})
        history += [Assistant((call,)), User((result,))]
    assert len({call.id for message in history if isinstance(message, Assistant) for call in message.calls}) == 6


def test_the_same_mistake_is_shown_once() -> None:
    history: list[Message] = [User((Text("go"),))]
    for turn in range(3):
        call = ToolCall(f"call-{turn}", "file_read", {"path": "none.txt"})
        history += [Assistant((call,)), User((ToolResult(call.id, "error", f"no such file ({turn})"),))]
    rendered = render_messages(history)
    assert len(rendered) == 3
    assert "(2)" in str(rendered[-1])
    assert failures_in_a_row(history) == 3
    assert repeated_tool(history) == "file_read"


def test_long_results_are_cut_in_the_middle() -> None:
    result = ToolResult("call-1", "ok", "a" * RESULT_LIMIT + "middle" + "z" * RESULT_LIMIT)
    (message,) = render_messages([User((result,))])
    text = str(message)
    assert "middle" not in text
    assert len(text) < RESULT_LIMIT + 200


def test_the_request_has_a_stable_prefix_a_grammar_and_no_tools() -> None:
    chat = TextChat(model="m", api_key="k", base_url="http://127.0.0.1:9/v1", max_tokens=10, idle_timeout=5)
    first = chat.render(Request(SYSTEM, TOOLS, (User((Text("one"),)),)))
    failed = User((ToolResult("call-1", "error", "no"),))
    call = Assistant((ToolCall("call-1", "file_read", {"path": "a"}),))
    second = chat.render(Request(SYSTEM + "\nmore", TOOLS, (User((Text("two"),)), call, failed), "the anchor"))
    assert "tools" not in first
    assert first["temperature"] == 0
    assert second["temperature"] == TEMPERATURES[1]
    assert second["messages"][0]["content"] == first["messages"][0]["content"] + "\nmore"
    assert second["messages"][1 : len(first["messages"]) - 1] == first["messages"][1:-1]
    assert second["messages"][-1]["content"].endswith("the anchor")


def test_examples_obey_the_protocol_and_the_tool_set() -> None:
    offers = offer(TOOLS)
    for example in EXAMPLES:
        for action in example.turns[1::2]:
            message = Assistant(parse(action, offers, "call-1"))
            if message.calls:
                (call,) = message.calls
                assert not call.problem
                assert set(call.arguments) == {name for name, *_ in offered(_tool(call.name))}
                assert call.name in example.tools
    reading_only = [tool for tool in TOOLS if tool.name == "file_read"]
    assert "code_run" not in str(example_messages(reading_only)) + system_text(reading_only) + grammar(reading_only)
    assert not HIDDEN & set(re.findall(r"\w+", grammar(offers) + system_text(offers)))


def _tool(name: str) -> ToolSchema:
    return next(tool for tool in TOOLS if tool.name == name)


@pytest.mark.parametrize(
    ("said", "files"),
    [
        ("What do src/a_b.py and 信息.txt hold?", ("src/a_b.py", "信息.txt")),
        ("What is main for? See main.c.", ("main.c",)),
        ("Which one is longer, notes.md, none.md or notes.md?", ("notes.md",)),
        ("Ask me@example.org about https://example.org/a.html, version 2.0.0, e.g. now?", ()),
        ("What is the capital of Japan?", ()),
        ("Rename notes.md to new.md", ()),
    ],
)
def test_files_that_a_question_names_are_looked_at_first(said: str, files: tuple[str, ...], tmp_path: Path) -> None:
    opening = User((Text(f"[Monday 2026-11-30; Linux; cwd {tmp_path}]\n\n{said}"),))
    assert first_look([opening]) == ()
    for file in ("src/a_b.py", "信息.txt", "main.c", "notes.md", "html"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    assert first_look([opening]) == files
    rule = next_grammar(TOOLS, [opening])
    assert all(f'"{file}"' in rule for file in files)
    assert bool(files) == ("answer" not in rule)
    if files:
        call = ToolCall("call-1", "file_read", {"path": files[0]})
        found: list[Message] = [opening, Assistant((call,)), User((ToolResult("call-1", "ok", "text"),))]
        assert first_look(found) == first_look([*found, User((Text("go on"),))]) == ()
        assert "file_patch" in next_grammar(TOOLS, found)


@pytest.mark.parametrize(
    ("said", "calls", "may_answer"),
    [
        ("Rename a to b", (), True),
        ("Rename a to b", ("file_read",), False),
        ("Rename a to b", ("file_read", "code_run"), True),
        ("What is in a?", ("file_read",), True),
        ("里面有什么?", ("file_read",), True),
    ],
)
def test_a_look_alone_ends_no_task(said: str, calls: tuple[str, ...], may_answer: bool) -> None:
    history: list[Message] = [User((Text(said),))]
    for number, name in enumerate(calls):
        history += [Assistant((ToolCall(f"{number}", name, {}),)), User((ToolResult(f"{number}", "ok", "x"),))]
    assert ("answer" in next_grammar(TOOLS, history)) == may_answer
    reading_only = [tool for tool in TOOLS if tool.name == "file_read"]
    assert "answer" in next_grammar(reading_only, history)


def test_patching_is_offered_after_something_worked_and_a_repeated_call_is_not() -> None:
    assert "file_patch" not in next_grammar(TOOLS, [User((Text("go"),))])
    history: list[Message] = [User((Text("go"),))]
    for turn in range(2):
        call = ToolCall(f"call-{turn}", "code_run", {"type": "bash", "code": "ls"})
        history += [Assistant((call,)), User((ToolResult(call.id, "ok", "a.txt"),))]
    assert "code_run" not in next_grammar(TOOLS, history)
    assert "file_patch" in next_grammar(TOOLS, history)


def test_only_files_that_are_there_can_be_read(tmp_path: Path) -> None:
    history = [User((Text(f"[now; cwd {tmp_path}]\n\nDo it"),))]
    assert "file_read" not in next_grammar(TOOLS, history)
    (tmp_path / "docs" / ".git").mkdir(parents=True)
    for name in ("a b.txt", "docs/信息.md", "docs/.git/config", ".env"):
        (tmp_path / name).touch()
    assert files_in(str(tmp_path)) == ("a b.txt", "docs", "docs/信息.md")
    assert 'file ::= "a b.txt" | "docs" | "docs/信息.md" | [/~] line' in next_grammar(TOOLS, history)
    for number in range(201):
        (tmp_path / f"{number}.txt").touch()
    assert files_in(str(tmp_path)) is None
    assert "file ::= line\n" in next_grammar(TOOLS, history)
