"""The scripted server itself: what other tests and benchmarks rely on."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

import pytest

from tests.scripted_replies import Reply, Say, from_json
from tests.scripted_server import Call, Entry, Fail, serve_in_process, serve_in_thread, to_json


def _post(url: str, body: object) -> str:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        return str(answer.read().decode())


CHAT = {"model": "m", "messages": [{"role": "user", "content": "ping 日本"}]}


def test_an_exhausted_script_fails_loudly() -> None:
    with pytest.raises(AssertionError, match="script exhausted"), serve_in_thread(["once"]) as server:
        assert "once"[:2] in _post(f"{server.openai_url}/chat/completions", CHAT)
        with pytest.raises(urllib.error.HTTPError) as caught:
            _post(f"{server.openai_url}/chat/completions", CHAT)
        assert caught.value.code == 500 and b"script exhausted" in caught.value.read()
        caught.value.close()


def test_a_rule_serves_many_at_once() -> None:
    with serve_in_thread(lambda body: Say(body["messages"][0]["content"], 1)) as server:

        async def run() -> list[str]:
            bodies = [{"model": "m", "messages": [{"role": "user", "content": f"n{number}"}]} for number in range(50)]
            return await asyncio.gather(*(asyncio.to_thread(_post, f"{server.url}/v1/messages", b) for b in bodies))

        answers = asyncio.run(run())
        assert all(f'"text":"n{number}"' in answer for number, answer in enumerate(answers))
        assert sorted(request.text for request in server.requests) == sorted(f"n{number}" for number in range(50))


def test_in_its_own_process_it_logs_what_it_was_asked() -> None:
    with serve_in_process(rule="echo") as server:
        assert "日本" in _post(f"{server.openai_url}/responses", {"model": "m", "input": CHAT["messages"]})
        (request,) = server.requests()
        assert (request["api"], request["body"]["input"]) == ("responses", CHAT["messages"])
        assert request["wall"] <= request["now"]


def test_entries_travel_as_json() -> None:
    entries: list[Entry] = [
        Say("a", ("x", "y")),
        "text",
        [Call("f", {"a": [1]}), "b"],
        Reply((Say("c"),), stop="length"),
        Fail(429),
    ]
    back = from_json(json.loads(json.dumps(to_json(entries))))
    assert json.dumps(to_json(back)) == json.dumps(to_json(entries))
    with serve_in_process(entries) as server:
        assert '"content":"x"' in _post(f"{server.openai_url}/chat/completions", CHAT)
