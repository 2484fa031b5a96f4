"""The log: one line an event whatever happens, as people or machines read it, and nothing secret in it."""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gad.cli.logs import NOTICE, Line, is_journal, named, priority
from gad.config import LogSettings, load
from gad.core.redact import Secrets
from gad.errors import ConfigError
from gad.home import make_home
from tests.scripted_server import serve_in_thread
from tests.test_cli_daemon import start
from tests.test_crash import wait_for
from tests.world import World

ROOT = Path(__file__).parent.parent
KEY = "sk-test-4f9a8b7c6d5e"
UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]")


def record(message: str, *arguments: Any, level: int = logging.ERROR, error: BaseException | None = None) -> Any:
    trouble = (type(error), error, error.__traceback__) if error is not None else None
    made = logging.LogRecord("gad.daemon", level, "", 0, message, arguments, trouble)
    made.created = 1_796_000_000.25
    return made


def broken(text: str) -> Exception:
    try:
        raise ValueError(text)
    except ValueError as exc:
        return exc


# -- one line -------------------------------------------------------------------------------------


def test_an_event_is_one_line_for_people() -> None:
    line = Line().format(record("it %s", "broke", error=broken("two\nlines")))
    assert line.startswith("2026-11-30T00:53:20Z ERROR it broke | Traceback") and line.endswith(
        "| ValueError: two | lines"
    )
    assert "\n" not in line


def test_an_event_is_one_object_in_json_with_its_session_as_a_field() -> None:
    line = Line(as_json=True).format(
        record("session %s: tool %s broke", "s-1", "code_run", error=broken("a\nb\x1b[2J"))
    )
    assert not UNSEEN.search(line)
    found = json.loads(line)
    trace = found.pop("traceback")
    assert trace.startswith("Traceback (most recent call last):\n") and trace.endswith("\nValueError: a\nb\x1b[2J")
    assert found == {
        "time": "2026-11-30T00:53:20.250Z",
        "level": "error",
        "logger": "gad.daemon",
        "session": "s-1",
        "message": "session s-1: tool code_run broke",
    }


@given(st.text(st.characters(exclude_categories=()), max_size=60), st.booleans())
def test_no_text_breaks_a_line_or_steers_a_terminal(text: str, journal: bool) -> None:
    made = record("session %s: %s", text, text, error=broken(text))
    for as_json in (False, True):
        line = Line(as_json=as_json, journal=journal).format(made)
        assert not UNSEEN.search(line)
        line.encode()  # no half character either
        assert line.startswith("<3>") == journal
        if as_json:
            found = json.loads(line.removeprefix("<3>"))
            assert (found["session"], found["message"]) == (text, f"session {text}: {text}")


def test_what_the_daemon_says_of_itself_looks_as_it_does_at_a_terminal() -> None:
    made = record("%s", "ready; drop\na task", level=NOTICE)
    assert Line().format(made) == "gad: ready; drop | a task"
    assert Line(journal=True).format(made) == "<5>gad: ready; drop | a task"


# -- fields ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "arguments", "fields"),
    [
        ("session %s: %s", ("a", "b"), {"session": "a"}),
        ("trigger %s: session %s", ("t", "s"), {"trigger": "t", "session": "s"}),
        ("trigger %s: failure %d: %s", ("t", 3, "session %s"), {"trigger": "t"}),
        ("%d sessions are not archived yet", (3,), {}),
        ("nothing", (), {}),
        ("session %s", ({"a": 1},), {}),  # logging takes a lone mapping for named arguments
    ],
)
def test_fields_come_from_the_template_and_never_from_the_text(message: str, arguments: Any, fields: Any) -> None:
    made = logging.LogRecord("x", logging.INFO, "", 0, message, arguments, None)
    assert named(made) == fields


def test_every_message_of_gad_is_a_template() -> None:
    found = 0
    for path in sorted((ROOT / "gad").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if ast.unparse(node.func.value) == "log" and node.func.attr in ("info", "warning", "error", "exception"):
                found += 1
                template = node.args[0]
                assert isinstance(template, ast.Constant) and isinstance(template.value, str), f"{path}:{node.lineno}"
                assert not re.search(r"(session|trigger) %(?!s)", template.value), f"{path}:{node.lineno}"
    assert found > 30


# -- the journal ----------------------------------------------------------------------------------


def test_priorities_are_those_of_syslog() -> None:
    levels = (logging.DEBUG, logging.INFO, NOTICE, logging.WARNING, logging.ERROR, logging.CRITICAL)
    assert [priority(level) for level in levels] == [7, 6, 5, 4, 3, 2]


def test_only_the_stream_that_systemd_names_is_the_journal(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file, (tmp_path / "other").open("w") as other:
        info = os.fstat(file.fileno())
        environ = {"JOURNAL_STREAM": f"{info.st_dev}:{info.st_ino}"}
        assert is_journal(environ, file.fileno())
        assert not is_journal(environ, other.fileno())
        assert not is_journal({}, file.fileno())
        assert not is_journal({"JOURNAL_STREAM": "x"}, file.fileno())
        closed = os.dup(file.fileno())
        os.close(closed)
        assert not is_journal(environ, closed)


# -- settings -------------------------------------------------------------------------------------


def test_the_settings_are_read_and_mistakes_are_named(tmp_path: Path) -> None:
    make_home(tmp_path)
    (tmp_path / "gad.yaml").write_text("log: {level: debug}\n")
    assert load(tmp_path, {}).log == LogSettings("debug", "human")
    (tmp_path / "gad.yaml").write_text("log:\n  level: loud\n  form: json\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {})
    told = str(caught.value).splitlines()
    assert [line.partition(": must")[0].partition(": unknown")[0] for line in told] == [
        "gad.yaml:2: log.level",
        "gad.yaml:3: log.form",
    ]


# -- secrets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [False, True])
def test_no_secret_stands_in_a_line(as_json: bool) -> None:
    line = Line(as_json=as_json, secrets=Secrets({"KEY": KEY})).format(
        record("session %s: refused: %s", KEY, f"key={KEY}", error=broken(f"bad {KEY}"))
    )
    assert KEY not in line and line.count("[secret KEY]") == (4 if as_json else 3)


# -- a process ------------------------------------------------------------------------------------

SCRIPT = """
import logging, sys, threading, warnings
from gad.cli.logs import announce, set_up
from gad.config import LogSettings
from gad.core.redact import Secrets
set_up(LogSettings(level="error"))
log = logging.getLogger("gad.x")
log.warning("not shown"); announce("shown"); log.error("session %s: shown", "s")
set_up(LogSettings(level="info", format="json"), Secrets({"K": "sk-test-4f9a8b7c6d5e"}))
log.debug("not shown"); log.info("now shown")
logging.getLogger("httpx2").info("Authorization: Bearer x")
warnings.warn("odd\\nthing")
log.error("%d of sk-test-4f9a8b7c6d5e", "one\\n")
class Dying:
    def __del__(self):
        raise KeyError("gone")
Dying()
thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()
raise RuntimeError("the key is sk-test-4f9a8b7c6d5e\\nand more")
"""


def test_what_breaks_a_process_is_one_line_too(tmp_path: Path) -> None:
    found = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert found.returncode == 1
    lines = found.stderr.splitlines()
    assert lines[0] == "gad: shown" and lines[1].endswith("ERROR session s: shown")
    rest = [json.loads(line) for line in lines[2:]]
    assert [one["level"] for one in rest] == ["info", "warning", "error", "error", "critical", "critical"]
    assert rest[0]["message"] == "now shown" and "odd\nthing" in rest[1]["message"]
    assert "%d of [secret K]" in rest[2]["message"] and "one" in rest[2]["message"]
    assert "Dying.__del__" in rest[3]["message"] and "KeyError" in rest[3]["traceback"]
    assert "ZeroDivisionError" in rest[4]["traceback"]
    assert rest[5]["traceback"].endswith("RuntimeError: the key is [secret K]\nand more")


@pytest.mark.parametrize("form", ["human", "json"])
def test_the_daemon_s_log_in_the_journal(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_in_thread(["done \U0001f642"]) as server:
        world = World(tmp_path / "home", server, log={"level": "info", "format": form})
        ours, theirs = os.pipe()
        info = os.fstat(theirs)
        monkeypatch.setenv("JOURNAL_STREAM", f"{info.st_dev}:{info.st_ino}")
        daemon = start(world.home, "up", stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        try:
            world.task("s")
            wait_for(lambda: world.status("s").get("state") == "done", 30)
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(timeout=30) == 0
        finally:
            daemon.kill()
            daemon.wait()
            with os.fdopen(ours, "rb") as file:
                lines = file.read().decode().splitlines()
    assert all(re.match("<[2-6]>", line) for line in lines), lines
    assert [line for line in lines if line.startswith("<5>")] and not [line for line in lines if line[1] in "234"]
    if form == "human":
        assert "<6>INFO session s: done" in lines and lines[-1] == "<5>gad: stopped"
        return
    found = [json.loads(line[3:]) for line in lines]
    states = [one["message"] for one in found if one.get("session") == "s"]
    assert states[-1] == "session s: done"
    assert found[-1]["message"] == "stopped" and found[-1]["level"] == "notice"


def test_a_reload_takes_up_the_log_s_settings(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make_home(home)
    (home / "gad.yaml").write_text("model: claude\n")
    daemon = start(home, "up", stdout=subprocess.DEVNULL)
    try:
        assert daemon.stderr is not None
        while b"stop with" not in daemon.stderr.readline():
            assert daemon.poll() is None
        (home / "gad.yaml").write_text(yaml.safe_dump({"model": "claude", "log": {"format": "json"}}))
        daemon.send_signal(signal.SIGHUP)
        told = json.loads(daemon.stderr.readline())
        assert told["message"] == "gad.yaml was read again: taken up: log.format"
    finally:
        daemon.kill()
        daemon.communicate()
