"""Memory in a running daemon: what sessions are told, what they may write, verdicts, and reviews."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gad.cli import gad
from tests.scripted_server import Call, Reply, Say
from tests.world import World, play, until

OPEN = Call("start_long_term_update")
FACT = "# Build\n\n## Commands\n- make test runs everything\n[proof: 1]\n"


def told(world: World, request: int) -> str:
    return json.dumps(world.server.requests[request].body["messages"], ensure_ascii=False)


def output(world: World, session: str, number: int) -> dict[str, Any]:
    results = [record["result"] for record in world.records(session) if record["kind"] == "tool_finished"]
    return dict(results[number - 1])


def echo(text: str = "all well") -> Call:
    return Call("code_run", {"type": "bash", "code": f"echo {text}"})


def write(world: World, path: str, content: str = FACT, **more: Any) -> Call:
    return Call("file_write", {"path": str(world.home / "memory" / path), "content": content, **more})


def scene_of(world_script: Any, check: Any, tmp_path: Path, **options: Any) -> None:
    """Run one session by a script that needs the world's paths, then check."""
    script: list[Any] = []

    async def scene(world: World) -> None:
        script.extend(world_script(world))
        async with world.running():
            world.task("s", **options)
            await world.rests("s")
        check(world)

    play(tmp_path, lambda request: script.pop(0), scene)


def test_what_a_session_has_proven_is_kept_and_told_to_the_next(tmp_path: Path) -> None:
    script: list[Any] = []

    async def scene(world: World) -> None:
        script.extend([echo(), OPEN, write(world, "facts/build.md"), "Done.", "Hello."])
        async with world.running():
            world.task("s")
            await world.rests("s")
            world.task("t", "Hello")
            await world.rests("t")
        assert "1 code_run" in output(world, "s", 2)["output"]
        assert output(world, "s", 3)["status"] == "ok"
        fact = (world.home / "memory" / "facts" / "build.md").read_text("utf-8")
        assert fact == "# Build\n\n## Commands\n- make test runs everything\n"
        change = json.loads((world.home / "memory" / "changes.jsonl").read_text("utf-8").splitlines()[-1])
        assert change["who"] == "s" and change["path"] == "facts/build.md" and "s#1 code_run" in json.dumps(change)
        assert "build" not in told(world, 0) and "build" in told(world, 4)
        assert "make test" not in told(world, 4)  # that there is knowledge and where, never the knowledge
        assert str(world.home / "memory") in told(world, 4)

    play(tmp_path, lambda request: script.pop(0), scene)


REFUSED: dict[str, tuple[Any, str]] = {
    "outside a phase": (lambda w: [echo(), write(w, "facts/build.md")], "start_long_term_update"),
    "without proof": (lambda w: [echo(), OPEN, write(w, "facts/build.md", "## A\n- b\n")], "proof"),
    "a call that failed": (lambda w: [Call("code_run", {"type": "bash", "code": "exit 3"}), OPEN,
                                      write(w, "facts/build.md")], "failed"),
    "a call that is not there": (lambda w: [echo(), OPEN, write(w, "facts/build.md", "## A\n- b\n[proof: 9]\n")], "9"),
    "the phase itself as proof": (lambda w: [OPEN, write(w, "facts/build.md")], "start_long_term_update"),
    "a secret": (lambda w: [echo(), OPEN, write(w, "facts/build.md", "## A\n- password: hunter2hunter2\n[proof: 1]")],
                 "secret"),
    "L1 by hand": (lambda w: [echo(), OPEN, write(w, "index.md")], "generated"),
    "L0": (lambda w: [echo(), OPEN, write(w, "meta.md")], "not yours"),
    "the archive": (lambda w: [echo(), OPEN, write(w, "archive/index.jsonl")], "not yours"),
    "by a detour": (lambda w: [echo(), write(w, "../memory/facts/../facts/build.md")], "start_long_term_update"),
    "a patch outside a phase": (lambda w: [echo(), Call("file_patch", {
        "path": str(w.home / "memory" / "meta.md"), "old_content": "a", "new_content": "b"})],
        "start_long_term_update"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_says_why_and_changes_nothing(tmp_path: Path, case: str) -> None:
    calls, words = REFUSED[case]

    def check(world: World) -> None:
        result = [record["result"] for record in world.records("s") if record["kind"] == "tool_finished"][-1]
        assert result["status"] == "error" and words in result["output"], result
        assert not (world.home / "memory" / "facts" / "build.md").exists()
        changes = (world.home / "memory" / "changes.jsonl").read_text("utf-8").splitlines()
        assert not [line for line in changes if json.loads(line)["who"] == "s"]

    scene_of(lambda world: [*calls(world), "Done."], check, tmp_path)


def test_a_link_does_not_lead_around_the_gate(tmp_path: Path) -> None:
    def script(world: World) -> list[Any]:
        facts = world.home / "memory" / "facts"
        facts.mkdir(exist_ok=True)
        os.symlink(tmp_path / "elsewhere.md", facts / "build.md")
        os.symlink(facts, tmp_path / "shortcut")
        return [
            echo(),
            Call("file_write", {"path": str(tmp_path / "shortcut" / "new.md"), "content": "## A\n- b\n"}),
            OPEN,
            write(world, "facts/build.md"),
            "Done.",
        ]

    def check(world: World) -> None:
        assert "start_long_term_update" in output(world, "s", 2)["output"]
        assert output(world, "s", 4)["status"] == "error"
        assert not (tmp_path / "elsewhere.md").exists() and not (world.home / "memory" / "facts" / "new.md").exists()

    scene_of(script, check, tmp_path)


def test_another_session_s_call_proves_nothing(tmp_path: Path) -> None:
    script: list[Any] = []

    async def scene(world: World) -> None:
        script.extend([echo(), "Done.", OPEN, write(world, "facts/build.md"), "Done."])
        async with world.running():
            for name in ("first", "second"):
                world.task(name)
                await world.rests(name)
        assert output(world, "second", 2)["status"] == "error"

    play(tmp_path, lambda request: script.pop(0), scene)


def test_the_phase_is_over_with_its_round(tmp_path: Path) -> None:
    script: list[Any] = []

    async def scene(world: World) -> None:
        script.extend([echo(), OPEN, "Done.", write(world, "facts/build.md"), "Done again."])
        async with world.running():
            world.task("s")
            await world.rests("s")
            world.put("s", "reply.txt", "now write")
            await world.rests("s", round=2)
        assert "start_long_term_update" in output(world, "s", 3)["output"]

    play(tmp_path, lambda request: script.pop(0), scene)


def test_a_task_without_memory_is_told_nothing_and_writes_nothing(tmp_path: Path) -> None:
    def check(world: World) -> None:
        assert str(world.home / "memory") not in told(world, 0)
        assert "memory: false" in output(world, "s", 3)["output"]

    scene_of(lambda world: [echo(), OPEN, write(world, "facts/build.md"), "Done."], check, tmp_path, memory=False)


def test_verdicts_are_taken_and_a_wrong_word_is_turned_down(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
            for command, words in (("ok", ["nicely", "done"]), ("bad", [])):
                done = CliRunner().invoke(gad, ["--home", str(world.home), command, "s", *words])
                assert done.exit_code == 0, done.output
                await until(lambda: "verdict.txt" not in world.files("s"))
            await until(lambda: world.kinds("s").count("judged") == 2)
            assert world.status("s")["state"] == "done"
            world.put("s", "verdict.txt", "splendid")
            await until(lambda: world.status("s").get("state") == "rejected")
            assert "ok or bad" in world.status("s")["error"]
        judged = [record for record in world.records("s") if record["kind"] == "judged"]
        assert [(record["ok"], record["words"]) for record in judged] == [(True, "nicely done"), (False, "")]
        assert CliRunner().invoke(gad, ["--home", str(world.home), "ok", "nobody"]).exit_code != 0

    play(tmp_path, ["Done."], scene)


def test_a_session_that_earned_it_is_reviewed_and_its_calls_are_the_proof(tmp_path: Path) -> None:
    script: list[Any] = []

    async def scene(world: World) -> None:
        fails = Call("code_run", {"type": "bash", "code": "exit 3"})
        sop = "---\nname: say-well\ntriggers: [greeting]\ncategory: speech\n---\n## Key steps\n- echo it\n[proof: 2]\n"
        script.extend([fails, echo("works"), "Done.", write(world, "sops/say-well/SOP.md", sop), "Kept say-well."])
        async with world.running():
            world.task("s", "say it well", check="true")
            await world.rests("s")
            await until(lambda: world.status("review-s-1").get("state") == "done")
        asked = told(world, 3)
        assert "say it well" in asked and "2 code_run" in asked and "Errors overcome" in asked
        assert world.server.requests[3].body["tools"][0]["function"]["name"] == "file_read"
        kept = (world.home / "memory" / "sops" / "say-well" / "SOP.md").read_text("utf-8")
        assert "s#2" in kept or "- s" in kept or "s" in kept.split("provenance", 1)[1]
        assert world.status("s")["children"] == ["review-s-1"]
        assert len(world.server.requests) == 5

    play(tmp_path, lambda request: script.pop(0), scene)


@pytest.mark.parametrize(
    ("verdict", "settings", "reviews"),
    [("ok", {}, 1), ("bad", {}, 0), (None, {}, 0), ("ok", {"memory": {"reviews": False}}, 0)],
)
def test_a_review_needs_somebody_s_word(
    tmp_path: Path, verdict: str | None, settings: dict[str, Any], reviews: int
) -> None:
    async def scene(world: World) -> None:
        async with world.running() as daemon:
            world.task("s")
            await world.rests("s")
            if verdict:
                world.put("s", "verdict.txt", verdict)
                await until(lambda: "judged" in world.kinds("s"))
            assert daemon._beside is not None
            await until(lambda: reviews == 0 or world.status("review-s-1").get("state") == "done")
        assert (world.spool / "review-s-1").exists() == bool(reviews)

    fails = Call("code_run", {"type": "bash", "code": "exit 3"})
    play(tmp_path, [fails, echo("works"), "Done.", "Nothing worth keeping."], scene, settings=settings)


def test_long_work_that_overcame_nothing_earns_a_review_by_its_turns(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("short", check="true")
            await world.rests("short")
            world.task("long", check="true")
            await world.rests("long")
            await until(lambda: world.status("review-long-1").get("state") == "done")
        assert not (world.spool / "review-short-1").exists()

    def turn(number: int) -> Reply:
        return Reply((Say(f"Step {number}."), Call("update_working_checkpoint", {"key_info": f"{number}"})))

    play(tmp_path, ["Done.", *(turn(number) for number in range(14)), "Done.", "Nothing worth keeping."], scene)


def test_where_memory_is_switched_off_nothing_is_written_there(tmp_path: Path) -> None:
    script: list[Any] = []

    async def scene(world: World) -> None:
        script.extend([echo(), OPEN, write(world, "facts/build.md"), "Done."])
        async with world.running():
            world.task("s")
            await world.rests("s")
        assert all("switched off" in output(world, "s", number)["output"] for number in (2, 3))
        assert not (world.home / "memory" / "facts").exists()
        assert str(world.home / "memory") not in told(world, 0)

    play(tmp_path, lambda request: script.pop(0), scene, settings={"memory": {"enabled": False}})


def test_a_session_that_was_kept_out_of_memory_proves_nothing(tmp_path: Path) -> None:
    script: list[Any] = []

    async def scene(world: World) -> None:
        script.extend([echo(), "Done.", write(world, "facts/build.md"), "Done."])
        async with world.running():
            world.task("s", memory=False)
            await world.rests("s")
            world.task("r", review="s")
            await world.rests("r")
        assert "memory: false" in output(world, "r", 1)["output"]

    play(tmp_path, lambda request: script.pop(0), scene)
