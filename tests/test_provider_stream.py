"""Traps in a stream, over real HTTP, for each wire format where they can occur."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from gad.core.messages import Assistant, Text, Thinking, ToolCall, ToolResult, Usage, User
from gad.core.ports import Request
from gad.errors import ContextOverflow, NetworkError, Overloaded, RateLimited, Refused
from tests.provider_cases import APIS, HELLO, ask, provider
from tests.scripted_server import (
    Call,
    Cut,
    Part,
    Raw,
    Refuse,
    Reply,
    Say,
    ScriptedServer,
    Silence,
    StreamError,
    Think,
)

EACH = pytest.mark.parametrize("api", APIS)


def ask_twice(api: str, parts: list[Part]) -> tuple[Assistant, ScriptedServer]:
    """Ask, then send the answer back to the same server with its call's result."""

    async def run() -> tuple[Assistant, ScriptedServer]:
        async with ScriptedServer([parts, "Done."]) as server:
            model = provider(api, server)
            try:
                said = (await model.ask(HELLO, lambda text: None)).message
                back = User((ToolResult("t1", "ok", "text"),))
                await model.ask(Request("", (), (*HELLO.messages, said, back)), lambda text: None)
                return said, server
            finally:
                await model.close()

    return asyncio.run(run())


@EACH
def test_text_streams_in_and_usage_counts_the_whole_prompt(api: str) -> None:
    shown: list[str] = []
    reply = Reply((Say("Hello there", 4),), usage=Usage(100, 7, 60, 30), model="m-2026")
    answer, server = ask(api, reply, shown=shown)
    assert answer.message == Assistant((Text("Hello there"),))
    assert (answer.stop, answer.model) == ("end", "m-2026")
    assert len(shown) == 4 and "".join(shown) == "Hello there"
    assert answer.usage == (Usage(100, 7, 60, 30) if api == "anthropic" else Usage(100, 7, 60))
    assert server.requests[0].body["stream"] is True


@EACH
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_characters_cut_at_every_byte_arrive_whole(api: str, size: int) -> None:
    shown: list[str] = []
    text = "héllo 日本語 😀👩‍👧 – done"
    call = Call("file_read", {"path": "目录/😀.txt"}, chunks=5)
    answer, _ = ask(api, Reply((Say(text, 5), call), chunk_bytes=size), shown=shown)
    assert "".join(shown) == text == answer.message.text
    assert answer.message.calls[0].arguments == {"path": "目录/😀.txt"}


@EACH
@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (("a\ud83d", "\ude00b"), "a😀b"),
        (("\ud83d", "\ude00"), "😀"),
        (("a\ud83d",), "a\ufffd"),
        (("a\ud83d", "b"), "a\ufffdb"),
        (("\ude00a",), "\ufffda"),
    ],
)
def test_split_surrogate_pairs_are_joined_and_lone_ones_replaced(api: str, pieces: tuple[str, ...], text: str) -> None:
    shown: list[str] = []
    answer, _ = ask(api, Say(chunks=pieces), shown=shown)
    assert answer.message.text == text == "".join(shown)
    assert all(delta.encode() for delta in shown)


@EACH
def test_several_calls_in_one_message_keep_order_and_ids(api: str) -> None:
    parts: list[Part] = [
        Say("Both."),
        Call("a", {"x": 1}, "id_1"),
        Call("b", {"y": [2]}, "id_2"),
        Call("a", {}, "id_3", chunks=1),
    ]
    answer, _ = ask(api, parts)
    assert answer.stop == "tools"
    assert answer.message.parts == (
        Text("Both."),
        ToolCall("id_1", "a", {"x": 1}),
        ToolCall("id_2", "b", {"y": [2]}),
        ToolCall("id_3", "a", {}),
    )


@EACH
@pytest.mark.parametrize(
    ("raw", "arguments", "problem"),
    [
        ("", {}, ""),
        ('{"a": "two\nlines"}', {"a": "two\nlines"}, ""),
        ('{"a": "\\ud83d"}', {"a": "\ufffd"}, ""),
        ('{"path": "x"', {}, "not valid JSON"),
        ("{'path': 1}", {}, "not valid JSON"),
        ('["x"]', {}, "must be a JSON object"),
        ('"x"', {}, "must be a JSON object"),
        ('{"a": NaN}', {}, "NaN"),
        ("[" * 20_000, {}, "not valid JSON"),
        ('{"a": 1e999}', {}, "1e999 is not a JSON value"),
        *((f'{{"a": {"[" * deep}{"]" * deep}}}', {}, "nested more than 50") for deep in (50, 600, 900)),
        (f'{{"a": {"[" * 49}{"]" * 49}}}', {"a": json.loads("[" * 49 + "]" * 49)}, ""),
    ],
)
def test_unreadable_arguments_become_the_calls_problem(
    api: str, raw: str, arguments: dict[str, Any], problem: str
) -> None:
    answer, _ = ask(api, Call("file_read", raw, "id_1"))
    (call,) = answer.message.calls
    assert (call.id, call.name, call.arguments, answer.stop) == ("id_1", "file_read", arguments, "tools")
    assert problem in call.problem and bool(call.problem) == bool(problem)


@EACH
@pytest.mark.parametrize(
    "parts",
    [
        (Cut(inside=Call("code_run", {"code": "rm -rf build"})),),
        (Say("Let me"), Cut()),
        (Say("Let me"), Cut(clean=True)),
        (Call("code_run", {"code": "ls"}), Cut(clean=True)),
        (Cut(clean=True),),
        (Say("Let me"), Raw("event: message\ndata: {not json\n\n")),
        (
            Say("Let me"),
            Raw('event: message_delta\ndata: {"choices": [7], "type": "message_delta", "delta": 3}\n\n'),
            Cut(),
        ),
    ],
)
def test_an_answer_that_does_not_arrive_whole_is_a_network_error(api: str, parts: tuple[Any, ...]) -> None:
    with pytest.raises(NetworkError, match=r"model m at 127\.0\.0\.1"):
        ask(api, Reply(parts))


@EACH
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", Overloaded),
        ("server_error", Overloaded),
        ("rate_limit_exceeded", RateLimited),
        ("context_length_exceeded", ContextOverflow),
        ("something_new", Overloaded),
    ],
)
def test_an_error_inside_a_200_stream(api: str, kind: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="inside the stream"):
        ask(api, [Say("So "), StreamError(kind, "Went wrong")])


@EACH
def test_trouble_after_the_answer_is_whole_does_not_lose_it(api: str) -> None:
    class AfterTheEnd(ScriptedServer):
        """Breaks the connection instead of ending the body."""

        async def _stream(self, reader: Any, writer: Any, request: Any, reply: Any) -> bool:
            end, writer.write = writer.write, lambda data: None if data == b"0\r\n\r\n" else end(data)
            await super()._stream(reader, writer, request, reply)
            return False

    async def run() -> None:
        async with AfterTheEnd([Say("Whole.")]) as server:
            model = provider(api, server)
            assert (await model.ask(HELLO, lambda _: None)).message.text == "Whole."
            await model.close()

    asyncio.run(run())


@EACH
@pytest.mark.parametrize("parts", [(), (Say("Hm"),), (Call("code_run", {"code": "ls"}),)])
def test_a_silent_stream_is_given_up_and_its_connection_closed(api: str, parts: tuple[Any, ...]) -> None:
    async def run() -> None:
        async with ScriptedServer([[*parts, Silence()]]) as server:
            model = provider(api, server, idle_timeout=0.2)
            began = time.monotonic()
            with pytest.raises(NetworkError, match=r"silent for 0\.2 s"):
                await model.ask(HELLO, lambda _: None)
            assert time.monotonic() - began < 2
            await server.until(lambda: server.requests[0].closed_at)
            await model.close()

    asyncio.run(run())


@EACH
def test_silence_before_the_first_byte_is_given_up_too(api: str) -> None:
    with pytest.raises(NetworkError, match="silent"):
        ask(api, Reply((Say("late"),), wait=3.0), idle_timeout=0.2)


@EACH
@pytest.mark.parametrize("begun", [True, False])
def test_cancelling_closes_the_response_at_once(api: str, begun: bool) -> None:
    async def run() -> None:
        entry = Reply((Say("Thinking"), Silence())) if begun else Reply((Say("late"),), wait=60.0)
        async with ScriptedServer([entry]) as server:
            model = provider(api, server)
            shown: list[str] = []
            task = asyncio.create_task(model.ask(HELLO, shown.append))
            await server.until(lambda: "".join(shown) == "Thinking" if begun else server.requests)
            task.cancel()
            cancelled = time.monotonic()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.until(lambda: server.requests[0].closed_at)
            assert (server.requests[0].closed_at or 0) - cancelled < 0.5
            await model.close()

    asyncio.run(run())


@EACH
def test_one_connection_serves_many_requests(api: str) -> None:
    async def run() -> None:
        async with ScriptedServer(Reply((Say("Hi"),))) as server:
            model = provider(api, server)
            for _ in range(5):
                await model.ask(HELLO, lambda _: None)
            await model.close()
            assert (len(server.requests), server.connections) == (5, 1)

    asyncio.run(run())


@EACH
def test_an_error_in_on_text_is_the_callers(api: str) -> None:
    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    async def run() -> None:
        async with ScriptedServer([[Say("Hi"), Silence()]]) as server:
            model = provider(api, server)
            with pytest.raises(OSError, match="No space left"):
                await model.ask(HELLO, full)
            await server.until(lambda: server.requests[0].closed_at)
            await model.close()

    asyncio.run(run())


@EACH
def test_an_empty_answer_is_an_empty_message(api: str) -> None:
    answer, _ = ask(api, Reply(()))
    assert (answer.message.parts, answer.stop) == ((), "end")


@EACH
def test_the_output_limit(api: str) -> None:
    answer, _ = ask(api, Reply((Say("Once upon a"),), stop="length"))
    assert (answer.message.text, answer.stop) == ("Once upon a", "length")


@EACH
@pytest.mark.parametrize(("raw", "whole"), [("", False), ('{"code": "rm', False), ('{"code": "ls"}', True)])
def test_a_call_cut_off_by_the_output_limit_is_never_run(api: str, raw: str, whole: bool) -> None:
    answer, _ = ask(api, Reply((Call("a", {"x": 1}), Call("code_run", raw)), stop="length"))
    first, last = answer.message.calls
    assert answer.stop == "tools" and not first.problem
    assert ("output limit" in last.problem) is not whole


@EACH
def test_a_refusal_is_an_error_and_says_why(api: str) -> None:
    with pytest.raises(Refused, match="declined"):
        ask(api, Refuse("Not this."))


@pytest.mark.parametrize(
    ("api", "stop", "error"),
    [
        ("anthropic", "refusal", Refused),
        ("anthropic", "overflow", ContextOverflow),
        ("chat", "content_filter", Refused),
        ("chat", "error", Overloaded),
        ("responses", "content_filter", Refused),
    ],
)
def test_stop_reasons_that_are_errors(api: str, stop: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        ask(api, Reply((Say("Well,"),), stop=stop))


def test_thinking_keeps_its_signature_and_goes_back_in_place() -> None:
    parts: list[Part] = [
        Think("Let me see.", "SIG=="),
        Think(data="ENCRYPTED"),
        Say("Reading."),
        Call("file_read", {"path": "a"}, "t1"),
    ]
    said, server = ask_twice("anthropic", parts)
    host = f"127.0.0.1:{server.port}"
    assert said.parts[:2] == (Thinking("Let me see.", "SIG==", "", host), Thinking("", "", "ENCRYPTED", host))
    assert server.requests[1].body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Let me see.", "signature": "SIG=="},
        {"type": "redacted_thinking", "data": "ENCRYPTED"},
        {"type": "text", "text": "Reading."},
        {"type": "tool_use", "id": "t1", "name": "file_read", "input": {"path": "a"}},
    ]


def test_encrypted_reasoning_goes_back_to_responses_in_place() -> None:
    _, server = ask_twice("responses", [Think("Let me see.", data="ENCRYPTED"), Call("file_read", {"path": "a"}, "t1")])
    body = server.requests[1].body
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    reasoning, call = body["input"][1:3]
    assert (reasoning["type"], reasoning["encrypted_content"]) == ("reasoning", "ENCRYPTED")
    assert (call["type"], call["call_id"], call["arguments"]) == ("function_call", "t1", '{"path": "a"}')


def test_reasoning_text_goes_back_with_calls_as_deepseek_demands() -> None:
    answer, _ = ask("chat", [Think("Let me see."), Call("file_read", {"path": "a"}, "t1")])
    assert answer.message.parts[0] == Thinking("Let me see.")
    back = User((ToolResult("t1", "ok", "text"),))
    _, server = ask("chat", "Done.", request=Request("", (), (*HELLO.messages, answer.message, back)))
    assert server.requests[0].body["messages"][1]["reasoning_content"] == "Let me see."


@pytest.mark.parametrize(
    "quirk",
    [
        {"index": False},
        {"index": False, "repeat_name": True},
        {"index": False, "id_every_delta": True},
        {"repeat_name": True},
        {"id": ""},
        {"id": "", "index": False},
        {"id": "", "index": False, "repeat_name": True},
    ],
    ids=str,
)
def test_chat_call_deltas_of_every_sort(quirk: dict[str, Any]) -> None:
    calls = [Call("file_read", {"path": name}, **quirk) for name in ("a", "b")]
    answer, _ = ask("chat", Reply((*calls, Call("file_write", {"path": "c"}, **quirk)), stop="end"))
    assert answer.stop == "tools"
    assert [(call.name, call.arguments, call.problem) for call in answer.message.calls] == [
        ("file_read", {"path": "a"}, ""),
        ("file_read", {"path": "b"}, ""),
        ("file_write", {"path": "c"}, ""),
    ]
    assert len({call.id for call in answer.message.calls}) == 3 and all(call.id for call in answer.message.calls)


@pytest.mark.parametrize(
    "deltas",
    [
        [  # every call says index 0, arguments come as an object
            {"index": 0, "id": "x", "function": {"name": "read", "arguments": '{"a":1}'}},
            {"index": 0, "id": "y", "function": {"name": "read", "arguments": {"a": 2}}},
        ],
        [  # two calls arrive interleaved, with the name in pieces and as a growing text
            {"index": 0, "id": "x", "function": {"name": "re", "arguments": '{"a"'}},
            {"index": 1, "id": "y", "function": {"name": "re", "arguments": '{"a"'}},
            {"index": 0, "function": {"name": "ad", "arguments": ":1"}},
            {"index": 1, "function": {"name": "read", "arguments": ":2}"}},
            {"index": 0, "function": {"arguments": "}"}},
        ],
        [  # the same without an index: the id tells
            {"id": "x", "function": {"name": "read", "arguments": '{"a"'}},
            {"id": "y", "function": {"name": "read", "arguments": '{"a":2'}},
            {"id": "x", "function": {"arguments": ":1}"}},
            {"id": "y", "function": {"arguments": "}"}},
        ],
    ],
)
def test_chat_calls_are_told_apart(deltas: list[dict[str, Any]]) -> None:
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [delta]}}]} for delta in deltas]
    raw = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    answer, _ = ask("chat", Reply((Raw(raw),), stop="stop"))
    assert answer.message.calls == (ToolCall("x", "read", {"a": 1}), ToolCall("y", "read", {"a": 2}))


@EACH
def test_an_id_the_transcript_has_already_is_made_new_and_always_the_same(api: str) -> None:
    past = (*HELLO.messages, Assistant((ToolCall("call_0", "f", {}),)), User((ToolResult("call_0", "ok", "x"),)))
    request = Request("", (), past)
    ids = [ask(api, Call("f", {}, "call_0"), request=request)[0].message.calls[0].id for _ in range(2)]
    assert ids[0] == ids[1] != "call_0"
