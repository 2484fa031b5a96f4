"""The spool protocol, row by row, with a real daemon on real files."""

from __future__ import annotations

from pathlib import Path

from tests.scripted_server import Call, Say
from tests.world import World, play, until


def test_input_starts_a_session_and_everything_is_there_when_status_says_done(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", "say 你好 🙂")
            status = await world.rests("s")
            assert world.text("s", "result.txt") == "你好 🙂\n"
            assert "你好 🙂" in world.text("s", "output.txt")
            assert status["round"] == 1 and status["turn"] == 1 and status["model"] == "scripted"
            assert status["tokens_in"] == 10 and status["tokens_out"] == 5 and status["cost_usd"] > 0
            assert world.files("s") == {"journal.jsonl", "output.txt", "result.txt", "status.txt"}
            assert world.kinds("s") == ["begin", "message", "calling", "answer", "ended"]

    play(tmp_path, [Say("你好 🙂", chunks=4)], scene)


def test_tools_run_and_their_results_go_back(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", "write")
            await world.rests("s")
            assert (world.home / "work" / "s" / "a.txt").read_text() == "x"
            assert "tool_finished" in world.kinds("s")

    play(tmp_path, [Call("file_write", {"path": "a.txt", "content": "x"}), "ok"], scene)
