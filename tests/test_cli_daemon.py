"""gad up and gad run, with real daemons, signals and terminals."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gad.cli import exits, follow, gad
from gad.cli import run as running
from gad.errors import SpoolLocked
from gad.home import make_home
from gad.spool import lock
from gad.spool.lock import SpoolLock, held
from tests.scripted_server import Call, Fail, Silence, last_text, serve_in_thread
from tests.test_crash import wait_for
from tests.test_protocol import alive
from tests.world import World

ASK = Call("ask_user", {"question": "Which colour?", "candidates": ["red", "blue 蓝"]})
STUBBORN = Call("code_run", {"type": "bash", "code": "trap '' TERM; echo $$ > pid; while :; do sleep 1; done"})


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "GAD_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    """Make a home whose model follows a script; the working directory is another one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with contextlib.ExitStack() as stack:

        def make_world(script: Any, **settings: Any) -> World:
            return World(tmp_path / "home", stack.enter_context(serve_in_thread(script)), **settings)

        yield make_world


def gad_run(world: World, *arguments: str, command: str = "run", stdin: str | None = None) -> Result:
    return CliRunner().invoke(gad, ["--home", str(world.home), command, *arguments], input=stdin)


def start(home: Path, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "gad", "--home", str(home), *arguments]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(root)}, **streams | options)


# -- gad run, in this process ---------------------------------------------------------------------


def test_run_does_the_task_here_when_no_daemon_runs(make: Callable[..., World], tmp_path: Path) -> None:
    world = make([Call("file_write", {"path": "a.txt", "content": "héllo 世界"}), "写好了 🙂"])
    result = gad_run(world, "--name", "s", "write", "it")
    assert result.exit_code == exits.DONE, result.output
    assert result.stdout == world.text("s", "output.txt")
    assert "写好了 🙂" in result.stdout
    assert (tmp_path / "here" / "a.txt").read_text("utf-8") == "héllo 世界"
    assert result.stderr.splitlines() == ["gad: session s", "session s: done"]
    assert not held(str(world.spool))


def test_run_takes_the_task_and_its_options_as_submit_does(make: Callable[..., World], tmp_path: Path) -> None:
    world = make(["no", "yes"])
    result = gad_run(
        world, "--json", "--name", "s", "--cwd", str(tmp_path), "--check", "test -e here/x || ! touch here/x",
        "--set", "labels=a,b", "-", stdin="von außen",
    )  # fmt: skip
    assert result.exit_code == exits.DONE, result.output
    told = json.loads(result.stdout)
    assert (told["session"], told["state"], told["turn"], told["result"]) == ("s", "done", 2, "yes\n")
    assert world.records("s")[0]["options"]["labels"] == ["a", "b"]
    assert world.records("s")[1]["text"] == "von außen"


def test_run_exits_with_the_session_s_code(make: Callable[..., World]) -> None:
    def stop_it(body: Any) -> Silence:
        world.put("stopped", "stop.txt", "")
        return Silence()

    world = make([ASK, Fail(400, "no such thing"), stop_it])
    cases = [
        ("asking", exits.ASKING, "answer with: gad reply asking ..., and start a daemon that reads it: gad up"),
        ("failed", exits.FAILED, "no such thing"),
        ("stopped", exits.STOPPED, "session stopped: stopped"),
    ]
    for name, code, said in cases:
        result = gad_run(world, "--name", name, "go")
        assert (result.exit_code, said in result.stderr) == (code, True), result.stderr
        assert world.status(name)["state"] == name
        assert result.stdout == world.text(name, "output.txt")


def test_run_of_what_cannot_be_accepted_ends_with_the_code_for_it(make: Callable[..., World], tmp_path: Path) -> None:
    world = make([])
    assert gad_run(world, " ").exit_code == exits.REJECTED
    assert gad_run(world, "--model", "nix", "x").exit_code == exits.ERROR
    assert os.listdir(world.spool) == []
    (tmp_path / "half").write_bytes(b"\xff\xfea")  # half a UTF-16 character: only the daemon notices
    result = gad_run(world, "--name", "s", "--file", str(tmp_path / "half"))
    assert (result.exit_code, "UTF-8" in result.stderr) == (exits.REJECTED, True), result.stderr
    assert world.status("s")["state"] == "rejected"


def test_run_ends_when_its_session_is_taken_away(make: Callable[..., World]) -> None:
    def take_away(body: Any) -> Silence:
        shutil.rmtree(world.spool / "s")
        return Silence()

    world = make([take_away])
    result = gad_run(world, "--name", "s", "go")
    assert (result.exit_code, "session s has gone" in result.stderr) == (exits.ERROR, True), result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_pauses_its_session(make: Callable[..., World], number: int) -> None:
    world = make([Silence()])
    client = start(world.home, "run", "--name", "s", "go")
    wait_for(lambda: world.server.requests)
    client.send_signal(number)
    out, err = client.communicate(timeout=20)
    assert client.returncode == exits.INTERRUPTED
    assert "gad: s is paused; gad up goes on with it" in err.decode().splitlines()
    assert out.decode() == world.text("s", "output.txt")
    assert world.kinds("s")[-1] == "paused"


def test_a_run_whose_reader_has_gone_pauses_its_session(make: Callable[..., World]) -> None:
    world = make([Silence()])
    client = start(world.home, "run", "--name", "s", "go")
    assert client.stdout is not None and client.stderr is not None
    client.stdout.close()
    wait_for(lambda: client.poll() is not None, 20)
    assert client.returncode == exits.ERROR
    assert b"Traceback" not in client.stderr.read()
    client.stderr.close()
    assert world.kinds("s")[-1] in ("paused", "message")


# -- gad run, through whoever has the spool -------------------------------------------------------


@pytest.fixture
def up(make: Callable[..., World]) -> Iterator[Callable[..., tuple[World, subprocess.Popen[bytes]]]]:
    """Start a daemon of its own process."""
    started: list[subprocess.Popen[bytes]] = []

    def start_up(script: Any, **settings: Any) -> tuple[World, subprocess.Popen[bytes]]:
        world = make(script, **settings)
        started.append(start(world.home, "up", stdout=subprocess.DEVNULL))
        wait_for(lambda: world.status(".daemon").get("state") == "ready" or started[-1].poll() is not None, 20)
        return world, started[-1]

    yield start_up
    for one in started:
        one.kill()
        one.communicate()


def by_task(body: Any) -> Any:
    text = last_text(body)
    return ASK if text.endswith("ask") else f"did {text[-20:]}"


def test_run_through_the_daemon(
    up: Callable[..., tuple[World, subprocess.Popen[bytes]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world, daemon = up(by_task)
    result = gad_run(world, "--name", "s", "the work")
    assert result.exit_code == exits.DONE, result.stderr
    assert result.stdout == world.text("s", "output.txt") and "did" in result.stdout
    assert str(tmp_path / "here") in world.server.requests[0].raw.decode()
    result = gad_run(world, "--json", "ask")
    assert (result.exit_code, json.loads(result.stdout)["question"]) == (exits.ASKING, "Which colour?")

    # A daemon that starts when it has just been looked for.
    looks = iter([False])
    monkeypatch.setattr(lock, "held", lambda spool: next(looks, True))
    result = gad_run(world, "--name", "late", "more work")
    assert result.exit_code == exits.DONE, result.stderr
    assert result.stdout == world.text("late", "output.txt")
    assert daemon.poll() is None


def test_run_waits_for_another_run_and_then_does_its_task(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(["ok"])
    other = contextlib.ExitStack()
    other.enter_context(SpoolLock(str(world.spool)))
    told = []

    def release(line: str) -> None:
        told.append(line)
        if line.startswith("another gad run has this spool"):
            other.close()

    monkeypatch.setattr(running, "say", release)
    monkeypatch.setattr(running, "_PATIENCE", 1)
    monkeypatch.setattr(follow, "_GRACE", 0.0)
    result = gad_run(world, "--name", "s", "go")
    assert (result.exit_code, result.stdout) == (exits.DONE, world.text("s", "output.txt")), result.stderr
    assert len(told) == 2


# -- a terminal -----------------------------------------------------------------------------------


class Terminal:
    """The side of a terminal on which a person sits."""

    def __init__(self) -> None:
        try:
            self.person, self.program = pty.openpty()
        except OSError as exc:
            pytest.skip(f"THE TERMINAL IS NOT TESTED: this machine gives out no pseudo-terminals ({exc})")
        self.seen = ""

    def until(self, text: str, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.person], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, self.seen
            self.seen += os.read(self.person, 4096).decode()
        self.seen = self.seen.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self.person, text.encode())

    def close(self) -> None:
        os.close(self.person)
        os.close(self.program)


@pytest.mark.parametrize("where", ["here", "daemon"])
def test_a_question_is_put_to_whom_sits_at_the_terminal(
    up: Callable[..., tuple[World, subprocess.Popen[bytes]]], make: Callable[..., World], where: str
) -> None:
    script = [ASK, "blue it is", ASK]
    world = make(script) if where == "here" else up(script)[0]
    terminal = Terminal()
    client = start(world.home, "run", "--name", "s", "paint", stdin=terminal.program, stderr=terminal.program)
    try:
        terminal.until("your answer, or 1 to 2: ")
        terminal.type("\n")
        terminal.until("the answer is empty")
        terminal.type("2\n")
        out, _ = client.communicate(timeout=20)
        terminal.until("session s: done")
        assert client.returncode == exits.DONE
        assert out.decode() == world.text("s", "output.txt")
        assert world.server.requests[1].text == "blue 蓝"

        client = start(world.home, "run", "--name", "t", "paint", stdin=terminal.program, stderr=terminal.program)
        terminal.until("your answer, or 1 to 2: ")
        terminal.type("\x04")
        client.communicate(timeout=20)
        terminal.until("answer with: gad reply t ...")
        assert client.returncode == exits.ASKING
    finally:
        client.kill()
        client.communicate()
        terminal.close()


# -- gad up ---------------------------------------------------------------------------------------


def test_up_says_what_it_does_and_stops_cleanly(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make_home(home)
    (home / "gad.yaml").write_text("model: claude\n")
    daemon = start(home, "up")
    try:
        assert daemon.stderr is not None
        first = [daemon.stderr.readline().decode().strip() for _ in range(5)]
        assert first[0] == f"gad: home {home}"
        assert first[1].startswith("gad: model claude (anthropic, ")
        assert first[2].startswith("gad: warning: no key for model claude: set ANTHROPIC_API_KEY")
        assert first[3].startswith(f"gad: ready; drop a task into {home}/spool/NAME/input.txt")
        assert held(str(home / "spool"))
        result = CliRunner().invoke(gad, ["--home", str(home), "up"])
        assert result.exit_code == exits.HOPELESS
        assert f"pid {daemon.pid}" in result.stderr
        daemon.send_signal(signal.SIGTERM)
        _, err = daemon.communicate(timeout=20)
        assert (daemon.returncode, err.decode().splitlines()) == (0, ["gad: stopped"])
        assert not held(str(home / "spool"))
    finally:
        daemon.kill()
        daemon.communicate()


def test_up_tells_every_mistake_of_its_settings(tmp_path: Path) -> None:
    make_home(tmp_path)
    (tmp_path / "gad.yaml").write_text("modle: x\nsessions: none\n")
    result = CliRunner().invoke(gad, ["--home", str(tmp_path), "up"])
    assert result.exit_code == exits.HOPELESS
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == ["gad.yaml:1", "gad.yaml:2"]


def test_a_third_signal_ends_it_at_once(up: Callable[..., tuple[World, subprocess.Popen[bytes]]]) -> None:
    world, daemon = up([STUBBORN])
    world.task("s")
    pid = world.home / "work" / "s" / "pid"
    wait_for(lambda: pid.exists() and pid.read_text().strip())
    try:
        daemon.send_signal(signal.SIGINT)
        wait_for(lambda: world.status(".daemon")["state"] == "draining")
        daemon.send_signal(signal.SIGINT)
        daemon.send_signal(signal.SIGTERM)  # signals of one kind that are not taken yet are one
        daemon.wait(timeout=20)
        assert daemon.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(pid.read_text()), signal.SIGKILL)
    wait_for(lambda: not alive(int(pid.read_text())))


# -- the lock -------------------------------------------------------------------------------------

PROBE = "import sys; from gad.spool.lock import held; print('x', flush=True)\nwhile True: held(sys.argv[1])"


def test_somebody_who_looks_for_a_daemon_is_never_taken_for_one(tmp_path: Path) -> None:
    with SpoolLock(str(tmp_path)):
        pass
    root = str(Path(__file__).parent.parent)
    probers = [
        subprocess.Popen([sys.executable, "-c", PROBE, str(tmp_path)], cwd=root, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for one in probers:
            assert one.stdout is not None and one.stdout.readline() == b"x\n"
        for _ in range(50):
            with SpoolLock(str(tmp_path)):
                pass
        assert all(one.poll() is None for one in probers)
    finally:
        for one in probers:
            one.kill()
            one.communicate()


def test_a_second_holder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with SpoolLock(str(tmp_path)), pytest.raises(SpoolLocked, match=f"pid {os.getpid()} "), SpoolLock(str(tmp_path)):
        pass
    with SpoolLock(str(tmp_path)):
        assert held(str(tmp_path))


def test_a_child_does_not_keep_the_lock_alive(tmp_path: Path) -> None:
    with SpoolLock(str(tmp_path)):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        assert not held(str(tmp_path))
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
