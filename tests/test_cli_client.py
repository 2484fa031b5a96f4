"""What a client does, with the daemon's side played by files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gad.cli import COMMANDS, exits, gad
from gad.cli import follow as following
from gad.home import make_home
from gad.spool.lock import SpoolLock
from gad.spool.status import timestamp, write_status

BEGIN = {"kind": "begin", "at": 1.0, "v": 1, "session": "s", "preamble": "", "persist": False, "options": {}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_home(tmp_path / "home")
    monkeypatch.setenv("GAD_HOME", str(tmp_path / "home"))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def locked(home: Path) -> Iterator[None]:
    """A daemon holds the spool."""
    with SpoolLock(str(home / "spool")):
        yield


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(gad, arguments, input=stdin)


def start(*arguments: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gad", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd)


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


def session(home: Path, name: str = "s", **status: Any) -> Path:
    directory = home / "spool" / name
    directory.mkdir(exist_ok=True)
    if status:
        write_status(directory, status)
    return directory


def record(directory: Path, *records: dict[str, Any]) -> None:
    with open(directory / "journal.jsonl", "a", encoding="utf-8") as file:
        file.writelines(json.dumps({"at": 1.0} | one, ensure_ascii=False) + "\n" for one in records)


def say(directory: Path, text: str) -> None:
    with open(directory / "output.txt", "a", encoding="utf-8") as file:
        file.write(text)


def take(directory: Path, name: str) -> None:
    """Take a client's file in, as the daemon does."""
    claim = directory / f".claim-0001-{name}"
    os.rename(directory / name, claim)
    record(directory, {"kind": "message", "n": 1, "file": name, "text": claim.read_text(encoding="utf-8")})
    claim.unlink()


def end(directory: Path, state: str = "done", error: str = "", **values: Any) -> None:
    last = {"kind": "asked", "call": "", "question": "Q?", "candidates": []}
    record(directory, last if state == "asking" else {"kind": "ended", "state": state, "error": error})
    write_status(directory, {"state": state, "error": error or None} | values)


def test_submit_hands_in_the_text_and_prints_the_session(home: Path) -> None:
    result = run("submit", "fix", "the", "bug 🐛")
    assert result.exit_code == 0, result.output
    directory = home / "spool" / result.stdout.strip()
    assert (directory / "input.txt").read_text(encoding="utf-8") == "fix the bug 🐛"
    assert os.listdir(directory) == ["input.txt"]


def test_submit_from_standard_input_and_from_a_file(home: Path, tmp_path: Path) -> None:
    (tmp_path / "task").write_text("aus der Datei — 文件\n", encoding="utf-8")
    assert run("submit", "--name", "a", "-", stdin="von außen".encode()).exit_code == 0
    assert run("submit", "--name", "b", "--file", str(tmp_path / "task")).exit_code == 0
    assert (home / "spool/a/input.txt").read_text(encoding="utf-8") == "von außen"
    assert (home / "spool/b/input.txt").read_text(encoding="utf-8") == "aus der Datei — 文件\n"


def test_submit_writes_the_options_into_the_task_file(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check = "grep 'a: b' x # \"yes\"\nexit 0"
    result = run(
        "submit", "--json", "--name", "s", "--cwd", ".", "--model", "local", "--check", check,
        "--set", "turns=3", "--set", "labels=a,b", "do it",
    )  # fmt: skip
    assert json.loads(result.stdout) == {"session": "s", "directory": str(home / "spool/s")}
    assert yaml.safe_load((home / "spool/s/task.yaml").read_text(encoding="utf-8")) == {
        "cwd": str(tmp_path),
        "model": "local",
        "check": check,
        "turns": "3",
        "labels": "a,b",
    }


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["submit"], exits.USAGE, "give the text"),
        (["submit", "x", "--file", "y"], exits.USAGE, "one of them"),
        (["submit", "--file", "/no/such"], exits.ERROR, "/no/such: No such file"),
        (["submit", " "], exits.REJECTED, "the text is empty"),
        (["submit", "--name", "../x", "t"], exits.ERROR, "is not a session's name"),
        (["submit", "--model", "loca", "t"], exits.ERROR, "did you mean local?"),
        (["submit", "--set", "trns=1", "t"], exits.ERROR, "did you mean turns?"),
        (["submit", "--set", "turns", "t"], exits.USAGE, "'turns' is not key=value"),
        (["submit", "--model", "local", "--set", "model=gpt", "t"], exits.USAGE, "given twice"),
        (["submit", "--cwd", "/no/such", "t"], exits.ERROR, "/no/such is not a directory"),
        (["reply", "none", "t"], exits.ERROR, "there is no session none"),
        (["stop", "none"], exits.ERROR, "there is no session none"),
        (["wait", "none"], exits.ERROR, "there is no session none"),
        (["show", "none"], exits.ERROR, "there is no session none"),
        (["tail", "--no-follow", "none"], exits.ERROR, "there is no session none"),
        (["tail", "../x"], exits.ERROR, "is not a session's name"),
        (["sbmit"], exits.USAGE, "did you mean submit?"),
        (["--home", "/no/such", "ps"], exits.ERROR, "gad init /no/such"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_told_and_nothing_is_handed_in(home: Path, arguments: list[str], code: int, said: str) -> None:
    result = run(*arguments)
    assert said in result.stderr
    assert result.exit_code == code
    assert os.listdir(home / "spool") == []


def test_a_text_that_is_too_long_is_told(home: Path) -> None:
    (home / "gad.yaml").write_text("spool: {max_bytes: 5000}")
    result = run("submit", "-", stdin=b"x" * 5001)
    assert (result.exit_code, "more than 5000" in result.stderr) == (exits.REJECTED, True)


def test_reply_and_stop_leave_their_files(home: Path) -> None:
    directory = session(home, state="asking")
    assert run("reply", "s", "yes", "please").exit_code == 0
    assert run("stop", "s").exit_code == 0
    assert (directory / "reply.txt").read_text() == "yes please"
    assert (directory / "stop.txt").read_bytes() == b""


ENDINGS = [
    ("done", exits.DONE, {}, "s: done"),
    ("asking", exits.ASKING, {"question": "Which?", "candidates": ["a", "b"]}, "question: Which?\n  - a\n  - b"),
    ("stopped", exits.STOPPED, {}, "s: stopped"),
    ("failed", exits.FAILED, {"error": "no such model"}, "error: no such model"),
]


@pytest.mark.parametrize(("state", "code", "values", "said"), ENDINGS, ids=[ending[0] for ending in ENDINGS])
@pytest.mark.usefixtures("locked")
def test_submit_streams_and_exits_with_the_session_s_code(
    home: Path, state: str, code: int, values: dict[str, Any], said: str
) -> None:
    client = start("submit", "--wait", "--name", "s", "go")
    directory = home / "spool/s"
    until((directory / "input.txt").exists)
    record(directory, BEGIN)
    take(directory, "input.txt")
    write_status(directory, {"state": "running"})
    say(directory, "你")
    assert client.stdout is not None
    assert client.stdout.read(3).decode() == "你"
    say(directory, "好 🎉\n")
    end(directory, state, **values)
    out, err = client.communicate(timeout=20)
    assert out.decode() == "好 🎉\n"
    assert said in err.decode()
    assert client.returncode == code


@pytest.mark.usefixtures("locked")
def test_a_rejected_task_ends_the_waiting(home: Path) -> None:
    client = start("submit", "--wait", "--json", "--name", "s", "go")
    directory = home / "spool/s"
    until((directory / "input.txt").exists)
    record(directory, {"kind": "rejected", "n": 1, "file": "input.txt", "error": "too large"})
    os.rename(directory / "input.txt", directory / "rejected-0001-input.txt")
    write_status(directory, {"state": "rejected", "error": "too large"})
    out, _ = client.communicate(timeout=20)
    told = json.loads(out)
    assert (told["session"], told["state"], told["error"], told["result"]) == ("s", "rejected", "too large", None)
    assert client.returncode == exits.REJECTED


@pytest.mark.usefixtures("locked")
def test_the_result_comes_with_the_json(home: Path) -> None:
    client = start("submit", "--wait", "--json", "--name", "s", "go")
    directory = home / "spool/s"
    until((directory / "input.txt").exists)
    take(directory, "input.txt")
    (directory / "result.txt").write_text("42")
    end(directory, turn=2)
    out, _ = client.communicate(timeout=20)
    told = json.loads(out)
    assert (told["state"], told["turn"], told["result"]) == ("done", 2, "42")


@pytest.mark.usefixtures("locked")
def test_a_reply_s_waiter_does_not_take_the_former_round_for_its_own(home: Path) -> None:
    directory = session(home, state="running")
    record(directory, BEGIN)
    say(directory, "former\n")
    end(directory)
    client = start("reply", "--wait", "s", "more")
    until((directory / "reply.txt").exists)
    claim = directory / ".claim-0002-reply.txt"
    os.rename(directory / "reply.txt", claim)
    # Every step of the daemon is left standing for longer than the client looks, and none of them is an end.
    steps: list[Callable[[], object]] = [
        lambda: None,
        lambda: record(directory, {"kind": "message", "n": 2, "file": "reply.txt", "text": "more"}),
        claim.unlink,
        lambda: write_status(directory, {"state": "running"}),
        lambda: record(directory, {"kind": "calling", "turn": 2, "model": "m"}),
        lambda: say(directory, "answer\n"),
        lambda: record(directory, {"kind": "ended", "state": "done", "error": ""}),
    ]
    for step in steps:
        step()
        with pytest.raises(subprocess.TimeoutExpired):
            client.wait(timeout=0.25)
    write_status(directory, {"state": "done"})
    out, _ = client.communicate(timeout=20)
    assert out.decode() == "answer\n"
    assert client.returncode == exits.DONE


@pytest.mark.usefixtures("locked")
def test_a_reply_that_was_not_accepted_is_told(home: Path) -> None:
    directory = session(home)
    record(directory, BEGIN)
    end(directory)
    client = start("reply", "--wait", "s", "more")
    until((directory / "reply.txt").exists)
    os.rename(directory / "reply.txt", directory / ".claim-0002-reply.txt")
    record(directory, {"kind": "rejected", "n": 2, "file": "reply.txt", "error": "not for you"})
    os.rename(directory / ".claim-0002-reply.txt", directory / "rejected-0002-reply.txt")
    _, err = client.communicate(timeout=20)
    assert "error: not for you" in err.decode()
    assert client.returncode == exits.REJECTED


def test_without_a_daemon_waiting_ends_and_says_how_to_start_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_GRACE", 0.0)
    result = run("submit", "--wait", "--name", "s", "go")
    assert result.exit_code == exits.TEMPORARY
    assert "gad up" in result.stderr
    assert (home / "spool/s/input.txt").exists()


@pytest.mark.usefixtures("locked")
def test_waiting_ends_when_the_time_is_up(home: Path) -> None:
    session(home, "s", state="running")
    assert run("wait", "--timeout", "0.05", "s").exit_code == exits.TIMEOUT
    assert run("submit", "--wait", "--timeout", "0", "x").exit_code == exits.TIMEOUT


@pytest.mark.usefixtures("locked")
def test_an_interrupted_waiter_says_that_the_session_goes_on(home: Path) -> None:
    client = start("submit", "--wait", "--name", "s", "go")
    until((home / "spool/s/input.txt").exists)
    say(session(home), "x")
    assert client.stdout is not None
    assert client.stdout.read(1) == b"x"
    client.send_signal(2)
    _, err = client.communicate(timeout=20)
    assert "s goes on" in err.decode()
    assert client.returncode == exits.INTERRUPTED


def test_wait_gives_the_first_code_that_is_not_zero(home: Path) -> None:
    for name, state in (("a", "done"), ("b", "failed"), ("c", "asking")):
        end(session(home, name), state)
    result = run("wait", "a", "b", "c")
    assert result.stdout.splitlines() == ["a: done", "b: failed", "c: asking"]
    assert result.exit_code == exits.FAILED
    told = json.loads(run("wait", "--json", "a").stdout)
    assert [(one["session"], one["state"]) for one in told] == [("a", "done")]


@pytest.mark.parametrize(
    ("leave", "rests"),
    [
        (lambda directory: None, True),
        (lambda directory: (directory / "reply.txt").write_text("x"), False),
        (lambda directory: (directory / "stop.txt").touch(), False),
        (lambda directory: (directory / ".claim-0002-reply.txt").touch(), False),
        (lambda directory: (directory / ".reply.txt.tmp").touch(), True),
        (lambda directory: record(directory, {"kind": "message", "n": 2, "file": "reply.txt", "text": "x"}), False),
        (lambda directory: record(directory, {"kind": "context", "n": 2, "text": "x" * 100_000}), True),
        (lambda directory: record(directory, {"kind": "stop", "n": 2}), True),
        (lambda directory: write_status(directory, {"state": "queued"}), False),
        (lambda directory: (directory / "status.txt").unlink(), False),
    ],
)
def test_when_a_session_is_at_rest(home: Path, leave: Callable[[Path], object], rests: bool) -> None:
    directory = session(home)
    record(directory, BEGIN, {"kind": "message", "n": 1, "file": "input.txt", "text": "x"})
    end(directory)
    leave(directory)
    assert (following.at_rest(directory) is not None) is rests


def test_tail_follows_from_before_the_session_exists_to_its_end(home: Path) -> None:
    client = start("tail", "s")
    assert client.stderr is not None
    assert b"gad up" in client.stderr.readline()
    directory = session(home)
    say(directory, "a 中")
    assert client.stdout is not None
    assert client.stdout.read(5).decode() == "a 中"
    say(directory, "b")
    end(directory)
    assert client.communicate(timeout=20)[0] == b"b"
    assert client.returncode == 0


def test_tail_goes_on_when_told_to_also_into_a_new_conversation(home: Path) -> None:
    directory = session(home)
    say(directory, "first conversation")
    end(directory)
    client = start("tail", "--follow", "s")
    assert client.stdout is not None
    assert client.stdout.read(18) == b"first conversation"
    os.rename(directory / "output.txt", directory / "archived-0001-output.txt")
    say(directory, "second")
    assert client.stdout.read(6) == b"second"
    client.terminate()
    client.communicate(timeout=20)


def test_tail_prints_what_is_there(home: Path) -> None:
    directory = session(home, state="running")
    assert run("tail", "--no-follow", "s").stdout == ""
    say(directory, "so far")
    assert run("tail", "--no-follow", "s").stdout == "so far"


def test_ps_lists_sessions_by_their_last_change(home: Path) -> None:
    now = time.time()
    session(home, "old", state="done", since=timestamp(now - 90_000))
    session(home, "works", state="running", since=timestamp(now - 60), turn=3, tokens_in=10, tokens_out=2, cost_usd=0.5)
    session(home, "asks", state="asking", since=timestamp(now - 7200), question="Which 颜色?\nsecond line")
    (session(home, "fresh") / "input.txt").write_text("x")
    session(home, "empty")
    (home / "spool/.daemon").mkdir()
    shown = json.loads(run("ps", "--json").stdout)
    assert [(one["session"], one["state"]) for one in shown] == [
        ("fresh", "new"),
        ("works", "running"),
        ("asks", "asking"),
    ]
    everything = json.loads(run("ps", "--json", "--all").stdout)
    assert [one["session"] for one in everything] == ["fresh", "works", "asks", "old"]
    table = run("ps")
    assert [line.split()[0] for line in table.stdout.splitlines()] == ["SESSION", "fresh", "works", "asks"]
    assert "$0.5000" in table.stdout
    assert "Which 颜色? second line" in table.stdout
    assert "(1 at rest" in table.stderr


def test_config_says_where_each_value_came_from(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "gad.yaml").write_text("limits:\n  turns: 7\nprices:\n  m: {input: 1, output: 2}\n")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    told = json.loads(run("config", "--json").stdout)
    assert told["home"] == str(home)
    assert told["settings"]["limits.turns"] == {"value": 7, "source": "gad.yaml:2"}
    assert told["settings"]["model"] == {"value": "gpt", "source": "environment OPENAI_API_KEY"}
    assert told["settings"]["retry.most"] == {"value": 60.0, "source": "default"}
    assert told["settings"]["prices.m.output"] == {"value": 2.0, "source": "gad.yaml:4"}
    text = run("config").stdout
    assert "gad.yaml:2" in text
    assert "sk-secret" not in text


def test_config_tells_every_mistake(home: Path) -> None:
    (home / "gad.yaml").write_text("modle: x\nask: me\n")
    result = run("config")
    assert result.exit_code == exits.ERROR
    assert [line.split(": ")[:2] for line in result.stderr.splitlines()] == [
        ["gad", "gad.yaml:1"],
        ["gad", "gad.yaml:2"],
    ]


def test_models_lists_entries_their_keys_and_prices(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "gad.yaml").write_text("models: {odd: {provider: openai, model: odd-1, key_env: ODD_KEY}}")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    told = {one["name"]: one for one in json.loads(run("models", "--json").stdout)}
    assert (told["claude"]["key"], told["claude"]["default"]) == ("present", True)
    assert told["odd"]["key"] == "missing: ODD_KEY"
    assert told["odd"]["price"] is None
    assert told["local"]["key"] == "not needed"
    assert told["local"]["price"]["input"] == 0
    assert "* claude" in run("models").stdout


def test_show_tells_the_whole_story(home: Path) -> None:
    directory = session(home)
    usage = {"tokens_in": 10, "tokens_out": 5, "cached": 0, "cache_write": 0}
    parts = [{"text": "Let me see."}, {"call": "c1", "name": "file_read", "arguments": {"path": "ü"}}]
    result = {"result": "c1", "status": "error", "output": "no such\nfile", "meta": {"lines": 0}}
    record(
        directory,
        BEGIN,
        {"kind": "message", "n": 1, "file": "input.txt", "text": "Bitte 读\n"},
        {"kind": "calling", "turn": 1, "model": "m"},
        {"kind": "answer", "turn": 1, "parts": parts, "stop": "tools", "model": "m", "usage": usage, "usd": None},
        {"kind": "tool_finished", "result": result, "seconds": 0.1},
        {"kind": "asked", "call": "", "question": "What now?", "candidates": ["stop"]},
        {"kind": "resumed"},
        {"kind": "ended", "state": "failed", "error": "a limit"},
    )
    shown = run("show", "s")
    assert shown.exit_code == 0, shown.output
    for line in (
        "Bitte 读",
        "Let me see.",
        '=> file_read {"path": "ü"}',
        "<= error lines=0",
        "   file",
        "What now?",
        "  - stop",
    ):
        assert line in shown.stdout.splitlines()
    assert "failed\na limit" in shown.stdout
    assert [one["kind"] for one in json.loads(run("show", "--json", "s").stdout)][-1] == "ended"
    with open(directory / "journal.jsonl", "a") as file:
        file.write('{"kind": "mess')
    torn = run("show", "s")
    assert (torn.exit_code, "not complete yet" in torn.stderr) == (0, True)
    (directory / "journal.jsonl").write_text('nonsense\n{"kind": "resumed", "at": 1}\n')
    damaged = run("show", "s")
    assert (damaged.exit_code, "journal.jsonl:1: cannot be read" in damaged.stderr) == (exits.ERROR, True)


def test_init_makes_a_home(tmp_path: Path) -> None:
    assert "is a home now" in run("init", str(tmp_path / "new")).stdout
    assert sorted(os.listdir(tmp_path / "new")) == ["gad.yaml", "memory", "spool", "triggers", "work"]
    assert "was a home already" in run("init", str(tmp_path / "new")).stdout
    assert run("--home", str(tmp_path / "new"), "ps").exit_code == 0


def test_every_command_is_there_and_explains_itself(home: Path) -> None:
    whole = run("--help").stdout
    for code, meaning in exits.MEANINGS.items():
        assert f"{code} " in whole
        assert meaning.split(";")[0].split(":")[0] in " ".join(whole.split())
    for name in COMMANDS:
        helped = run(name, "--help")
        assert helped.exit_code == 0, name
        assert len(helped.stdout) > 100
        assert name in whole


def test_submitting_imports_no_sdk_and_nothing_slow(home: Path) -> None:
    code = (
        "import sys, runpy\n"
        "sys.argv = ['gad', 'submit', 'hello']\n"
        "try:\n    runpy.run_module('gad', run_name='__main__')\n"
        "except SystemExit as exc:\n    assert not exc.code, exc.code\n"
        "print(*sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    imported = {name.partition(".")[0] for name in out.split()[1:]}
    assert {"gad", "click"} <= imported
    slow = {"openai", "anthropic", "httpx2", "watchdog", "asyncio", "pydantic", "rich", "yaml", "portalocker"}
    assert not slow & imported
