"""A machine in trouble: full disk, read-only file system, no descriptors, a clock that jumps: nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import json
import logging
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gad.cli.compose import Providers, build_daemon
from gad.config import load as load_config
from gad.core.records import Begin, Said
from gad.core.task import TaskOptions
from gad.daemon import Daemon
from gad.spool import drop, names
from gad.spool.files import overwrite
from gad.spool.journal import Journal, Loaded, load
from gad.spool.ledger import Ledger
from gad.spool.live import Live
from gad.spool.output import HELD, Output
from gad.spool.status import read_status
from tests.scripted_server import Call, Fail, Reply, Say, Silence, serve_in_thread
from tests.test_children import HELD as WAITS
from tests.test_children import at_work, bash, boss_waits, by_task, go
from tests.test_crash import wait_for
from tests.world import World, play, until

ANY_ROOM: dict[str, Any] = {"spool": {"min_free": "off"}}
LONG = "wörter " * 4000


@contextlib.contextmanager
def mounted(place: Path, size: str) -> Iterator[None]:
    """Put a small file system of its own into a directory."""
    place.mkdir(exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(place)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"needs to mount a tmpfs, which root may: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(spool: Path) -> Path:
    """Take all the room there is."""
    filler = spool / ".filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def texts(world: World, session: str) -> list[str]:
    return [record["text"] for record in world.records(session) if record["kind"] == "message"]


# -- a full disk ----------------------------------------------------------------------------------


def test_a_session_pauses_on_a_full_disk_and_goes_on_with_what_it_had(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scene(world: World) -> None:
        with mounted(world.spool, "2m"):
            async with world.running() as daemon:
                world.task("s")
                await until(lambda: len(world.server.requests) == 1)
                filler = fill(world.spool)
                await until(lambda: world.status("s").get("state") == "deferred")
                status = world.status("s")
                assert "no space" in status["error"] and "free some space" in status["error"] and status["retry_at"]
                assert daemon.counts() == Counter(deferred=1)
                before = world.text("s", "journal.jsonl")
                assert before.endswith("\n") and "answer" not in world.kinds("s")
                filler.unlink()
                await world.rests("s")
            assert log.read_text() == "ran\n"
            assert len(world.server.requests) == 2
            assert world.text("s", "journal.jsonl").startswith(before)
            assert world.kinds("s").count("answer") == 2 and "resumed" not in world.kinds("s")
            assert world.text("s", "output.txt").count(LONG.strip()) == 1
            assert read_status(world.spool / ".daemon").get("trouble") is None

    told = Reply((Say(LONG), Call("code_run", {"type": "bash", "code": f"echo ran >> {log}"})), wait=0.3)
    play(tmp_path, [told, "done"], scene, settings=ANY_ROOM)


def test_what_is_handed_in_on_a_full_disk_is_taken_in_when_there_is_room(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        with mounted(world.spool, "2m"):
            async with world.running() as daemon:
                world.task("s")
                await world.rests("s")
                (world.spool / "s" / ".aside").write_text(LONG)
                (world.spool / ".aside").mkdir()
                (world.spool / ".aside" / "input.txt").write_text(LONG)
                filler = fill(world.spool)
                (world.spool / "s" / ".aside").rename(world.spool / "s" / "reply.txt")
                (world.spool / ".aside").rename(world.spool / "t")
                await until(lambda: daemon._troubles.tries["s"] > 2 and daemon._troubles.tries["t"] > 2)
                assert "no space" in world.status("s")["waiting"]
                filler.unlink()
                await world.rests("s", round=2)
                await world.rests("t")
            assert texts(world, "s") == ["do it", LONG] and texts(world, "t") == [LONG]
            for session in ("s", "t"):
                assert not [name for name in world.files(session) if name.startswith(("archived", ".claim"))]
                assert "waiting" not in world.status(session)

    play(tmp_path, Reply((Say("ok"),)), scene, settings=ANY_ROOM)


def test_a_daemon_starts_and_stops_on_a_full_disk(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        with mounted(world.spool, "2m"):
            async with world.running():
                world.task("s")
                await until(lambda: len(world.server.requests) == 1)
                filler = fill(world.spool)
                await until(lambda: world.status("s").get("state") == "deferred")
            assert filler.stat().st_size > 10**6
            config = load_config(world.home, {})
            providers = Providers(config, {"PATH": os.environ["PATH"]}, lambda what, done, total: None)
            daemon = build_daemon(config, {"PATH": os.environ["PATH"]}, providers)
            running = asyncio.create_task(daemon.run())
            await until(lambda: daemon._standing.state == "ready" or running.done())
            await until(lambda: daemon.counts()["deferred"] == 1)
            filler.unlink()
            await world.rests("s")
            daemon.stop()
            await running
            await providers.close()
            assert world.text("s", "result.txt").strip() == LONG.strip()

    play(tmp_path, [Reply((Say(LONG),), wait=0.3), LONG], scene, settings=ANY_ROOM)


def test_nothing_new_begins_while_there_is_less_room_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gad.daemon.SPACE_LOOK", 0.05)

    async def scene(world: World) -> None:
        with mounted(world.spool, "16m"):
            async with world.running():
                world.task("asks")
                await world.rests("asks", "asking")
                filler = world.spool / ".filler"
                filler.write_bytes(bytes(10 * 10**6))
                await until(lambda: "spool.min_free is 8 MB" in read_status(world.spool / ".daemon").get("trouble", ""))
                world.task("new")
                world.put("asks", "reply.txt", "this one")
                await until(lambda: "spool.min_free" in world.status("asks").get("waiting", ""))
                assert world.status("asks")["state"] == "queued"
                assert world.files("new") == {"input.txt"}
                assert len(world.server.requests) == 1
                filler.unlink()
                await world.rests("asks")
                await world.rests("new")
                assert "waiting" not in world.status("asks")
                await until(lambda: read_status(world.spool / ".daemon").get("trouble") is None)
            assert texts(world, "new") == ["do it"]

    script = [Call("ask_user", {"question": "Which?"}), "ok", "ok"]
    play(tmp_path, script, scene, settings={"spool": {"min_free": "8MB"}})


@pytest.mark.parametrize("kind", [errno.EDQUOT, errno.EIO], ids=errno.errorcode.get)
def test_a_quota_is_like_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    write, over = os.write, {"on": False}

    def limited(fd: int, data: bytes) -> int:
        if over["on"] and b'"kind":"answer"' in data[:40]:
            raise OSError(kind, os.strerror(kind))
        return write(fd, data)

    monkeypatch.setattr(os, "write", limited)

    async def scene(world: World) -> None:
        async with world.running():
            over["on"] = True
            world.task("s")
            await until(lambda: world.status("s").get("state") == "deferred")
            assert os.strerror(kind) in world.status("s")["error"]
            over["on"] = False
            await world.rests("s")
        assert len(world.server.requests) == 1

    play(tmp_path, ["ok"], scene)


def test_a_stop_ends_a_paused_session_when_there_is_room_again(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        with mounted(world.spool, "2m"):
            async with world.running():
                world.task("s")
                await until(lambda: len(world.server.requests) == 1)
                filler = fill(world.spool)
                await until(lambda: world.status("s").get("state") == "deferred")
                world.put("s", "stop.txt", "")
                filler.unlink()
                await world.rests("s", "stopped")

    told = Reply((Say(LONG), Call("code_run", {"type": "bash", "code": "sleep 60"})), wait=0.3)
    play(tmp_path, [told], scene, settings=ANY_ROOM)


def test_output_that_finds_no_room_is_shown_later_and_is_not_held_without_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = Output(str(tmp_path / "output.txt"))
    output.line("one")

    write = os.write

    def full(fd: int, data: bytes) -> int:
        if fd == output._fd:  # threads that other tests have left write as well
            raise OSError(errno.ENOSPC, "full")
        return write(fd, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for text in ("two", "three", "x" * HELD, "y", "z"):
            with pytest.raises(OSError, match="full"):
                output.line(text)
    output.line("four")  # makes room
    output.line("five")
    output.close()
    shown = (tmp_path / "output.txt").read_text().splitlines()
    assert shown[:3] == ["one", "two", "three"] and shown[-1] == "five"
    assert sum("could not be shown" in line for line in shown) == 1 and "z" not in shown


def test_a_status_is_written_over_in_the_room_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    path = tmp_path / "s" / "status.txt"
    path.write_text("state: running\nerror: " + "x" * 100 + "\n")
    assert overwrite(str(tmp_path / "s"), "status.txt", "state: deferred\n")
    assert read_status(tmp_path / "s") == {"state": "deferred"}
    assert not overwrite(str(tmp_path / "s"), "status.txt", "x" * 100_000)


# -- a read-only file system ----------------------------------------------------------------------


def test_a_session_that_is_due_on_a_read_only_file_system_goes_on_when_it_can_be_written(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        with mounted(world.spool, "4m"), mounted(world.spool / names.DAEMON_DIR, "1m"):
            async with world.running() as daemon:
                world.task("s")
                await until(lambda: world.status("s").get("state") == "deferred" and "s" not in daemon._roster.live)
                subprocess.run(["mount", "-o", "remount,ro", str(world.spool)], check=True)
                daemon_status = world.spool / names.DAEMON_DIR
                await until(lambda: "read-only" in read_status(daemon_status).get("trouble", ""))
                assert len(world.server.requests) == 1
                subprocess.run(["mount", "-o", "remount,rw", str(world.spool)], check=True)
                await world.rests("s")
                await until(lambda: "trouble" not in read_status(daemon_status))
            assert len(world.server.requests) == 2

    retry = {"first": 2, "most": 2}
    play(tmp_path, [Fail(503), "ok"], scene, settings=ANY_ROOM | {"retry": retry})


def test_a_spool_that_cannot_be_written_at_the_start_is_named(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        with mounted(world.spool, "1m"):
            subprocess.run(["mount", "-o", "remount,ro", str(world.spool)], check=True)
            found = subprocess.run(
                [sys.executable, "-m", "gad", "--home", str(world.home), "up"], capture_output=True, text=True
            )
            assert found.returncode == 1 and "the daemon cannot begin" in found.stderr
            assert "Traceback" not in found.stderr

    play(tmp_path, Reply((Say("ok"),)), scene)


# -- descriptors ----------------------------------------------------------------------------------


def test_with_too_few_descriptors_every_task_is_answered_once(tmp_path: Path) -> None:
    def echo(body: dict[str, Any]) -> Any:
        return Reply((Say("re: " + str(body["messages"][-1]["content"]).rsplit("\n\n", 1)[1]),), wait=0.05)

    with serve_in_thread(echo) as server:
        world = World(tmp_path / "home", server, sessions=24, retry={"first": 0.1, "most": 0.5})
        tasks = [f"s{n}" for n in range(40)]
        for name in tasks:
            world.task(name, f"task {name}")
        log = tmp_path / "log"
        with open(log, "wb") as stderr:
            daemon = subprocess.Popen(
                [sys.executable, "-m", "gad", "--home", str(world.home), "up"],
                stderr=stderr,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (56, 56)),
            )
        try:
            wait_for(lambda: all(world.status(name).get("state") == "done" for name in tasks), 120)
            assert daemon.poll() is None
        finally:
            daemon.terminate()
            daemon.wait(60)
        said = log.read_text()
        assert "Too many open files" in said
        for name in tasks:
            assert world.text(name, "result.txt") == f"re: task {name}\n"
            assert texts(world, name) == [f"task {name}"] and world.kinds(name).count("answer") == 1


def test_a_run_that_the_machine_does_not_allow_is_put_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gad.daemon.trouble.PUT_OFF", 0.3)
    lacks = [errno.EMFILE, errno.ENOSPC]
    log = tmp_path / "log"

    async def scene(world: World) -> None:
        async with world.running() as daemon:
            work = daemon._parts.work

            def lacking(session: str) -> str:
                if lacks:
                    raise OSError(lacks[-1], os.strerror(lacks.pop()), session)
                return work(session)

            daemon._parts = dataclasses.replace(daemon._parts, work=lacking)
            world.task("s")
            await until(lambda: "No space left" in world.status("s").get("waiting", ""))
            assert world.status("s")["state"] == "queued"
            await world.rests("s")
        assert not lacks and log.read_text() == "ran\n" and "resumed" not in world.kinds("s")
        assert "waiting" not in world.status("s")

    play(tmp_path, [Call("code_run", {"type": "bash", "code": f"echo ran >> {log}"}), "ok"], scene)


# -- the clock ------------------------------------------------------------------------------------


def at(daemon: Daemon, now: Callable[[], float]) -> None:
    daemon._parts = dataclasses.replace(daemon._parts, now=now)
    daemon._looks._door._now = now


@pytest.mark.parametrize("days", [-1, 1])
def test_a_clock_that_jumps_by_a_day_holds_nobody_up(tmp_path: Path, days: int) -> None:
    jump = {"by": 0.0}

    async def scene(world: World) -> None:
        async with world.running() as daemon:
            at(daemon, lambda: time.time() + jump["by"])
            world.task("waits")
            await until(lambda: world.status("waits").get("state") == "deferred" and "waits" not in daemon._roster.live)
            world.task("works", "sleep")
            await until(lambda: "tool_started" in world.kinds("works"))
            jump["by"] = days * 86400.0
            daemon.poke("waits")
            world.task("new")
            for session in ("waits", "works", "new"):
                await world.rests(session)
            world.put("works", "reply.txt", "and again")
            await world.rests("works", round=2)
        for session in ("waits", "works", "new"):
            assert load(str(world.spool / session / "journal.jsonl")).torn == 0

    first = {"waits": Fail(503), "works": Call("code_run", {"type": "bash", "code": "sleep 0.5"})}

    def rule(body: dict[str, Any]) -> Any:
        task = "works" if "sleep" in str(body["messages"][1]["content"]) else "waits"
        return first.pop(task, "ok")

    play(tmp_path, rule, scene, settings={"retry": {"first": 1.5, "most": 1.5}})


def test_a_clock_that_is_set_forward_starts_what_is_due_then(tmp_path: Path) -> None:
    jump = {"by": 0.0}

    async def scene(world: World) -> None:
        async with world.running() as daemon:
            at(daemon, lambda: time.time() + jump["by"])
            world.put(
                "s",
                "task.yaml",
                f"not_before: {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() + 43200))}\n",
            )
            world.put("s", "input.txt", "later")
            await until(lambda: world.status("s").get("state") == "queued" and "s" not in daemon._roster.live)
            jump["by"] = 86400.0
            daemon._kick.set()
            await world.rests("s")

    play(tmp_path, ["ok"], scene)


def test_trouble_is_said_once_and_not_at_every_try(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        with mounted(world.spool, "2m"), caplog.at_level(logging.ERROR):
            async with world.running() as daemon:
                world.task("s")
                await world.rests("s")
                (world.spool / "s" / ".aside").write_text(LONG)
                filler = fill(world.spool)
                (world.spool / "s" / ".aside").rename(world.spool / "s" / "reply.txt")
                await until(lambda: daemon._troubles.tries["s"] >= 4)
                filler.unlink()
                await world.rests("s", round=2)
        assert sum("session s: tried again until it works" in record.message for record in caplog.records) == 1

    play(tmp_path, Reply((Say("ok"),)), scene, settings=ANY_ROOM)


# -- what cannot be looked at ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [errno.EACCES, errno.EMFILE, errno.EIO], ids=errno.errorcode.get)
def test_a_session_that_cannot_be_opened_holds_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    opened, shut = os.open, {"on": True}

    def refusing(path: Any, *rest: Any, **options: Any) -> int:
        if shut["on"] and str(path).endswith("/spool/bad"):
            raise OSError(kind, os.strerror(kind), path)
        return opened(path, *rest, **options)

    async def scene(world: World) -> None:
        world.task("bad")
        monkeypatch.setattr(os, "open", refusing)
        async with world.running() as daemon:
            await until(lambda: os.strerror(kind) in read_status(world.spool / ".daemon").get("trouble", ""))
            await daemon._looks.look_at_all()
            world.task("good")
            await world.rests("good")
            shut["on"] = False
            await world.rests("bad")
            await until(lambda: "trouble" not in read_status(world.spool / ".daemon"))

    play(tmp_path, Reply((Say("ok"),)), scene)


def test_a_spool_that_cannot_be_listed_for_a_while_is_listed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gad.daemon.FULL_LOOK", 0.05)
    scan, tries = os.scandir, [0]

    async def scene(world: World) -> None:
        def lacking(path: Any) -> Any:
            if str(path) == str(world.spool) and tries[0] < 3:
                tries[0] += 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            return scan(path)

        async with world.running() as daemon:
            monkeypatch.setattr(os, "scandir", lacking)
            daemon._kick.set()
            await until(lambda: tries[0] == 3)
            world.task("s")
            await world.rests("s")
        assert sum("cannot be listed" in record.message for record in caplog.records) == 1

    play(tmp_path, Reply((Say("ok"),)), scene)


def test_a_run_s_only_session_is_found_while_others_go_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    async def scene(world: World) -> None:
        @contextlib.contextmanager
        def removing(path: Any) -> Iterator[Any]:
            (world.spool / "gone").mkdir()
            with scan(path) as entries:
                found = list(entries)
            (world.spool / "gone").rmdir()
            yield iter(found)

        world.task("s")
        monkeypatch.setattr(os, "scandir", removing)
        async with world.running(only="s"):
            await world.rests("s")

    play(tmp_path, Reply((Say("ok"),)), scene)


# -- what was only written in part ----------------------------------------------------------------


@pytest.mark.parametrize("part", [0.5, 1.0], ids=["half", "whole"])
def test_what_could_not_be_cut_off_a_journal_is_cut_off_before_the_next_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    (tmp_path / "s").mkdir()
    path = tmp_path / "s" / "journal.jsonl"
    journal = Journal(str(path))
    journal.append(Begin(1.0, "s", TaskOptions(), "", False))
    before, write = path.read_bytes(), os.write

    def partly(fd: int, data: bytes) -> int:
        return write(fd, data[: int(len(data) * part)] if fd == journal._fd else data)

    def broken(fd: int, *_: Any) -> None:
        if fd == journal._fd:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", partly)
        patched.setattr(os, "fdatasync", broken)
        patched.setattr(os, "ftruncate", broken)
        with pytest.raises(OSError):
            journal.append(Said(2.0, 1, "input.txt", "hello"))
    assert path.read_bytes() != before
    journal.append(Said(3.0, 1, "input.txt", "hello"))
    journal.close()
    assert [json.loads(line)["at"] for line in path.read_text().splitlines()] == [1.0, 3.0]
    assert load(str(path)).session.state == "queued"


def test_the_ledger_loses_nothing_to_a_disk_that_was_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / names.DAEMON_DIR).mkdir()
    (tmp_path / names.DAEMON_DIR / "spend.jsonl").write_text('{"torn')
    ledger, write = Ledger(str(tmp_path)), os.write
    ledger.spend("a", 1.0, 7)
    room = [20]

    def filling(fd: int, data: bytes) -> int:
        if b'"day"' not in data:
            return write(fd, data)
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count, room[0] = write(fd, data[: room[0]]), 0
        return count

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", filling)
        ledger.spend("b", 2.0, 7)
        ledger.begin("b", 1.5, 7)
    ledger.spend("c", 4.0, 7)
    again = Ledger(str(tmp_path))
    assert ledger.spent_today() == again.spent_today() == 7.0 and again.begun_today(7) == 1


# -- stops and quotas -----------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["at work", "at rest"])
def test_a_stop_that_finds_no_room_reaches_the_children_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr("gad.daemon.trouble.PUT_OFF", 0.1)
    stop, tries = drop.stop, [0]

    def full(directory: Path) -> None:
        if directory.name == "kid" and tries[0] < 3:
            tries[0] += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))
        stop(directory)

    async def scene(world: World) -> None:
        async with world.running():
            await boss_waits(world)
            world.task("kid", "KID", parent="boss")
            await at_work(world, "kid")
            await until(lambda: world.status("boss").get("children"))
            if when == "at rest":
                go(world, "boss")
                await world.rests("boss")
            monkeypatch.setattr(drop, "stop", full)
            world.put("boss", "stop.txt", "")
            await world.rests("kid", "stopped")
            assert tries[0] == 3
            if when == "at work":
                await world.rests("boss", "stopped")

    play(tmp_path, by_task(BOSS=[bash(WAITS), "ok"], KID=Silence()), scene)


def test_trouble_after_a_session_s_end_is_over_when_it_rests(tmp_path: Path) -> None:
    lacks = [errno.ENOSPC]

    async def scene(world: World) -> None:
        async with world.running() as daemon:

            def lacking(live: Live) -> None:
                if lacks:
                    raise OSError(lacks[-1], os.strerror(lacks.pop()))

            daemon._parts = dataclasses.replace(daemon._parts, ended=lacking)
            world.task("s")
            await world.rests("s")
            await until(lambda: not lacks and daemon._troubles.of("s"))
            await until(lambda: not daemon._troubles.known())
            await until(lambda: "trouble" not in read_status(world.spool / ".daemon"))

    play(tmp_path, ["ok"], scene)


def test_a_journal_that_cannot_be_read_for_a_while_is_named_once_and_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[int] = []

    def failing(path: str) -> Loaded:
        if len(opened) < 3:
            opened.append(os.open(tmp_path, os.O_RDONLY))  # the next try's directory has another descriptor
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return load(path)

    monkeypatch.setattr("gad.spool.live.load", failing)

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
        said = [record.message for record in caplog.records if "tried again until it works" in record.message]
        assert len(said) == 1 and str(world.spool / "s" / "journal.jsonl") in said[0]

    play(tmp_path, ["ok"], scene)
    for fd in opened:
        os.close(fd)
