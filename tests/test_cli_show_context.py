"""gad show --context: what it prints is what the server was sent, to the byte."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gad.cli import gad as main
from gad.cli.sent import replay_to
from gad.core.request import build, offered
from gad.providers.openai_chat import ChatProvider
from gad.tools.toolset import all_schemas
from tests.scripted_server import Call, Reply, Say, ScriptedServer
from tests.world import World, until

LONG = "import sys\nfor i in range(400): print('line', i, 'of the output')\n"


def conversation(turns: int) -> list[Any]:
    """A script of many turns with long outputs, checkpoints among them, so that batches and evictions happen."""
    script: list[Any] = []
    for turn in range(1, turns):
        if turn % 5 == 0:
            script.append(Call("update_working_checkpoint", {"key_info": f"found {turn}"}))
        else:
            said = Say(f"Step {turn} prints a lot. Then I go on.")
            script.append(Reply((said, Call("code_run", {"type": "python", "code": LONG + f"# {turn}"}))))
    return [*script, "Done."]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made: list[World] = []

    async def whole() -> None:
        async with ScriptedServer(conversation(30)) as server:
            model = {"provider": "openai", "model": "scripted", "base_url": server.openai_url, "window": 9000}
            world = World(tmp_path_factory.mktemp("home"), server, models={"test": model})
            async with world.running():
                world.task("s", "Print a lot, please.")
                await until(lambda: world.status("s").get("state") == "done", 60)
            made.append(world)

    asyncio.run(whole())
    return made[0]


def show(world: World, *arguments: str) -> str:
    result = CliRunner().invoke(main, ["--home", str(world.home), "show", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_turn_is_computed_again_exactly_as_it_was_sent(world: World) -> None:
    provider = ChatProvider(model="scripted", api_key="k", base_url=world.server.openai_url)
    plans = set()
    for turn, sent in enumerate(world.server.requests, 1):
        session, calling = replay_to(world.records("s"), turn)
        assert provider.render(build(session, offered(session, all_schemas()), turn)) == sent.body
        plans.add((calling.plan.compressed, calling.plan.evicted))
    assert len(plans) >= 3 and any(evicted for _, evicted in plans), plans  # or nothing was shown


def test_json_holds_the_request_its_parts_sizes_and_its_plan(world: World) -> None:
    found = json.loads(show(world, "--context", "--json", "s", "30"))
    assert found["turn"] == 30 and found["exact"] is True
    assert list(found["parts"]) == ["system", "tools", "memory", "history", "anchor"]
    first = [part["text"] for part in found["request"]["messages"][0]["parts"]]
    assert found["parts"]["memory"]["characters"] == len(first[0]) and str(world.home / "memory") in first[0]
    assert found["parts"]["system"]["characters"] == len(found["request"]["system"])
    assert found["parts"]["anchor"]["characters"] == len(found["request"]["anchor"])
    assert "found 25" in found["request"]["anchor"] and "Step 21" in found["request"]["anchor"]
    assert first[1].endswith("Print a lot, please.")
    assert found["plan"]["evicted"] > 0


def test_people_see_the_parts_and_their_sizes(world: World) -> None:
    text = show(world, "--context", "s", "30")
    for words in (
        "memory",
        "turn 30 of session s",
        "characters",
        "system",
        "tools",
        "history",
        "anchor",
        "left out",
        "<key_info>",
    ):
        assert words in text
    assert "Print a lot, please." in text and "older messages left out" in text


def test_without_a_turn_it_is_the_newest(world: World) -> None:
    assert show(world, "--context", "s") == show(world, "--context", "s", "30")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--context", "s", "31"], "there was no turn 31"),
        (["--context", "s", "0"], "0"),
        (["s", "3"], "--context"),
        (["--context", "nobody"], "there is no session nobody"),
    ],
)
def test_mistakes_are_named(world: World, arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["--home", str(world.home), "show", *arguments])
    assert result.exit_code != 0
    assert words in result.output + str(result.exception)


def test_another_tool_set_is_said(world: World, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in world.text("s", "journal.jsonl").splitlines()]
    other = world.spool / "other"
    other.mkdir()
    changed = [line | ({"prefix": "0" * 16} if line["kind"] == "calling" else {}) for line in lines]
    (other / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changed))
    result = CliRunner().invoke(main, ["--home", str(world.home), "show", "--context", "other"], catch_exceptions=False)
    assert result.exit_code == 0 and "were others then" in result.stderr
    assert json.loads(show(world, "--context", "--json", "other"))["exact"] is False
