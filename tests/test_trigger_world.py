"""Whole runs: a real daemon, the shipped plugins in real children, the scripted model."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.scripted_server import Call, Reply, Say, Silence
from tests.world import World, play, until

BUSY_MACHINE = 40.0
"""Seconds that children may take to start on a machine that runs other tests as well."""


def trigger(world: World, name: str, **settings: Any) -> None:
    (world.home / "triggers" / f"{name}.yaml").write_text(yaml.safe_dump(settings), "utf-8")


def state(world: World, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((world.home / "triggers/.state" / f"{name}.json").read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return found


def made(world: World, prefix: str) -> list[str]:
    return sorted(name for name in os.listdir(world.spool) if name.startswith(prefix))


async def reaches(world: World, name: str, key: str, value: object) -> dict[str, Any]:
    await until(lambda: state(world, name).get(key) == value, BUSY_MACHINE, lambda: str(state(world, name)))
    return state(world, name)


def test_a_csv_in_a_watched_folder_becomes_a_session_and_a_report(tmp_path: Path) -> None:
    report = [Call("file_write", {"path": "report.md", "content": "2 rows"}), "The report: 2 rows."]

    async def scene(world: World) -> None:
        inbox = world.home / "inbox"
        (inbox / "north").mkdir(parents=True)
        (inbox / "known.csv").write_text("was there before")
        options = {"files": "inbox/**/*.csv", "prompt": "Report on these:", "settle": 0.2, "batch": 0.2}
        trigger(world, "sales", plugin="watchdog", options=options, task={"turns": 5})
        async with world.running():
            await reaches(world, "sales", "status", "on")
            await until(lambda: "known" in state(world, "sales").get("plugin", {}), BUSY_MACHINE)
            (inbox / "a.csv").write_text("n\n1\n2\n")
            (inbox / "north/b.csv").write_text("n\n3\n")
            (inbox / "c.txt").write_text("not meant")
            await until(lambda: made(world, "sales-"), BUSY_MACHINE)
            [name] = made(world, "sales-")
            await world.rests(name, seconds=BUSY_MACHINE)
            assert world.text(name, "result.txt") == "The report: 2 rows.\n"
            assert (world.home / "work" / name / "report.md").read_text() == "2 rows"
            said = next(record["text"] for record in world.records(name) if record["kind"] == "message")
            wanted = [f"- {inbox / 'a.csv'} (6 bytes)", f"- {inbox / 'north/b.csv'} (4 bytes)"]
            assert said == "\n".join(["Report on these:", "", *wanted])
            assert world.records(name)[0]["options"]["labels"] == ["trigger", "trigger:sales"]
            found = await reaches(world, "sales", "open", {})
            assert found["last_result"]["state"] == "done" and found["sessions_today"] == 1
            assert found["last_result"]["text"] == "The report: 2 rows.\n" and found["usd_today"] > 0
        async with world.running():  # what has been told is not told again
            (inbox / "north/b.csv").write_text("n\n3\n4\n")
            await until(lambda: len(made(world, "sales-")) == 2, BUSY_MACHINE)
            [name] = set(made(world, "sales-")) - {name}
            await world.rests(name, seconds=BUSY_MACHINE)
            assert "a.csv" not in world.records(name)[1]["text"]

    play(tmp_path, [*report, Reply((Say("And one more row."),))], scene)


def test_lines_of_a_log_that_is_rotated_become_sessions(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        log = world.home / "app.log"
        log.write_text("ERROR of yesterday\n")
        options = {"logs": "app.log", "lines": r"\bERROR\b", "context": 1, "prompt": "Why?", "batch": 0.1}
        trigger(world, "errors", plugin="watchdog", options=options)
        async with world.running():
            await until(lambda: state(world, "errors").get("plugin", {}).get("places"), BUSY_MACHINE)
            with open(log, "a") as file:
                file.write("fine\nERROR one\nbehind\nfine\n")
            await until(lambda: len(made(world, "errors-")) == 1, BUSY_MACHINE)
            with open(log, "a") as file:
                file.write("ERROR two\n")
            os.rename(log, world.home / "app.log.1")
            log.write_text("ERROR three\nbehind\n")

            def seen() -> str:
                return "".join(world.text(name, "journal.jsonl") for name in made(world, "errors-"))

            await until(lambda: "two" in seen() and "three" in seen(), BUSY_MACHINE)
            assert [seen().count(f"ERROR {n}") for n in ("one", "two", "three")] == [1, 1, 1]
            assert "yesterday" not in seen() and "fine\\nERROR one\\nbehind" in seen()
            for name in made(world, "errors-"):
                await world.rests(name, seconds=BUSY_MACHINE)

    play(tmp_path, Reply((Say("Because."),)), scene)


def explore_for_ever(request: dict[str, Any]) -> Reply:
    """Never answer the task of idle; answer everybody else."""
    return Reply((Silence(),)) if "Explore" in json.dumps(request) else Reply((Say("Here you are."),))


@pytest.mark.parametrize("slots", [1, 4])
def test_idle_fires_when_nobody_is_there_and_makes_way_for_a_person(tmp_path: Path, slots: int) -> None:
    async def scene(world: World) -> None:
        options = {"quiet": 10, "load": 1000, "hours": "0-24", "prompt": "Explore the attic"}
        trigger(world, "idle", options=options)
        async with world.running():
            world.task("person")
            await world.rests("person", seconds=BUSY_MACHINE)
        async with world.running():
            await reaches(world, "idle", "skipped", "somebody was here recently")
            assert made(world, "idle-") == []
        long_ago = time.time() - 700
        os.utime(world.spool / "person", (long_ago, long_ago))
        async with world.running():
            await until(lambda: made(world, "idle-"), BUSY_MACHINE)
            [name] = made(world, "idle-")
            await world.rests(name, "running", seconds=BUSY_MACHINE)
            assert state(world, "idle")["open"]
            began = time.monotonic()
            world.task("again", "I need you")
            await world.rests(name, "stopped", seconds=BUSY_MACHINE)
            await world.rests("again", seconds=BUSY_MACHINE)
            assert time.monotonic() - began < 10
            found = await reaches(world, "idle", "open", {})
            assert found["last_result"]["state"] == "stopped" and found["failed_sessions"] == 0
            assert not (world.home / "triggers/.state/idle.disabled").exists()
            assert made(world, "idle-") == [name]

    play(tmp_path, explore_for_ever, scene, settings={"sessions": slots, "memory": {"enabled": False}})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"load": 0}, "the machine is busy"),
        ({"hours": "0:00-0:00"}, "not within its hours"),
        ({"usd_per_day": 0}, "the dollars of its day are spent"),
        ({}, "sessions are at work"),
    ],
    ids=["load", "hours", "dollars", "sessions"],
)
def test_idle_does_not_fire_when_it_should_not(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    async def scene(world: World) -> None:
        trigger(world, "idle", options={"quiet": 0, "load": 1000, "hours": "0-24", "prompt": "Explore"} | options)
        if "sessions" in reason:
            world.task("person", "Explore")
        async with world.running():
            await reaches(world, "idle", "skipped", reason)
            assert made(world, "idle-") == []

    play(tmp_path, explore_for_ever, scene, settings={"memory": {"enabled": False}})


def test_a_single_task_runs_no_triggers(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        (world.home / "triggers/x.py").write_text("def check(): return {'text': 'do', 'key': 'a'}")
        world.task("s")
        async with world.running(only="s"):
            await world.rests("s")
        assert made(world, "x-") == [] and not (world.home / "triggers/.state").exists()

    play(tmp_path, Reply((Say("ok"),)), scene)


def test_the_shipped_plugins_are_small() -> None:
    import gad.triggers.shipped as shipped

    directory = Path(str(shipped.__file__)).parent
    lines = {name: (directory / f"{name}.py").read_text().splitlines() for name in ("idle", "scheduled", "watchdog")}
    assert sum(len(one) for one in lines.values()) < 250
    start = next(n for n, line in enumerate(lines["idle"]) if line.startswith("def "))
    logic = [line for line in lines["idle"][start:] if line.strip() and not line.strip().startswith('"""')]
    assert len(logic) < 30
