"""Races, faults and hostile files: what once went wrong in the spool or the session machine, each kept as a test."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gad.spool.live as live_module
import gad.spool.status as status_module
from gad.core.messages import Assistant, Text, Usage
from gad.core.records import Answered, Asked, Begin, Calling, Ended, Record, Said, StopAsked
from gad.core.session import replay
from gad.core.steps import Finish
from gad.core.task import TaskOptions
from gad.spool import names
from gad.spool.files import replace
from gad.spool.intake import Door
from gad.spool.journal import Journal, load
from gad.spool.live import Live
from gad.spool.output import Output
from tests.scripted_server import Call, Reply, Say
from tests.test_crash import Daemons, daemons, wait_for  # noqa: F401
from tests.world import World, play, until

OK = Reply((Say("ok"),))
ASK = Call("ask_user", {"question": "Which colour?"})


def said(world: World, session: str) -> list[str]:
    return [record["text"] for record in world.records(session) if record["kind"] == "message"]


# -- messages -------------------------------------------------------------------------------------


def test_second_input_while_the_first_is_still_written(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running() as daemon:
            (world.spool / "s").mkdir()
            with open(world.spool / "s" / "input.txt", "w", encoding="utf-8") as slow:
                slow.write("first task")
                slow.flush()
                daemon.poke("s")
                await until(lambda: ".claim-0001-input.txt" in world.files("s"))
                world.put("s", "input.txt", "second task")
                await until(lambda: "claim-0002" in str(world.files("s")) or True)
                daemon.poke("s")
                await asyncio.sleep(0.1)
            await until(lambda: world.status("s").get("state") == "done" and not world.waiting("s"))
            await asyncio.sleep(0.3)
        asked = [request.raw.decode() for request in world.server.requests]
        assert any("first task" in text for text in asked), "accepted, archived, and never answered"

    play(tmp_path, OK, scene)


def test_reply_then_input_loses_the_reply(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running() as daemon:
            world.task("s", "conversation one")
            await world.rests("s")
            with open(world.spool / "s" / "reply.txt", "w", encoding="utf-8") as slow:
                slow.write("more of one")
                slow.flush()
                daemon.poke("s")
                await until(lambda: ".claim-0002-reply.txt" in world.files("s"))
                world.put("s", "input.txt", "conversation two")
                daemon.poke("s")
                await asyncio.sleep(0.1)
            await until(lambda: any("conversation two" in r.raw.decode() for r in world.server.requests))
            await asyncio.sleep(0.3)
        asked = [request.raw.decode() for request in world.server.requests]
        assert any("more of one" in text for text in asked), "journalled, archived, and never answered"

    play(tmp_path, OK, scene)


def test_a_look_that_fails_half_way_forgets_what_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Journal.append
    full = {"left": 0}

    def scarce(self: Journal, record: Record, *more: Record) -> None:
        if isinstance(record, Said) and record.text == "ZWEI" and full["left"]:
            full["left"] -= 1
            raise OSError(errno.ENOSPC, "no space left")
        append(self, record, *more)

    monkeypatch.setattr(Journal, "append", scarce)

    async def scene(world: World) -> None:
        world.task("s")
        async with world.running():
            await world.rests("s")
        full["left"] = 1
        world.put("s", names.claim_name(2, "reply.txt"), "EINS")
        world.put("s", names.claim_name(3, "reply.txt"), "ZWEI")
        async with world.running() as daemon:
            await until(lambda: full["left"] == 0)
            daemon.poke("s")
            await until(lambda: len(world.server.requests) >= 2)
            await until(lambda: world.status("s")["state"] == "done")
            assert said(world, "s") == ["do it", "EINS", "ZWEI"]
            sent = str(world.server.requests[-1].body)
            assert "ZWEI" in sent and "EINS" in sent, "journalled, its file removed, and not shown to the model"

    play(tmp_path, OK, scene)


def test_a_failing_fdatasync_takes_a_message_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fdatasync
    bad = {"left": 0}

    def failing(fd: int) -> None:
        if bad["left"]:
            bad["left"] -= 1
            raise OSError(errno.EIO, "i/o error")
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", failing)

    async def scene(world: World) -> None:
        world.task("s")
        async with world.running():
            await world.rests("s")
        bad["left"] = 1
        world.put("s", names.claim_name(2, "reply.txt"), "EINS")
        async with world.running() as daemon:
            await until(lambda: bad["left"] == 0)
            daemon.poke("s")
            await world.rests("s", round=2)
        assert said(world, "s") == ["do it", "EINS"]

    play(tmp_path, OK, scene)


LATE: list[Record] = [
    Begin(1.0, "s", TaskOptions()),
    Said(1.0, 1, "input.txt", "go"),
    Calling(2.0, 1, "m"),
    Answered(3.0, 1, Assistant((Text("done"),)), "end", "m", Usage(), None),
]


def test_a_stop_behind_a_late_reply_is_lost() -> None:
    # Both arrive while `ended` waits for the lock: Finish("done", upto=1) was decided before.
    session = replay([*LATE, Said(4.0, 2, "reply.txt", "more"), StopAsked(4.0, 3), Ended(5.0, "done", upto=1)])
    assert isinstance(session.next_step(6.0), Finish), session.next_step(6.0)


def test_a_stop_behind_a_late_reply_is_lost_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Live.append
    at_end, go = asyncio.Event(), asyncio.Event()

    async def slow(self: Live, record: Record) -> None:
        if isinstance(record, Ended) and not at_end.is_set():
            at_end.set()
            await go.wait()
        await append(self, record)

    monkeypatch.setattr(Live, "append", slow)

    async def scene(world: World) -> None:
        async with world.running() as daemon:
            world.task("s")
            await at_end.wait()
            (world.spool / "s" / ".x").write_text("more")
            (world.spool / "s" / "stop.txt").write_text("")
            os.rename(world.spool / "s" / ".x", world.spool / "s" / "reply.txt")
            daemon.poke("s")
            await until(lambda: "stop" in world.kinds("s") and "message" in world.kinds("s")[2:])
            go.set()
            await until(lambda: world.status("s")["state"] in ("done", "stopped") and world.status("s")["round"] == 2)
            assert world.status("s")["state"] == "stopped" and len(world.server.requests) == 1

    play(tmp_path, OK, scene)


def test_a_reply_after_a_stop_while_asking_does_not_resume() -> None:
    session = replay(
        [
            Begin(1.0, "s", TaskOptions()),
            Said(1.0, 1, "input.txt", "go"),
            Calling(2.0, 1, "m"),
            Answered(3.0, 1, _asks(), "tools", "m", Usage(), None),
            Asked(4.0, "c1", "Which?"),
            StopAsked(5.0, 2),
            Said(6.0, 3, "reply.txt", "go on after the stop"),
            Ended(7.0, "stopped", upto=2),
        ]
    )
    assert session.state == "queued"


def _asks() -> Assistant:
    from gad.core.messages import ToolCall

    return Assistant((ToolCall("c1", "ask_user", {"question": "Which?"}),))


def test_a_reply_that_comes_as_a_limit_ends_the_round_gets_no_allowance() -> None:
    limited: list[Record] = [Begin(1.0, "s", TaskOptions(turns=1)), *LATE[1:3]]
    cut = Answered(3.0, 1, Assistant((Text("do"),)), "length", "m", Usage(), None)
    error = "turn limit reached (1)"
    session = replay([*limited, cut, Said(4.0, 2, "reply.txt", "go on"), Ended(5.0, "failed", error, True, upto=1)])
    in_order = replay([*limited, cut, Ended(4.0, "failed", error, True, upto=1), Said(5.0, 2, "reply.txt", "go on")])
    assert session.state == in_order.state == "queued"
    assert type(session.next_step(6.0)) is type(in_order.next_step(6.0)), session.next_step(6.0)


def test_a_finished_round_s_answer_is_not_in_result_when_a_reply_was_late(tmp_path: Path) -> None:
    async def whole() -> None:
        directory = tmp_path / "s"
        directory.mkdir()
        live = Live(str(directory))
        for record in [*LATE, Said(4.0, 2, "reply.txt", "more"), Ended(5.0, "done", upto=1)]:
            await live.append(record)
        live.close()
        assert (directory / "result.txt").exists()

    asyncio.run(whole())


def test_a_bad_task_yaml_and_a_crash_run_the_task_without_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_down = Door._turn_down
    crash = {"left": 1}

    def dying(self: Door, *args: Any) -> None:
        if crash["left"]:
            crash["left"] -= 1
            raise OSError(errno.ENOSPC, "stands for a kill -9 or a full disk at this very point")
        turn_down(self, *args)

    monkeypatch.setattr(Door, "_turn_down", dying)

    async def scene(world: World) -> None:
        world.put("s", "task.yaml", "usd: 0.01\ncwd: /no/such/place\n")
        world.put("s", "input.txt", "be careful")
        async with world.running():
            await until(lambda: crash["left"] == 0)
        async with world.running():
            await until(lambda: world.status("s").get("state") in ("done", "rejected", "failed"))
        assert world.status("s")["state"] == "rejected" and not world.server.requests

    play(tmp_path, OK, scene)


def test_a_stop_that_waited_behind_a_rejected_input_meets_the_corrected_one(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        world.put("s", "input.txt", b"\xff\xff\xff")
        world.put("s", "stop.txt", "")
        async with world.running():
            await until(lambda: world.status("s").get("state") == "rejected")
            world.put("s", "input.txt", "a correct one")
            await until(lambda: world.status("s").get("state") in ("done", "stopped"))
            assert world.status("s")["round"] == 1 and "stop" not in world.kinds("s"), world.kinds("s")

    play(tmp_path, OK, scene)


# -- endless loops --------------------------------------------------------------------------------


def test_time_limit_in_a_check(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", seconds=1, check="sleep 60")
            try:
                await until(lambda: world.status("s").get("state") == "failed", 4)
            finally:
                world.put("s", "stop.txt", "")
                await until(lambda: world.status("s").get("state") in ("stopped", "failed"))

    play(tmp_path, OK, scene)


def test_turn_limit_hides_the_time_limit(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", seconds=1, turns=1)
            try:
                await until(lambda: world.status("s").get("state") == "failed", 4)
            finally:
                world.put("s", "stop.txt", "")
                await until(lambda: world.status("s").get("state") in ("stopped", "failed"))

    play(tmp_path, Call("code_run", {"type": "bash", "code": "sleep 50"}), scene)


def test_looks_at_a_blocked_session_multiply(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running() as daemon:
            world.task("s")
            await world.rests("s")
            with open(world.spool / "s" / "reply.txt", "w", encoding="utf-8") as slow:
                slow.write("x")
                slow.flush()
                for _ in range(20):  # full looks, events, polls
                    daemon.poke("s")
                    await asyncio.sleep(0.02)
                looks = 0
                take_in = daemon._looks._door.take_in

                def counted(*args: Any, **rest: Any) -> Any:
                    nonlocal looks
                    looks += 1
                    return take_in(*args, **rest)

                daemon._looks._door.take_in = counted  # type: ignore[method-assign]
                await asyncio.sleep(1.0)
                assert looks <= 8, looks

    play(tmp_path, OK, scene)


def test_a_check_that_kills_the_daemon_is_tried_for_ever(
    daemons: Callable[[Any], Daemons],  # noqa: F811
    tmp_path: Path,
) -> None:
    one = daemons(OK)
    world = one.world
    log = tmp_path / "log"
    world.task("s", check=f"echo ran >> {log}; kill -9 $PPID; sleep 5")
    for crash in range(1, 6):
        with contextlib.suppress(AssertionError):
            one.start()
        assert one.process is not None
        try:
            wait_for(lambda crash=crash: log.exists() and len(log.read_text().split()) >= crash, 8)  # type: ignore[misc]
        except AssertionError:
            break
        one.process.wait(10)
    assert len(log.read_text().split()) <= 3


# -- the journal ----------------------------------------------------------------------------------


def test_a_full_disk_as_status_says_done_damages_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = status_module.write_status
    full = {"left": 1}

    def scarce(directory: Any, values: Any) -> None:
        if values.get("state") == "done" and full["left"]:
            full["left"] -= 1
            raise OSError(errno.ENOSPC, "no space left")
        write(directory, values)

    monkeypatch.setattr(live_module, "write_status", scarce)

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await until(lambda: full["left"] == 0)
            await until(lambda: world.status("s").get("state") in ("done", "failed"))
        load(str(world.spool / "s" / "journal.jsonl"))

    play(tmp_path, OK, scene)


# -- status ---------------------------------------------------------------------------------------


def test_a_file_turned_down_in_mid_run_hides_done(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await until(lambda: len(world.server.requests) == 1)
            world.put("s", "context.txt", b"\xff\xff\xff")
            await until(lambda: "rejected" in world.kinds("s"))
            await until(lambda: "ended" in world.kinds("s"))
            await asyncio.sleep(0.1)
            assert world.status("s")["state"] == "done"

    play(tmp_path, Reply((Say("ok"),), wait=0.3), scene)


# -- what lies in the directory -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["output.txt", ".result.txt.tmp"])
def test_a_pipe_in_place_of_a_file_of_the_daemon_s_hangs_it(tmp_path: Path, name: str) -> None:

    os.mkfifo(tmp_path / name)

    def work() -> None:
        with contextlib.suppress(OSError):
            Output(str(tmp_path / name)) if name == "output.txt" else replace(str(tmp_path), "result.txt", "x")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(1.0)
    stuck = thread.is_alive()
    reader = os.open(tmp_path / name, os.O_RDONLY | os.O_NONBLOCK) if stuck else -1
    thread.join(1.0)
    if reader >= 0:
        os.close(reader)
    assert not stuck, "the daemon's only loop waits in open()"


def test_a_pipe_as_journal_keeps_the_daemon_from_getting_ready(
    daemons: Callable[[Any], Daemons],  # noqa: F811
) -> None:
    one = daemons(OK)
    (one.world.spool / "s").mkdir()
    os.mkfifo(one.world.spool / "s" / "journal.jsonl")
    one.world.task("t")
    import tests.test_crash as crash_tests

    wait = crash_tests.wait_for
    crash_tests.wait_for = lambda condition, seconds=15.0: wait(condition, 8)
    try:
        one.start()
    finally:
        crash_tests.wait_for = wait


def test_a_session_directory_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        async with world.running():
            (outside / "input.txt").write_text("not a session")
            os.symlink(outside, world.spool / ".link")
            os.rename(world.spool / ".link", world.spool / "s")
            world.task("t")
            await world.rests("t")
            await asyncio.sleep(0.3)
        assert set(os.listdir(outside)) == {"input.txt"}

    play(tmp_path, OK, scene)


# -- steps broken off -----------------------------------------------------------------------------


def test_a_tool_broken_off_by_the_time_limit_runs_again_when_the_clock_is_set_back(tmp_path: Path) -> None:
    import dataclasses
    import time

    log = tmp_path / "log"
    back = {"by": 0.0}

    async def scene(world: World) -> None:
        async with world.running() as daemon:

            def now() -> float:
                found = time.time() - back["by"]
                if log.exists() and back["by"] == 0.0 and world.records("s")[2]["at"] + 1.0 <= found:
                    back["by"] = 3600.0
                return found

            daemon._parts = dataclasses.replace(daemon._parts, now=now)
            world.task("s", seconds=1)
            await until(lambda: back["by"] > 0, 5)
            await until(lambda: world.status("s")["state"] == "failed" or log.read_text() != "ran\n", 4)
            assert log.read_text() == "ran\n"

    code = f"echo ran >> {log}; sleep 50"
    play(tmp_path, Call("code_run", {"type": "bash", "code": code}), scene)


def test_the_daemon_leaves_while_a_record_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    from gad.core.messages import ToolCall
    from gad.core.records import Paused, ToolStarted, encode

    calls = tuple(ToolCall(f"c{n}", "file_read", {"path": "x"}) for n in (1, 2))
    history: list[Record] = [
        Begin(1.0, "s", TaskOptions(model="test")),
        Said(1.0, 1, "input.txt", "go"),
        Calling(2.0, 1, "m"),
        Answered(3.0, 1, Assistant(calls), "tools", "m", Usage(), None),
        ToolStarted(4.0, "c1", "file_read"),
        Paused(5.0),
    ]
    append = Journal.append
    writing, go, written = threading.Event(), threading.Event(), []

    def slow(self: Journal, record: Record) -> None:
        if isinstance(record, ToolStarted):
            writing.set()
            go.wait(10)  # a slow disk
        append(self, record)
        written.append(record)

    monkeypatch.setattr(Journal, "append", slow)

    async def scene(world: World) -> None:
        text = "".join(json.dumps(encode(record)) + "\n" for record in history)
        world.put("s", "journal.jsonl", text)
        try:
            async with world.running() as daemon:
                await until(writing.is_set)
                daemon.stop()
                await asyncio.sleep(0.3)
                closed = daemon._standing.state == "stopped"
                go.set()
        finally:
            go.set()
        await asyncio.sleep(0.2)
        assert not closed, f"stopped, the journal closed under the writer; written: {written}"

    play(tmp_path, OK, scene)


def test_a_passing_lack_of_descriptors_makes_a_healthy_session_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lack = {"left": 0}
    whole = load

    def loading(path: str) -> Any:
        if lack["left"]:
            lack["left"] -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return whole(path)

    monkeypatch.setattr(live_module, "load", loading)

    async def scene(world: World) -> None:
        async with world.running() as daemon:
            world.task("s", "conversation one")
            await world.rests("s", "asking")
            world.put("s", "input.txt", "conversation two")  # waits: one has not ended
            lack["left"] = 1
            world.put("s", "context.txt", "x")
            await until(lambda: lack["left"] == 0 or daemon.poke("s"))  # type: ignore[func-returns-value]
            await asyncio.sleep(0.3)
            assert "archived-0001-journal.jsonl" not in world.files("s")

    play(tmp_path, [ASK, OK], scene)


def test_a_full_disk_under_output_txt_forgets_the_second_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Output.line
    full = {"left": 0}

    def scarce(self: Output, text: str) -> None:
        if text == "EINS" and full["left"]:
            full["left"] -= 1
            raise OSError(errno.ENOSPC, "no space left")
        line(self, text)

    monkeypatch.setattr(Output, "line", scarce)

    async def scene(world: World) -> None:
        world.task("s")
        async with world.running():
            await world.rests("s")
        full["left"] = 1
        world.put("s", names.claim_name(2, "reply.txt"), "EINS")
        world.put("s", names.claim_name(3, "reply.txt"), "ZWEI")
        async with world.running() as daemon:
            await until(lambda: full["left"] == 0)
            daemon.poke("s")
            await until(lambda: len(world.server.requests) >= 2)
            await until(lambda: world.status("s")["state"] == "done")
            assert said(world, "s") == ["do it", "EINS", "ZWEI"]
            sent = str(world.server.requests[-1].body)
            assert "EINS" in sent and "ZWEI" in sent

    play(tmp_path, OK, scene)


def test_a_directory_removed_and_made_again_while_its_session_runs(tmp_path: Path) -> None:
    import shutil

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", "the old one")
            await until(lambda: len(world.server.requests) == 1)
            shutil.rmtree(world.spool / "s")
            world.task("s", "the new one")
            await until(lambda: any("the new one" in r.raw.decode() for r in world.server.requests), 5)
            await until(lambda: world.status("s").get("state") == "done" and not world.waiting("s"))
        assert "begin" in world.kinds("s")[0] and said(world, "s") == ["the new one"]
        for name in world.files("s"):
            if name.startswith("archived-") and name.endswith("journal.jsonl"):
                load(str(world.spool / "s" / name))

    play(tmp_path, [Reply((Say("old answer"),), wait=0.4), "new answer"], scene)


@pytest.mark.parametrize("name", ["context.txt", "stop.txt"])
def test_a_finished_session_that_got_one_more_file_is_settled_again(tmp_path: Path, name: str) -> None:
    from gad.spool.intake import survey

    async def scene(world: World) -> None:
        async with world.running() as daemon:
            world.task("s")
            await world.rests("s")
            world.put("s", name, "x")
            await until(lambda: len(world.kinds("s")) == 6 and not world.waiting("s"))
            await until(lambda: "s" not in daemon._roster.live)
            before = (world.spool / "s" / "result.txt").stat().st_ino, (world.spool / "s" / "status.txt").stat().st_ino
            await daemon._looks.look_at_all()
            await until(lambda: not daemon._looks.under_way)
            after = (world.spool / "s" / "result.txt").stat().st_ino, (world.spool / "s" / "status.txt").stat().st_ino
            assert survey(str(world.spool / "s")).settled == "done" and before == after

    play(tmp_path, OK, scene)


def test_a_stop_and_a_reply_taken_before_the_request_goes_out() -> None:
    # CallModel was decided, then one look took both; `calling` came last and emptied the inbox.
    session = replay(
        [
            *LATE[:2],
            StopAsked(2.0, 2),
            Said(2.0, 3, "reply.txt", "go on after the stop"),
            Calling(3.0, 1, "m"),
            Ended(4.0, "stopped", upto=2),
        ]
    )
    assert session.state == "queued"


# -- second look ----------------------------------------------------------------------------------


def test_a_message_before_a_claim_that_cannot_be_read_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gad.spool.claim import read_claim

    def broken(directory: str, n: int, *rest: Any) -> Any:
        if n == 3:
            raise OSError(errno.EIO, "i/o error")
        return read_claim(directory, n, *rest)

    async def scene(world: World) -> None:
        world.task("s")
        async with world.running():
            await world.rests("s")
        monkeypatch.setattr("gad.spool.intake.read_claim", broken)
        world.put("s", names.claim_name(2, "reply.txt"), "EINS")
        world.put("s", names.claim_name(3, "reply.txt"), "ZWEI")
        async with world.running() as daemon:
            await until(lambda: said(world, "s") == ["do it", "EINS"])
            for _ in range(3):
                daemon.poke("s")
                await asyncio.sleep(0.1)
            await until(lambda: len(world.server.requests) == 2, 3)

    play(tmp_path, OK, scene)


def test_a_status_that_cannot_be_written_does_not_keep_the_session_from_resting(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        (world.spool / "s" / "status.txt").mkdir(parents=True)
        async with world.running() as daemon:
            world.put("s", "input.txt", "go")
            await until(lambda: "ended" in world.kinds("s"))
            await asyncio.sleep(0.1)
            await until(lambda: daemon.states.get("s") == "done" and "s" not in daemon._roster.live, 3)

    play(tmp_path, OK, scene)


def test_a_stop_for_a_rejected_task_does_not_stop_the_corrected_one(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.put("s", "input.txt", b"\xff\xff\xff")
            await until(lambda: world.status("s").get("state") == "rejected")
            world.put("s", "stop.txt", "")
            await asyncio.sleep(0.2)
            world.put("s", "input.txt", "a correct one")
            await until(lambda: world.status("s").get("state") in ("done", "stopped"))
            assert world.status("s")["state"] == "done"

    play(tmp_path, OK, scene)


def test_an_input_that_appears_while_a_look_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gad.spool.intake as intake_module

    look = intake_module._survey

    async def scene(world: World) -> None:
        async with world.running() as daemon:
            world.task("s")
            await world.rests("s")
        directory = world.put("s", "reply.txt", "and more").parent

        def surveyed(path: str, known: str = "") -> Any:
            seen = look(path, known)
            world.put("s", "input.txt", "a new conversation")  # just after the listing
            return seen

        monkeypatch.setattr(intake_module, "_survey", surveyed)
        live = Live(str(directory))
        live.load()
        intake = daemon._looks._door.take_in(str(directory), live.session, live.journal)
        live.close()
        assert [record.text for record in intake.records if isinstance(record, Said)] == ["and more"]
        assert intake.trouble is None and "input.txt" in world.files("s")

    play(tmp_path, OK, scene)
