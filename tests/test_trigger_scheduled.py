"""The scheduled plugin: files in, sessions out, whatever happens to files, sessions, the clock and the process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gad.triggers.shipped
from gad.triggers.plugin import Refused

SOURCE = Path(gad.triggers.shipped.__file__).with_name("scheduled.py")
CODE = compile(SOURCE.read_text(), str(SOURCE), "exec")
HOUR, DAY = 3600, 86400


class Killed(BaseException):
    """The process ends here."""


class Fake:
    """A host and its `trigger`: a clock, sessions with the keys that they are for, and a state that is on disk."""

    def __init__(self, home: Path) -> None:
        self.home = str(home)
        self.folder = home / "triggers" / "schedules"
        self.folder.mkdir(parents=True)
        self.clock = 0.0
        self.state: dict[str, Any] = {}
        self.disk = "{}"
        self.open: list[str] = []
        self.sessions: dict[str, tuple[str, dict[str, Any]]] = {}
        self.logged: list[str] = []
        self.skipped: list[str] = []
        self.capped = False
        self.kill_after: int | None = None
        self.plugin: ModuleType
        self.start()

    def start(self) -> None:
        """Begin anew, as after the end of the process: nothing is known but what is on disk."""
        self.state = json.loads(self.disk)
        self.plugin = ModuleType("scheduled")
        self.plugin.__dict__["trigger"] = self
        exec(CODE, self.plugin.__dict__)

    def write(self, name: str, fields: dict[str, Any] | str) -> None:
        text = fields if isinstance(fields, str) else json.dumps({"prompt": f"Do {name}.", **fields}, indent=1)
        aside = self.folder / f".{name}.tmp"
        aside.write_text(text)
        aside.rename(self.folder / f"{name}.json")

    def check(self, moment: str | float | None = None) -> list[str]:
        """Let the clock show `moment`, call check(), and return the keys of the sessions that it made."""
        if moment is not None:
            self.clock = moment if isinstance(moment, float | int) else at(moment)
        before = list(self.sessions)
        assert self.plugin.check() is None
        self.disk = json.dumps(self.state)
        return [key for key in self.sessions if key not in before]

    def end(self, key: str, state: str = "done") -> None:
        """Let a session end, and tell the plugin."""
        self.open.remove(f"scheduled-{key}")
        self.plugin.on_done(
            {"session": f"scheduled-{key}", "key": key, "state": state, "text": "", "error": "", "usd": 0.1, "turns": 2}
        )
        self.disk = json.dumps(self.state)

    # -- what the plugin calls

    def now(self) -> float:
        return self.clock

    def log(self, text: str) -> None:
        self.logged.append(text)

    def skip(self, reason: str) -> None:
        self.skipped.append(reason)

    def submit(self, text: str, key: str | None = None, **task: Any) -> str | None:
        self.disk = json.dumps(self.state)
        assert key is not None
        if self.kill_after == 0:
            raise Killed
        if task.get("model") == "none":
            raise Refused("no entry of gad.yaml's models is called 'none'")
        if self.capped and key not in self.sessions:
            return None
        name = f"scheduled-{key}"
        if key not in self.sessions:
            self.sessions[key] = (text, task)
            self.open.append(name)
        if self.kill_after is not None:
            raise Killed
        return name


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setenv("TZ", "UTC")
    return Fake(tmp_path)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_a_day_of_a_daily_schedule(host: Fake) -> None:
    host.write("daily-report", {"schedule": "08:00", "sop": "weekly", "task": {"model": "big", "labels": ["x"]}})
    assert host.check("2026-11-30 07:00") == []
    assert host.check("2026-11-30 07:59:59.9") == []
    assert host.check("2026-11-30 08:00:00.4") == ["daily-report-20261130T080000Z"]
    assert host.sessions["daily-report-20261130T080000Z"] == (
        "Do daily-report.",
        {"model": "big", "labels": ["x"], "sop": "weekly"},
    )
    assert host.check("2026-11-30 08:00:01.4") == []
    host.end("daily-report-20261130T080000Z")
    assert host.check("2026-12-01 07:59:59") == []
    assert host.check("2026-12-01 08:00:00") == ["daily-report-20261201T080000Z"]
    entry = host.state["schedules"]["daily-report"]
    assert entry["fired"] == at("2026-12-01 08:00") and entry["next"] == at("2026-12-02 08:00")
    assert entry["result"] == {
        "session": "scheduled-daily-report-20261130T080000Z",
        "state": "done",
        "error": "",
        "usd": 0.1,
    }
    assert host.state["problems"] == host.logged == []


def test_each_schedule_has_its_own_time_zone(host: Fake) -> None:
    for zone in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe"):
        host.write(zone.split("/")[1], {"schedule": "02:15", "timezone": zone})
    host.check("2026-10-03 12:00")
    fired = []
    for second in range(0, 40 * HOUR, 300):
        fired += host.check(at("2026-10-03 12:00") + second)
    assert fired == [  # Lord Howe has no 02:15 on this 4th: 02:30 at +11
        "Lord_Howe-20261003T153000Z",
        "Berlin-20261004T001500Z",
        "New_York-20261004T061500Z",
    ]


def test_without_a_zone_the_machines_own_counts(host: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    host.write("a", {"schedule": "08:00"})
    for zone, due in (("Europe/Berlin", "07:00"), ("no such zone", "08:00")):
        monkeypatch.setenv("TZ", zone)
        host.disk = "{}"
        host.start()
        host.check("2026-11-30 00:00")
        assert host.state["schedules"]["a"]["next"] == at(f"2026-11-30 {due}")
    monkeypatch.delenv("TZ")
    host.start()
    assert host.check("2026-11-30 00:00:01") == []


def test_a_bad_file_touches_no_other_and_is_told_once(host: Fake) -> None:
    host.write("good", {"schedule": "08:00"})
    host.write("syntax", '{\n "schedule": "08:00",\n "prompt": "x",\n}')
    host.write("field", '{\n "schedule": "08:00",\n "prompt": "x",\n "overlap": "wait"\n}')
    (host.folder / "two words.json").write_text('{"schedule": "08:00", "prompt": "x"}')
    (host.folder / "notes.txt").write_text("no schedule")
    (host.folder / ".hidden.json").write_text("no schedule")
    (host.folder / "folder.json").mkdir()
    (host.folder / "gone.json").symlink_to("nowhere")
    os.mkfifo(host.folder / "pipe.json")
    host.check("2026-11-30 07:00")
    expected = [
        'triggers/schedules/field.json:4: overlap: must be one of skip, queue, parallel, not "wait"',
        "triggers/schedules/syntax.json:3: not valid JSON: a comma after the last one; remove it",
        "triggers/schedules/two words.json:1: the file's name must be at most 80 letters, digits, '.', '_' and '-', "
        "not 'two words'",
    ]
    assert host.state["problems"] == host.logged == expected
    assert host.check("2026-11-30 08:00") == ["good-20261130T080000Z"]
    assert host.logged == expected

    host.write("field", {"schedule": "09:00"})
    assert host.check("2026-11-30 08:30") == []
    assert host.state["problems"] == expected[1:] and host.logged == expected
    assert host.check("2026-11-30 09:00") == ["field-20261130T090000Z"]

    host.write("syntax", '{\n "schedule": "08:00"\n "prompt": "x"\n}')
    host.check("2026-11-30 09:01")
    assert len(host.logged) == 4 and host.logged[-1].startswith("triggers/schedules/syntax.json:3: not valid JSON")


def test_a_file_that_may_not_be_read(host: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    host.write("good", {"schedule": "08:00"})
    host.write("secret", {"schedule": "08:00"})
    read_bytes = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.stem == "secret":
            raise PermissionError(13, "Permission denied", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    host.check("2026-11-30 07:00")
    assert host.state["problems"] == ["triggers/schedules/secret.json: Permission denied; mend its mode or remove it"]
    assert host.check("2026-11-30 08:00") == ["good-20261130T080000Z"]


def test_a_task_that_is_refused_is_told_and_handed_in_once_it_is_mended(host: Fake) -> None:
    host.write("a", {"schedule": "08:00", "task": {"model": "none"}})
    host.write("b", {"schedule": "08:00"})
    host.check("2026-11-30 07:00")
    assert host.check("2026-11-30 08:00") == ["b-20261130T080000Z"]
    problem = "triggers/schedules/a.json: no entry of gad.yaml's models is called 'none'"
    for minute in range(1, 10):
        host.check(f"2026-11-30 08:0{minute}")
    assert host.state["problems"] == host.logged == [problem]
    host.write("a", {"schedule": "08:00", "task": {"model": "big"}})
    assert host.check("2026-11-30 08:30") == ["a-20261130T080000Z"]
    assert host.state["problems"] == []


def test_what_a_cap_forbids_is_handed_in_when_it_may(host: Fake) -> None:
    host.write("a", {"schedule": "08:00", "max_delay_hours": 1})
    host.check("2026-11-30 07:00")
    host.capped = True
    assert host.check("2026-11-30 08:00") == host.check("2026-11-30 08:40") == []
    host.capped = False
    assert host.check("2026-11-30 08:41:30") == ["a-20261130T080000Z"]
    host.end("a-20261130T080000Z")
    host.capped = True
    assert host.check("2026-12-01 08:00") == host.check("2026-12-01 09:01") == []
    host.capped = False
    assert host.check("2026-12-01 09:02") == []
    assert host.logged == ["a: skipped 20261201T080000Z: more than max_delay_hours late (1)"]


def test_changing_the_time_makes_nothing_missed(host: Fake) -> None:
    host.write("a", {"schedule": "20:00"})
    host.check("2026-11-29 19:00")
    assert host.check("2026-11-29 20:00") == ["a-20261129T200000Z"]
    host.end("a-20261129T200000Z")
    host.write("a", {"schedule": "08:00"})
    assert host.check("2026-11-30 09:00") == []
    host.write("a", {"schedule": "08:00", "enabled": False})
    assert host.check("2026-11-30 10:00") == host.check("2026-12-01 08:00") == []
    assert host.state["schedules"]["a"]["next"] is None
    host.write("a", {"schedule": "08:00", "enabled": True})
    assert host.check("2026-12-01 09:00") == []
    assert host.check("2026-12-02 08:00") == ["a-20261202T080000Z"]
    host.write("a", {"schedule": "08:00", "prompt": "Something else."})
    host.end("a-20261202T080000Z")
    assert host.check("2026-12-03 08:30") == ["a-20261203T080000Z"]
    assert host.sessions["a-20261203T080000Z"][0] == "Something else."


def test_a_file_that_is_broken_for_a_while_has_missed_what_was_due(host: Fake) -> None:
    host.write("a", {"schedule": "08:00"})
    host.check("2026-11-30 07:00")
    host.write("a", "{")
    assert host.check("2026-11-30 08:00") == []
    host.write("a", {"schedule": "08:00"})
    assert host.check("2026-11-30 09:00") == ["a-20261130T080000Z"]


def test_a_removed_schedule_is_forgotten(host: Fake) -> None:
    host.write("a", {"schedule": "08:00"})
    host.check("2026-11-30 07:00")
    assert host.check("2026-11-30 08:00") == ["a-20261130T080000Z"]
    (host.folder / "a.json").unlink()
    assert host.check("2026-11-30 08:01") == []
    assert host.state["schedules"] == {}
    host.end("a-20261130T080000Z")
    assert host.check("2026-12-01 08:00") == []


@pytest.mark.parametrize("overlap", ["skip", "queue", "parallel"])
def test_overlap(host: Fake, overlap: str) -> None:
    host.write("a", {"cron": "0 * * * *", "overlap": overlap})
    host.check("2026-11-30 07:30")
    assert host.check("2026-11-30 08:00") == ["a-20261130T080000Z"]
    nine, ten = "a-20261130T090000Z", "a-20261130T100000Z"
    assert host.check("2026-11-30 09:00") == ([nine] if overlap == "parallel" else [])
    assert host.check("2026-11-30 10:00") == ([ten] if overlap == "parallel" else [])
    host.end("a-20261130T080000Z", "failed")
    assert host.state["schedules"]["a"]["result"]["state"] == "failed"
    assert host.check("2026-11-30 10:30") == ([nine] if overlap == "queue" else [])
    if overlap == "queue":
        assert host.check("2026-11-30 10:31") == []
        host.end(nine)
        assert host.check("2026-11-30 10:32") == [ten]
    elif overlap == "skip":
        assert host.logged[-1] == "a: skipped 20261130T100000Z: the one before it is at work, and overlap is skip"
        assert host.skipped[-1] == host.logged[-1].replace("skipped ", "")
        assert host.state["schedules"]["a"]["skipped"].startswith("20261130T100000Z: ")


def test_an_end_that_was_not_told_does_not_stop_the_schedule(host: Fake) -> None:
    host.write("a", {"schedule": "08:00", "overlap": "queue"})
    host.check("2026-11-30 07:00")
    assert host.check("2026-11-30 08:00") == ["a-20261130T080000Z"]
    assert host.check("2026-12-01 08:00") == []
    host.open.clear()
    assert host.check("2026-12-01 08:01") == ["a-20261201T080000Z"]


@pytest.mark.parametrize(
    ("catch_up", "fired"), [("none", []), ("last", ["14"]), ("all", ["10", "11", "12", "13", "14"])]
)
def test_a_daemon_that_was_down(host: Fake, catch_up: str, fired: list[str]) -> None:
    host.write("a", {"cron": "0 * * * *", "catch_up": catch_up, "overlap": "parallel", "max_delay_hours": 5})
    host.check("2026-11-30 07:30")
    host.start()
    assert host.check("2026-11-30 14:30") == [f"a-20261130T{hour}0000Z" for hour in fired]
    assert "more than max_delay_hours late (5)" in host.logged[0]
    assert host.logged[0].startswith("a: skipped 20261130T080000Z to 20261130T090000Z (2 due times): ")
    assert host.check("2026-11-30 15:00") == ["a-20261130T150000Z"]


def test_once(host: Fake) -> None:
    host.write("soon", {"repeat": "once", "date": "2026-12-01", "schedule": "08:00"})
    host.write("just-now", {"repeat": "once", "date": "2026-11-30", "schedule": "06:59"})
    host.write("long-ago", {"repeat": "once", "date": "2026-11-01", "schedule": "08:00"})
    assert host.check("2026-11-30 07:00") == ["just-now-20261130T065900Z"]
    assert host.logged == ["long-ago: skipped 20261101T080000Z: more than max_delay_hours late (6)"]
    host.end("just-now-20261130T065900Z")
    host.start()
    assert host.check("2026-12-01 08:00") == ["soon-20261201T080000Z"]
    host.start()
    assert host.check("2026-12-02 08:00") == []
    assert len(host.logged) == 1
    host.end("soon-20261201T080000Z")
    host.write("soon", {"repeat": "once", "date": "2026-12-01", "schedule": "08:00", "enabled": False})
    host.check("2026-12-01 09:00")
    host.write("soon", {"repeat": "once", "date": "2026-12-01", "schedule": "08:00"})
    host.sessions.clear()
    assert host.check("2026-12-01 10:00") == []
    host.write("soon", {"repeat": "once", "date": "2026-12-01", "schedule": "10:30"})
    assert host.check("2026-12-01 10:30") == ["soon-20261201T103000Z"]


def test_the_zone_of_the_environment_may_begin_with_a_colon(host: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":America/New_York")
    host.write("a", {"schedule": "08:00"})
    host.check("2026-11-30 07:00")
    assert host.check("2026-11-30 08:00") == []
    assert host.check("2026-11-30 13:00") == ["a-20261130T130000Z"]


def test_a_clock_that_is_put_back_and_forward(host: Fake) -> None:
    host.write("a", {"cron": "*/10 * * * *", "overlap": "parallel"})
    host.check("2026-11-30 07:55")
    assert host.check("2026-11-30 08:00") == ["a-20261130T080000Z"]
    assert host.check("2026-11-30 07:00") == []
    assert len(host.logged) == 1 and "the clock was put back behind 20261130T080000Z" in host.logged[0]
    for minute in range(60):
        assert host.check(f"2026-11-30 07:{minute:02}") == []
    assert host.check("2026-11-30 08:00") == host.check("2026-11-30 08:01") == []
    assert len(host.logged) == 1 and host.state["problems"] == []
    assert host.check("2026-11-30 08:10") == ["a-20261130T081000Z"]
    assert host.check("2026-11-30 12:05") == ["a-20261130T120000Z"]  # put forward: as after a time without power


@pytest.mark.parametrize("kill_after", [0, 1])
@pytest.mark.parametrize("overlap", ["skip", "queue", "parallel"])
def test_killed_before_or_after_the_session_is_there(host: Fake, kill_after: int, overlap: str) -> None:
    fields = {"cron": "0 * * * *", "catch_up": "all", "overlap": overlap}
    host.write("a", fields)
    host.check("2026-11-30 07:30")
    host.kill_after = kill_after
    with pytest.raises(Killed):
        host.check("2026-11-30 08:00")
    host.start()
    host.kill_after = None
    host.check("2026-11-30 08:00:30")
    assert list(host.sessions) == ["a-20261130T080000Z"]
    assert host.state["schedules"]["a"]["open"] == ["scheduled-a-20261130T080000Z"]
    assert host.state["schedules"]["a"]["waiting"] == []
    host.end("a-20261130T080000Z")
    assert host.check("2026-11-30 09:00") == ["a-20261130T090000Z"]


@given(
    st.lists(st.tuples(st.integers(1, 3 * HOUR), st.sampled_from(["", "kill 0", "kill 1", "end", "restart", "cap"])))
)
@settings(max_examples=50, deadline=None)
def test_whatever_happens_each_due_time_has_one_session(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    host = Fake(tmp_path_factory.mktemp("home"))
    host.write("a", {"repeat": "every_1h", "timezone": "UTC", "catch_up": "all", "overlap": "queue",
                     "max_delay_hours": 8000})  # fmt: skip
    host.check(0.0)
    for seconds, event in steps:
        host.clock += seconds
        host.kill_after = int(event[-1]) if event.startswith("kill") else None
        host.capped = event == "cap"
        if event == "end" and host.open:
            host.end(host.open[0].removeprefix("scheduled-"))
        if event == "restart":
            host.start()
        try:
            host.check()
        except Killed:
            host.start()
    host.kill_after, host.capped = None, False
    host.clock += 60  # after which it looks again whether the cap still holds
    for _ in range(int(host.clock) // HOUR + 1):
        host.clock += 0.1
        host.check()
        for name in list(host.open):
            host.end(name.removeprefix("scheduled-"))
    hours = range(HOUR, int(host.clock) + 1, HOUR)
    assert list(host.sessions) == [datetime.fromtimestamp(hour, UTC).strftime("a-%Y%m%dT%H%M%SZ") for hour in hours]


def test_while_nothing_changes_nothing_is_decided(host: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    decide: Callable[..., Any] = host.plugin.__dict__["decide"]
    calls = []

    def counting(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return decide(*given, **named)

    monkeypatch.setitem(host.plugin.__dict__, "decide", counting)
    host.write("a", {"schedule": "08:00"})
    for second in range(2 * HOUR):
        host.check(at("2026-11-30 07:00") + second)
    assert len(calls) == 2
    assert list(host.sessions) == ["a-20261130T080000Z"]


def test_no_folder_is_no_mistake(host: Fake) -> None:
    host.folder.rmdir()
    assert host.check("2026-11-30 07:00") == []
    assert host.state == {"schedules": {}, "problems": []}
