"""Plugins that do harm, in real children: each is contained, backed off from, disabled, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
from pathlib import Path

import pytest

from gad.triggers.process import MARK, Child
from tests.test_protocol import alive
from tests.test_trigger_host import Rig, scene
from tests.world import until

GOOD = "INTERVAL = 1\ndef check(): return {'text': 'fine', 'key': str(int(trigger.now()))}"


KINDS = {
    "import": ("import nothing_of_that_name", "it cannot be loaded: ModuleNotFoundError"),
    "syntax": ("def check(:", "it cannot be loaded: SyntaxError: invalid syntax (bad"),
    "exit": ("import os\nos._exit(7)", "its process ended with exit code 7"),
    "empty": ("x = 1", "it has neither check() nor on_event(event)"),
    "interval": ("INTERVAL = 'often'\ndef check(): pass", "INTERVAL is 'often'"),
    "watch": ("WATCH = [3]\ndef on_event(event): pass", "WATCH is [3]"),
    "submit-in-init": (
        "def init(options): trigger.submit('x')\ndef check(): pass",
        "it cannot be loaded: Refused: submit is for check",
    ),
    "init": ("def init(options): 1 / 0\ndef check(): pass", "ZeroDivisionError: division"),
    "check": ("\n\ndef check(): 1 / 0", "check() raised ZeroDivisionError: division by zero (line 3)"),
    "sys-exit": ("import sys\ndef check(): sys.exit()", "check() raised SystemExit"),
    "abort": ("import os\ndef check(): os.abort()", "its process ended by signal 6"),
    "state": ("def check(): trigger.state['x'] = {1}", "trigger.state is not what JSON can hold"),
    "options": ("def check(): return {'text': 'x', 'model': 'no'}", "no entry of gad.yaml's models"),
    "socket": (
        "import os, sys\ndef check(): os.write(int(sys.argv[1]), b'[1, 2]\\n')",
        "is not what the host and a child say",
    ),
} | {
    f"rubbish{n}": (f"def check(): return {value}", "check() returned")
    for n, value in enumerate(("42", "['a']", "{'text': 5}", "{'text': 'a', 'key': 5}", "object()", "b'text'"))
}  # fmt: skip


@pytest.mark.parametrize("steps", range(6))
def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path, steps: int) -> None:
    async def play() -> None:
        start = Child.start(environment=dict(os.environ), cwd=str(tmp_path), say=lambda line, error: None)
        task = asyncio.create_task(start)
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await task).end()

    asyncio.run(play())
    gc.collect()  # a process that nobody has ended is told of, and a warning is an error
    mine = f"{MARK}={os.getpid()}-".encode()
    assert not any(mine in environment(Path("/proc") / name) for name in os.listdir("/proc") if name.isdigit())


def environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def test_every_kind_of_failure_is_named_and_hurts_no_other(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        for name, (source, _) in KINDS.items():
            rig.plugin(f"bad-{name}", source)
        rig.plugin("good", GOOD)
        async with rig.running():
            for name, (_, reason) in KINDS.items():
                record = await rig.reaches(f"bad-{name}", lambda record: record["failures"])
                assert reason in record["error"], name
            [good] = await rig.made(1)
            assert good.startswith("good-")

    scene(tmp_path, play)


@pytest.mark.parametrize("kind", ["import", "check"])
def test_five_failures_in_a_row_disable_it_with_the_reason(tmp_path: Path, kind: str) -> None:
    async def play(rig: Rig) -> None:
        source, reason = KINDS[kind]
        rig.plugin("bad", source)
        async with rig.running():
            for n in range(1, 6):
                await rig.reaches("bad", lambda record, n=n: record["failures"] == n)  # type: ignore[misc]
                assert (rig.state / "bad.disabled").exists() is (n == 5)
                await rig.passes(2.0 ** (n - 1) - 0.01)
                assert rig.record("bad")["failures"] == n
                await rig.passes(61)
            record = await rig.reaches("bad", lambda record: record["status"] == "disabled")
            assert record["disabled"].startswith("5 failures in a row, the last: ") and reason in record["disabled"]
            rig.plugin("bad", GOOD)  # mended: it gets another chance
            await rig.reaches("bad", lambda record: record["status"] == "on" and record["sessions_today"] == 1)

    scene(tmp_path, play)


def test_failures_are_counted_in_a_row(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "x",
            """
            INTERVAL = 1
            def check():
                trigger.state["n"] = trigger.state.get("n", 0) + 1
                if trigger.state["n"] % 3:
                    raise OSError("the network")
            """,
        )
        async with rig.running():
            for n in range(1, 13):
                await rig.reaches("x", lambda record, n=n: record["plugin"].get("n") == n)  # type: ignore[misc]
                await rig.passes(400)
            record = await rig.reaches("x", lambda record: record["plugin"].get("n") == 13)
            assert record["status"] != "disabled" and record["failures"] <= 1

    scene(tmp_path, play)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import threading; threading.Event().wait()", "check() did not return within 0.5 s"),
        ("\n    while True: pass", "check() did not return within 0.5 s"),
        ("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()", "did not return"),
        ("x = ['y' * 2**24 for _ in range(4096)]", "check() raised MemoryError"),
    ],
    ids=["waits", "spins", "ignores TERM", "eats memory"],
)
def test_one_that_never_returns_or_eats_memory_hurts_nobody(tmp_path: Path, code: str, reason: str) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "bad",
            f"import os\ndef check():\n    open('pid', 'w').write(str(os.getpid()))\n    {code}",
            f"limits: {{check_seconds: {20 if 'Memory' in reason else 0.5}, memory_mb: 256}}\n",
        )
        rig.plugin("good", GOOD)
        async with rig.running():
            await rig.made(1)
            record = await rig.reaches("bad", lambda record: record["failures"])
            assert reason in record["error"]
            pid = int((rig.home / "pid").read_text())
            if "Memory" not in reason:
                assert not alive(pid)
        assert not alive(pid)

    scene(tmp_path, play)


def test_the_processor_is_limited_too(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        # A thread that goes on when check() has returned is in nobody's time limit.
        rig.plugin(
            "x",
            """
            import os, threading
            def spin():
                while True: pass
            def check():
                trigger.state["pid"] = os.getpid()
                threading.Thread(target=spin, daemon=True).start()
            """,
            "limits: {check_seconds: 0.1}\n",
        )
        async with rig.running():
            record = await rig.reaches("x", lambda record: record["failures"])
            assert record["error"] == "its process has used too much of the processor, and was ended"
            assert not alive(record["plugin"]["pid"])

    scene(tmp_path, play)


def test_what_a_plugin_forks_or_starts_is_ended_with_it(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "x",
            """
            import os, signal, subprocess, sys
            WAIT = [sys.executable, "-c", "import signal; signal.pause()"]
            def check():
                forked = os.fork()
                if not forked:
                    os.setsid()
                    signal.pause()
                returns = os.fork()
                if not returns:
                    return "from the fork"
                started = subprocess.Popen(WAIT).pid
                away = subprocess.Popen(WAIT, start_new_session=True).pid
                trigger.state["pids"] = [os.getpid(), forked, started, away]
                trigger.state["returned"] = returns
            """,
        )
        async with rig.running():
            record = await rig.reaches("x", lambda record: "pids" in record["plugin"])
            pids = record["plugin"]["pids"]
            assert all(alive(pid) for pid in pids)
            await until(lambda: not alive(record["plugin"]["returned"]))
            assert rig.sessions() == []  # a fork has no voice
            os.kill(pids[0], 9)
            await rig.reaches("x", lambda record: "by signal 9" in record["error"])
            await until(lambda: not any(alive(pid) for pid in pids))
            await rig.passes(60)
            record = await rig.reaches("x", lambda record: record["plugin"]["pids"] != pids)
        await until(lambda: not any(alive(pid) for pid in record["plugin"]["pids"]), 1)

    scene(tmp_path, play)


def test_a_lot_of_output_is_cut_and_goes_to_the_log_under_the_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "noisy",
            """
            import sys
            def check():
                print("a word")
                trigger.log("a warning")
                print("x" * 10_000_000)
                for n in range(100_000):
                    print("line", n)
                sys.stderr.buffer.write(b"not utf-8: \\xff\\n")
                trigger.state["over"] = True
            """,
        )
        async with rig.running():
            await rig.reaches("noisy", lambda record: record["plugin"].get("over"))

    with caplog.at_level(logging.INFO):
        scene(tmp_path, play)
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("INFO", "trigger noisy: a word") in told
    assert ("WARNING", "trigger noisy: a warning") in told
    assert ("WARNING", "trigger noisy: not utf-8: \ufffd") in told
    assert len(told) < 500 and max(len(line) for _, line in told) < 2100
    assert any("lines were left out" in line for _, line in told)


def test_an_on_done_that_raises_is_told_and_not_repeated(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "x",
            """
            INTERVAL = 1
            def check():
                trigger.state["checks"] = trigger.state.get("checks", 0) + 1
                trigger.submit("do", "a")
            def on_done(result):
                trigger.state["n"] = trigger.state.get("n", 0) + 1
                raise KeyError("of on_done")
            """,
        )
        async with rig.running():
            await rig.made(1)
            rig.end("x-a")
            record = await rig.reaches("x", lambda record: record["failures"])
            assert "on_done() raised KeyError: 'of on_done'" in record["error"]
            await rig.passes(60)
            record = await rig.reaches("x", lambda record: not record["failures"])
            assert record["plugin"]["n"] == 1 and record["rested"] == []

    scene(tmp_path, play)


def test_closing_the_host_in_the_middle_of_a_call_is_quick_and_leaves_nothing(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "x", "import os, signal\ndef check():\n    open('pid', 'w').write(str(os.getpid()))\n    signal.pause()"
        )
        async with rig.running():
            await until(lambda: (rig.home / "pid").exists() and (rig.home / "pid").read_text())
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 3
        assert not alive(int((rig.home / "pid").read_text()))

    scene(tmp_path, play)
