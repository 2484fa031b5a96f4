"""HTTP errors, unreachable servers and odd settings, each mapped to gad's own errors."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import Any

import pytest

from gad.core.messages import Assistant, ToolCall, ToolResult, User
from gad.core.ports import Request
from gad.errors import (
    AuthError,
    BadRequest,
    ContextOverflow,
    NetworkError,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
)
from gad.providers.failures import retry_after
from tests.provider_cases import APIS, HELLO, KEY, ask, provider
from tests.scripted_server import Entry, Fail, Say, ScriptedServer

EACH = pytest.mark.parametrize("api", APIS)


def _openai(code: str, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def _anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


@EACH
@pytest.mark.parametrize(
    ("fail", "error"),
    [
        (Fail(400), BadRequest),
        (Fail(401), AuthError),
        (Fail(402), AuthError),
        (Fail(403), AuthError),
        (Fail(404), BadRequest),
        (Fail(408), NetworkError),
        (Fail(409), Overloaded),
        (Fail(413), BadRequest),
        (Fail(418), BadRequest),
        (Fail(422), BadRequest),
        (Fail(429), RateLimited),
        (Fail(500), Overloaded),
        (Fail(503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}), Overloaded),
        (Fail(529), Overloaded),
        (Fail(404, {"error": "model 'm' not found"}), BadRequest),
        (Fail(422, {"detail": [{"msg": "field required"}]}), BadRequest),
        (Fail(429, _openai("insufficient_quota", "You exceeded your current quota")), AuthError),
        (Fail(400, _anthropic("invalid_request_error", "Your credit balance is too low to access")), AuthError),
        (Fail(400, _openai("content_filter", "The response was filtered")), Refused),
        (Fail(400, _openai("context_length_exceeded", "Too long")), ContextOverflow),
        (Fail(400, _openai("", "This model's maximum context length is 8192 tokens. However")), ContextOverflow),
        (Fail(400, _anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000")), ContextOverflow),
        (
            Fail(400, _anthropic("x", "input length and `max_tokens` exceed context limit: 1 + 2 > 3")),
            ContextOverflow,
        ),
        (Fail(413, _anthropic("request_too_large", "Request exceeds the maximum size")), ContextOverflow),
        (
            Fail(400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "request (9) exceeds"}}),
            ContextOverflow,
        ),
        (
            Fail(400, _openai("", "The decoder prompt (length 9) is longer than the maximum model length of 8")),
            ContextOverflow,
        ),
    ],
    ids=str,
)
def test_http_errors(api: str, fail: Fail, error: type[ProviderError]) -> None:
    with pytest.raises(ProviderError, match=r"^model m at 127\.0\.0\.1:\d+: HTTP \d+.*\. [A-Z].*\.$") as caught:
        ask(api, fail)
    assert type(caught.value) is error
    assert caught.value.__cause__ is not None
    assert KEY not in str(caught.value)


@EACH
def test_the_key_is_kept_out_of_messages(api: str) -> None:
    with pytest.raises(AuthError, match=r"bad key \*\*\*") as caught:
        ask(api, Fail(401, f"bad key {KEY}"))
    assert KEY not in str(caught.value) and KEY not in repr(provider(api).endpoint)


@EACH
@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5, 1.5),
        ({"retry-after": "in an hour"}, 3500, 3601),
    ],
)
def test_retry_after_reaches_the_error(api: str, headers: dict[str, str], low: float, high: float) -> None:
    for status in (429, 503):
        date = formatdate(time.time() + 3600, usegmt=True)
        given = {name: date if value == "in an hour" else value for name, value in headers.items()}
        with pytest.raises((RateLimited, Overloaded)) as caught:
            ask(api, Fail(status, headers=given))
        assert caught.value.retry_after is not None and low <= caught.value.retry_after <= high


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, 20.0),
    ],
)
def test_retry_after_values(headers: dict[str, str], wait: float | None) -> None:
    assert retry_after(headers, now=100.0) == wait


@EACH
@pytest.mark.parametrize(
    ("base_url", "error", "words"),
    [
        ("http://127.0.0.1:9/v1", NetworkError, "no connection"),
        ("ftp://127.0.0.1:9/v1", BadRequest, "base_url"),
    ],
)
def test_a_server_that_cannot_be_reached(api: str, base_url: str, error: type[Exception], words: str) -> None:
    async def run() -> None:
        model = provider(api, base_url=base_url)
        with pytest.raises(error, match=words):
            await model.ask(HELLO, lambda _: None)
        with pytest.raises(error, match=words):
            await model.models()
        await model.close()

    asyncio.run(run())


@EACH
def test_an_impossible_key_is_named_before_anything_is_sent(api: str) -> None:
    with pytest.raises(AuthError, match="copy it again"):
        provider(api, api_key="sk-ключ")


@EACH
def test_the_models_a_server_offers(api: str) -> None:
    async def run() -> None:
        async with ScriptedServer(models=["one", "two"]) as server:
            model = provider(api, server)
            assert await model.models() == ("one", "two")
            assert server.lookups == ["/v1/models"]
            await model.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("refusal", "gone", "there"),
    [
        ("Unknown field: stream_options", "stream_options", "max_tokens"),
        ("'max_tokens' is not supported, use 'max_completion_tokens' instead", "max_tokens", "max_completion_tokens"),
    ],
)
def test_chat_leaves_out_what_a_server_refuses_and_remembers(refusal: str, gone: str, there: str) -> None:
    async def run() -> None:
        script: list[Entry] = [Fail(400, refusal), Say("Hi"), Say("Again")]
        async with ScriptedServer([*script]) as server:
            model = provider("chat", server)
            assert (await model.ask(HELLO, lambda _: None)).message.text == "Hi"
            assert (await model.ask(HELLO, lambda _: None)).message.text == "Again"
            await model.close()
        first, *rest = [request.body for request in server.requests]
        assert gone in first and len(rest) == 2
        assert all(gone not in body and there in body for body in rest)

    asyncio.run(run())


def test_chat_does_not_adapt_for_ever() -> None:
    with pytest.raises(BadRequest):
        ask("chat", Fail(400, "stream_options?"), Fail(400, "stream_options?"))


def test_chat_gives_reasoning_to_a_server_that_misses_it() -> None:
    past = (*HELLO.messages, Assistant((ToolCall("t1", "f", {}),)), User((ToolResult("t1", "ok", "x"),)))
    missing = Fail(400, "The reasoning_content in the thinking mode must be passed back to the API.")
    _, server = ask("chat", missing, "Hi", request=Request("", (), past))
    first, second = [request.body["messages"][1] for request in server.requests]
    assert "reasoning_content" not in first and second["reasoning_content"] == ""
