"""Hypothesis strategies for conversations: the messages, transcripts and sizes that the tests of the context share."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from gad.core.messages import Assistant, Message, Status, Text, Thinking, ToolCall, ToolResult, User

UNITS = ("word ", "中文字。", "🙂", "\ud83d", "x", "1,2;\n", "Привет ", "`{}`\n")
"""What long texts are made of: each class of weight, a lone surrogate among them."""

short_texts = st.one_of(
    st.sampled_from(["ok", "Go on.", "\ud83d", "日本 😀", "<summary>Did it.</summary>", "```\ncode\n```"]),
    st.text(st.characters(), min_size=1, max_size=8),
)
long_texts = st.builds(
    lambda unit, size: (unit * size)[:size],
    st.sampled_from(UNITS),
    st.sampled_from([300, 300, 1_500, 1_500, 8_000, 30_000]),
)
texts = st.one_of(short_texts, short_texts, long_texts)
any_texts = st.one_of(st.sampled_from(["", " \n"]), texts)
said_texts = texts.filter(str.strip)

_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | any_texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(short_texts, inner, max_size=2),
    max_leaves=4,
)
_paths = st.sampled_from(["a.py", "b/文.txt"])
arguments: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "file_read": st.fixed_dictionaries({"path": _paths}, optional={"start": st.integers(1, 2)}),
    "file_write": st.fixed_dictionaries({"path": _paths, "content": any_texts}),
    "file_patch": st.fixed_dictionaries({"path": _paths, "old_content": any_texts, "new_content": any_texts}),
    "code_run": st.fixed_dictionaries({"code": any_texts}),
    "web_scan": st.just({}),
    "web_execute_js": st.fixed_dictionaries({"script": any_texts}),
    "ask_user": st.fixed_dictionaries({"question": texts}),
    "update_working_checkpoint": st.fixed_dictionaries({"key_info": any_texts}),
    "made up": st.dictionaries(short_texts, _values, max_size=3),
}
"""A strategy for each tool's arguments, and for those of a tool that does not exist."""

thoughts = st.builds(
    Thinking, any_texts, st.sampled_from(["", "", "SIG"]), st.sampled_from(["", "", "RED", '{"type":"reasoning"}'])
)


@st.composite
def tool_calls(draw: st.DrawFn, id_: str) -> ToolCall:
    """A call of any tool, now and then one whose arguments could not be read."""
    name = draw(st.sampled_from(sorted(arguments)))
    if draw(st.integers(0, 9)) == 9:
        return ToolCall(id_, name, {}, "not valid JSON")
    return ToolCall(id_, name, draw(arguments[name]))


@st.composite
def answers(draw: st.DrawFn, ids: str = "c", *, final: bool | None = None) -> Assistant:
    """An answer as the session takes it in: it has a call or some text. `final` says that it has no call."""
    count = 0 if final else draw(st.sampled_from([0, 1, 1, 1, 2, 3] if final is None else [1, 1, 2, 3]))
    parts: list[Any] = draw(st.lists(thoughts, max_size=1))
    if not count or draw(st.booleans()):
        parts.append(Text(draw(said_texts)))
    parts += [draw(tool_calls(f"{ids}_{number}")) for number in range(count)]
    return Assistant(tuple(parts))


@st.composite
def results(draw: st.DrawFn, call: ToolCall) -> ToolResult:
    """What a call gave, with or without facts and a file that holds it all."""
    status: Status = draw(st.sampled_from(["ok", "ok", *get_args(Status)]))
    meta: dict[str, Any] = draw(st.sampled_from([{}, {"exit": 1}, {"encoding": "gbk", "lines": [1, 2]}]))
    return ToolResult(call.id, status, draw(any_texts), meta, draw(st.sampled_from(["", "/work/out-1.txt"])))


said_parts = st.builds(Text, said_texts, st.sampled_from([False, False, True]))


@st.composite
def transcripts(draw: st.DrawFn, *, turns: int = 9) -> tuple[Message, ...]:
    """A valid transcript of up to so many turns: it begins and ends with a user's message."""
    found: list[Message] = [User((Text(draw(said_texts)), *draw(st.lists(said_parts, max_size=1))))]
    for turn in range(draw(st.integers(0, turns))):
        said = draw(answers(f"call_{turn}"))
        told: list[ToolResult | Text] = [draw(results(call)) for call in said.calls]
        if not told or draw(st.integers(0, 4)) == 0:
            told += draw(st.lists(said_parts, min_size=1, max_size=2))
        found += [said, User(tuple(told))]
    return tuple(found)


messages: st.SearchStrategy[Message] = st.one_of(
    answers(), transcripts(turns=2).map(lambda transcript: transcript[-1]), st.builds(User, st.tuples(said_parts))
)
limits = st.one_of(st.integers(0, 3_000), st.integers(3_000, 60_000), st.just(10**9)).map(float)
"""Budgets in weighted characters: too small for anything, tight, and more than enough."""
