"""gad triggers, and the files that triggers are made of."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gad.cli import exits, gad
from gad.cli.trigger_file import parse_settings
from gad.errors import ConfigError
from gad.home import make_home
from gad.spool.lock import SpoolLock
from gad.triggers.instances import Caps, Finder, Limits, Settings
from gad.triggers.record import Record, Store


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_home(tmp_path / "home")
    monkeypatch.setenv("GAD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def locked(home: Path) -> Iterator[None]:
    """A daemon holds the spool."""
    with SpoolLock(str(home / "spool")):
        yield


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(gad, ["triggers", *arguments])
    assert result.exit_code == code, result.output
    return result


def write(home: Path, name: str, text: str) -> None:
    (home / "triggers" / name).parent.mkdir(exist_ok=True)
    (home / "triggers" / name).write_text(text)


def store(home: Path, name: str) -> Store:
    (home / "triggers/.state").mkdir(exist_ok=True)
    return Store(str(home / "triggers/.state"), name)


def listed(*arguments: str) -> dict[str, dict[str, Any]]:
    return {one["trigger"]: one for one in json.loads(run(*arguments, "--json").stdout)}


# -- list ----------------------------------------------------------------------------------------------------------


def test_the_list_says_how_each_is_doing(home: Path, locked: None) -> None:
    write(home, "mail.py", "")
    write(home, "off.yaml", "plugin: mail\nenabled: no\n")
    write(home, "wrong.yaml", "plugin: mail\ncap: {}\n")
    write(home, "sick.yaml", "plugin: mail\n")
    write(home, "stopped.yaml", "plugin: mail\n")
    write(home, "schedules/daily.json", "{}")
    write(home, "_shared.py", "")
    write(home, ".mail.py.swp", "")
    result = {"session": "mail-1", "state": "failed", "error": "no more turns", "usd": 0.5}
    record = Record(status="on", interval=60.0, next_due=4e9, last_fired=1e9, last_session="mail-1", last_result=result)
    record.open = {"mail-2": {"key": "2", "since": 1.0, "usd": 0.25}}
    record.skipped, record.problem = "nothing new", "it cannot be loaded: SyntaxError"
    store(home, "mail").save(record)
    store(home, "sick").save(Record(failures=2, error="check() raised OSError"))
    store(home, "stopped").disable("on holiday")
    entry = {"next": 4e9, "fired": 1e9, "open": ["s"], "skipped": "late", "result": {"state": "done"}}
    kept = {"problems": ["triggers/schedules/daily.json:1: no"], "schedules": {"daily": entry}}
    store(home, "scheduled").save(Record(status="on", plugin=kept))

    found = listed()
    assert list(found) == ["mail", "off", "scheduled", "sick", "stopped", "wrong"]
    mail = found["mail"]
    assert (mail["state"], mail["why"], mail["plugin"]) == ("on", "nothing new", "mail")
    assert (mail["next_due"], mail["last_fired"], mail["last_session"]) == (4e9, 1e9, "mail-1")
    assert mail["last_result"] == result and mail["open"] == ["mail-2"] and mail["usd_today"] == 0.25
    assert mail["problems"] == ["the newest version is not used: it cannot be loaded: SyntaxError"]
    assert (found["off"]["state"], found["off"]["why"]) == ("off", "triggers/off.yaml says enabled: false")
    assert found["wrong"]["state"] == "broken"
    assert found["wrong"]["why"] == "triggers/wrong.yaml:2: cap: unknown key; did you mean caps?"
    assert (found["sick"]["state"], found["sick"]["why"]) == ("failing", "check() raised OSError")
    assert (found["stopped"]["state"], found["stopped"]["why"]) == ("disabled", "on holiday")
    assert found["scheduled"]["schedules"] == {"daily": entry} and listed("list") == found

    lines = run().output.splitlines()
    assert lines[0].split()[:4] == ["TRIGGER", "PLUGIN", "STATE", "NEXT"]
    row = next(line for line in lines if line.startswith("mail"))
    assert "2096-" in row and "2001-" in row and "failed: no more turns" in row and row.endswith("nothing new")
    assert any(line.startswith("  daily") and "done" in line and line.endswith("late") for line in lines)
    assert "gad: scheduled: triggers/schedules/daily.json:1: no" in lines


def test_the_list_says_when_no_daemon_runs_and_when_there_is_nothing(home: Path) -> None:
    assert run().output.split() == [
        "TRIGGER", "PLUGIN", "STATE", "NEXT", "LAST", "FIRED", "LAST", "RESULT", "OPEN", "TODAY",
    ]  # fmt: skip
    assert run("--json").output == "[]\n"
    write(home, "mail.py", "")
    assert "no daemon runs" in run().stderr


# -- enable, disable, fire -----------------------------------------------------------------------------------------


def test_disable_enable_and_fire_leave_marks_for_the_daemon(home: Path, locked: None) -> None:
    write(home, "mail.py", "")
    one = store(home, "mail")
    run("disable", "mail", "on", "holiday")
    assert one.disabled() == "on holiday" and listed()["mail"]["state"] == "disabled"
    assert "enable it first" in run("fire", "mail", code=exits.ERROR).output
    run("enable", "mail")
    assert one.disabled() is None
    assert "was not disabled" in run("enable", "mail").stderr
    run("fire", "mail")
    assert one.to_fire() and not one.to_fire()


def test_fire_says_when_nobody_will_and_names_are_checked(home: Path) -> None:
    write(home, "mail.py", "")
    assert "no daemon runs" in run("fire", "mail", code=exits.TEMPORARY).stderr
    for command in ("fire", "enable", "disable", "test"):
        assert "there is no trigger male; there are: mail" in run(command, "male", code=exits.ERROR).output
    write(home, "mail.yaml", "enabled: off\n")
    assert "says enabled: false" in run("fire", "mail", code=exits.ERROR).output


# -- test ----------------------------------------------------------------------------------------------------------

MAIL = """
def check():
    trigger.log("looking")
    trigger.state["n"] += 1
    trigger.submit("first", "a", turns=3)
    return {"text": f"second {trigger.state['n']}", "key": "b"}
"""


def test_test_shows_what_would_be_handed_in_and_hands_in_nothing(home: Path) -> None:
    write(home, "mail.py", MAIL)
    write(home, "mail.yaml", "task: {check: 'true'}\n")
    store(home, "mail").save(Record(plugin={"n": 41}))
    (home / "spool/mail-a").mkdir()
    (home / "spool/mail-a/task.yaml").write_text('labels: ["trigger:mail"]\n')
    before = (home / "triggers/.state/mail.json").read_bytes()
    result = run("test", "mail")
    assert "-- mail-a (is there already)" in result.output and "-- mail-b\n" in result.output
    assert "second 42" in result.output and "mail: looking" in result.stderr
    told = json.loads(run("test", "mail", "--json").stdout)
    assert [one["session"] for one in told["sessions"]] == ["mail-a", "mail-b"]
    assert [one["exists"] for one in told["sessions"]] == [True, False]
    assert "turns: 3" in told["sessions"][0]["task"] and "check: " in told["sessions"][1]["task"]
    assert os.listdir(home / "spool") == ["mail-a"]
    assert (home / "triggers/.state/mail.json").read_bytes() == before


@pytest.mark.parametrize(
    ("source", "settings", "said"),
    [
        ("def check(): trigger.skip('too early')", "", "nothing to hand in: too early"),
        ("def check(): 1 / 0", "", "trigger x: check() raised ZeroDivisionError"),
        ("import none_such", "", "it cannot be loaded: ModuleNotFoundError"),
        ("WATCH = 'a'\ndef on_event(event): pass", "", "it has no check()"),
        ("def check(): return {'text': 'a', 'turn': 1}", "", "turn: unknown key; did you mean turns?"),
        ("def check():\n    while True: pass", "limits: {check_seconds: 0.3}", "did not return within 0.3 s"),
        ("def check(): pass", "limit: {}", "triggers/x.yaml:1: limit: unknown key; did you mean limits?"),
    ],
)
def test_test_says_what_is_wrong(home: Path, source: str, settings: str, said: str) -> None:
    write(home, "x.py", source)
    write(home, "x.yaml", settings)
    assert said in run("test", "x", code=0 if "skip" in source else exits.ERROR).output
    assert os.listdir(home / "spool") == []


# -- files ---------------------------------------------------------------------------------------------------------


def test_a_yaml_file_is_read_with_all_its_keys() -> None:
    text = """
plugin: watchdog
enabled: yes
options: {files: [a, b], every: 5, deep: {er: true}}
task: {model: m, turns: 3, labels: [x], not_before: 2026-12-01T06:00:00Z}
caps: {open: 2, per_day: 7, usd_per_day: 0.5}
limits: {check_seconds: 2m, memory_mb: 256}
"""
    assert parse_settings(text, "x", models=["m"]) == Settings(
        "watchdog",
        True,
        {"files": ["a", "b"], "every": 5, "deep": {"er": True}},
        {"model": "m", "turns": 3, "labels": ("x",), "not_before": 1796104800.0},
        Caps(2, 7, 0.5),
        Limits(120.0, 256),
    )
    assert parse_settings("", "x", models=[]) == Settings()


def test_every_mistake_in_a_yaml_file_is_named_with_its_line() -> None:
    text = """plugin: a b
options:
  when: 2026-01-01
task:
  model: b
  turn: 3
  ask:
    - maybe
caps:
  open: 0
limits: {memory_mb: 1, check_seconds: soon}
"""
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, "triggers/x.yaml", models=["m"])
    assert str(caught.value).splitlines() == [
        "triggers/x.yaml:1: plugin: must be a plugin's name, without .py, not 'a b'",
        "triggers/x.yaml:3: options.when: must be text, numbers, lists and mappings; put it in quotes",
        "triggers/x.yaml:5: task.model: no entry of gad.yaml's models is called 'b'; known are: m",
        "triggers/x.yaml:6: task.turn: unknown key; did you mean turns?",
        "triggers/x.yaml:8: task.ask: must be one of user, never, not a list",
        "triggers/x.yaml:10: caps.open: must be a whole number from 1 to 1000, not '0'",
        "triggers/x.yaml:11: limits.memory_mb: must be a whole number from 64 to 1000000, not '1'",
        "triggers/x.yaml:11: limits.check_seconds: must be seconds or a duration such as 90s, 10m or 2h, "
        "from 0.1 to 3600 seconds, not 'soon'",
    ]


def test_instances_are_found_and_their_versions_follow_their_files(tmp_path: Path) -> None:
    home = tmp_path
    finder = Finder(str(home), lambda text, name: Settings(plugin=text.strip() or None))
    assert finder.find() == {}
    write(home, "idle.yaml", "")
    write(home, "watchdog.py", "mine = 1")
    write(home, "logs.yaml", "watchdog")
    write(home, "a b.py", "")
    write(home, "bytes.py", "")
    (home / "triggers/bytes.py").write_bytes(b"a\n\xff")
    (home / "triggers/dir.py").mkdir()
    found = finder.find()
    assert list(found) == ["a b", "bytes", "dir", "idle", "logs", "watchdog"]
    assert found["idle"].plugin == "idle" and "shipped" in found["idle"].path
    assert found["logs"].source == "mine = 1"  # a file of one's own takes the place of a shipped one
    assert "use at most 48 letters" in found["a b"].problem
    assert found["bytes"].problem == "triggers/bytes.py:2: not UTF-8; save it as UTF-8"
    assert "not a regular file" in found["dir"].problem
    write(home, "watchdog.py", "mine = 2")
    again = finder.find()
    assert {name for name in found if again[name].version != found[name].version} == {"logs", "watchdog"}
    write(home, "schedules/x.json", "{}")
    assert "scheduled" in finder.find()
