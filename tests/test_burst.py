"""Two hundred tasks at once, written in every way that clients write: each answered exactly once."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from tests.test_protocol import WRITERS
from tests.world import World, play, until


def echo(body: dict[str, Any]) -> str:
    return "re: " + str(body["messages"][-1]["content"]).rsplit("\n\n", 1)[1]


def test_two_hundred_files_at_once(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():

            def one(n: int) -> None:
                directory = world.spool / f"s{n}"
                text = f"task {n} 任务 🙂"
                if n % 7 == 6:
                    script = f'mkdir "{directory}" && echo "{text}" > "{directory}/input.txt"'
                    subprocess.run(["sh", "-c", script], check=True)
                    return
                directory.mkdir()
                if n % 7 == 1:  # moved in from elsewhere, each from its own place
                    outside = world.home / f"outside{n}"
                    outside.write_text(text, "utf-8")
                    outside.rename(directory / "input.txt")
                else:
                    WRITERS[n % 7 % len(WRITERS)](directory, text)

            await asyncio.gather(*(asyncio.to_thread(one, n) for n in range(200)))
            await until(lambda: all(world.status(f"s{n}").get("state") == "done" for n in range(200)), 60)
            for n in range(200):
                assert world.text(f"s{n}", "result.txt").rstrip("\n") == f"re: task {n} 任务 🙂"
        asked = Counter(request.text for request in world.server.requests)
        assert len(world.server.requests) == 200 and len(asked) == 200

    play(tmp_path, echo, scene)
