"""Clients that do anything at any moment: nothing they wrote is lost, taken twice or out of order."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from gad.cli.follow import at_rest
from tests.scripted_server import Call, Reply, Say
from tests.world import World, play, until


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_whatever_clients_do(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    def rule(body: dict[str, Any]) -> Any:
        answers: list[Any] = [
            "ok",
            Reply((Say("thinking", chunks=2),), wait=0.02),
            Call("ask_user", {"question": "?"}),
            Call("code_run", {"type": "bash", "code": f"sleep 0.02; echo {chance.random()}"}),
            Call("update_working_checkpoint", {"key_info": "k"}),
        ]
        return chance.choice(answers)

    async def client(world: World, name: str, said: list[str]) -> None:
        world.task(name, f"{name} input")
        said.append(f"{name} input")
        for step in range(12):
            await asyncio.sleep(chance.uniform(0, 0.05))
            match chance.choice(["reply", "reply", "reply", "stop", "context", "nothing"]):
                case "reply" if "reply.txt" not in world.files(name):
                    text = f"{name} reply {step} 回"
                    world.put(name, "reply.txt", text)
                    said.append(text)
                case "stop":
                    world.put(name, "stop.txt", "")
                case "context":
                    world.put(name, "context.txt", f"pin {step}")
                case _:
                    pass

    async def scene(world: World) -> None:
        said: dict[str, list[str]] = {f"s{n}": [] for n in range(5)}
        for name in said:
            (world.spool / name).mkdir()
        async with world.running():
            await asyncio.gather(*(client(world, name, texts) for name, texts in said.items()))
            await until(lambda: not any(world.waiting(name) for name in said))
            for name in said:
                await until(lambda name=name: at_rest(world.spool / name))  # type: ignore[misc]
        async with world.running():  # and a restart changes nothing
            for name, texts in said.items():
                taken = [record["text"] for record in world.records(name) if record["kind"] == "message"]
                assert taken == texts
                numbers = [record["n"] for record in world.records(name) if "n" in record]
                assert numbers == sorted(set(numbers))
                assert world.kinds(name)[-1] in ("ended", "asked", "context", "stop")

    play(tmp_path, rule, scene, settings={"sessions": 3})
