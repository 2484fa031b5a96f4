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

MOST = 900


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
        size = tokens(json.dumps(parts, ensure_ascii=False, separators=(",", ":")))
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
