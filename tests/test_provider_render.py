"""How transcripts are written out: cache breakpoints, the anchor, ids, and a property that holds for any transcript."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.messages import Assistant, Message, Text, Thinking, ToolCall, ToolResult, User
from gad.core.ports import Request, ToolSchema
from gad.providers.stream import StreamProvider
from tests.provider_cases import APIS, HELLO, TOOL, provider

PROVIDERS: dict[str, StreamProvider] = {api: provider(api) for api in APIS}
EACH = pytest.mark.parametrize("api", APIS)

PAST: tuple[Message, ...] = (
    User((Text("Read a and b."),)),
    Assistant(
        (Text("Reading."), ToolCall("t1", "file_read", {"path": "a"}), ToolCall("t2", "file_read", {}, "bad JSON"))
    ),
    User((ToolResult("t1", "ok", "alpha"), ToolResult("t2", "error", "bad JSON"), Text("Hurry."))),
)


def test_anthropic_breakpoints_stand_before_the_anchor() -> None:
    other = ToolSchema("web_scan", "Scan.", {"type": "object"})
    body = PROVIDERS["anthropic"].render(Request("System.", (TOOL, other), PAST, "turn 2"))
    marked = {"cache_control": {"type": "ephemeral"}}
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, marked["cache_control"]]
    assert body["system"] == [{"type": "text", "text": "System."} | marked]
    assert body["messages"][-1]["content"] == [
        {"type": "tool_result", "tool_use_id": "t1", "content": "alpha"},
        {"type": "tool_result", "tool_use_id": "t2", "content": "[error]\nbad JSON", "is_error": True},
        {"type": "text", "text": "Hurry."} | marked,
        {"type": "text", "text": "turn 2"},
    ]
    assert json.dumps(body).count("cache_control") == 3
    assert body["messages"][1]["content"][2]["input"] == {}


@EACH
def test_the_prefix_is_byte_stable_from_turn_to_turn(api: str) -> None:
    def text(messages: tuple[Message, ...], anchor: str) -> str:
        body = PROVIDERS[api].render(Request("System.", (TOOL,), messages, anchor))
        for_cache = {key: body.get(key) for key in ("tools", "system", "instructions", "messages", "input")}
        marks = ', "cache_control": {"type": "ephemeral"}'
        return json.dumps(for_cache, ensure_ascii=False).replace(marks, "")

    for count in (1, 3):
        now = text(PAST[:count], "ANCHOR one")
        later = text((*PAST[:count], Assistant((Text("Well."),)), User((Text("Go on."),))), "ANCHOR two")
        same = next(at for at, (left, right) in enumerate(zip(now, later, strict=False)) if left != right)
        assert now.index("ANCHOR") - same < 50, (now[same:], later[same:])
        newest = "Hurry." if count == 3 else "Read a and b."
        assert newest in now[:same]


@EACH
def test_the_anchor_is_the_last_text(api: str) -> None:
    for messages in (PAST[:1], (*PAST[:2], User((ToolResult("t1", "ok", "x"), ToolResult("t2", "ok", "y")))), PAST):
        body = PROVIDERS[api].render(Request("", (), messages, "ANCHOR"))
        items = body.get("messages") or body["input"]
        assert items[-1]["role"] == "user"
        assert json.dumps(items[-1]).count("ANCHOR") == 1
        content = items[-1]["content"]
        assert (content if isinstance(content, str) else content[-1]["text"]).endswith("ANCHOR")


@pytest.mark.parametrize(
    ("base_url", "name", "other"),
    [
        (None, "max_completion_tokens", "max_tokens"),
        ("https://api.openai.com/v1", "max_completion_tokens", "max_tokens"),
        ("http://127.0.0.1:9/v1", "max_tokens", "max_completion_tokens"),
    ],
)
def test_chat_names_the_output_limit_as_the_server_knows_it(base_url: str | None, name: str, other: str) -> None:
    body = provider("chat", base_url=base_url, max_tokens=77, extra={"temperature": 0}).render(HELLO)
    assert (body[name], body["temperature"]) == (77, 0) and other not in body


def test_the_other_limits_and_extra() -> None:
    for api, name in (("anthropic", "max_tokens"), ("responses", "max_output_tokens")):
        body = provider(api, max_tokens=77, extra={"temperature": 0}).render(HELLO)
        assert (body[name], body["temperature"], body["model"]) == (77, 0, "m")


def test_another_vendors_thinking_is_left_out() -> None:
    item = json.dumps({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"})
    said = Assistant(
        (Thinking("plain"), Thinking("signed", "SIG"), Thinking("", "", "RED"), Thinking("", "", item), Text("A"))
    )
    request = Request("", (), (*HELLO.messages, said, User((Text("B"),))))
    kinds = [block["type"] for block in PROVIDERS["anthropic"].render(request)["messages"][1]["content"]]
    assert kinds == ["thinking", "redacted_thinking", "text"]
    assert PROVIDERS["chat"].render(request)["messages"][1] == {"role": "assistant", "content": "A"}
    assert [entry.get("type") for entry in PROVIDERS["responses"].render(request)["input"]] == [
        None,
        "reasoning",
        None,
        None,
    ]


def test_the_phase_of_a_message_goes_back_to_responses() -> None:
    said = Assistant((Thinking(data='{"phase": "commentary"}', text=""), Text("Looking."), Text("Found.")))
    items = PROVIDERS["responses"].render(Request("", (), (*HELLO.messages, said, *HELLO.messages)))["input"]
    assert items[1] == {"role": "assistant", "content": "Looking.", "phase": "commentary"}
    assert items[2] == {"role": "assistant", "content": "Found."}


# Any valid transcript

_text = st.one_of(st.sampled_from(["", " ", "\n", "ok", "\ud83d", "日本 😀"]), st.text(st.characters(), max_size=8))
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | _text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_text, inner, max_size=2),
    max_leaves=4,
)
_ids = st.one_of(st.uuids().map(str), st.sampled_from(["functions.f:0", "a b", "日本", "x" * 70, "call_0"]), _text)
_names = st.sampled_from(["file_read", "functions.file_read", "", "ein Name"])
_calls = st.builds(
    ToolCall, _ids, _names, st.dictionaries(_text, _values, max_size=2), st.sampled_from(["", "not valid JSON"])
)
_thoughts = st.builds(
    Thinking,
    _text,
    st.sampled_from(["", "SIG"]),
    st.sampled_from(["", "RED", '{"type":"reasoning","id":"r","summary":[]}']),
)
_said = st.lists(st.one_of(_thoughts, st.builds(Text, _text), _calls), max_size=5)


@st.composite
def _transcripts(draw: st.DrawFn) -> tuple[Message, ...]:
    found: list[Message] = [User((Text(draw(_text)),))]
    used: set[str] = set()
    for parts in draw(st.lists(_said, max_size=4)):
        kept: list[Any] = []
        for part in parts:
            if not isinstance(part, ToolCall):
                kept.append(part)
            elif part.id not in used:
                used.add(part.id)
                kept.append(part)
        said = Assistant(tuple(kept))
        results = [
            ToolResult(call.id, draw(st.sampled_from(["ok", "error", "interrupted"])), draw(_text))
            for call in said.calls
        ]
        spoken = [Text(draw(_text))] if not results or draw(st.booleans()) else []
        found += [said, User((*results, *spoken))]
    return tuple(found)


def _check_anthropic(body: dict[str, Any]) -> list[tuple[str, str, Any]]:
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user" if number % 2 == 0 else "assistant" for number in range(len(roles))]
    assert roles[-1] == "user"
    seen: list[tuple[str, str, Any]] = []
    waiting: list[str] = []
    for message in body["messages"]:
        assert message["content"]
        blocks = message["content"]
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert answered == waiting and all(block["type"] == "tool_result" for block in blocks[: len(answered)])
        waiting = []
        for block in blocks:
            assert block["type"] != "text" or block["text"].strip()
            assert block["type"] != "tool_result" or block["content"].strip()
            assert block["type"] != "thinking" or block["signature"]
            if block["type"] == "tool_use":
                assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", block["id"])
                assert isinstance(block["input"], dict)
                waiting.append(block["id"])
                seen.append((block["id"], block["name"], block["input"]))
        assert message["role"] == "user" or "thinking" not in blocks[-1]["type"]
    assert not waiting
    return seen


def _check_chat(body: dict[str, Any]) -> list[tuple[str, str, Any]]:
    seen: list[tuple[str, str, Any]] = []
    waiting: list[str] = []
    before = ""
    for message in body["messages"]:
        role = message["role"]
        if role == "tool":
            assert waiting.pop(0) == message["tool_call_id"]
        else:
            assert not waiting
            assert role != before
        before = role
        calls = message.get("tool_calls", ())
        assert (message["content"] or "").strip() or calls
        for call in calls:
            waiting.append(call["id"])
            assert 0 < len(call["id"]) <= 40
            seen.append((call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])))
    assert not waiting and before in ("user", "tool")
    return seen


def _check_responses(body: dict[str, Any]) -> list[tuple[str, str, Any]]:
    seen: list[tuple[str, str, Any]] = []
    waiting: list[str] = []
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call":
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item["call_id"])
            waiting.append(item["call_id"])
            seen.append((item["call_id"], item["name"], json.loads(item["arguments"])))
        elif kind == "function_call_output":
            assert waiting.pop(0) == item["call_id"] and item["output"].strip()
        elif kind == "message":
            content = item["content"]
            assert content and (content if isinstance(content, str) else all(part["text"].strip() for part in content))
            assert item["role"] == "assistant" or not waiting
    assert not waiting
    return seen


CHECKS = {"anthropic": _check_anthropic, "chat": _check_chat, "responses": _check_responses}


@settings(max_examples=150, deadline=None)
@given(_transcripts(), st.sampled_from(["", "anchor"]))
def test_any_transcript_is_valid_for_every_vendor(messages: tuple[Message, ...], anchor: str) -> None:
    calls = [call for message in messages if isinstance(message, Assistant) for call in message.calls]
    for api, check in CHECKS.items():
        body = PROVIDERS[api].render(Request("System.", (TOOL,), messages, anchor))
        assert json.dumps(body, ensure_ascii=False).encode()
        seen = check(json.loads(json.dumps(body)))
        assert len(seen) == len(calls) and len({call_id for call_id, _, _ in seen}) == len(calls)
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for _, name, _ in seen)
        plain = [dict(call.arguments) for call in calls]
        assert [len(arguments) for _, _, arguments in seen] == [len(arguments) for arguments in plain] or any(
            not json.dumps(arguments, ensure_ascii=False).isascii() for arguments in plain
        )
