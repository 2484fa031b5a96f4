"""code_run and run_command: output, environment, and that nothing is left alive."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gad.core.cut import cut, mark
from gad.core.ports import Outcome, ToolContext
from gad.tools.code import CodeRun
from gad.tools.environment import child_environment
from gad.tools.process import run_command


def context(tmp_path: Path, emit: Callable[[str], None] = lambda text: None, **environment: str) -> ToolContext:
    cwd = tmp_path / "cwd"
    cwd.mkdir(exist_ok=True)
    base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    return ToolContext("s", "call/1", str(cwd), str(tmp_path / "work"), emit, base | environment)


LIMIT = ToolContext("", "", "", "", print).limit


def run(where: ToolContext, code: str, kind: str = "bash", **arguments: Any) -> Outcome:
    return asyncio.run(CodeRun().run({"type": kind, "code": code, **arguments}, where))


def dead(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.002)


def pids(path: Path, count: int) -> Callable[[], bool]:
    return lambda: path.exists() and len(path.read_text().split()) >= count


@pytest.mark.parametrize(
    ("kind", "code", "status", "exit_code", "output"),
    [
        ("bash", "echo 你好 🎉; echo err >&2", "ok", 0, "你好 🎉\nerr\n"),
        ("bash", "exit 3", "error", 3, ""),
        ("bash", "kill -9 $$", "error", -9, ""),
        ("bash", "cat; echo end", "ok", 0, "end\n"),
        ("bash", "printf 'a\\xffb'", "ok", 0, "a\ufffdb"),
        ("python", "print('你好 🎉')", "ok", 0, "你好 🎉\n"),
        ("python", "import sys\nsys.exit(4)", "error", 4, ""),
        ("python", "import os, beside\nprint(beside.x, os.path.basename(os.getcwd()))", "ok", 0, "7 cwd\n"),
    ],
)
def test_what_a_run_gives(tmp_path: Path, kind: str, code: str, status: str, exit_code: int, output: str) -> None:
    where = context(tmp_path, LANG="C.UTF-8")
    Path(where.cwd, "beside.py").write_text("x = 7\n")
    outcome = run(where, code, kind)
    assert (outcome.status, outcome.meta["exit"], outcome.output) == (status, exit_code, output)
    assert 0 <= outcome.meta["seconds"] < 30
    assert os.listdir(where.work) == []  # the script is gone


def test_a_traceback_names_the_line(tmp_path: Path) -> None:
    outcome = run(context(tmp_path), "x = 1\n\nraise ValueError('boom')\n", "python")
    assert outcome.status == "error"
    assert "line 3, in <module>" in outcome.output
    assert "raise ValueError('boom')" in outcome.output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({"code": " "}, "empty"), ({"code": "a\0b"}, "NUL"), ({"code": "1", "timeout": 0}, "timeout"),
     ({"code": "\ud800"}, "could not run")],
)  # fmt: skip
def test_what_cannot_run_is_an_error_result(tmp_path: Path, arguments: dict[str, Any], reason: str) -> None:
    outcome = run(context(tmp_path), **arguments)
    assert outcome.status == "error"
    assert reason in outcome.output


def test_a_missing_cwd_is_an_error_result(tmp_path: Path) -> None:
    where = context(tmp_path)
    os.rmdir(where.cwd)
    assert "No such file" in run(where, "true").output


def test_output_is_streamed_while_it_runs_and_characters_stay_whole(tmp_path: Path) -> None:
    seen: list[str] = []
    go = tmp_path / "cwd" / "go"

    def emit(text: str) -> None:
        seen.append(text)
        if "".join(seen) == "你":
            go.touch()  # only output that came before the end lets the command end

    code = "printf '\\xe4\\xbd'; sleep 0.02; printf '\\xa0'; while [ ! -e go ]; do sleep 0.01; done; echo 🎉"
    outcome = run(context(tmp_path, emit), code, timeout=20)
    assert outcome.status == "ok"
    assert outcome.output == "".join(seen) == "你🎉\n"


def test_the_child_sees_exactly_the_given_environment(tmp_path: Path) -> None:
    base = {
        "PATH": os.environ["PATH"], "HOME": "/h", "SSH_AUTH_SOCK": "/s", "PWD": "/p", "MONKEY": "1", "KEYBOARD": "us",
        "OPENAI_API_KEY": "x", "OPENAI_ORG": "x", "ANTHROPIC_API_KEY": "x", "MY_API_KEY": "x", "GH_TOKEN": "x",
        "GITHUB_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ACCESS_KEY_ID": "x", "AWS_SESSION_TOKEN": "x",
        "DB_PASSWORD": "x", "PGPASSWORD": "x", "client_secret": "x", "SSH_PRIVATE_KEY": "x", "NOTIFY_SOCKET": "x",
        "GOOGLE_APPLICATION_CREDENTIALS": "x",
    }  # fmt: skip
    environment = child_environment(base, {"DEPLOY_TOKEN": "wanted"})
    kept = {name for name in base if base[name] != "x"}
    assert {name for name in base if name in environment} == kept
    assert environment["DEPLOY_TOKEN"] == "wanted"
    assert environment["LANG"] == "C.UTF-8"
    where = context(tmp_path)
    exact = ToolContext("s", "c", where.cwd, where.work, where.emit, environment)
    seen = dict(line.split("=", 1) for line in run(exact, "env").output.splitlines())
    assert {name: seen[name] for name in environment if name != "PWD"} == {
        name: value for name, value in environment.items() if name != "PWD"
    }
    assert set(seen) - set(environment) <= {"PWD", "OLDPWD", "SHLVL", "_"}


def test_long_output_is_cut_in_the_middle_and_kept_whole_in_a_file(tmp_path: Path) -> None:
    where = context(tmp_path)
    outcome = run(where, "for i in range(5000): print(i, '中')", "python")
    whole = "".join(f"{i} 中\n" for i in range(5000))
    [name] = os.listdir(where.work)
    path = os.path.join(where.work, name)
    assert Path(path).read_text(encoding="utf-8") == whole
    assert outcome.saved == path
    assert outcome.output == cut(whole, LIMIT, path)
    assert len(outcome.output) <= LIMIT


def test_output_of_just_the_limit_is_not_cut(tmp_path: Path) -> None:
    where = context(tmp_path)
    outcome = run(where, f"print('x' * {LIMIT}, end='')", "python")
    assert outcome.output == "x" * LIMIT


@pytest.mark.parametrize("limit", [60, 500, 3000, 30_000])
def test_the_context_says_how_much_the_model_gets(tmp_path: Path, limit: int) -> None:
    where = dataclasses.replace(context(tmp_path), limit=limit)
    outcome = run(where, "for i in range(2000): print(i, '中')", "python")
    whole = "".join(f"{i} 中\n" for i in range(2000))
    assert outcome.output == cut(whole, limit, outcome.saved)
    assert len(outcome.output) <= limit
    assert Path(outcome.saved).read_text(encoding="utf-8") == whole


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [("x" * 800, 10_000, False), ("x" * 801, 10_000, True), ("x" * 300, 299, True), ("x" * 300, 300, False),
     ("7" * 150, 10_000, False), ("7" * 700, 10_000, True), ("中" * 150, 10_000, False), ("中" * 400, 10_000, True)],
)  # fmt: skip
def test_what_may_be_cut_later_is_kept_whole_in_a_file(tmp_path: Path, text: str, limit: int, kept: bool) -> None:
    where = dataclasses.replace(context(tmp_path), limit=limit)
    halves = f"import sys, time\nfor half in ({text[:100]!r}, {text[100:]!r}): print(half, end='', flush=True)"
    outcome = run(where, halves, "python")
    assert len(outcome.output) == min(len(text), limit)
    assert bool(outcome.saved) == kept == bool(os.listdir(where.work))
    if kept:
        assert Path(outcome.saved).read_text(encoding="utf-8") == text


def test_a_failure_keeps_its_output_too(tmp_path: Path) -> None:
    outcome = run(context(tmp_path), "seq 1000; exit 3")
    assert outcome.status == "error"
    assert Path(outcome.saved).read_text() == outcome.output == "".join(f"{n}\n" for n in range(1, 1001))


def test_code_that_holds_a_cut_mark_is_not_run(tmp_path: Path) -> None:
    where = context(tmp_path)
    outcome = run(where, f"touch ran\necho a\n{mark(5, 10, '/w/a.txt')}\necho b")
    assert outcome.status == "error"
    assert "code holds a cut mark" in outcome.output
    assert "/w/a.txt" in outcome.output
    assert os.listdir(where.cwd) == []
    assert run(where, "echo '[... {gone} of {total} characters cut ...]'").status == "ok"


def test_a_flood_is_bounded_in_the_viewer_and_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gad.tools.capture.SPILL_LIMIT", 300_000)
    monkeypatch.setattr("gad.tools.capture.EMIT_LIMIT", 20_000)
    emitted: list[str] = []
    where = context(tmp_path, emitted.append)
    outcome = run(where, "yes abcdefg | head -c 40000000; echo end")
    [name] = os.listdir(where.work)
    assert os.path.getsize(os.path.join(where.work, name)) == 300_000
    assert 20_000 < len("".join(emitted)) < 20_200
    assert "of 40,000,004 characters cut; the first 300,000 are in" in outcome.output
    assert outcome.output.endswith("abcdefg\nend\n")


def test_a_background_child_neither_blocks_nor_dies(tmp_path: Path) -> None:
    where = context(tmp_path)
    touch = Path(where.cwd, "go").touch

    async def scenario() -> None:
        began = time.monotonic()
        # It writes again after the call has returned: no SIGPIPE may end it.
        code = "(while [ ! -e go ]; do sleep 0.01; done; echo late; echo alive > proof; sleep 100) & echo $!"
        outcome = await CodeRun().run({"type": "bash", "code": code, "timeout": 30}, where)
        assert time.monotonic() - began < 5
        assert outcome.status == "ok"
        child = int(outcome.output)
        group = outcome.meta["background"]
        assert os.getpgid(child) == group
        try:
            touch()
            await until(Path(where.cwd, "proof").exists)
            assert not dead(child)
        finally:
            os.killpg(group, signal.SIGKILL)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "code",
    [
        "sleep 100 & echo $! >> p; (sleep 100 & echo $! >> p; wait) & echo $! >> p; echo $$ >> p; wait",
        # `timeout` and job control make process groups of their own.
        "timeout 100 sleep 100 & echo $! >> p; set -m; sleep 100 & echo $! >> p; echo $$ $$ >> p; wait",
    ],
)
def test_cancelling_kills_the_whole_session_at_once(tmp_path: Path, code: str) -> None:
    where = context(tmp_path)
    listed = Path(where.cwd, "p")

    async def scenario() -> float:
        task = asyncio.create_task(CodeRun().run({"type": "bash", "code": code}, where))
        await until(pids(listed, 4))
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - began

    took = asyncio.run(scenario())
    assert all(dead(int(pid)) for pid in listed.read_text().split())
    assert took < 1.5  # that is: without waiting for KILL
    assert os.listdir(where.work) == []


def test_what_ignores_term_gets_kill_and_more_cancelling_changes_nothing(tmp_path: Path) -> None:
    where = context(tmp_path)
    listed = Path(where.cwd, "p")
    code = "trap '' TERM; sleep 100 & echo $! $$ > p; wait"

    async def scenario() -> float:
        task = asyncio.create_task(CodeRun().run({"type": "bash", "code": code}, where))
        await until(pids(listed, 2))
        began = time.monotonic()
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0.02)
            assert task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - began

    took = asyncio.run(scenario())
    assert all(dead(int(pid)) for pid in listed.read_text().split())
    assert 1.9 < took < 4


def test_a_timeout_kills_and_returns_what_was_said(tmp_path: Path) -> None:
    where = context(tmp_path)
    outcome = run(where, "echo $$; sleep 100 & echo $!; wait", timeout=0.3)
    assert outcome.status == "error"
    assert outcome.meta["timeout"] == 0.3
    assert outcome.meta["exit"] == -signal.SIGTERM
    assert outcome.meta["seconds"] < 5
    first, second = map(int, outcome.output.split())
    assert dead(first)
    assert dead(second)


def test_a_viewer_that_fails_ends_the_command(tmp_path: Path) -> None:
    def emit(text: str) -> None:
        raise OSError(28, "No space left on device")

    where = context(tmp_path, emit)
    outcome = run(where, "echo $$ > p; echo hi; sleep 100")
    assert outcome.status == "error"
    assert "No space left" in outcome.output
    assert dead(int(Path(where.cwd, "p").read_text()))


def test_no_descriptor_and_no_thread_is_left(tmp_path: Path) -> None:
    where = context(tmp_path)

    async def scenario() -> None:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            await CodeRun().run({"type": "bash", "code": "echo hi"}, where)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(CodeRun().run({"type": "bash", "code": "sleep 100"}, where), 0.05)
        await CodeRun().run({"type": "bash", "code": "sleep 100", "timeout": 0.05}, where)
        assert len(os.listdir("/proc/self/fd")) == before
        assert threading.active_count() == 1

    asyncio.run(scenario())


def test_run_command_serves_a_check_too(tmp_path: Path) -> None:
    finished = asyncio.run(
        run_command(
            ["bash", "-c", "echo no; exit 7"],
            cwd=str(tmp_path),
            environment={"PATH": os.environ["PATH"]},
            timeout=30,
            emit=lambda text: None,
            spill_path=str(tmp_path / "deep" / "spill.txt"),
        )
    )
    assert (finished.exit, finished.output, finished.timed_out, finished.background) == (7, "no\n", False, None)
    assert finished.saved == ""
    with pytest.raises(FileNotFoundError):
        asyncio.run(
            run_command(
                ["no-such-program"], cwd=str(tmp_path), environment={}, timeout=1, emit=print, spill_path="/dev/null"
            )
        )


def test_the_tests_can_tell_dead_from_alive() -> None:
    with subprocess.Popen(["sleep", "100"]) as child:
        assert not dead(child.pid)
        child.kill()
    assert dead(child.pid)
