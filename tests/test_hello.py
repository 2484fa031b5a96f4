"""What the smallest request costs, and that its prefix is the same bytes in every session."""

from __future__ import annotations

import importlib
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_server import Reply, Say
from tests.world import World, play

HOME = "/home/user/agents"
"""What stands for the test's own directory, whose name is long, where tokens are counted."""
MOST = 1100
"""With the one SOP that every home begins with."""
MOST_REMEMBERING = 1149
"""With 20 SOPs and facts."""


def tokens(text: str) -> int:
    """Count with OpenAI's o200k vocabulary, which the package brings along."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the package's own, on import
        encoding = importlib.import_module("bpe_openai").get_encoding("o200k_base")
    return len(encoding.encode(text))


@pytest.mark.parametrize("api", ["anthropic", "chat", "responses"])
def test_hello_is_small_and_its_prefix_never_changes(tmp_path: Path, api: str) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            for name in ("s", "another-session"):
                world.task(name, "Hello")
                await world.rests(name)
        first, second = (request.body for request in world.server.requests)
        parts = [
            first.get("system", first.get("instructions", "")),
            first["tools"],
            first.get("messages", first.get("input")),
        ]
        size = tokens(json.dumps(parts, ensure_ascii=False, separators=(",", ":")).replace(str(world.home), HOME))
        assert size < MOST, f"{size} tokens"
        assert prefix(first) == prefix(second)
        assert "another-session" in json.dumps(second)  # what changes stands in the message

    def prefix(body: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in body.items() if key not in ("messages", "input")} | {
            "system": [message for message in body.get("messages", ()) if message["role"] == "system"]
        }

    async def main(world: World) -> None:
        config = world.home / "gad.yaml"
        text = config.read_text("utf-8")
        if api == "anthropic":
            text = text.replace("provider: openai", "provider: anthropic").replace("/v1", "")
        elif api == "responses":
            text = text.replace("provider: openai", "api: responses\n    provider: openai")
        config.write_text(text, "utf-8")
        await scene(world)

    play(tmp_path, Reply((Say("Hi."),)), main)


def a_sop(number: int, categories: int) -> str:
    front = f"name: procedure-{number}\ntriggers: [case {number}]\ncategory: area-{number % categories}"
    return f"---\n{front}\nuses: {number % 7 + 1}\nsuccesses: {number % 5}\n---\n## Key steps\n- do step {number}\n"


def hello_with(tmp_path: Path, sops: int, categories: int) -> int:
    """Return the tokens of a Hello in a home with so many SOPs, facts and a log."""
    sizes: list[int] = []

    async def scene(world: World) -> None:
        memory = world.home / "memory"
        for number in range(sops):
            place = memory / "sops" / f"procedure-{number}"
            place.mkdir(parents=True)
            (place / "SOP.md").write_text(a_sop(number, categories), "utf-8")
        (memory / "facts").mkdir()
        (memory / "facts" / "build.md").write_text(
            "# Build\n\n## Commands\n- make test\n\n## Paths\n- /srv/app\n", "utf-8"
        )
        (memory / "facts" / "network.md").write_text("# Network\n\n## Proxies\n- none\n", "utf-8")
        (memory / "log.md").write_text(
            "# Log\n\n## Errors\n- tar without -C => unpack in place (used 4)\n\n"
            "## Preferences\n- answers in German (used 9)\n",
            "utf-8",
        )
        async with world.running():
            world.task("s", "Hello")
            await world.rests("s")
        body = world.server.requests[0].body
        parts = [body["tools"], body["messages"]]
        text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
        sizes.append(tokens(text.replace(str(world.home), HOME)))

    play(tmp_path, Reply((Say("Hi."),)), scene)
    return sizes[0]


def test_what_is_remembered_makes_hello_hardly_larger(tmp_path: Path) -> None:
    few, many = hello_with(tmp_path / "few", 20, 5), hello_with(tmp_path / "many", 2000, 20)
    assert few <= MOST_REMEMBERING, f"{few} tokens"
    assert many <= 1.05 * few, f"{few} and {many} tokens"
