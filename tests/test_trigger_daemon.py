"""A schedule in a real daemon that is killed again and again: one session for each due time, and its report."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.scripted_server import Call, Reply, Say
from tests.test_children import said, turns
from tests.test_crash import Daemons, daemons, wait_for  # noqa: F401 - a fixture
from tests.test_trigger_world import made, state


def report(body: dict[str, Any]) -> Any:
    """Run a command, then report; other sessions are answered at once."""
    if "report" in said(body) and turns(body) == 0:
        return Call("code_run", {"type": "bash", "code": "echo counted >> log; sleep 0.3; echo 7"})
    return Reply((Say("Seven visitors."),))


def test_a_schedule_fires_once_across_kill_9_and_its_session_reports_once(
    daemons: Callable[[Any], Daemons],  # noqa: F811
) -> None:
    chance = random.Random(7)
    one = daemons(report)
    world = one.world
    due = time.gmtime(time.time() - 120)
    schedules = world.home / "triggers/schedules"
    schedules.mkdir()
    (schedules / "visitors.json").write_text(
        json.dumps({"schedule": time.strftime("%H:%M", due), "timezone": "UTC", "prompt": "The report, please."})
    )
    one.start()
    wait_for(lambda: "visitors" in json.dumps(state(world, "scheduled")), 40)
    assert made(world, "scheduled-") == []  # what was due before it was there is not made up for
    one.kill()
    kept = world.home / "triggers/.state/scheduled.json"
    found = json.loads(kept.read_text("utf-8"))
    found["plugin"]["schedules"]["visitors"]["last"] = time.time() - 600  # the daemon was down across the due time
    kept.write_text(json.dumps(found))
    for _ in range(6):
        one.start()
        until = time.monotonic() + chance.random() * 1.5
        wait_for(lambda until=until: time.monotonic() > until)  # type: ignore[misc]
        one.kill()  # before it fires, while it does, in the command, in the report
    one.start()
    name = f"scheduled-visitors-{time.strftime('%Y%m%dT%H%M00Z', due)}"
    wait_for(lambda: world.status(name).get("state") == "done", 40)
    wait_for(lambda: state(world, "scheduled").get("open") == {}, 40)
    assert made(world, "scheduled-") == [name]
    assert world.text(name, "result.txt") == "Seven visitors.\n"
    log = Path(world.home, "work", name, "log")  # a command that was begun is never run again, so once or not at all
    assert not log.exists() or log.read_text() == "counted\n"
    assert world.kinds(name).count("tool_started") == world.kinds(name).count("ended") == 1
    assert state(world, "scheduled")["last_result"]["state"] == "done"
