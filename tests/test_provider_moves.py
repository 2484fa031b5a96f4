"""One conversation that moves between vendors and servers: every request valid, thinking sent to its maker alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gad.core.messages import Assistant, Message, Text, Thinking, ToolResult, User, part_from_json, part_to_json
from gad.core.ports import Request
from gad.providers.failures import Endpoint
from tests.provider_cases import APIS, TOOL, provider
from tests.scripted_server import Call, Say, ScriptedServer, Think
from tests.test_provider_render import CHECKS

TURNS = (
    ("anthropic", 0),
    ("anthropic", 0),
    ("chat", 0),
    ("responses", 0),
    ("anthropic", 1),
    ("responses", 1),
    ("anthropic", 0),
    ("chat", 1),
    ("responses", 0),
    ("anthropic", 1),
    ("chat", 0),
    ("responses", 1),
    ("anthropic", 0),
)
"""Which API of which server is asked, turn by turn."""


def script(turn: int) -> list[Any]:
    """Return an answer with thinking of each kind, and two calls whose ids others have used or could not use."""
    api, server = TURNS[turn]
    secret = f"SEALED-{api}-{server}-{turn}"
    thinking = {
        "anthropic": [Think(f"thought {turn}", signature=secret), Think(data=secret + "-redacted")],
        "chat": [Think(f"plain {turn}")],
        "responses": [Think(f"thought {turn}", data=secret)],
    }
    calls = [Call("file_read", {"path": f"{turn}-a"}, "call_1"), Call("file_read", {"path": "日"}, "functions.f:0")]
    return [*thinking[api], Say(f"Reading {turn}."), *calls]


def items(body: dict[str, Any]) -> list[Any]:
    """Return what a request holds of the conversation, without the marks for the cache, which move on."""
    marks = ', "cache_control": {"type": "ephemeral"}'
    found: list[Any] = json.loads(json.dumps(body.get("messages") or body["input"]).replace(marks, ""))
    return found


async def converse() -> tuple[list[Message], list[dict[str, Any]]]:
    """Return the transcript, and the body of each turn's request."""
    transcript: list[Message] = [User((Text("Read them all."),))]
    bodies = []
    async with ScriptedServer() as first, ScriptedServer() as second:
        servers = (first, second)
        providers = {(api, at): provider(api, server) for api in APIS for at, server in enumerate(servers)}
        for turn, (api, at) in enumerate(TURNS):
            servers[at].add(script(turn))
            request = Request("Be brief.", (TOOL,), tuple(transcript))
            said = (await providers[api, at].ask(request, lambda text: None)).message
            assert tuple(part_from_json(part_to_json(part)) for part in said.parts) == said.parts
            bodies.append(servers[at].requests[-1].body)
            results = tuple(ToolResult(call.id, "ok", f"text {turn}") for call in said.calls)
            transcript += [said, User(results)]
        for one in providers.values():
            await one.close()
    return transcript, bodies


@pytest.fixture(scope="module")
def conversation() -> tuple[list[Message], list[dict[str, Any]]]:
    return asyncio.run(converse())


def test_every_request_is_valid_and_holds_every_call(conversation: tuple[list[Message], list[dict[str, Any]]]) -> None:
    transcript, bodies = conversation
    calls = [call for message in transcript if isinstance(message, Assistant) for call in message.calls]
    assert len({call.id for call in calls}) == len(calls) == 2 * len(TURNS)
    for turn, body in enumerate(bodies):
        seen = CHECKS[TURNS[turn][0]](body)
        assert [arguments for _, _, arguments in seen] == [dict(call.arguments) for call in calls[: 2 * turn]]


def test_an_id_stays_the_same_for_each_vendor(conversation: tuple[list[Message], list[dict[str, Any]]]) -> None:
    known: dict[str, list[str]] = {}
    for (api, _), body in zip(TURNS, conversation[1], strict=True):
        ids = [call_id for call_id, _, _ in CHECKS[api](body)]
        assert len(set(ids)) == len(ids)
        before = known.get(api, [])
        assert ids[: len(before)] == before
        known[api] = ids


def test_sealed_thinking_goes_to_its_maker_alone(conversation: tuple[list[Message], list[dict[str, Any]]]) -> None:
    for turn, ((api, at), body) in enumerate(zip(TURNS, conversation[1], strict=True)):
        sent = json.dumps(body)
        for earlier, (its_api, its_at) in enumerate(TURNS[:turn]):
            secret, mine = f"SEALED-{its_api}-{its_at}-{earlier}", (its_api, its_at) == (api, at)
            kinds = {"anthropic": 2, "chat": 0, "responses": 1}[its_api]
            assert sent.count(f"{secret}-redacted") == (1 if mine and its_api == "anthropic" else 0)
            assert sent.count(secret) == (kinds if mine else 0), (turn, earlier)
            if not mine and its_api != "chat":
                assert f"thought {earlier}" not in sent


def test_who_is_asked_again_finds_what_it_has_read_byte_for_byte(
    conversation: tuple[list[Message], list[dict[str, Any]]],
) -> None:
    last: dict[tuple[str, int], str] = {}
    returns = 0
    for who, body in zip(TURNS, conversation[1], strict=True):
        now = json.dumps(items(body), ensure_ascii=False)
        if who in last:
            returns += 1
            assert now.startswith(last[who].removesuffix("]"))
        last[who] = now
    assert returns == len(TURNS) - len(set(TURNS)) > 5


def test_the_transcript_keeps_all_thinking(conversation: tuple[list[Message], list[dict[str, Any]]]) -> None:
    kept = [part for message in conversation[0] for part in message.parts if isinstance(part, Thinking)]
    sealed = [part for part in kept if part.signature or part.data]
    assert len(sealed) == sum({"anthropic": 2, "chat": 0, "responses": 1}[api] for api, _ in TURNS)
    assert all(part.origin for part in sealed)
    assert all(not part.origin for part in kept if part not in sealed)


@pytest.mark.parametrize(
    ("base_url", "origin"),
    [
        ("https://api.anthropic.com", "api.anthropic.com"),
        ("https://api.openai.com/v1/", "api.openai.com/v1"),
        ("http://user:word@127.0.0.1:8000/v1", "127.0.0.1:8000/v1"),
        ("https://gateway/anthropic?x=1", "gateway/anthropic"),
    ],
)
def test_a_server_is_named_by_host_and_path(base_url: str, origin: str) -> None:
    assert Endpoint("V", "m", base_url, "key", 1.0).origin == origin


def test_thinking_of_old_journals_has_no_maker_and_goes_to_all() -> None:
    old = part_from_json({"thinking": "hm", "signature": "SIG"})
    assert isinstance(old, Thinking) and old == Thinking("hm", "SIG") and old.fits("anywhere")
    assert part_to_json(old) == {"thinking": "hm", "signature": "SIG"}
