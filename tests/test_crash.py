"""kill -9 of a real daemon at each row of the recovery table, then a restart: nothing lost, no tool run twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gad.spool import names
from gad.spool.status import read_status
from tests.scripted_server import Call, Reply, Say, Silence, serve_in_thread
from tests.test_protocol import alive
from tests.world import World

OK = Reply((Say("ok"),))


class Daemons:
    """Starts `gad up` as a process of its own, as often as it is killed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        status = self.world.spool / names.DAEMON_DIR / "status.txt"
        status.unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        command = [sys.executable, "-m", "gad", "--home", str(self.world.home), "up"]
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        wait_for(lambda: read_status(status.parent).get("state") == "ready", 20)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()


def wait_for(condition: Callable[[], object], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.005)  # polling


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Callable[[Any], Daemons]]:
    with contextlib.ExitStack() as stack:
        made: list[Daemons] = []

        def make(script: Any) -> Daemons:
            server = stack.enter_context(serve_in_thread(script))
            made.append(Daemons(World(tmp_path / "home", server, drain=0)))
            return made[-1]

        yield make
        for one in made:
            if one.process is not None:
                one.kill()


def rests(world: World, session: str, state: str) -> dict[str, Any]:
    wait_for(lambda: world.status(session).get("state") == state)
    return world.status(session)


def test_an_accepted_message_is_answered(daemons: Callable[[Any], Daemons]) -> None:
    one = daemons([Silence(), OK])
    world = one.world
    one.start()
    world.task("s", "答 me")
    wait_for(lambda: len(world.server.requests) == 1)
    one.restart()
    rests(world, "s", "done")
    assert [record["text"] for record in world.records("s") if record["kind"] == "message"] == ["答 me"]


def test_a_half_streamed_answer_stays_under_a_note(daemons: Callable[[Any], Daemons]) -> None:
    one = daemons([Reply((Say("half an ans"), Silence())), Reply((Say("the whole answer"),))])
    world = one.world
    one.start()
    world.task("s")
    wait_for(lambda: "half an ans" in world.text("s", "output.txt"))
    one.restart()
    rests(world, "s", "done")
    output = world.text("s", "output.txt")
    assert output.index("half an ans") < output.index("interrupted here") < output.index("the whole answer")
    assert world.text("s", "result.txt") == "the whole answer\n"
    assert "half an ans" not in world.server.requests[1].raw.decode()


def test_a_started_tool_is_not_run_again_and_what_it_left_is_ended(
    daemons: Callable[[Any], Daemons], tmp_path: Path
) -> None:
    code = f"echo ran >> {tmp_path}/log; echo $$ > {tmp_path}/pid; sleep 300 & wait"
    one = daemons([Call("code_run", {"type": "bash", "code": code, "timeout": 250}), OK])
    world = one.world
    one.start()
    world.task("s")
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    one.restart()
    rests(world, "s", "done")
    assert (tmp_path / "log").read_text() == "ran\n"
    assert "may or may not have happened; check before repeating" in world.server.requests[1].raw.decode()
    wait_for(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_when_all_results_are_in_the_model_is_asked(daemons: Callable[[Any], Daemons], tmp_path: Path) -> None:
    code = f"echo ran >> {tmp_path}/log; echo 结果"
    one = daemons([Call("code_run", {"type": "bash", "code": code}), Silence(), OK])
    world = one.world
    one.start()
    world.task("s")
    wait_for(lambda: len(world.server.requests) == 2)
    one.restart()
    rests(world, "s", "done")
    assert (tmp_path / "log").read_text() == "ran\n"
    assert world.server.requests[1].body["messages"] == world.server.requests[2].body["messages"]


def test_a_stop_request_holds_across_a_restart(daemons: Callable[[Any], Daemons]) -> None:
    one = daemons([Silence()])
    world = one.world
    one.start()
    world.task("s")
    wait_for(lambda: len(world.server.requests) == 1)
    one.kill()
    with open(world.spool / "s" / "journal.jsonl", "a", encoding="utf-8") as journal:
        journal.write(json.dumps({"kind": "stop", "at": time.time(), "n": 2}) + "\n")
    one.start()
    rests(world, "s", "stopped")
    assert world.kinds("s")[-1] == "ended" and len(world.server.requests) == 1


def test_asking_is_still_asking(daemons: Callable[[Any], Daemons]) -> None:
    one = daemons([Call("ask_user", {"question": "Which?"}), OK])
    world = one.world
    one.start()
    world.task("s")
    rests(world, "s", "asking")
    one.restart()
    assert world.status("s")["state"] == "asking"
    world.put("s", "reply.txt", "this")
    rests(world, "s", "done")


def test_a_crash_between_the_journal_and_the_status_is_made_good(daemons: Callable[[Any], Daemons]) -> None:
    one = daemons(OK)
    world = one.world
    one.start()
    world.task("s")
    rests(world, "s", "done")
    one.kill()
    (world.spool / "s" / "result.txt").unlink()
    (world.spool / "s" / "status.txt").write_text("state: running\n")
    one.start()
    rests(world, "s", "done")
    assert world.text("s", "result.txt") == "ok\n" and len(world.server.requests) == 1


def test_a_session_that_crashes_the_daemon_three_times_is_given_up(daemons: Callable[[Any], Daemons]) -> None:
    one = daemons([Silence(), Silence(), Silence()])
    world = one.world
    world.task("s")
    for crash in range(3):
        one.start()
        wait_for(lambda crash=crash: len(world.server.requests) == crash + 1)  # type: ignore[misc]
        one.kill()
    one.start()
    assert "crashed 3 times" in rests(world, "s", "failed")["error"]
    assert len(world.server.requests) == 3


def test_a_damaged_journal_fails_its_session_untouched_and_hurts_no_other(daemons: Callable[[Any], Daemons]) -> None:
    one = daemons(OK)
    world = one.world
    one.start()
    world.task("s")
    rests(world, "s", "done")
    one.kill()
    path = world.spool / "s" / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"garbage\n" + b"".join(lines[2:]))
    damaged = path.read_bytes()
    (world.spool / "s" / "status.txt").unlink()
    world.task("t")
    one.start()
    assert "line 2" in rests(world, "s", "failed")["error"]
    rests(world, "t", "done")
    world.put("s", "reply.txt", "hello?")
    world.put("t", "reply.txt", "more")
    wait_for(lambda: world.status("t").get("round") == 2 and world.status("t")["state"] == "done")
    assert path.read_bytes() == damaged and "reply.txt" in world.files("s")
    world.put("s", "input.txt", "anew")
    rests(world, "s", "done")
    assert (world.spool / "s" / "archived-0001-journal.jsonl").read_bytes() == damaged


def has_moved(kinds: list[str]) -> bool:
    """Return whether a session has come on since it was last taken up."""
    since = kinds[len(kinds) - kinds[::-1].index("resumed") :] if "resumed" in kinds else kinds
    return bool({"answer", "tool_finished", "ended"} & {*since, *kinds[-1:]})


def test_killed_again_and_again_at_any_moment_every_tool_ran_at_most_once(
    daemons: Callable[[Any], Daemons], tmp_path: Path
) -> None:
    sessions, steps = 4, 5

    def rule(body: dict[str, Any]) -> Any:
        answered = [message for message in body["messages"] if message["role"] == "tool"]
        if len(answered) == steps:
            return "all done"
        task = str(body["messages"][1]["content"])
        name = task[task.rindex("task-") :].split()[0]
        code = f"echo {name}.{len(answered)} >> {tmp_path}/log; sleep 0.05"
        return Reply((Call("code_run", {"type": "bash", "code": code}),), wait=0.05)

    one = daemons(rule)
    world = one.world
    chance = random.Random(7)
    one.start()
    for n in range(sessions):
        world.task(f"s{n}", f"task-{n}")
    for kill in range(5):
        # Three crashes in a row without any progress would put a session in failed, as they should.
        if kill % 2:
            wait_for(lambda: all(has_moved(world.kinds(f"s{n}")) for n in range(sessions)))
        time.sleep(chance.uniform(0.0, 0.4))  # the moment of the kill
        one.restart()
    for n in range(sessions):
        rests(world, f"s{n}", "done")
        assert world.text(f"s{n}", "result.txt") == "all done\n"
        assert world.kinds(f"s{n}").count("message") == 1
    lines = (tmp_path / "log").read_text().split()
    assert len(lines) == len(set(lines))


def test_a_clean_stop_resumes_without_counting_as_a_crash(daemons: Callable[[Any], Daemons]) -> None:
    one = daemons([Reply((Silence(),))] * 4 + [OK])
    world = one.world
    world.task("s")
    for count in range(1, 5):
        one.start()
        wait_for(lambda count=count: len(world.server.requests) == count)  # type: ignore[misc]
        assert one.process is not None
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(10) == 0
        assert world.kinds("s")[-1] == "paused"
    one.start()
    rests(world, "s", "done")
