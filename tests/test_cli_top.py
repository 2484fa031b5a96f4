"""gad top in a real terminal, what sessions are said to do, and completion in a real shell."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gad.cli import board, exits, gad
from gad.cli.board import Board
from gad.cli.doing import Doing, doing, of_records
from gad.cli.terminal import Key, Keys
from gad.home import make_home
from gad.spool.lock import SpoolLock
from gad.spool.status import read_status, timestamp, write_status
from tests.scripted_server import Call, Reply, Silence
from tests.terminals import Terminal
from tests.world import World, play
from tests.world import until as comes

GAD = str(Path(sys.executable).parent / "gad")
HOSTILE = "\x1b[2J\x1b]0;title\x07 \u202eevil\n\r\x00second 漢字漢字"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home whose daemon is this process."""
    make_home(tmp_path / "home")
    with SpoolLock(str(tmp_path / "home/spool")):
        write_status(tmp_path / "home/spool/.daemon", {"state": "ready", "pid": os.getpid()})
        yield tmp_path / "home"


def session(home: Path, name: str, state: str, *records: dict[str, Any], **status: Any) -> Path:
    directory = home / "spool" / name
    directory.mkdir(exist_ok=True)
    with open(directory / "journal.jsonl", "a", encoding="ascii") as file:
        file.writelines(json.dumps({"at": time.time()} | one) + "\n" for one in records)
    usual = {"since": timestamp(time.time()), "turn": 3, "tokens_in": 1200, "tokens_out": 34, "cost_usd": 0.25}
    write_status(directory, {"state": state} | usual | status)
    return directory


CALLING = {"kind": "calling", "turn": 4, "model": "claude"}
ANSWER = {"kind": "answer", "parts": [{"call": "c1", "name": "code_run", "arguments": {"code": "make test\nexit"}}]}
STARTED = {"kind": "tool_started", "call": "c1", "name": "code_run"}


@pytest.fixture
def busy(home: Path) -> Path:
    """A home with one session of every kind."""
    session(home, "asks", "asking", question=f"Which colour? {HOSTILE}", candidates=["red", f"blue {HOSTILE}"])
    session(home, "calls", "running", CALLING, ANSWER, STARTED, cost_usd="unknown")
    session(home, "late", "deferred", error="529 overloaded", retry_at="2030-01-02T03:04:05Z", attempts=2)
    session(home, "waits-" + "n" * 100 + "-end", "running", CALLING)
    session(home, "over", "done")
    return home


def environ(home: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "GAD_HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8", "PS1": "$ "}


def top(home: Path, *arguments: str, columns: int = 80, lines: int = 24) -> Terminal:
    return Terminal([GAD, "top", *arguments], environ(home), columns=columns, lines=lines)


def run(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(gad, ["--home", str(home), *arguments])


def files(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    """Return all that can be told of a tree's files, but for when they were read."""
    found = {str(path): (path, path.lstat()) for path in directory.rglob("*")}
    return {
        name: (path.read_bytes() if path.is_file() else b"", stat.st_ino, stat.st_mtime_ns)
        for name, (path, stat) in found.items()
    }


# -- the screen ---------------------------------------------------------------------------------------


def test_it_says_what_each_session_does_in_80_columns(busy: Path) -> None:
    before = files(busy)
    with top(busy) as terminal:
        shown = terminal.until("code_run: make test")
        rows = shown.split("\n")
        assert "daemon ready, pid" in rows[0]
        for words in ("15 turns", "6.17k tokens", "$1.00+?", "running 2", "asking 1", "deferred 1", "done 1"):
            assert words in rows[1]
        names = [row.split()[0] for row in rows[3:7]]
        assert names[:2] == ["asks", "calls"] and names[3] == "late", shown
        assert names[2].startswith("waits-nn") and names[2].endswith("-end") and "…" in names[2]
        assert "$0.2500" in rows[3] and " - " in rows[4] and "1.23k" in rows[3]
        assert "waits for claude, tu…" in rows[5] and "deferred until 03:04…" in rows[6]
        # Below the list stands all that the chosen one asks, and what may be answered.
        below = "\n".join(rows[18:23])
        assert "asks: Which colour?" in below and "answers: red | blue" in below and "second 漢字漢字" in below
        assert "over" not in names and rows[23].startswith("↑↓ move  enter follow")
        first = rows[0][-8:]
        terminal.until(lambda: terminal.text.split("\n")[0][-8:] != first)  # it goes on looking
        terminal.press("q")
        assert terminal.ends() == exits.DONE
    assert files(busy) == before


def test_keys_move_and_show_those_at_rest(busy: Path) -> None:
    with top(busy) as terminal:
        terminal.until("─ asks")
        terminal.press("j\x1b[B")
        terminal.until("─ waits-")
        terminal.press("\x1b[F")
        terminal.until("─ late")
        terminal.press("a")
        assert "over" in terminal.until("done  ")
        terminal.press("G")
        terminal.until("─ over")
        session(busy, "fresh", "asking", question="Now?")  # it comes to the top; the choice stays
        shown = terminal.until("asks: Now?")
        assert "─ over" in shown and shown.index("fresh") > shown.index("asks ")
        shutil.rmtree(busy / "spool/over")
        terminal.until("─ late")
        terminal.resize(50, 10)
        terminal.until(lambda: terminal.text.split("\n")[9].startswith("↑↓ move"))
        assert "asks" in terminal.text
        terminal.press("\x1b")  # escape alone leaves nothing in the list: q does
        terminal.press("q")
        assert terminal.ends() == exits.DONE and terminal.given_back


def test_a_question_is_answered(busy: Path) -> None:
    reply = busy / "spool/asks/reply.txt"
    with top(busy) as terminal:
        terminal.until("─ asks")
        terminal.press("rx\x7fsqü")
        terminal.until("not): sqü")
        terminal.press("\x1b")
        terminal.until("↑↓ move")
        assert not reply.exists() and not (busy / "spool/asks/stop.txt").exists()
        terminal.press("r\x1b[200~red, and\rsy\nmore\x1b[201~!")
        terminal.until("red, and⏎sy⏎more!")
        terminal.press("\r")
        terminal.until("asks has your reply")
        assert reply.read_text() == "red, and\nsy\nmore!"
        terminal.press("rsecond\r")  # the first has not been taken yet: nothing is lost, and the words stay
        terminal.until("reply.txt is there already")
        assert reply.read_text() == "red, and\nsy\nmore!"
        reply.unlink()
        terminal.press("\r")
        terminal.until("asks has your reply")
        assert reply.read_text() == "second"
        terminal.press("\x1b[200~sy\x1b[201~")  # what is pasted into the list is no key
        terminal.press("q")
        assert terminal.ends() == exits.DONE
    assert not (busy / "spool/asks/stop.txt").exists()


def test_a_session_is_stopped_when_that_is_confirmed(busy: Path) -> None:
    stop = busy / "spool/calls/stop.txt"
    with top(busy) as terminal:
        terminal.until("─ asks")
        terminal.press("js")
        terminal.until("stop calls?")
        terminal.press("n")
        terminal.until("↑↓ move")
        assert not stop.exists()
        terminal.press("sy")
        terminal.until("calls is asked to stop")
        assert stop.exists()


def test_output_is_followed(busy: Path) -> None:
    output = busy / "spool/asks/output.txt"
    output.write_text("".join(f"line {number} {'w' * 100}\n" for number in range(2000)) + HOSTILE)
    with top(busy) as terminal:
        terminal.until("─ asks")
        terminal.press("\r")
        terminal.until("second 漢字")
        with open(output, "a") as file:
            file.write("\nand on it goes\n")
        terminal.until("and on it goes")
        terminal.press("\x1b[5~\x1b[5~")
        terminal.until(lambda: "and on it goes" not in terminal.text and "line 1979 " in terminal.text)
        terminal.press("G")
        terminal.until("and on it goes")
        output.unlink()
        output.write_text("a new conversation\n")
        terminal.until(lambda: "a new conversation" in terminal.text and "and on it goes" not in terminal.text)
        terminal.press("rhello\r")
        terminal.until("asks has your reply")
        terminal.press("q")
        terminal.until("↑↓ move")
        terminal.press("q")
        assert terminal.ends() == exits.DONE


# -- the terminal is given back -----------------------------------------------------------------------

CRASH = """
import gad.cli.top_screen as screen, sys
from gad.cli import gad
draw = screen.Screen.draw
def crash(self, view, *size):
    if view.selected == 'calls':
        raise ZeroDivisionError('a mistake of ours')
    return draw(self, view, *size)
screen.Screen.draw = crash
gad(['top'], prog_name='gad')
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("q", exits.DONE),
        ("\x03", exits.INTERRUPTED),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGHUP, -signal.SIGHUP),
        (signal.SIGQUIT, -signal.SIGQUIT),
        ("the spool goes", exits.ERROR),
        ("a mistake", exits.ERROR),
    ],
    ids=str,
)
def test_the_terminal_is_given_back(busy: Path, end: str | signal.Signals, code: int) -> None:
    command = [sys.executable, "-c", CRASH] if end == "a mistake" else [GAD, "top"]
    with Terminal(command, environ(busy)) as terminal:
        terminal.until("─ asks")
        assert terminal.modes == {"1049": True, "25": False, "7": False, "2004": True}
        assert terminal.attributes() != terminal.before
        if isinstance(end, signal.Signals):
            terminal.process.send_signal(end)
        elif end == "the spool goes":
            (busy / "spool").rename(busy / "gone")
        else:
            terminal.press("j" if end == "a mistake" else end)
        assert terminal.ends() == code
        assert terminal.given_back
        if code == exits.ERROR:
            assert ("a mistake of ours" if end == "a mistake" else "No such file or directory") in terminal.text


def test_suspended_and_continued_from_a_shell(busy: Path) -> None:
    with Terminal(["bash", "--norc", "--noprofile", "-i"], environ(busy)) as terminal:
        terminal.until("$")
        terminal.press("gad top\r")
        terminal.until("─ asks")
        terminal.press("\x1a")
        terminal.until("Stopped")
        assert terminal.modes["1049"] is False and terminal.modes["25"] is True
        terminal.press("stty -a | tr ';' ' ' | grep -o ' -*icanon ' | tr a-z A-Z\r")
        terminal.until(lambda: " ICANON" in terminal.text)
        terminal.press("fg\r")
        terminal.until("─ asks")
        assert terminal.modes["1049"] is True
        terminal.press("jq")
        terminal.until(lambda: terminal.modes["1049"] is False)
        terminal.press("echo code=$?\r")
        terminal.until("code=0")
        terminal.press("exit\r")
        terminal.ends()


def test_keys_come_in_pieces() -> None:
    keys = Keys()
    assert keys.feed(b"\x1b") == [] and keys.unfinished and keys.feed(b"[") == [] and keys.feed(b"A") == [Key("up")]
    assert keys.feed("ü".encode()[:1]) == [] and keys.feed("ü".encode()[1:]) == [Key("char", "ü")]
    assert keys.feed(b"\x1b") == [] and keys.end() == [Key("escape")] and not keys.unfinished
    assert keys.feed(b"\x1bq") == [Key("escape"), Key("char", "q")]
    assert keys.feed(b"\x1b[200~a\r\nb\x1b[20") == [] and not keys.unfinished
    assert keys.feed(b"1~\x1b[99;5u\x01x") == [Key("paste", "a\nb"), Key("char", "x")]


# -- for scripts --------------------------------------------------------------------------------------


def test_once_and_json_are_for_scripts(busy: Path) -> None:
    before = files(busy)
    found = json.loads(run(busy, "top", "--json").stdout)
    assert [one["session"][:5] for one in found["sessions"]] == ["asks", "calls", "waits", "late"]
    assert found["sessions"][1]["doing"] == "code_run: make test\nexit"
    assert found["totals"]["turns"] == 15 and found["totals"]["states"]["done"] == 1
    assert found["totals"]["cost_usd"] == 1.0 and found["totals"]["cost_known"] is False
    assert found["daemon"].startswith("ready")
    once = run(busy, "top", "--once", "--all")
    assert [line.split()[0][:5] for line in once.stdout.splitlines()] == [
        "SESSI", "asks", "calls", "waits", "late", "over",
    ]  # fmt: skip
    assert "\x1b" not in once.stdout and "\u202e" not in once.stdout and "some costs unknown" in once.stderr
    refused = run(busy, "top")
    assert refused.exit_code == exits.USAGE and "gad top --once" in refused.stderr
    listed = json.loads(run(busy, "ps", "--json").stdout)
    assert {one["session"]: one["doing"] for one in listed}["calls"] == "code_run: make test\nexit"
    assert files(busy) == before


@pytest.mark.parametrize("command", [["ps"], ["submit", "hello"], ["show", "over"]], ids=" ".join)
def test_the_quick_commands_import_nothing_slow(busy: Path, command: list[str]) -> None:
    code = (
        "import sys, runpy\n"
        f"sys.argv = ['gad', *{command!r}]\n"
        "try:\n    runpy.run_module('gad', run_name='__main__')\n"
        "except SystemExit as exc:\n    assert not exc.code, exc.code\n"
        "print('imported', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ(busy), check=True)
    imported = {name.partition(".")[0] for name in done.stdout.rpartition("imported")[2].split()}
    assert "gad" in imported and not {"rich", "anthropic", "openai", "httpx2", "playwright", "pydantic"} & imported


# -- what a session does ------------------------------------------------------------------------------


def test_the_end_of_the_journal_says_what_is_under_way() -> None:
    started = STARTED | {"at": 7}
    assert of_records([started, ANSWER, CALLING]) == Doing("code_run: make test\nexit", 7)
    assert of_records([started]).text == "code_run"  # its answer is further back than was read
    assert of_records([{"kind": "child_used"}, {"kind": "message"}, started, ANSWER]).since == 7
    assert of_records([{"kind": "stop", "at": 9}, started, ANSWER]) == Doing("is being stopped", 9)
    assert of_records([{"kind": "checking", "at": 1}]).text == "runs its check"
    assert of_records([{"kind": "tool_finished", "at": 1}]).text == "goes on by itself"
    assert of_records([]).text == "works"
    strange: list[dict[str, Any]] = [
        {"kind": "tool_started", "call": [], "name": None},
        {"kind": "answer", "parts": 3},
        {"kind": []},
    ]
    assert of_records(strange).text == "None"
    long = {"kind": "answer", "parts": [{"call": "c1", "name": "code_run", "arguments": {"code": "x" * 9999}}]}
    assert len(of_records([started, long]).text) < 400


def test_a_real_daemon_s_sessions(tmp_path: Path) -> None:
    def model(body: Any) -> Any:
        text = json.dumps(body["messages"])
        if "tool please" in text:
            return Call("code_run", {"type": "bash", "code": "exec sleep 60"})
        if "ask please" in text:
            return Call("ask_user", {"question": "Which colour?", "candidates": ["red"]})
        return Reply((Silence(60),))

    async def scene(world: World) -> None:
        async with world.running():
            for name in ("tool", "ask", "wait"):
                world.task(name, f"{name} please")
            expected = {
                "tool": "code_run: exec sleep 60",
                "ask": "asks: Which colour?",
                "wait": "waits for scripted, turn 1",
            }
            seen = Board(world.spool)

            def told() -> dict[str, str]:
                return {row.name: row.doing.text for row in seen.look().rows}

            await comes(lambda: told() == expected, 20, lambda: str(told()))
            assert {name: doing(world.spool / name, world.status(name)).text for name in expected} == expected
            assert seen.look().daemon.startswith("ready")
            for name in expected:
                world.put(name, "stop.txt", "")
            await comes(lambda: {row.state for row in seen.look().rows} == {"stopped"}, 20, lambda: str(told()))

    play(tmp_path, model, scene)


def test_a_record_that_is_just_being_written_changes_nothing(busy: Path) -> None:
    seen = Board(busy / "spool")
    before = seen.look().rows
    with open(busy / "spool/calls/journal.jsonl", "a") as file:
        file.write('{"kind": "tool_fin')
        file.flush()
        assert seen.look().rows == before
        file.write('ished", "at": 1}\n')
    assert {row.name: row.doing.text for row in seen.look().rows}["calls"] == "goes on by itself"


def test_of_very_many_sessions_only_those_that_work_are_read(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "_PERIOD", 0.0)
    monkeypatch.setattr(board, "_SHARE", 0)
    status = f"state: done\nsince: {timestamp(1e9)}\nturn: 1\ntokens_in: 10\ntokens_out: 1\ncost_usd: 0.5\n"
    for number in range(2000):
        directory = busy / f"spool/rest-{number:04}"
        directory.mkdir()
        (directory / "status.txt").write_text(status)
        os.utime(directory, (1e9, 1e9))
    for name in ("asks", "over"):
        os.utime(busy / "spool" / name, (1e9, 1e9))
    read: list[str] = []

    def reads(path: str) -> dict[str, Any]:
        read.append(Path(path).name)
        return read_status(path)

    monkeypatch.setattr(board, "read_status", reads)
    seen = Board(busy / "spool")
    look = seen.look()
    assert len(look.rows) == 2005 and look.totals.usd == 1001.0 and len(read) > 2000
    read.clear()
    assert len(seen.look().shown(False)) == 4
    assert {name for name in read if not name.startswith("waits-")} == {"calls", "late", ".daemon"} and len(read) == 4
    session(busy, "rest-0042", "asking", question="Still there?")
    read.clear()
    assert seen.look().rows[1].doing.text == "asks: Still there?" and len(read) == 5
    shutil.rmtree(busy / "spool/rest-0042")
    assert len(seen.look().rows) == 2004


# -- completion ---------------------------------------------------------------------------------------


def test_bash_completes_commands_options_and_sessions(busy: Path) -> None:
    with Terminal(["bash", "--norc", "--noprofile", "-i"], environ(busy)) as terminal:
        terminal.until("$")
        terminal.press('eval "$(gad completion bash)"; echo re""ady\r')
        terminal.until("ready")
        for typed, completed in (
            ("gad compl", "gad completion "),
            ("gad tail as", "gad tail asks "),
            ("gad stop calls la", "gad stop calls late "),
            ("gad show --ht", "gad show --html "),
            (f"gad --home {busy} ps --js", "ps --json "),
        ):
            terminal.press(f"{typed}\tX")
            terminal.until(completed + "X")
            terminal.press("\x15")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(busy: Path, shell: str, tmp_path: Path) -> None:
    made = run(busy, "completion", shell)
    assert made.exit_code == 0 and f"_GAD_COMPLETE={shell}_complete" in made.stdout
    (tmp_path / "script").write_text(made.stdout)
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)
    words = {"COMP_WORDS": "gad memory sho", "COMP_CWORD": "sho" if shell == "fish" else "2"}
    told = subprocess.run(
        [GAD], env=environ(busy) | words | {"_GAD_COMPLETE": f"{shell}_complete"}, capture_output=True, text=True
    )
    assert "show" in told.stdout and told.stderr == ""


def test_completion_is_quiet_where_there_is_no_home(tmp_path: Path) -> None:
    words = {"COMP_WORDS": "gad tail a", "COMP_CWORD": "2", "_GAD_COMPLETE": "bash_complete"}
    told = subprocess.run([GAD], env=environ(tmp_path / "none") | words, capture_output=True, text=True, cwd=tmp_path)
    assert (told.stdout.strip(), told.stderr) == ("", "")
