"""Families in unlucky moments: stops that cross with ends, sessions handed in at once, one slot for a whole line."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gad.cli import exits
from gad.core.admission import Admission
from gad.core.records import Ended, Record
from gad.errors import GadError
from gad.memory.shipped import PROCEDURES, prepare
from gad.memory.store import MemoryStore
from gad.spool import drop
from gad.spool.intake import Intake
from gad.spool.live import Live
from tests.scripted_server import Call, Silence, serve_in_thread
from tests.test_children import HELD, OK, at_work, bash, boss_waits, by_task, go
from tests.test_crash import Daemons, wait_for
from tests.world import World, play, until

# -- who may be at work ---------------------------------------------------------------------------


def test_who_has_become_somebody_s_child_waits_no_longer_for_a_place_of_its_own() -> None:
    admission = Admission(1, 1)
    admission.enqueue("boss", None, priority=0, since=1)
    assert admission.take() == "boss"
    for since, name in ((2, "first"), (3, "kid")):
        admission.enqueue(name, None, priority=0, since=since)
    assert admission.take() is None
    admission.place("kid", None)  # it is stopped, which takes no turn
    admission.leave("kid")
    assert not admission.queued("kid")
    admission.enqueue("kid", None, priority=0, since=4)
    admission.enqueue("kid", "boss", priority=0, since=5)  # another conversation, for which the boss waits
    assert admission.take() == "kid" and admission.take() is None
    admission.leave("boss")
    admission.leave("kid")
    assert admission.take() == "first"


def test_a_line_of_four_where_each_waits_for_the_next_has_one_slot_also_after_a_crash(tmp_path: Path) -> None:
    def wait_for_child(name: str, word: str) -> list[Any]:
        return [bash(f"gad submit --wait --name {name} {word}"), "ok"]

    script = by_task(
        TOP=wait_for_child("a", "ONE"), ONE=wait_for_child("b", "TWO"), TWO=wait_for_child("c", "LAST"),
        LAST=[bash(HELD), "ok"],
    )  # fmt: skip
    with serve_in_thread(script) as server:
        daemons = Daemons(World(tmp_path / "home", server, sessions=1, children=1))
        world = daemons.world
        try:
            daemons.start()
            world.task("top", "TOP")
            wait_for(lambda: "c" in os.listdir(world.spool) and "tool_started" in world.kinds("c"), 30)
            daemons.restart()
            for name in ("top", "a", "b", "c"):
                wait_for(lambda name=name: world.status(name).get("state") == "done", 30)  # type: ignore[misc]
            assert world.status("top")["children_tokens"] == 90 and world.status("top")["children"] == ["a"]
        finally:
            daemons.kill()


# -- who may be whose child -----------------------------------------------------------------------


def test_sessions_that_are_handed_in_at_once_cannot_be_each_other_s_children_nor_too_deep(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        world.task("x", parent="y")
        world.task("y", parent="x")
        world.task("s0")
        for level in range(1, 6):
            world.task(f"s{level}", parent=f"s{level - 1}")
        async with world.running():
            await until(lambda: all(world.status(name).get("state") in ("done", "rejected") for name in ("x", "y")))
            refused = [status for status in map(world.status, ("x", "y")) if status["state"] == "rejected"]
            assert refused and "is itself a descendant of" in refused[0]["error"]  # and may be a parent all the same
            for level in range(4):
                await world.rests(f"s{level}")
            assert "s3 is 3 levels below" in (await world.rests("s4", "rejected", round=0))["error"]

    play(tmp_path, OK, scene)


@pytest.mark.parametrize("task", ["not_before: 2020-13-45\n", 'parent: "a\\0b"\n', "[" * 500, "parent: 1\n"])
@pytest.mark.parametrize("polling", ["auto", "on"])
def test_what_others_hand_in_does_not_disturb_gad_run(tmp_path: Path, task: str, polling: str) -> None:
    async def scene(world: World) -> None:
        world.task("boss", "BOSS")
        async with world.running(only="boss") as daemon:
            await until((world.home / "work" / "boss").is_dir)
            world.put("other", "task.yaml", task)
            world.put("other", "input.txt", "OTHER")
            daemon._kick.set()
            await until(lambda: not daemon._kick.is_set())
            go(world, "boss")
            await world.rests("boss")
        assert not world.status("other")

    play(tmp_path, by_task(BOSS=[bash(HELD), "ok"]), scene, settings={"spool": {"polling": polling}})


def test_gad_run_without_a_daemon_sees_what_gad_map_hands_in(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        world.task("boss", "BOSS")
        async with world.running(only="boss"):
            status = await world.rests("boss", seconds=20)
        assert len(status["children"]) == 3 and status["children_tokens"] == 45

    scripts = by_task(BOSS=[bash("seq 3 | gad map -i - 'KID {}'"), "ok"], KID="ok")
    play(tmp_path, scripts, scene, settings={"sessions": 1, "children": 1})


def test_gad_run_goes_on_with_the_children_when_its_session_has_been_answered(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        world.task("boss", "BOSS")
        async with world.running(only="boss") as daemon:
            await world.rests("boss", "asking", seconds=20)
            await until(lambda: daemon._ending.is_set())
        assert [world.status(name)["state"] for name in ("kid", "grandkid")] == ["queued", "queued"]
        world.put("boss", "reply.txt", "yes")
        for name in ("kid", "grandkid"):
            (world.home / "work" / name).mkdir(exist_ok=True)
            go(world, name)
        async with world.running(only="boss"):
            await world.rests("boss", seconds=20)
        assert "kid: done" in world.text("boss", "output.txt")
        assert world.text("grandkid", "result.txt") == "deep\n"

    kid = [bash("gad submit --name grandkid GRAND"), bash(HELD), bash("gad wait grandkid"), "ok"]
    begin = bash("gad submit --name kid KID; until grep -q grandkid ../../spool/kid/status.txt; do sleep 0.05; done")
    boss = [begin, Call("ask_user", {"question": "Go on?"}), bash("gad wait kid"), "ok"]
    scripts = by_task(BOSS=boss, KID=kid, GRAND=[bash(HELD), "deep"])
    play(tmp_path, scripts, scene)


# -- who is stopped with whom ---------------------------------------------------------------------


def test_a_stop_reaches_those_below_a_child_that_has_ended(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            await boss_waits(world)
            for name, parent in (("kid", "boss"), ("grandkid", "kid")):
                world.task(name, parent=parent)
                await world.rests(name)
            world.task("great", "KID", parent="grandkid")
            await at_work(world, "great")
            await until(lambda: world.status("grandkid").get("children"))
            world.put("boss", "stop.txt", "")
            for name in ("boss", "great"):
                await world.rests(name, "stopped")
            assert {world.status(name)["state"] for name in ("kid", "grandkid")} == {"done"}

    play(tmp_path, by_task(BOSS=[bash(HELD)], KID=Silence()), scene)


@pytest.mark.parametrize("first", ["stop", "end"])
def test_a_stop_that_crosses_with_its_end_is_for_the_children_still(
    tmp_path: Path, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, take_in = Live.append, Live.take_in

    async def append_late(self: Live, record: Record, **options: Any) -> None:
        if isinstance(record, Ended) and self.name == "boss" and first == "stop":
            drop.stop(Path(self.directory))
            await until(lambda: self.session.stop_requested)
        await append(self, record, **options)

    async def take_in_late(self: Live, *arguments: Any, **options: Any) -> Intake:
        if self.name == "boss" and first == "end" and os.path.exists(self.path("stop.txt")):
            (Path(self.directory).parent.parent / "work" / "boss" / "go").touch()
            await until(lambda: self.session.state == "done")
        return await take_in(self, *arguments, **options)

    monkeypatch.setattr(Live, "append", append_late)
    monkeypatch.setattr(Live, "take_in", take_in_late)

    async def scene(world: World) -> None:
        async with world.running():
            await boss_waits(world)
            world.task("kid", "KID", parent="boss")
            await at_work(world, "kid")
            await until(lambda: world.status("boss").get("children"))
            if first == "stop":
                go(world, "boss")
            else:
                world.put("boss", "stop.txt", "")
            await world.rests("kid", "stopped")
            assert world.status("boss")["state"] == "done" and world.kinds("kid").count("stop") == 1

    play(tmp_path, by_task(BOSS=[bash(HELD), "ok"], KID=Silence()), scene)


def test_a_child_that_was_handed_in_before_a_stop_for_its_ended_parent_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in = Live.take_in

    async def scene(world: World) -> None:
        async def take_in_late(self: Live, *arguments: Any, **options: Any) -> Intake:
            if self.name == "kid" and self.session.state == "new":
                await until(lambda: "stop" in world.kinds("boss"))
            return await take_in(self, *arguments, **options)

        monkeypatch.setattr(Live, "take_in", take_in_late)
        async with world.running():
            world.task("boss")
            await world.rests("boss")
            world.task("kid", "KID", parent="boss")
            world.put("boss", "stop.txt", "")
            await world.rests("kid", "stopped")
            world.put("boss", "reply.txt", "go on")
            await world.rests("boss", round=2)
            world.task("later", parent="boss")
            await world.rests("later")

    play(tmp_path, by_task(KID=Silence()), scene)


def test_a_stop_that_comes_in_the_middle_of_a_look_at_a_session_at_rest_is_for_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in, late = Live.take_in, []

    async def take_in_late(self: Live, *arguments: Any, **options: Any) -> Intake:
        if self.name == "boss" and "context.txt" in os.listdir(self.directory):
            drop.stop(Path(self.directory))
            late.append(self.name)
        return await take_in(self, *arguments, **options)

    async def scene(world: World) -> None:
        async with world.running() as daemon:
            await boss_waits(world)
            world.task("kid", "KID", parent="boss")
            await at_work(world, "kid")
            await until(lambda: world.status("boss").get("children"))
            go(world, "boss")
            await world.rests("boss")
            await until(lambda: "boss" not in daemon._roster.live)
            monkeypatch.setattr(Live, "take_in", take_in_late)
            world.put("boss", "context.txt", "a word")
            await world.rests("kid", "stopped")
            assert late

    play(tmp_path, by_task(BOSS=[bash(HELD), "ok"], KID=Silence()), scene)


def test_a_child_that_begins_anew_under_a_stopped_parent_is_stopped_as_well(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("boss", "KID")
            await at_work(world, "boss")
            world.task("kid", parent="boss")
            await world.rests("kid")
            world.put("boss", "stop.txt", "")
            await world.rests("boss", "stopped")
            world.put("kid", "input.txt", "KID again")
            await until(lambda: world.text("kid", "archived-0001-journal.jsonl"))
            await world.rests("kid", "stopped")

    play(tmp_path, by_task(KID=Silence()), scene)


def test_stopping_waits_for_nobody_who_reads_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    os.mkfifo(tmp_path / "s" / "stop.txt")
    with pytest.raises(GadError, match="no regular file"):
        drop.stop(tmp_path / "s")
    (tmp_path / "s" / "stop.txt").unlink()
    (tmp_path / "s" / "stop.txt").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(GadError, match="no regular file"):
        drop.stop(tmp_path / "s")
    assert not (tmp_path / "elsewhere").exists()


# -- who pays -------------------------------------------------------------------------------------


def test_gad_run_without_a_daemon_tells_a_parent_outside_what_its_child_used(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("top", tokens=1000)
            await world.rests("top")
            world.task("boss", parent="top", tokens=40)
            await world.rests("boss")
            world.task("halted", "KID")
            await world.rests("halted", "failed")
        before = world.kinds("halted")
        world.put("boss", "reply.txt", "not now")  # is not this process's to take in
        world.task("kid", "LOOK", parent="boss")
        async with world.running(only="kid") as daemon:
            error = (await world.rests("kid", "failed"))["error"]
            await until(lambda: daemon._ending.is_set())
        assert "session boss may use" in error and "token limit reached (40)" in error
        assert world.status("kid")["turn"] == 2
        assert world.status("boss")["children_tokens"] == 30 and world.status("boss")["children"] == ["kid"]
        assert world.status("top")["children_tokens"] == 45 and world.status("boss")["state"] == "done"
        assert "reply.txt" in world.files("boss") and world.kinds("halted") == before

    look = Call("file_read", {"path": "/etc/hostname"})
    play(tmp_path, by_task(LOOK=look, KID=Call("nonsense", {})), scene, settings={"ask": "never"})


def test_a_reply_allows_the_same_again_when_children_have_used_it_up_after_the_end(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("boss", tokens=40)
            await world.rests("boss")
            world.task("kid", "LOOK", parent="boss")
            assert "a reply to boss allows the same again" in (await world.rests("kid", "failed"))["error"]
            world.put("boss", "reply.txt", "go on")
            await world.rests("boss", round=2)
            world.put("kid", "reply.txt", "go on")
            assert (await world.rests("kid", "failed", round=2))["turn"] == 4

    play(tmp_path, by_task(LOOK=Call("file_read", {"path": "/etc/hostname"})), scene)


# -- a command whose daemon has gone --------------------------------------------------------------


def test_a_session_s_command_does_not_take_its_dead_daemon_s_place(tmp_path: Path) -> None:
    with serve_in_thread(OK) as server:
        world = World(tmp_path / "home", server)
        (world.spool / "boss").mkdir()
        environment = os.environ | {"GAD_HOME": str(world.home), "GAD_SESSION": "boss"}
        command = [sys.executable, "-m", "gad", "run", "--name", "kid", "do it"]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert ended.returncode == exits.TEMPORARY and "gad up" in ended.stderr, ended.stderr
        assert not world.status("kid") and "input.txt" in world.files("kid") and not server.requests


def test_nobody_waits_for_a_session_that_has_been_removed(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            gad = [sys.executable, "-m", "gad", "--home", str(world.home)]
            command = [*gad, "submit", "--wait", "--name", "kid", "KID"]
            process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
            try:
                await at_work(world, "kid")
                shutil.rmtree(world.spool / "kid", ignore_errors=True)
                await until(lambda: process.returncode is not None, 20)
            finally:
                if process.returncode is None:
                    process.kill()
                _, err = await process.communicate()
            assert process.returncode == exits.ERROR and b"session kid has gone" in err

    play(tmp_path, by_task(KID=Silence()), scene)


# -- procedures that come with gad ----------------------------------------------------------------


def test_a_memory_gets_a_procedure_that_is_new_in_gad_but_not_what_its_owner_has_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "memory"
    web, agents = (root / path for path in PROCEDURES)
    monkeypatch.setattr("gad.memory.shipped.PROCEDURES", PROCEDURES[:1])  # an older gad
    prepare(MemoryStore(str(root)))
    assert web.exists() and not agents.exists()
    web.unlink()
    monkeypatch.undo()
    prepare(MemoryStore(str(root)))
    assert agents.exists() and not web.exists()
    agents.write_text(agents.read_text("utf-8").replace("agent", "helper"), "utf-8")
    changed = agents.read_text("utf-8")
    prepare(MemoryStore(str(root)))
    assert agents.read_text("utf-8") == changed and not web.exists()
    agents.unlink()
    prepare(MemoryStore(str(root)))
    assert not agents.exists() and not web.exists()
    noted = [json.loads(line) for line in (root / "changes.jsonl").read_text("utf-8").splitlines()]
    assert [line["path"] for line in noted if line.get("note") == "shipped" and "SOP" in line["path"]] == [*PROCEDURES]
    (root / "changes.jsonl").unlink()  # nobody knows any more what was there
    prepare(MemoryStore(str(root)))
    assert not agents.exists() and not web.exists()
