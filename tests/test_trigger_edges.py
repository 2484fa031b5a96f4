"""What goes wrong at the edges of triggers: damaged state, garbled talk, costs that come late, huge input."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gad.cli import gad
from gad.home import make_home
from gad.spool import drop
from gad.spool.status import write_status
from gad.triggers import activity, batch
from gad.triggers.instances import Finder, Settings
from gad.triggers.record import Record, Store
from tests.scripted_server import Fail
from tests.test_trigger_files import Fake
from tests.test_trigger_host import EVERY, Rig, scene
from tests.test_trigger_world import made, reaches, state
from tests.world import World, until
from tests.world import play as world_of

ONCE_A_SECOND = "INTERVAL = 1\ndef check(): return {'text': 'fine', 'key': str(int(trigger.now()))}"


# -- the state file ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"\xff\xfe{",
        b"[]",
        b"[" * 100_000,
        b'{"open": {"x-1": 5}}',
        b'{"open": {"x-1": {"since": 1}}}',
        b'{"rested": [5]}',
        b'{"sessions_today": "many"}',
        b'{"failures": null}',
        b'{"next_due": "soon"}',
        b'{"last_result": []}',
    ],
    ids=range(12),
)
def test_a_damaged_state_file_is_put_aside_and_the_trigger_runs(tmp_path: Path, damage: bytes) -> None:
    store = Store(str(tmp_path), "x")
    (tmp_path / "x.json").write_bytes(damage)
    assert store.load() == Record()
    assert (tmp_path / "x.json.damaged").read_bytes() == damage and not (tmp_path / "x.json").exists()
    store.save(Record(plugin={"ü\udcff": [1.5, None]}, next_due=5, interval=None, last_result={"a": 1}))
    assert store.load() == Record(plugin={"ü\udcff": [1.5, None]}, next_due=5, interval=None, last_result={"a": 1})


def test_a_state_file_that_cannot_be_read_hurts_no_other_and_may_be_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(rig: Rig) -> None:
        (rig.state / "bad.json").mkdir(parents=True)
        rig.plugin("bad", ONCE_A_SECOND)
        rig.plugin("good", ONCE_A_SECOND)
        async with rig.running():
            await rig.made(1)
            monkeypatch.setenv("GAD_HOME", str(rig.home))
            result = CliRunner().invoke(gad, ["triggers", "--json"])
            assert {one["trigger"]: one["state"] for one in json.loads(result.stdout)} == {
                "bad": "broken",
                "good": "on",
            }
            assert "mend its mode or remove it" in result.stdout
            (rig.state / "bad.json").rmdir()
            await rig.reaches("bad", lambda record: record["sessions_today"])

    scene(tmp_path, play)
    assert sum("bad.json: Is a directory" in line for line in caplog.messages) == 1


def test_a_restart_of_the_daemon_forgives_nothing(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("bad", "def check(): 1 / 0")
        async with rig.running():
            for n in range(1, 6):
                await rig.reaches("bad", lambda record, n=n: record["failures"] == n)  # type: ignore[misc]
                await rig.passes(61)
            await rig.reaches("bad", lambda record: record["status"] == "disabled")
        rig.plugin("good", ONCE_A_SECOND)
        async with rig.running():
            await rig.made(1)
            await rig.passes(1)
            await rig.made(2)
            assert rig.store("bad").disabled() is not None
            rig.store("bad").disable("I do not want it")
            record = await rig.reaches("bad", lambda record: record["disabled"] == "I do not want it")
            before = record["version"]
            rig.plugin("bad", ONCE_A_SECOND)  # what a person has disabled, no new version enables
            await rig.reaches("bad", lambda record: record["version"] != before)
            await rig.passes(1)
            await rig.made(3)
            assert rig.store("bad").disabled() == "I do not want it"

    scene(tmp_path, play)


# -- what the plugin says ------------------------------------------------------------------------------------------

GARBLED = [
    '{"returned": 5}',
    '{"submit": 5}',
    "{}",
    '{"interval": "x"}',
    '{"raised": 5}',
    '{"state": [], "raised": "x"}',
]


def test_what_a_plugin_writes_into_its_socket_is_a_failure_of_its_own(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        for n, line in enumerate(GARBLED):
            rig.plugin(f"bad{n}", f"import os, sys\ndef check(): os.write(int(sys.argv[1]), b'''{line}\\n'''); 1 / 0")
        async with rig.running():
            for n, line in enumerate(GARBLED):
                record = await rig.reaches(f"bad{n}", lambda record: record["failures"])
                # What it raised, or what became of its process, may be told first.
                assert re.search("what the host and a child say|ZeroDivision|exit code 1", record["error"]), line

    scene(tmp_path, play)


def test_a_plugin_may_close_its_output(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "a", "import sys\ndef check():\n  sys.stdout.close()\n  sys.stderr = None\n  return 'done all the same'"
        )
        rig.plugin("b", "INTERVAL = 1e300\ndef check(): pass")
        async with rig.running():
            [name] = await rig.made(1)
            assert rig.text(name) == "done all the same"
            record = await rig.reaches("a", lambda record: record["open"] and record["status"] == "on")
            assert record["failures"] == 0
            record = await rig.reaches("b", lambda record: record["failures"])
            assert "INTERVAL is 1e+300" in record["error"]

    scene(tmp_path, play)


def test_each_line_that_is_left_out_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("noisy", "def check():\n  for n in range(50_000): print('line', n)\n  import os\n  os._exit(3)")
        async with rig.running():
            await rig.reaches("noisy", lambda record: record["failures"])

    with caplog.at_level(logging.INFO):
        scene(tmp_path, play)
    lines = [line for line in caplog.messages if "line" in line]
    left_out = sum(int(found[1]) for line in lines if (found := re.search(r"\[(\d+) lines were left out", line)))
    assert left_out and sum(re.search(r"noisy: line \d+$", line) is not None for line in lines) + left_out == 50_000


# -- sessions ------------------------------------------------------------------------------------------------------


def test_once_is_not_over_when_its_session_was_not_made(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("x", "ONCE = True\ndef check(): trigger.submit('do')")
        record = Record(sessions_today=1, over=True, day=time.strftime("%Y-%m-%d"), last_session="x-gone")
        record.open = {"x-gone": {"key": "gone", "since": rig.time, "making": True}}  # and then it was killed
        rig.state.mkdir(parents=True)
        rig.store("x").save(record)
        async with rig.running():
            [name] = await rig.made(1)
            record2 = await rig.reaches("x", lambda record: record["over"] and list(record["open"]) == [name])
            assert record2["sessions_today"] == 1 and record2["open"][name].keys() >= {"key", "since"}

    scene(tmp_path, play)


def test_a_session_that_could_not_be_made_is_counted_once_however_often_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(rig: Rig) -> None:
        full, submit_once = True, drop.submit_once

        def submit(spool: Path, name: str, text: bytes, task: str | None = None) -> bool:
            if full:
                raise OSError(28, "no space left", str(spool))
            return submit_once(spool, name, text, task)

        monkeypatch.setattr(drop, "submit_once", submit)
        rig.plugin(
            "x",
            """
            def check():
                for n in range(5):
                    try:
                        trigger.submit("first", "a")
                    except Exception as exc:
                        trigger.state["tried"] = n
            """,
            "caps: {open: 2}\n",
        )
        async with rig.running():
            record = await rig.reaches("x", lambda record: record["plugin"].get("tried") == 4)
            assert record["sessions_today"] == 1 and list(record["open"]) == ["x-a"] and record["capped"] == ""
            full = False
            assert await rig.made(1) == ["x-a"]

    scene(tmp_path, play)


def test_a_spool_that_is_gone_is_told_once_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("x", "INTERVAL = 1\ndef check():\n  trigger.state['n'] = 1\n  return {'text': 'do', 'key': 'a'}")
        shutil.rmtree(rig.spool)
        async with rig.running():
            await until(lambda: any("is not there" in line for line in caplog.messages), 15)
            await rig.passes(5)
            rig.spool.mkdir()
            assert await rig.made(1) == ["x-a"]

    scene(tmp_path, play)
    assert sum("is not there" in line for line in caplog.messages) == 1
    assert not any("Traceback" in line or "failed" in line for line in caplog.messages)


def test_children_and_removed_sessions_cost_too(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("x", EVERY, "caps: {usd_per_day: 1, open: 9}\n")
        async with rig.running():
            await rig.made(1)
            rig.end("x-1", cost_usd=0.25, children_cost_usd=0.5)
            await rig.reaches("x", lambda record: record["usd_today"] == 0.75 and not record["usd_unknown"])
            await rig.passes(1)
            await rig.made(2)
            rig.end("x-2", "running", cost_usd=0.25)
            await rig.reaches("x", lambda record: record["open"].get("x-2", {}).get("usd") == 0.25)
            os.rename(rig.spool / "x-2", tmp_path / "away")
            record = await rig.reaches("x", lambda record: record["usd_today"] == 1.0)
            await rig.passes(1)
            record = await rig.reaches("x", lambda record: record["capped"])
            assert record["capped"] == "its sessions have cost 1.00 USD today: caps.usd_per_day is reached"
            assert rig.sessions() == ["x-1"]

    scene(tmp_path, play)


def test_what_a_session_has_cost_before_midnight_is_not_of_the_next_day(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("x", EVERY, "caps: {usd_per_day: 1, open: 9}\n")
        async with rig.running():
            await rig.made(1)
            rig.end("x-1", "running", cost_usd=1.0)
            await rig.reaches("x", lambda record: record["open"]["x-1"].get("usd") == 1.0)
            await rig.passes(1)
            await rig.reaches("x", lambda record: record["capped"])
            await rig.passes(86_400)
            await rig.reaches("x", lambda record: record["capped"] == "" and len(record["open"]) == 2)
            rig.end("x-1", cost_usd=1.25)
            await rig.reaches("x", lambda record: record["usd_today"] == 0.25)

    scene(tmp_path, play)


def test_trouble_of_an_unknown_kind_is_a_failure_that_is_backed_off_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(rig: Rig) -> None:
        def submit(*arguments: object) -> bool:
            raise ZeroDivisionError("nobody has thought of this")

        monkeypatch.setattr(drop, "submit_once", submit)
        rig.plugin("x", "INTERVAL = 1\ndef check(): trigger.submit('do')")
        async with rig.running():
            for n in range(1, 6):
                record = await rig.reaches("x", lambda record, n=n: record["failures"] == n)  # type: ignore[misc]
                assert "nobody has thought of this" in record["error"]
                await rig.passes(61)
            await rig.reaches("x", lambda record: record["status"] == "disabled")

    scene(tmp_path, play)


@pytest.mark.parametrize("unknown", [{"cost_usd": "unknown"}, {"cost_usd": 0.1, "children_cost_usd": "unknown"}])
def test_what_an_open_session_costs_must_be_known_too(tmp_path: Path, unknown: dict[str, Any]) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("x", EVERY, "caps: {usd_per_day: 1, open: 9}\n")
        async with rig.running():
            await rig.made(1)
            rig.end("x-1", "running", **unknown)
            await rig.reaches("x", lambda record: record["open"]["x-1"].get("usd", 0) is None)
            await rig.passes(1)
            record = await rig.reaches("x", lambda record: record["capped"])
            assert "is not known" in record["capped"] and rig.sessions() == ["x-1"]

    scene(tmp_path, play)


def test_a_cap_is_told_as_long_as_it_holds_also_when_the_plugin_asks_no_more(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "x",
            """
            INTERVAL = 1
            def check():
                trigger.state["n"] = n = trigger.state.get("n", 0) + 1
                if n < 3:
                    trigger.submit("do", str(n))
            """,
            "caps: {open: 1}\n",
        )
        async with rig.running():
            for n in range(1, 6):
                await rig.reaches("x", lambda record, n=n: record["plugin"].get("n") == n)  # type: ignore[misc]
                await rig.passes(1)
            record = await rig.reaches("x", lambda record: record["plugin"]["n"] == 6)
            assert record["capped"] == "1 of its sessions are open, and caps.open allows no more"
            rig.end("x-1")
            await rig.reaches("x", lambda record: record["capped"] == "")

    scene(tmp_path, play)


def test_schedules_say_themselves_how_many_sessions_there_are_a_day(tmp_path: Path) -> None:
    (tmp_path / "triggers/schedules").mkdir(parents=True)
    (tmp_path / "triggers/schedules/a.json").write_text("{}")
    (tmp_path / "triggers/idle.yaml").write_text("")
    found = Finder(str(tmp_path), lambda text, name: Settings()).find()
    assert {name: one.settings.caps.per_day for name, one in found.items()} == {"idle": 100, "scheduled": None}


def test_a_session_is_whose_it_is_while_it_is_taken_in_and_after_it_was_mended(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    drop_in = {"idle-1": "task.yaml", "taken": ".claim-0001-task.yaml", "mended": "rejected-0002-task.yaml"}
    for name, file in drop_in.items():
        (spool / name).mkdir(parents=True)
        (spool / name / file).write_text(
            'labels: ["trigger", "trigger:x"]\n' if name != "taken" else "parent: idle-1\n"
        )
    (spool / "mended/task.yaml").write_text("turns: 5\n")
    write_status(spool / "mended", {"state": "running"})
    write_status(spool / "taken", {"state": "queued"})
    assert activity.at_work(str(tmp_path)) == {"mended": True, "taken": True}


def test_a_directory_that_nothing_was_handed_into_yet_is_nobodys(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    for name in ("child", "child-with-task"):
        (spool / name).mkdir(parents=True)
    (spool / "child/.task.yaml.1-2.tmp").write_text("parent: idle-1\n")
    (spool / "child-with-task/task.yaml").write_text("turns: 1\n")
    assert activity.quiet_seconds(str(tmp_path), time.time()) == float("inf")
    (spool / "child-with-task/input.txt").write_text("A person's.")
    assert activity.quiet_seconds(str(tmp_path), time.time()) < 60


def test_a_key_that_is_not_valid_disables_the_trigger(tmp_path: Path) -> None:
    async def play(world: World) -> None:
        (world.home / "triggers/x.py").write_text("def check(): return {'text': 'do', 'key': 'a'}")
        async with world.running():
            record = await reaches(world, "x", "status", "disabled")
            assert record["disabled"].startswith("session x-a has no valid key: model ")
            assert "error_kind: auth\n" in world.text("x-a", "status.txt")
        assert made(world, "x-") == ["x-a"] and state(world, "x")["failed_sessions"] == 1

    world_of(tmp_path, Fail(401, "who are you?"), play)


def test_options_of_a_wrong_kind_are_refused(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("a", "def check(): return {'text': 'do', 'labels': 5}")
        rig.plugin("b", "def check(): return {'text': 'do', 'key': 'b', 'usd': None}", "caps: {usd_per_day: 2}\n")
        async with rig.running():
            record = await rig.reaches("a", lambda record: record["failures"])
            assert "what check() returned cannot be handed in" in record["error"]
            assert await rig.made(1) == ["b-b"] and rig.task("b-b")["usd"] == 2

    scene(tmp_path, play)


# -- a lot at once -------------------------------------------------------------------------------------------------


def test_a_batch_stays_within_what_a_message_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    huge = fake.at(1.0)
    for n in range(1000):
        huge.add(str(n), f"{n} " + "é" * 1_000_000, 1.0)
    fake.at(10.0).hand_in(fake.trigger, "p")
    [(_, text)] = fake.made
    assert text.startswith("p\n\n0 éé") and "[...]\n1 éé" in text
    assert len(text.encode()) < batch.MOST + 100
    assert len(json.dumps(fake.trigger.state)) < 1000
    shown = text.count("[...]")
    assert text.endswith(f"\n(and {1000 - shown} more)")


def test_the_list_stands_what_a_plugin_keeps_and_names_that_are_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_home(tmp_path / "home")
    monkeypatch.setenv("GAD_HOME", str(tmp_path / "home"))
    triggers = tmp_path / "home/triggers"
    (triggers / "own.py").write_text("def check(): trigger.submit(5)")
    (triggers / os.fsdecode(b"b\xff.py")).write_text("")
    kept = {"schedules": {"a": {"open": 5, "next": 1e300, "fired": [], "result": 3}, "b": 1}, "problems": 5}
    (triggers / ".state").mkdir()
    Store(str(triggers / ".state"), "own").save(Record(plugin=kept, next_due=1e300))
    table = CliRunner().invoke(gad, ["triggers"])
    assert table.exit_code == 0 and "b?" in table.output and "own" in table.output, table.output
    told = CliRunner().invoke(gad, ["triggers", "--json"])
    assert [one["trigger"] for one in json.loads(told.stdout)] == ["b?", "own"]
    tested = CliRunner().invoke(gad, ["triggers", "test", "own"])
    assert tested.exit_code == 1 and "Refused: the text must be text" in tested.output, tested.output
