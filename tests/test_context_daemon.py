"""The context pipeline in a running daemon: what the server really gets, and what happens when it is too much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_server import Call, Fail, Reply, Say
from tests.world import World, play, until

TOO_LONG = {
    "error": {
        "message": "This model's maximum context length is 8192 tokens.",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }
}


def prints(words: str, lines: int, turn: int) -> Reply:
    code = f"for i in range({lines}): print(i, {words!r}, {turn})"
    return Reply((Say(f"I print {words}."), Call("code_run", {"type": "python", "code": code})))


def narrow(world: World, window: int) -> None:
    config = world.home / "gad.yaml"
    text = config.read_text("utf-8")
    config.write_text(text.replace("model: scripted\n", f"model: scripted\n    window: {window}\n", 1), "utf-8")


def size(body: Any) -> int:
    return len(json.dumps(body["messages"]))


def test_a_request_refused_as_too_long_is_cut_and_sent_once_more(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", "the task itself")
            await world.rests("s")
            whole, cut, later = (size(request.body) for request in world.server.requests[-3:])
            assert cut < 0.6 * whole
            assert later < whole  # the next turns keep to what the server has taught
            assert "the task itself" in json.dumps(world.server.requests[-2].body)
            world.put("s", "reply.txt", "and more")
            await world.rests("s", round=2)
            assert size(world.server.requests[-1].body) < whole
        assert world.kinds("s").count("deferred") == 0

    script = [
        *(prints("a lot of text", 150, turn) for turn in range(8)),
        Fail(400, TOO_LONG),
        prints("more", 3, 9),
        "Done.",
        "Done again.",
    ]
    play(tmp_path, script, scene)


def test_refused_twice_it_fails_and_says_what_to_set(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", "x" * 50_000)
            status = await world.rests("s", "failed")
        assert len(world.server.requests) == 2
        assert "too long for the model" in status["error"] and "`window`" in status["error"]
        assert "30,000 tokens" in status["error"]

    play(tmp_path, [Fail(400, TOO_LONG), Fail(400, TOO_LONG)], scene)


def test_a_kill_between_refusal_and_the_shorter_request_loses_nothing(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", "the task")
            await world.rests("s")
        records = world.records("s")
        last = max(number for number, record in enumerate(records) if record["kind"] == "calling")
        lines = world.text("s", "journal.jsonl").splitlines(keepends=True)
        (world.spool / "s" / "journal.jsonl").write_text("".join(lines[: last + 1]))
        async with world.running():
            await until(lambda: len(world.server.requests) == 8)
            await world.rests("s")
        assert world.records("s")[last + 1]["kind"] == "resumed"

    script = [*(prints("text", 100, turn) for turn in range(5)), Fail(400, TOO_LONG), "Done.", "Done."]
    play(tmp_path, script, scene)


def test_results_of_one_answer_share_the_room_of_one(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        big = tmp_path / "big.txt"
        big.write_text("".join(f"line {number} of a long file\n" for number in range(5000)))
        world.task("s", cwd=str(tmp_path))
        async with world.running():
            await world.rests("s")
        alone, shared = (
            [record["result"]["output"] for record in world.records("s") if record["kind"] == "tool_finished"][part]
            for part in (slice(0, 1), slice(1, 3))
        )
        assert 15_000 < len(alone[0]) <= 20_000
        assert all(7_000 < len(output) <= 10_000 for output in shared)

    def read(number: int) -> Call:
        return Call("file_read", {"path": "big.txt", "count": 5000, "start": number})

    play(tmp_path, [Reply((read(1),)), Reply((read(2), read(3))), "Done."], scene)


def test_an_old_result_names_the_file_that_holds_all_of_it(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        narrow(world, 9000)
        async with world.running():
            world.task("s")
            await world.rests("s")
        first = next(record for record in world.records("s") if record["kind"] == "tool_finished")["result"]
        saved = Path(first["saved"])
        assert saved.is_relative_to(world.home / "work" / "s")
        assert saved.read_text().startswith("0 words 0\n") and saved.read_text().endswith("199 words 0\n")
        sent = json.dumps(world.server.requests[-1].body)
        assert str(saved) in sent and "199 words 0" in sent and "100 words 0" not in sent
        assert str(saved) not in json.dumps(world.server.requests[1].body)  # nothing was cut yet

    script = [*(prints("words", 200, turn) for turn in range(12)), "Done."]
    play(tmp_path, script, scene)


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
def test_two_hundred_turns_stay_below_the_window_and_every_request_is_accepted(tmp_path: Path, api: str) -> None:
    async def scene(world: World) -> None:
        narrow(world, 6000)
        config = world.home / "gad.yaml"
        text = config.read_text("utf-8")
        if api == "anthropic":
            text = text.replace("provider: openai", "provider: anthropic").replace("/v1", "")
        elif api == "responses":
            text = text.replace("provider: openai", "api: responses\n    provider: openai")
        config.write_text(text + "limits: {turns: 300}\n", "utf-8")
        async with world.running():
            world.task("s", "count to two hundred")
            await until(lambda: world.status("s").get("state") == "done", 60)
        plans = [record["plan"] for record in world.records("s") if record["kind"] == "calling"]
        assert max(plan["weight"] for plan in plans) <= 3 * 6000 / 0.7  # the scripted server counts few tokens
        assert plans[-1]["evicted"] > 100
        last = json.dumps(world.server.requests[-1].body)
        assert "count to two hundred" in last and "remember 150" in last

    def turn(number: int) -> Reply:
        if number == 150:
            return Reply((Call("update_working_checkpoint", {"key_info": "remember 150"}),))
        return Reply(
            (Say(f"Number {number}."), Call("file_write", {"path": f"{number % 7}.txt", "content": f"{number} " * 60}))
        )

    play(tmp_path, [*(turn(number) for number in range(1, 200)), "Done."], scene)
